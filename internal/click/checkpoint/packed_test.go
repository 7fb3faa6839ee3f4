package checkpoint

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/click/compact"
	"shaver/internal/click/tensor"
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
		for _, row := range c.Architecture.FixedRows() {
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
	if f, _, err := changed.mixed(make([]bool, c.Architecture.Parameters()), bookOf(c), exactly(c)); err != nil || f.Metadata[metaPacked] != "" {
		t.Errorf("the file packs %s: %v", f.Metadata[metaPacked], err)
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
	if _, err := Parse("m", resealed(f.Entries, f.Metadata)); err != nil {
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
		metadata := maps.Clone(f.Metadata)
		metadata[metaPacked] = text
		_, err := Parse("m", resealed(f.Entries, metadata))
		wantInput(t, err, want)
	}
	at := slices.IndexFunc(f.Entries, func(e tensor.Entry) bool { return e.Key == tensorScales })
	scales, err := f.Entries[at].Float32s()
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
		entries := slices.Clone(f.Entries)
		entries[at].Tensor = tensor.FromFloat32s([]int{len(values)}, values)
		_, err := Parse("m", resealed(entries, f.Metadata))
		wantInput(t, err, want)
	}
	_, err = Parse("m", resealed(append(f.Entries[:at:at], f.Entries[at+1:]...), f.Metadata))
	wantInput(t, err, "m: expected tensor shaver.scales of type F32 and shape [*]")
}

// codedFile returns the file of a model with a matrix that is coded, and the matrix's key.
func codedFile(t testing.TB) (f *tensor.File, key string) {
	t.Helper()
	c, err := Read(filepath.Join("..", "..", "..", "testdata", "golden", "dcn-mix.pth"))
	if err != nil {
		t.Fatal(err)
	}
	key = c.Packable()[0]
	values := make([]float32, 4096) // more than the model's own matrices have, whose code is longer than they are
	for i := range values {
		values[i] = float32(i * 7919 % 4096 % 61 * (i % 5))
	}
	c.Tensors[key] = tensor.FromFloat32s([]int{64, 64}, values)
	p, err := c.Pack(map[string]DType{key: I8})
	if err != nil {
		t.Fatal(err)
	}
	if f, _, err = p.mixed(make([]bool, c.Architecture.Parameters()), bookOf(c), exactly(c)); err != nil {
		t.Fatal(err)
	}
	return f, key
}

// The numbers of a matrix are coded if that takes fewer bytes, and are read as they were.
func TestCoded(t *testing.T) {
	f, key := codedFile(t)
	if want := `{"` + key + `":[64,64]}`; f.Metadata[metaCoded] != want {
		t.Fatalf("metadata %s is %s, expected %s", metaCoded, f.Metadata[metaCoded], want)
	}
	at := slices.IndexFunc(f.Entries, func(e tensor.Entry) bool { return e.Key == key })
	code := f.Entries[at].Data
	if f.Entries[at].DType != U8 || len(code) >= 4096 {
		t.Fatalf("the code has %d bytes of type %s", len(code), f.Entries[at].DType)
	}
	numbers, err := compact.DecodeBytes(code, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		if want := math.RoundToEven(float64(i*7919%4096%61*(i%5)) / float64(rowMost(i/64)) * 127); math.Abs(float64(int8(n))-want) > 1 {
			t.Fatalf("number %d is %d, expected %v", i, int8(n), want)
		}
	}
	for text, want := range map[string]string{
		"{}":                      "m: metadata shaver.coded is \"{}\", expected a JSON object of shapes by the keys of tensors",
		"[]":                      "expected a JSON object of shapes",
		`{"none":[1]}`:            "m: metadata shaver.coded has the key \"none\", expected one of those of shaver.packed",
		`{"` + key + `":[64,-1]}`: "m: metadata shaver.coded has the shape [64, -1] for " + key + ": expected sizes of at least 0",
		`{"` + key + `":[64,63]}`: "m: tensor " + key + " has ",
		`{"` + key + `":[2147483648,2147483648]}`: "m: metadata shaver.coded has the shape ",
		`{"` + key + `":[1000000000,100]}`:        "bytes of code for 100000000000 numbers: expected at most ",
	} {
		metadata := maps.Clone(f.Metadata)
		metadata[metaCoded] = text
		_, err := Parse("m", resealed(f.Entries, metadata))
		wantInput(t, err, want)
	}
	metadata := maps.Clone(f.Metadata)
	delete(metadata, metaCoded)
	_, err = Parse("m", resealed(f.Entries, metadata))
	wantInput(t, err, "m: metadata shaver.packed has the key \""+key+"\", expected that of a tensor of type I8 or F16")
	metadata[metaCoded] = f.Metadata[metaCoded]
	delete(metadata, metaPacked)
	_, err = Parse("m", resealed(f.Entries, metadata))
	wantInput(t, err, "m: metadata has shaver.coded without shaver.packed")
	entries := slices.Clone(f.Entries)
	entries[at].DType = I8
	_, err = Parse("m", resealed(entries, f.Metadata))
	wantInput(t, err, "expected type U8 and shape [*]")
}

// rowMost returns the largest value of a row of codedFile's matrix.
func rowMost(row int) (most int) {
	for i := row * 64; i < row*64+64; i++ {
		most = max(most, i*7919%4096%61*(i%5))
	}
	return most
}

// Any code and any shape of a packed tensor gives an input error, or a file that is written as it
// was read.
func FuzzCoded(f *testing.F) {
	file, key := codedFile(f)
	at := slices.IndexFunc(file.Entries, func(e tensor.Entry) bool { return e.Key == key })
	code := file.Entries[at].Data
	f.Add(file.Metadata[metaCoded], code)
	f.Add(`{"`+key+`":[64]}`, compact.EncodeBytes(make([]byte, 64)))
	f.Add(`{"`+key+`":[0,64]}`, []byte{})
	f.Add(`{"`+key+`":null}`, compact.EncodeBytes([]byte{1}))
	f.Add(`{"`+key+`":[32768,64]}`, code)
	f.Fuzz(func(t *testing.T, text string, code []byte) {
		metadata, entries := maps.Clone(file.Metadata), slices.Clone(file.Entries)
		metadata[metaCoded] = text
		entries[at].Tensor = Tensor{DType: U8, Shape: []int{len(code)}, Data: code}
		c, err := Parse("m", resealed(entries, metadata))
		checkFuzzed(t, c, err)
	})
}
