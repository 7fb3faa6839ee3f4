package checkpoint

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

func seedPickles(f *testing.F) {
	for _, name := range []string{"types", "types4", "bare"} {
		z, err := zip.OpenReader(filepath.Join("testdata", name+".pth"))
		if err != nil {
			f.Fatal(err)
		}
		data := make([]byte, z.File[0].UncompressedSize64)
		r, err := z.File[0].Open()
		if err == nil {
			_, err = r.Read(data)
		}
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		z.Close()
	}
	f.Add([]byte(pickled(named("os system"), "x", []byte{opTuple1}, opReduce)))
	f.Add([]byte(pickled(opEmptyDict, opPut, []byte{0}, "x", opGet, []byte{0}, opSetItem)))
}

// Unpickling gives a value of a known type or an input error, and so does reading the
// archive around the pickle.
func FuzzUnpickle(f *testing.F) {
	seedPickles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := unpickle("p", data)
		if err != nil && !fault.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
		if err == nil && describe(v) == "" {
			t.Fatalf("value of type %T", v)
		}
		c, err := Parse("m", zipBytes(t, zip.Store, "m/data.pkl", string(data), "m/data/0", "12345678"))
		checkFuzzed(t, c, err)
	})
}

// A file that parses is written again with the same tensors.
func FuzzSafetensors(f *testing.F) {
	for _, kind := range sampleKinds {
		f.Add(fileBytes(append(sampleEntries(kind), offsetsOf(0, 2, 5)), map[string]string{"format": "pt"}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, parsing := Parse("m", data)
		_, err := readWhole("m", bytes.NewReader(data), int64(len(data)), noSidecar)
		if err != nil && (!fault.IsInput(err) || !isZip(data) && parsing == nil) {
			t.Fatalf("the header is refused with %v, the file with %v", err, parsing)
		}
		entries, metadata, err := parseSafetensors("m", data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		again, more, err := parseSafetensors("m", fileBytes(entries, metadata))
		if err != nil || len(again) != len(entries) || len(more) != len(metadata) {
			t.Fatalf("%d tensors became %d: %v", len(entries), len(again), err)
		}
		for i, e := range entries {
			g := again[i]
			if g.Key != e.Key || g.DType != e.DType || tensor.ShapeText(g.Shape) != tensor.ShapeText(e.Shape) || string(g.Data) != string(e.Data) {
				t.Fatalf("tensor %s changed", e.Key)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"types.pth", "types4.pth", "bare.pth", "legacy.pth", "foreign-module.pth", "foreign-recbole.pth", "foreign-average.pth"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, name := range []string{"fuxictr-fm.model", "fuxictr-deepfm.model", "deepctr-torch-dcn-matrix.h5", "recbole-fm.pth", "pytorch-fm-wd.pth", "torch-rechub-deepfm.pth"} {
		data, err := os.ReadFile(filepath.Join(familyFolder, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		said := "{\"activation\": \"relu\", \"kind\": \"deepfm\"}"
		switch name {
		case "recbole-fm.pth":
			said = `{"field_dims": [7, 11, 4, 3], "kind": "fm"}`
		case "pytorch-fm-wd.pth":
			said = `{"field_dims": [7, 11, 5, 4, 3], "kind": "widedeep"}`
		case "fuxictr-fm.model", "deepctr-torch-dcn-matrix.h5":
			said = `{"activation": "relu"}`
		}
		path := filepath.Join(f.TempDir(), name)
		if err := errors.Join(os.WriteFile(path, data, 0o666), os.WriteFile(path+".json", []byte(said), 0o666)); err != nil {
			f.Fatal(err)
		}
		c, err := Read(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(canonical(c))
		small, err := c.compact(every(c.Architecture.Parameters(), 2), c.Architecture.Zero(), compact.Float32)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(unsealed(small.Entries, small.Metadata))
	}
	for _, kind := range sampleKinds {
		c, err := Parse("m", fileBytes(append(sampleEntries(kind), offsetsOf(0, 2, 5)), nil))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(canonical(c))
		for i, gap := range []int{1, 2, 13} {
			small, err := c.compact(every(c.Architecture.Parameters(), gap), c.Architecture.Zero(), compact.Encodings()[i])
			if err != nil {
				f.Fatal(err)
			}
			f.Add(unsealed(small.Entries, small.Metadata))
		}
	}
	neumf, err := Read(neumfGolden)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(canonical(neumf))
	small, err := neumf.compact(every(36, 3), neumf.Architecture.Zero(), compact.Float16)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(unsealed(small.Entries, small.Metadata))
	for _, name := range []string{"recbole-afm.dynamo", "ncf.dynamo", "deepctr-torch-pnn.dynamo"} {
		c, err := Read(filepath.Join(exports, name+".onnx"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(canonical(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("m", data)
		checkFuzzed(t, c, err)
		m, _, err := ParseModel("m", data)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("not an input error: %v", err)
			}
			return
		}
		if m.Parameters() < 1<<20 && m.Players() < 1<<12 {
			scoreLast(m)
		}
	})
}

// scoreLast scores a row of the last features of each field, which have the largest
// indices.
func scoreLast(m *model.Model) {
	rows := &model.Rows{Width: m.Fields(), Inputs: len(m.Dense), Number: []int64{0}, Label: []float32{0}, Dense: make([]float32, len(m.Dense))}
	for j, first := range m.Offsets() {
		rows.Features = append(rows.Features, first+int32(m.FieldDims[j])-1)
	}
	m.NewScorer().Logits(make([]float64, 1), rows)
}

// checkFuzzed fails unless err is an input error, or nil and c stays the same when it is
// written and read again.
func checkFuzzed(t *testing.T, c *Checkpoint, err error) {
	t.Helper()
	if err != nil {
		if !fault.IsInput(err) {
			t.Fatalf("not an input error: %v", err)
		}
		return
	}
	again, err := Parse("again", canonical(c))
	if err != nil || again.Digest() != c.Digest() {
		t.Fatalf("canonical bytes read as another checkpoint: %v", err)
	}
	if m, err := c.Model(); err == nil && len(m.Weights.Embedding) != c.Architecture.Parameters() {
		t.Fatal("model of another size")
	} else if err != nil && !fault.IsInput(err) {
		t.Fatalf("not an input error: %v", err)
	}
}
