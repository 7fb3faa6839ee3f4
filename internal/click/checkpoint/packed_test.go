package checkpoint

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/click/checkpoint/tensor"
	"shaver/internal/click/compact"
)

// exactly returns a palette that stores every kept value of c as float32.
func exactly(c *Checkpoint) *compact.Palette {
	rows := 0
	for _, s := range c.Architecture.Spans() {
		rows += s.Rows
	}
	return &compact.Palette{Quantizers: []compact.Quantizer{{Bits: 32}}, Rows: make([]uint8, rows)}
}

// packable returns a model with matrices that Pack can store.
func packable(t *testing.T) *Checkpoint {
	t.Helper()
	c := graphOf(t, "recbole-autoint.dynamo")
	if keys := c.Packable(); len(keys) > 0 {
		return c
	}
	t.Fatal("the model has no matrix that can be packed")
	return nil
}

// A file with packed tensors reads as the model that Pack returned, to the last bit. It is smaller,
// it can be written again, and its dense form has float32 numbers.
func TestPacked(t *testing.T) {
	golden, err := Read(filepath.Join("..", "..", "..", "testdata", "golden", "dcn-mix.pth"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Checkpoint{packable(t), golden} {
		dropped := every(c.Architecture.Parameters(), 3)
		for _, row := range c.Architecture.PadRows() {
			shape := c.Architecture.Shape()
			from, to := shape.Row(row)
			clear(dropped[from:to])
		}
		plain, err := c.MixedFootprint(dropped, bookOf(c), exactly(c))
		if err != nil {
			t.Fatal(err)
		}
		for _, dtype := range []DType{I8, F16} {
			types := map[string]DType{}
			for _, key := range c.Packable() {
				types[key] = dtype
			}
			p, err := c.Pack(types)
			if err != nil {
				t.Fatal(err)
			}
			for key := range types {
				was, err1 := c.floats(key)
				is, err2 := p.floats(key)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				n := rowLength(c.Tensors[key].Shape)
				for i := range was {
					row := was[i/n*n : (i/n+1)*n]
					bound := float64(max(slices.Max(row), -slices.Min(row))) / 254 * 1.001
					if dtype == F16 {
						bound = math.Abs(float64(was[i]))*0x1p-11 + 0x1p-25
					}
					if math.Abs(float64(was[i])-float64(is[i])) > bound {
						t.Fatalf("%s %s: %v became %v, which is more than %v away", key, dtype, was[i], is[i], bound)
					}
				}
			}
			path := filepath.Join(t.TempDir(), "m.safetensors")
			size, err := WriteMixed(path, p, dropped, bookOf(c), exactly(c))
			if err != nil {
				t.Fatal(err)
			}
			if len(types) > 0 && size >= plain.File {
				t.Errorf("%s: %d bytes, but %d without packing", dtype, size, plain.File)
			}
			got, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			table, err := got.Embedding()
			if err != nil {
				t.Fatal(err)
			}
			checkSame(t, got, p.WithEmbedding(table))
			checkModel(t, path, p.WithEmbedding(table))
			if !maps.Equal(got.PackedTypes(), types) {
				t.Errorf("the file stores %v, expected %v", got.PackedTypes(), types)
			}
			again, err := got.MixedFootprint(dropped, bookOf(c), got.Compact.Palette())
			if err != nil || again.File != size {
				t.Errorf("%s: written again it has %d bytes, expected %d: %v", dtype, again.File, size, err)
			}
		}
	}
}

// A tensor that has changed since it was packed is written as it is.
func TestPackedChanged(t *testing.T) {
	c := packable(t)
	key := c.Packable()[0]
	p, err := c.Pack(map[string]DType{key: I8})
	if err != nil {
		t.Fatal(err)
	}
	changed := *p
	changed.Tensors = maps.Clone(p.Tensors)
	changed.Tensors[key] = c.Tensors[key]
	if types := changed.PackedTypes(); len(types) > 0 {
		t.Errorf("%v are still packed", types)
	}
	if f, _, err := changed.mixed(make([]bool, c.Architecture.Parameters()), bookOf(c), exactly(c)); err != nil || f.metadata[metaPacked] != "" {
		t.Errorf("the file packs %s: %v", f.metadata[metaPacked], err)
	}
}

func TestPackedRefuses(t *testing.T) {
	c := packable(t)
	key := c.Packable()[0]
	p, err := c.Pack(map[string]DType{key: I8})
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := p.mixed(make([]bool, c.Architecture.Parameters()), bookOf(c), exactly(c))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("m", resealed(f.entries, f.metadata)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"[]":               "m: metadata shaver.packed is \"[]\", expected a JSON array of different keys, ascending",
		`["b","a"]`:        "expected a JSON array of different keys, ascending",
		`["a","a"]`:        "expected a JSON array of different keys, ascending",
		`["none"]`:         "m: metadata shaver.packed has the key \"none\", expected that of a tensor of type I8 or F16",
		"{":                "expected a JSON array of different keys, ascending",
		`["` + key + `x"]`: "expected that of a tensor of type I8 or F16",
	} {
		metadata := maps.Clone(f.metadata)
		metadata[metaPacked] = text
		_, err := Parse("m", resealed(f.entries, metadata))
		wantInput(t, err, want)
	}
	at := slices.IndexFunc(f.entries, func(e entry) bool { return e.key == tensorScales })
	scales, err := f.entries[at].Float32s()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func([]float32) []float32{
		"m: tensor shaver.scales ends before the ":             func(s []float32) []float32 { return s[1:] },
		"m: tensor shaver.scales has 1 numbers after the last": func(s []float32) []float32 { return append(s, 1) },
		"outside [0, ": func(s []float32) []float32 { s[0] = -1; return s },
		"m: tensor shaver.scales has the value NaN": func(s []float32) []float32 { s[0] = float32(math.NaN()); return s },
	} {
		values := change(slices.Clone(scales))
		entries := slices.Clone(f.entries)
		entries[at].Tensor = tensor.FromFloat32s([]int{len(values)}, values)
		_, err := Parse("m", resealed(entries, f.metadata))
		wantInput(t, err, want)
	}
	_, err = Parse("m", resealed(append(f.entries[:at:at], f.entries[at+1:]...), f.metadata))
	wantInput(t, err, "m: expected tensor shaver.scales of type F32 and shape [*]")
}
