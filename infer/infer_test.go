package infer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"shaver/infer"
	"shaver/infer/infertest"
	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
)

// read reads a golden checkpoint.
func read(t testing.TB, name string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Read(filepath.Join("..", "testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mask drops each of n entries with probability t.
func mask(n int, t float64) []bool {
	r := rand.New(rand.NewPCG(1, 2))
	dropped := make([]bool, n)
	for i := range dropped {
		dropped[i] = r.Float64() < t
	}
	return dropped
}

// write writes c in compact form. It returns the path, and a dense checkpoint of the same
// model.
func write(t testing.TB, c *checkpoint.Checkpoint, dropped []bool, baseline model.Baseline, v compact.Encoding) (string, *checkpoint.Checkpoint) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compact.safetensors")
	if _, err := checkpoint.WriteCompact(path, c, dropped, baseline, v); err != nil {
		t.Fatal(err)
	}
	inflated, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if v != compact.Float32 {
		return path, inflated
	}
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	book := c.Architecture.Book(baseline)
	for j, s := range book.Spans {
		from, to := s.Entries()
		for at := from; at < to; at++ {
			if dropped[at] {
				table[at] = book.Of(j, (at-from)/s.Dim)[(at-from)%s.Dim]
			}
		}
	}
	return path, c.WithEmbedding(table)
}

// rowsOf returns n random rows with the given number of dense inputs, as local and as
// global ids. Lengths are those of the fields; nil means that no field is a list.
func rowsOf(sizes, lengths []int, inputs, n int) ([]int32, *model.Rows) {
	if lengths == nil {
		lengths = slices.Repeat([]int{1}, len(sizes))
	}
	r := rand.New(rand.NewPCG(3, 4))
	var local []int32
	rows := &model.Rows{Inputs: inputs, Number: make([]int64, n), Label: make([]float32, n)}
	offsets := model.Offsets(sizes)
	for _, length := range lengths {
		rows.Width += length
	}
	for range n {
		for j, size := range sizes {
			for range lengths[j] {
				local = append(local, r.Int32N(int32(size)))
				rows.Features = append(rows.Features, local[len(local)-1]+offsets[j])
			}
		}
		for range inputs {
			rows.Dense = append(rows.Dense, float32(r.NormFloat64()))
		}
	}
	return local, rows
}

// checkLogits compares the file's logits with those of the dense checkpoint.
func checkLogits(t *testing.T, path string, dense *checkpoint.Checkpoint) {
	t.Helper()
	want, err := dense.Model()
	if err != nil {
		t.Fatal(err)
	}
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, rows := rowsOf(m.Sizes(), m.Lengths(), len(m.DenseInputs()), 150)
	a, b := make([]float64, rows.Len()), make([]float64, rows.Len())
	if err := m.Logits(a, ids, rows.Dense); err != nil {
		t.Fatal(err)
	}
	want.NewScorer().Logits(b, rows)
	if !slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }) {
		t.Errorf("the compact file has logits %v, the pruned dense model %v", a, b)
	}
	// A row is NaN if a softmax masks all of it, which random lists that are empty may do.
	b = slices.DeleteFunc(b, math.IsNaN)
	if distinct := slices.Compact(slices.Sorted(slices.Values(b))); len(distinct) == 0 || len(b) < len(a)*3/4 {
		t.Errorf("the pruned dense model has logits %v", b)
	}
}

// readExport reads an exported model of any framework as a model of Kind Graph.
func readExport(t *testing.T, file string) *checkpoint.Checkpoint {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(file, ".onnx") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Output string }
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.ReadPart(file, checkpoint.Options{Generic: true, ONNX: dissect.Options{Output: said.Output}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Every exported model gives exactly the logits of its pruned dense tables, with all
// encodings. Among the models are AutoInt, DCNv2 and xDeepFM of several frameworks, models
// with dense inputs, models with tables of several widths, and models with lists.
func TestSameLogitsOfExports(t *testing.T) {
	long.Heavy(t)
	files, err := filepath.Glob("../testdata/onnx/*.onnx")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d exports (%v)", len(files), err)
	}
	dense, several, lists := 0, 0, 0
	for _, file := range files {
		if strings.Contains(file, "-batch4") { // its nodes work for four rows only
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".onnx"), func(t *testing.T) {
			c := readExport(t, file)
			a := &c.Architecture
			if a.Kind != model.Graph {
				t.Fatalf("the kind is %s", a.Kind)
			}
			if len(a.Dense) > 0 {
				dense++
			}
			if !a.Plain() {
				several++
			}
			if len(a.Lists) > 0 {
				lists++
			}
			baseline := infertest.Words(a)
			for i, v := range compact.Encodings() {
				dropped := mask(a.Parameters(), []float64{0.5, 0.9, 1}[i])
				keepPads(c, dropped)
				path, pruned := write(t, c, dropped, baseline, v)
				checkLogits(t, path, pruned)
			}
			whole := filepath.Join(t.TempDir(), "dense.safetensors")
			if _, err := checkpoint.WriteDense(whole, c); err != nil {
				t.Fatal(err)
			}
			checkLogits(t, whole, c)
		})
	}
	if dense < 20 || several < 5 || lists < 14 {
		t.Errorf("%d models with dense inputs, %d with several tables and %d with lists", dense, several, lists)
	}
}

// keepPads marks the rows of pads as kept.
func keepPads(c *checkpoint.Checkpoint, dropped []bool) {
	shape := c.Architecture.Shape()
	for _, row := range c.Architecture.FixedRows() {
		from, to := shape.Row(row)
		clear(dropped[from:to])
	}
}

// A compact AutoInt that keeps everything has the logits of onnxruntime for the same ids and
// dense values.
func TestExportedLogits(t *testing.T) {
	file := "../testdata/onnx/deepctr-torch-autoint.dynamo.onnx"
	c := readExport(t, file)
	path, _ := write(t, c, make([]bool, c.Architecture.Parameters()), c.Architecture.Zero(), compact.Float32)
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	text, err := os.ReadFile(strings.TrimSuffix(file, ".onnx") + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		IDs    [][]int32
		Values [][]float32
		Logits []float64
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	got := make([]float64, len(said.IDs))
	if err := m.Logits(got, slices.Concat(said.IDs...), slices.Concat(said.Values...)); err != nil {
		t.Fatal(err)
	}
	for i, logit := range got {
		if math.Abs(logit-said.Logits[i]) > 2e-6 || logit == 0 {
			t.Errorf("row %d has the logit %v, onnxruntime gives %v", i, logit, said.Logits[i])
		}
	}
	if names := m.DenseInputs(); !slices.Equal(names, []string{"x[5]", "x[6]"}) {
		t.Errorf("dense inputs %q", names)
	}
}

// A file with rows of different widths and an int8 network has, to the last bit, the logits of the dense
// model with the same values, which is what evaluate computes.
func TestSameLogitsOfMixed(t *testing.T) {
	for _, c := range []*checkpoint.Checkpoint{read(t, "dcn-mix.pth"), readExport(t, "../testdata/onnx/recbole-autoint.dynamo.onnx"), readExport(t, "../testdata/histories/din.onnx")} {
		a := &c.Architecture
		types := map[string]checkpoint.DType{}
		for _, key := range c.Packable() {
			types[key] = checkpoint.I8
		}
		packed, err := c.Pack(types)
		if err != nil || len(types) == 0 {
			t.Fatalf("%d packed tensors: %v", len(types), err)
		}
		p := &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 2, Origin: -.5, Step: .3}, {Bits: 3, Origin: -1, Step: .25}, {Bits: 8, Origin: -2, Step: .02}, {Bits: 16}, {Bits: 32}}}
		dropped := mask(a.Parameters(), .7)
		for _, s := range a.Spans() {
			for i := range s.Rows {
				p.Rows = append(p.Rows, uint8((s.Row+i)%5))
			}
		}
		shape := a.Shape()
		for _, row := range a.FixedRows() {
			p.Rows[row] = 4
			from, to := shape.Row(row)
			clear(dropped[from:to])
		}
		path := filepath.Join(t.TempDir(), "mixed.safetensors")
		if _, err := checkpoint.WriteMixed(path, packed, dropped, infertest.Words(a), p); err != nil {
			t.Fatal(err)
		}
		back, err := checkpoint.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		table, err := back.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		checkLogits(t, path, packed.WithEmbedding(table))
	}
}

// A head has the words of all rows, so that a store has kept entries only: a row that fetch leaves alone reads its word.
func TestHeadWithWords(t *testing.T) {
	c := read(t, "fm.pth")
	a := &c.Architecture
	path, _ := write(t, c, slices.Repeat([]bool{true}, a.Parameters()), infertest.Words(a), compact.Float32)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := infer.OpenHead("head", data)
	if err != nil {
		t.Fatal(err)
	}
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var ids []int32
	for i := range slices.Max(a.FieldDims) {
		for _, n := range a.FieldDims {
			ids = append(ids, int32(i%n))
		}
	}
	got, want := make([]float64, len(ids)/a.Fields()), make([]float64, len(ids)/a.Fields())
	err = h.Logits(got, ids, nil, func([]infer.Row) error { return nil })
	if err := errors.Join(err, m.Logits(want, ids, nil)); err != nil || !slices.Equal(got, want) {
		t.Errorf("logits %v, expected %v, %v", got, want, err)
	}
}

// The lengths and pads of lists are those of the model, and ids of the wrong number are
// refused.
func TestLists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if _, err := checkpoint.WriteDense(path, readExport(t, "../testdata/onnx/torch-rechub-youtube.dynamo.onnx")); err != nil {
		t.Fatal(err)
	}
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Lengths(); !slices.Equal(got, []int{1, 1, 1, 4}) {
		t.Errorf("lengths %v", got)
	}
	if got := m.Pads(); !slices.Equal(got, []int{-1, -1, -1, 0}) {
		t.Errorf("pads %v", got)
	}
	dst := make([]float64, 1)
	if err := m.Logits(dst, []int32{1, 2, 3, 4}, nil); err == nil || !strings.Contains(err.Error(), "4 ids for 1 rows of 7 ids") {
		t.Errorf("error %v", err)
	}
	if err := m.Logits(dst, []int32{1, 2, 3, 4, 5, 11, 0}, nil); err == nil || !strings.Contains(err.Error(), "row 0 has id 11 in field 3: expected 0 to 10") {
		t.Errorf("error %v", err)
	}
	if err := m.Logits(dst, []int32{1, 2, 3, 4, 5, 0, 0}, nil); err != nil || dst[0] == 0 {
		t.Errorf("logit %v, error %v", dst[0], err)
	}
}

// A model has the names that its file gives the fields: those of the dataset, or else those of the graph.
func TestFields(t *testing.T) {
	unnamed, named := read(t, "fm.pth"), read(t, "fm.pth")
	for _, name := range []string{"user", "item", "hour"} {
		named.Identities = append(named.Identities, model.Identity{Name: name, Vocabulary: model.OwnIDs})
	}
	for _, test := range []struct {
		c    *checkpoint.Checkpoint
		want []string
	}{
		{unnamed, nil},
		{named, []string{"user", "item", "hour"}},
		{readExport(t, "../testdata/onnx/deepctr-torch-autoint.dynamo.onnx"), []string{"x[0]", "x[1]", "x[2]", "x[3]", "x[4]"}},
	} {
		a := &test.c.Architecture
		path, _ := write(t, test.c, make([]bool, a.Parameters()), a.Zero(), compact.Float32)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := infer.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer mapped.Close()
		loaded, err := infer.OpenBytes(path, data)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*infer.Model{mapped, loaded} {
			if got := m.Fields(); !slices.Equal(got, test.want) || (got == nil) != (test.want == nil) {
				t.Errorf("the fields are %q, expected %q", got, test.want)
			}
		}
	}
}

// Dense values of the wrong number, or that are not finite, are refused by name.
func TestRefusesDense(t *testing.T) {
	c := readExport(t, "../testdata/onnx/deepctr-torch-autoint.dynamo.onnx")
	path, _ := write(t, c, make([]bool, c.Architecture.Parameters()), c.Architecture.Zero(), compact.Float32)
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, _ := rowsOf(m.Sizes(), nil, 0, 2)
	dst := []float64{7, 7}
	for want, dense := range map[string][]float32{
		"3 dense values for 2 rows of 2 dense inputs":                         {1, 2, 3},
		"0 dense values for 2 rows of 2 dense inputs":                         nil,
		"row 1 has the value NaN in dense input x[5]: values must be finite":  {1, 2, float32(math.NaN()), 4},
		"row 0 has the value +Inf in dense input x[6]: values must be finite": {1, float32(math.Inf(1)), 3, 4},
	} {
		if err := m.Logits(dst, ids, dense); !fault.IsInput(err) || !strings.Contains(err.Error(), want) || dst[0] != 7 || dst[1] != 7 {
			t.Errorf("error %v, want %q; logits %v", err, want, dst)
		}
	}
}

// Every kind of model gives exactly the logits of its pruned dense table, at any
// sparsity, with all baselines and encodings.
func TestSameLogits(t *testing.T) {
	names, err := filepath.Glob("../testdata/golden/*.pth")
	if err != nil || len(names) < 5 {
		t.Fatalf("goldens %v (%v)", names, err)
	}
	for _, name := range names {
		c := read(t, filepath.Base(name))
		a := &c.Architecture
		book := a.Zero()
		for i := range book.Values {
			book.Values[i] = float32(i%5)/8 - 0.25
		}
		for _, sparsity := range []float64{0, 0.3, 0.9, 1} {
			for _, baseline := range []model.Baseline{a.Zero(), book, infertest.Words(a)} {
				for _, v := range compact.Encodings() {
					path, dense := write(t, c, mask(a.Parameters(), sparsity), baseline, v)
					checkLogits(t, path, dense)
				}
			}
		}
		dense := filepath.Join(t.TempDir(), "dense.safetensors")
		if _, err := checkpoint.WriteDense(dense, c); err != nil {
			t.Fatal(err)
		}
		checkLogits(t, dense, c)
	}
}

// A model without a field and a column is an ordinary one, in dense and in compact form.
func TestSameLogitsOfSlices(t *testing.T) {
	for _, name := range []string{"deepfm.pth", "dcn-mix.pth", "dcnv2-parallel.pth", "fm.pth"} {
		c := read(t, name)
		a := &c.Architecture
		fields, columns := make([]int, a.Fields()-1), make([]int, a.Dim-1)
		for j := range fields {
			fields[j] = j + 1
		}
		for j := range columns {
			columns[j] = j
		}
		small, err := c.Sliced(checkpoint.Slice{Fields: fields, Columns: columns})
		if err != nil {
			t.Fatal(err)
		}
		dense := filepath.Join(t.TempDir(), "dense.safetensors")
		if _, err := checkpoint.WriteDense(dense, small); err != nil {
			t.Fatal(err)
		}
		checkLogits(t, dense, small)
		b := &small.Architecture
		path, pruned := write(t, small, mask(b.Parameters(), 0.5), b.Zero(), compact.Float32)
		checkLogits(t, path, pruned)
	}
}

// At a sparsity of .95 with random kept entries, a compact table of flights takes less
// than 8% of the dense table.
func TestFlights(t *testing.T) {
	for _, name := range []string{"deepfm.pth", "dcn-mix.pth"} {
		path := filepath.Join("..", "..", "shared", "data", "flights", name)
		if _, err := os.Stat(path); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("missing on CI: %v", err)
			}
			t.Skip(err)
		}
		c, err := checkpoint.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		a := &c.Architecture
		baseline := a.Zero()
		for i := range baseline.Values {
			baseline.Values[i] = float32(i%5)/80 - 0.025
		}
		dropped := mask(a.Parameters(), 0.95)
		for _, v := range compact.Encodings() {
			file, dense := write(t, c, dropped, baseline, v)
			checkLogits(t, file, dense)
			table := 4 * a.Parameters()
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			bytes := info.Size() - (c.Size() - int64(table))
			t.Logf("%s, %s: %d bytes for the table, %.2f%% of %d", name, v, bytes, 100*float64(bytes)/float64(table), table)
			if float64(bytes) > 0.08*float64(table) {
				t.Errorf("%s, %s: %d bytes for a table of %d", name, v, bytes, table)
			}
		}
	}
}

// Many goroutines can score with one model and get the same logits, and Close waits for
// them.
func TestConcurrent(t *testing.T) {
	c := read(t, "dcn-mix.pth")
	path, dense := write(t, c, mask(c.Architecture.Parameters(), 0.5), c.Architecture.Zero(), compact.Float32)
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, rows := rowsOf(m.Sizes(), nil, 0, 100)
	want := make([]float64, 100)
	reference, err := dense.Model()
	if err != nil {
		t.Fatal(err)
	}
	reference.NewScorer().Logits(want, rows)
	var group sync.WaitGroup
	begun := make(chan struct{}, 8)
	for range 8 {
		group.Go(func() {
			got := make([]float64, 100)
			for i := 0; ; i++ {
				err := m.Logits(got, ids, nil)
				if errors.Is(err, infer.ErrClosed) && i > 0 {
					return
				}
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("logits %v (%v), want %v", got, err, want)
					return
				}
				if i == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
	if err := m.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	c := read(t, "deepfm.pth")
	path, _ := write(t, c, mask(c.Architecture.Parameters(), 0.5), c.Architecture.Zero(), compact.Float32)
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	sizes := m.Sizes()
	ids, _ := rowsOf(sizes, nil, 0, 2)
	dst := []float64{7, 7}
	for name, test := range map[string]struct {
		spoil func(ids []int32) []int32
		want  string
	}{
		"short":    {func(ids []int32) []int32 { return ids[1:] }, fmt.Sprintf("%d ids for 2 rows of %d fields", len(ids)-1, len(sizes))},
		"negative": {func(ids []int32) []int32 { ids[1] = -1; return ids }, fmt.Sprintf("row 0 has id -1 in field 1: expected 0 to %d", sizes[1]-1)},
		"large":    {func(ids []int32) []int32 { ids[len(sizes)] = int32(sizes[0]); return ids }, fmt.Sprintf("row 1 has id %d in field 0", sizes[0])},
	} {
		err := m.Logits(dst, test.spoil(slices.Clone(ids)), nil)
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), test.want) || dst[0] != 7 || dst[1] != 7 {
			t.Errorf("%s: error %v, want %q; logits %v", name, err, test.want, dst)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{empty, t.TempDir(), filepath.Join("..", "testdata", "golden", "deepfm.pth"), filepath.Join("..", "testdata", "onnx", "ncf.dynamo.onnx")} {
		if _, err := infer.Open(path); err == nil {
			t.Errorf("%s: no error", path)
		} else if filepath.Ext(path) != "" && !strings.Contains(err.Error(), "shaver model convert") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A model from bytes has the logits of the file, until it is closed. What is no model is refused by name.
func TestOpenBytes(t *testing.T) {
	c := read(t, "deepfm.pth")
	path, _ := write(t, c, mask(c.Architecture.Parameters(), 0.5), c.Architecture.Zero(), compact.Float32)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := infer.OpenBytes("memory", data)
	if err != nil {
		t.Fatal(err)
	}
	file, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ids, _ := rowsOf(m.Sizes(), nil, 0, 70)
	got, want := make([]float64, 70), make([]float64, 70)
	if err := errors.Join(m.Logits(got, ids, nil), file.Logits(want, ids, nil)); err != nil || !slices.Equal(got, want) {
		t.Errorf("the bytes have logits %v, the file %v (%v)", got, want, err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if err := m.Logits(got, ids, nil); !errors.Is(err, infer.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for n := range 9 {
		if _, err := infer.OpenBytes("memory", data[:n]); !fault.IsInput(err) || !strings.Contains(err.Error(), "memory") {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
}
