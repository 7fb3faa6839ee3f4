package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
)

// prunedCopy returns c with pruned tables: the rows of each look-up but the first and every
// fifth one are its baseline, and so is a part of the others.
func prunedCopy(t *testing.T, c *Checkpoint) *Checkpoint {
	t.Helper()
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Architecture.Spans() {
		for row := range s.Rows {
			for k := range s.Dim {
				if row%5 > 0 || row > 0 && k%2 == 0 {
					table[s.Entry+row*s.Dim+k] = float32(s.Baseline+k) / 64
				}
			}
		}
	}
	return c.WithEmbedding(table)
}

// keptOf returns what pruned tables keep, as float32, or nil unless they become small.
func keptOf(t *testing.T, c *Checkpoint, small bool) *Kept {
	t.Helper()
	if !small {
		return nil
	}
	dropped, baseline, err := c.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	return &Kept{Dropped: dropped, Baseline: baseline, Values: compact.Float32}
}

// An .onnx file with pruned tables is read as the same model as the tables, for each export
// and both forms. Without pruning it has the same bytes.
func TestWriteONNX(t *testing.T) {
	long.Test(t)
	for _, e := range readExports(t) {
		path := filepath.Join(exports, e.File)
		c, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), e.File)
		if _, err := WriteONNX(out, c, ONNXOptions{}); err != nil {
			t.Fatalf("%s: %v", e.File, err)
		}
		for _, extension := range []string{"", ".data"} {
			want, err := os.ReadFile(path + extension)
			if os.IsNotExist(err) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(out + extension); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s%s has other bytes without pruning: %v", e.File, extension, err)
			}
		}
		pruned := prunedCopy(t, c)
		for _, small := range []bool{false, true} {
			from := pruned
			if small {
				from = c // of which only the kept entries count
			}
			size, err := WriteONNX(out, from, ONNXOptions{Kept: keptOf(t, pruned, small)})
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			again, err := Read(out)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			if again.Digest() != pruned.Digest() || again.Recognized != c.Recognized {
				t.Errorf("%s, small %v: the file has another digest than the model", e.File, small)
			}
			if size.Bytes == 0 || size.Before == 0 || size.Tables == 0 || small && size.Bytes > size.Before+64 {
				t.Errorf("%s, small %v: %+v", e.File, small, size)
			}
		}
	}
}

// ONNXBytes returns the bytes of the file that WriteONNX writes, or some dozens for each table more, with weights in 8 bits and with a
// calibration, for exports in one file. With external data, which shift, it does not fail.
func TestONNXBytes(t *testing.T) {
	weights := 0
	for _, e := range readExports(t) {
		if !strings.HasPrefix(e.File, "fuxictr-d") {
			continue
		}
		c, err := Read(filepath.Join(exports, e.File))
		if err != nil {
			t.Fatal(err)
		}
		k := keptOf(t, prunedCopy(t, c), true)
		if k.Weights8, err = c.Weights8(); err != nil {
			t.Fatal(err)
		}
		for _, o := range []ONNXOptions{{Kept: k}, {Kept: k, Scale: 2, Offset: 1}} {
			if o.Scale != 0 && c.CheckCalibration() != nil {
				continue
			}
			bytes, err := c.ONNXBytes(o.Scale != 0)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			most, _, err := bytes(k)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			size, err := WriteONNX(filepath.Join(t.TempDir(), e.File), c, o)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			if weights += len(k.Weights8); !c.External() && (size.Bytes > most || size.Bytes < most-64*int64(size.Tables)) {
				t.Errorf("%s, calibrated %v: %d bytes, expected %d", e.File, o.Scale != 0, size.Bytes, most)
			}
		}
	}
	if weights == 0 {
		t.Error("no weight was in 8 bits")
	}
}

// A calibrated .onnx file is read with the calibrated logits, for each export that ends in a
// logit, a Sigmoid or a Softmax, and both forms, also if it is calibrated twice. Another graph
// is refused, and the previous file stays.
func TestWriteONNXCalibrated(t *testing.T) {
	long.Test(t)
	calibrated, refused := 0, 0
	for _, e := range readExports(t) {
		path := filepath.Join(exports, e.File)
		c, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		out := filepath.Join(folder, e.File)
		if err := c.CheckCalibration(); err != nil {
			refused++
			if !fault.IsInput(err) || !strings.Contains(err.Error(), "the graph cannot be calibrated: ") || !strings.Contains(e.File, "-mmoe.") && !strings.HasPrefix(e.File, "entire-space.") && !strings.HasPrefix(e.File, "regions.") {
				t.Errorf("%s: %v", e.File, err)
			}
			if err := os.WriteFile(out, []byte("previous"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, again := WriteONNX(out, c, ONNXOptions{Scale: .5}); again == nil || again.Error() != err.Error() {
				t.Errorf("%s: WriteONNX returned %v", e.File, again)
			}
			if got, err := os.ReadFile(out); err != nil || string(got) != "previous" {
				t.Errorf("%s: the previous file is %q, %v", e.File, got, err)
			}
			continue
		}
		calibrated++
		pruned := prunedCopy(t, c)
		rows := e.rowsOf(t, c)
		logits := func(c *Checkpoint) []float64 {
			m, err := c.Model()
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			all := make([]float64, rows.Len())
			m.NewScorer().Logits(all, rows)
			return all
		}
		folded, _, err := pruned.Calibrated(.5, 1)
		if err != nil {
			t.Fatal(err)
		}
		before, want := logits(pruned), logits(folded)
		if folded.Architecture.Kind == model.FM || folded.Architecture.Kind == model.DeepFM {
			want = nil // its table is scaled too, so its baseline would be
			for _, z := range before {
				want = append(want, .5*z+1)
			}
		}
		for _, small := range []bool{false, true} {
			if _, err := WriteONNX(out, pruned, ONNXOptions{Kept: keptOf(t, pruned, small), Scale: .5, Offset: 1}); err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			again, err := Read(out)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			twice := filepath.Join(folder, "twice.onnx")
			if _, err := WriteONNX(twice, again, ONNXOptions{Scale: 4, Offset: -1}); err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			last, err := Read(twice)
			if err != nil {
				t.Fatalf("%s: %v", e.File, err)
			}
			once, both := logits(again), logits(last)
			for i, z := range before {
				if most := 1e-6 * max(1, math.Abs(z)); !(math.Abs(once[i]-want[i]) <= most) || !(math.Abs(both[i]-(2*z+3)) <= 8*most) {
					t.Fatalf("%s, small %v, row %d: logit %v and %v, expected %v and %v", e.File, small, i, once[i], both[i], want[i], 2*z+3)
				}
			}
		}
	}
	if calibrated < 100 || refused != 8 {
		t.Errorf("%d graphs were calibrated and %d refused", calibrated, refused)
	}
	c, err := Read(filepath.Join(exports, "ncf.legacy.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteONNX(filepath.Join(t.TempDir(), "out.onnx"), c, ONNXOptions{Scale: 1e300}); !fault.IsInput(err) {
		t.Errorf("calibration beyond the range of float32: %v", err)
	}
}

// The parts of the tables have the names of the tables in the file.
func TestParts(t *testing.T) {
	names := func(file string) (text string) {
		c, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range c.Parts() {
			text += fmt.Sprintf("%s %d+%d ", p.Name[max(0, len(p.Name)-20):], p.From, p.Rows)
		}
		return text
	}
	graph := filepath.Join(t.TempDir(), "graph.safetensors")
	c, err := Read(filepath.Join(exports, "ncf.dynamo.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteDense(graph, c); err != nil {
		t.Fatal(err)
	}
	joint := filepath.Join(exports, "pytorch-fm-deepfm.legacy.onnx")
	if got := names(joint); !strings.Contains(got, "ding.weight 7+11 ") || !strings.HasSuffix(got, "27+3 ") {
		t.Errorf("parts of a joint table: %s", got)
	}
	if got := names(filepath.Join(exports, "fuxictr-deepfm.legacy.onnx")); strings.Count(got, " 0+") != 5 || !strings.Contains(got, "item.weight 0+11") {
		t.Errorf("parts of five tables: %s", got)
	}
	if got, want := names(graph), names(filepath.Join(exports, "ncf.dynamo.onnx")); got != want {
		t.Errorf("parts of a converted graph: %s, expected %s", got, want)
	}
}

// A model of another file, or of a file that has changed, is not written, and the previous
// file stays.
func TestWriteONNXRefused(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "m.onnx")
	data, err := os.ReadFile(filepath.Join(exports, "ncf.legacy.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, "out.onnx")
	if err := os.WriteFile(out, []byte("previous"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteONNX(out, c, ONNXOptions{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "the file changed while it was in use") {
		t.Errorf("a changed file: %v", err)
	}
	dense := filepath.Join(folder, "m.safetensors")
	if _, err := WriteDense(dense, c); err != nil {
		t.Fatal(err)
	}
	if c, err = Read(dense); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteONNX(out, c, ONNXOptions{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "is written from an .onnx file") {
		t.Errorf("a safetensors file: %v", err)
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != "previous" {
		t.Errorf("the previous file is %q, %v", got, err)
	}
}

// Files names the external data of an .onnx file.
func TestFilesOfONNX(t *testing.T) {
	path := filepath.Join(exports, "ncf.external.onnx")
	if files := Files(path); !slices.Contains(files, path+".data") || files[len(files)-1] != path {
		t.Errorf("%q", files)
	}
	if files := Files("absent.onnx"); !slices.Contains(files, "absent.onnx.data") {
		t.Errorf("%q", files)
	}
}

// With encoded values the rows of pads keep their bits, and other kept entries move by at most half a step of their field.
func TestEncodedONNX(t *testing.T) {
	long.Test(t)
	pads := 0
	for _, e := range readExports(t) {
		c, err := Read(filepath.Join(exports, e.File))
		if err != nil {
			t.Fatal(err)
		}
		a := &c.Architecture
		out := filepath.Join(t.TempDir(), e.File)
		if _, err := WriteONNX(out, c, ONNXOptions{Kept: &Kept{Dropped: make([]bool, a.Parameters()), Baseline: a.Zero(), Values: compact.Int8}}); err != nil {
			t.Fatalf("%s: %v", e.File, err)
		}
		again, err := Read(out)
		if err != nil {
			t.Fatalf("%s: %v", e.File, err)
		}
		was, err := c.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		now, err := again.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range a.Spans() {
			from, to := s.Entries()
			half := float64(slices.Max(was[from:to])-slices.Min(was[from:to])) / 255 * .501
			for i := from; i < to; i++ {
				_, pad := slices.BinarySearch(a.FixedRows(), s.Row+(i-from)/s.Dim)
				if pad {
					pads++
				}
				if e := math.Abs(float64(now[i]) - float64(was[i])); e > half+1e-7 || pad && e > 0 {
					t.Fatalf("%s: entry %d is %v, expected %v, pad %v", again.name, i, now[i], was[i], pad)
				}
			}
		}
	}
	if pads == 0 {
		t.Error("no export has a pad")
	}
}
