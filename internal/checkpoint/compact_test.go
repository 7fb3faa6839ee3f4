package checkpoint

import (
	"maps"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"shaver/internal/model"
)

// fmOf returns an FM with a table of n rows in two fields.
func fmOf(t *testing.T, n, dim int) *Checkpoint {
	t.Helper()
	table := make([]float32, n*dim)
	for i := range table {
		table[i] = float32(i%7) - 3 // every seventh is 0
	}
	entries := []entry{
		{"embedding.weight", float32Tensor([]int{n, dim}, table)},
		{"fc.weight", float32Tensor([]int{n, 1}, make([]float32, n))},
		{"_bias", float32Tensor([]int{1}, make([]float32, 1))},
		offsetsOf(0, 1),
	}
	c, err := Parse("fm", fileBytes(entries, nil))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Both structures give back the pruned table at every sparsity and width, with
// kept zeros kept, and the file's size is known before.
func TestCompact(t *testing.T) {
	structures := map[string]int{}
	for _, dim := range []int{1, 3, 8, 16, 255, 256, 300} {
		c := fmOf(t, 40, dim)
		previous := int64(0)
		for _, kept := range []int{0, 1, 2, dim, 39, 40 * dim / 8, 40*dim - 1, 40 * dim} {
			dropped := make([]bool, 40*dim)
			for i := range dropped {
				dropped[i] = (i*7919)%len(dropped) >= kept // 7919 is prime to every length here
			}
			baseline := make([]float32, 2*dim)
			for i := range baseline {
				baseline[i] = float32(math.Copysign(float64(i), -1))
			}
			f, err := c.compact(dropped, baseline)
			if err != nil {
				t.Fatal(err)
			}
			structures[f.metadata[metaStructure]]++
			checkCompact(t, c, dropped, baseline, min(kept, len(dropped)))
		}
		for kept := range 40*dim + 1 {
			size := c.CompactSize(kept)
			if size < previous {
				t.Fatalf("%d columns: %d bytes for %d kept, %d for fewer", dim, size, kept, previous)
			}
			previous = size
			if kept > 500 {
				break
			}
		}
	}
	if structures[structureCSR] == 0 || structures[structureBitmap] == 0 {
		t.Errorf("structures used: %v", structures)
	}
}

func TestCompactRefuses(t *testing.T) {
	c := fmOf(t, 400, 16)
	for name, gap := range map[string]int{structureBitmap: 2, structureCSR: 200} {
		dropped := make([]bool, 6400)
		for i := range dropped {
			dropped[i] = i%gap != 0
		}
		f, err := c.compact(dropped, make([]float32, 32))
		if err != nil {
			t.Fatal(err)
		}
		if f.metadata[metaStructure] != name {
			t.Fatalf("structure %s, want %s", f.metadata[metaStructure], name)
		}
		for key, test := range map[string]struct{ value, want string }{
			metaCompact:      {"2", "version"},
			metaEmbeddingKey: {"fc.weight", "tensor fc.weight is there beside"},
			metaStructure:    {"coo", `is "coo", expected csr or bitmap`},
			metaKept:         {strconv.Itoa(59), "shaver."},
			metaArchitecture: {`{"field_dims":[1,1000000],"dim":65536}`, "claims a table"},
		} {
			metadata := maps.Clone(f.metadata)
			metadata[key] = test.value
			_, err := Parse("m", fileBytes(f.entries, metadata))
			wantInput(t, err, "m: compact form: ", test.want)
		}
		for _, e := range f.entries {
			own := e.key == tensorBitmap || e.key == tensorCounts || e.key == tensorColumns
			if !own {
				continue
			}
			for at := range e.Data {
				saved := e.Data[at]
				e.Data[at] = 0xff
				if _, err := Parse("m", fileBytes(f.entries, f.metadata)); err == nil {
					t.Errorf("%s: no error with byte %d of %s damaged", name, at, e.key)
				}
				e.Data[at] = saved
			}
		}
	}
	baseline := make([]float32, 32)
	baseline[17] = float32(math.NaN())
	_, err := WriteCompact(filepath.Join(t.TempDir(), "m"), c, make([]bool, 6400), baseline)
	wantInput(t, err, "fm: the baseline of field 1 has the value NaN in column 1")
}

func TestCallersBugs(t *testing.T) {
	c := fmOf(t, 4, 2)
	for name, call := range map[string]func(){
		"table": func() { c.WithEmbedding(make([]float32, 7)) },
		"mask":  func() { _, _ = WriteCompact("", c, make([]bool, 7), make([]float32, 4)) },
		"kept":  func() { c.CompactSize(9) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func TestWithEmbedding(t *testing.T) {
	c, err := Read(filepath.Join("testdata", "types.pth"))
	if err != nil {
		t.Fatal(err)
	}
	before := c.Digest()
	changed := c.WithEmbedding(make([]float32, 18))
	if c.Digest() != before || changed.Digest() == before || changed.Tensors[changed.EmbeddingKey].DType != F32 {
		t.Error("WithEmbedding changed the original, or not the copy")
	}
	m, err := changed.Model()
	if err != nil || m.Kind != model.DeepFM || m.Weights.Embedding[3] != 0 {
		t.Errorf("model %v", err)
	}
}
