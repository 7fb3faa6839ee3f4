package checkpoint

import (
	"bytes"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// fmOf returns an FM whose table has n rows in two fields.
func fmOf(t *testing.T, n, dim int) *Checkpoint {
	t.Helper()
	table := make([]float32, n*dim)
	for i := range table {
		table[i] = float32(i%7) - 3 // every seventh value is 0
	}
	entries := []tensor.Entry{
		{Key: "embedding.weight", Tensor: tensor.FromFloat32s([]int{n, dim}, table)},
		{Key: "fc.weight", Tensor: tensor.FromFloat32s([]int{n, 1}, make([]float32, n))},
		{Key: "_bias", Tensor: tensor.FromFloat32s([]int{1}, make([]float32, 1))},
		offsetsOf(0, 1),
	}
	c, err := Parse("fm", fileBytes(entries, nil))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// every returns a mask of n entries that keeps one in gap.
func every(n, gap int) []bool {
	dropped := make([]bool, n)
	for i := range dropped {
		dropped[i] = i%gap != 0
	}
	return dropped
}

// A compact file reads as the pruned table with its logits, at every sparsity and width.
// Kept zeros stay kept.
func TestCompact(t *testing.T) {
	for _, dim := range []int{1, 3, 8, 16, 128, 129, 300} {
		c := fmOf(t, 40, dim)
		for _, kept := range []int{0, 1, 2, dim, 39, 40 * dim / 8, 40*dim - 1, 40 * dim} {
			dropped := make([]bool, 40*dim)
			for i := range dropped {
				dropped[i] = (i*7919)%len(dropped) >= kept // 7919 is coprime to every length here
			}
			baseline := c.Architecture.Zero()
			for i := range baseline.Values {
				baseline.Values[i] = float32(math.Copysign(float64(i), -1))
			}
			checkCompact(t, c, dropped, baseline, min(kept, len(dropped)))
			checkCompact(t, c, dropped, wordsOf(c), min(kept, len(dropped)))
		}
	}
}

// CompactDrop finds the least number of drops at every size that a file has and at one
// byte less. Some files are larger although more entries are dropped. With several words the file has at most that size, too, and
// keeps nearly as much.
func TestCompactDrop(t *testing.T) {
	long.Test(t)
	rises := 0
	for _, dim := range []int{1, 2, 16, 64} {
		rows := 200 / dim
		if dim == 64 {
			rows = 60 // so that MaxInflation decides the size of the last files
		}
		c := fmOf(t, rows, dim)
		n := rows * dim
		order := make([]int32, n)
		for i := range order {
			order[i] = int32(i * 7919 % n) // 7919 is coprime to every length here
		}
		for i, v := range slices.Repeat(compact.Encodings(), 2) {
			sizes, baseline, slack := make([]int64, n+1), c.Architecture.Zero(), 0
			if i >= len(compact.Encodings()) {
				baseline, slack = wordsOf(c), n/100
			}
			dropped := make([]bool, n)
			for drop := range sizes {
				sizes[drop] = c.CompactFootprint(dropped, baseline, v).File
				if drop%9 == 0 {
					if f, err := c.compact(dropped, baseline, v); err != nil || f.Size() != sizes[drop] {
						t.Fatalf("%d columns, %s: a footprint of %d bytes for a file of %d: %v", dim, v, sizes[drop], f.Size(), err)
					}
				}
				if drop > 0 && sizes[drop] > sizes[drop-1] {
					rises++
				}
				if drop < n {
					dropped[order[drop]] = true
				}
			}
			for at := 0; at <= n; at += max(1, n/200, 4*slack) {
				for _, bytes := range []int64{sizes[at], sizes[at] - 1} {
					want := slices.IndexFunc(sizes, func(size int64) bool { return size <= bytes })
					got, err := c.CompactDrop(order, 0, baseline, v, bytes)
					if want >= 0 && (got < want || got > want+slack || sizes[got] > bytes) || (err != nil) != (want < 0) {
						t.Fatalf("%d columns, %s: for %d bytes got %d drops (%v), expected %d", dim, v, bytes, got, err, want)
					}
				}
			}
		}
	}
	if rises < 20 {
		t.Errorf("only %d files were larger than the one before", rises)
	}
	_, err := fmOf(t, 4, 2).CompactDrop(make([]int32, 8), 0, model.Baseline{}, compact.Float32, 10)
	if err == nil || !strings.Contains(err.Error(), "without any embedding entry takes ") {
		t.Error(err)
	}
}

// The dense file of a pruned table becomes as small again in compact form.
func TestPrunedOfDense(t *testing.T) {
	c := fmOf(t, 400, 16)
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	dropped := every(6400, 20)
	for i, gone := range dropped {
		if gone {
			table[i] = 0.25
		} else {
			table[i] = float32(i)
		}
	}
	dense := c.WithEmbedding(table)
	mask, baseline, err := dense.Pruned()
	if err != nil {
		t.Fatal(err)
	}
	for i := 16; i < len(mask); i++ { // the first field has a single row, so no value repeats in it
		if mask[i] != dropped[i] {
			t.Fatalf("entry %d dropped %v", i, mask[i])
		}
	}
	checkCompact(t, dense, mask, baseline, 16+(6400-16)/20)
}

// Values that are stored with fewer bits read back as they were written, and storing them
// again loses nothing more.
func TestCompactValues(t *testing.T) {
	c := fmOf(t, 400, 16)
	for _, v := range compact.Encodings() {
		path := filepath.Join(t.TempDir(), "m")
		if _, err := WriteCompact(path, c, every(6400, 3), c.Architecture.Zero(), v); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		if err != nil || got.Compact.Encoding() != v {
			t.Fatalf("%s: %v", v, err)
		}
		checkModel(t, path, got)
	}
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	table[33] = 1e6
	_, err = WriteCompact("", c.WithEmbedding(table), make([]bool, 6400), c.Architecture.Zero(), compact.Float16)
	wantInput(t, err, "fm: field 1: row 2 has the value 1e+06 in column 1: float16 holds magnitudes up to 65504")
}

func TestCompactRefuses(t *testing.T) {
	c := fmOf(t, 400, 16)
	for form, gap := range map[compact.Form]int{compact.Bitmap: 2, compact.Columns: 101} {
		f, err := c.compact(every(6400, gap), c.Architecture.Zero(), compact.Float32)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(f.Metadata[metaFields], string(form)) {
			t.Fatalf("fields %s, want a %s", f.Metadata[metaFields], form)
		}
		for key, test := range map[string]struct{ value, want string }{
			metaCompact:      {"1", "version"},
			metaEmbeddingKey: {"fc.weight", "tensor fc.weight is stored both as a tensor and in compact form"},
			metaFields:       {`[{"form":"none"}]`, "1 fields"},
			metaArchitecture: {`{"field_dims":[1,1000000],"dim":70000}`, "dim is 70000"},
		} {
			metadata := maps.Clone(f.Metadata)
			metadata[key] = test.value
			_, err := Parse("m", unsealed(f.Entries, metadata))
			wantInput(t, err, "m: compact form: ", test.want)
		}
		for _, e := range f.Entries {
			if e.Key != tensorRows && e.Key != tensorColumns {
				continue
			}
			for at := range e.Data {
				saved := e.Data[at]
				if e.Data[at] = 0xff; saved == 0xff {
					continue
				}
				if _, err := Parse("m", unsealed(f.Entries, f.Metadata)); err == nil {
					t.Errorf("%s: no error with byte %d of %s damaged", form, at, e.Key)
				}
				e.Data[at] = saved
			}
		}
	}
	baseline := c.Architecture.Zero()
	baseline.Values[17] = float32(math.NaN())
	_, err := WriteCompact(filepath.Join(t.TempDir(), "m"), c, make([]bool, 6400), baseline, compact.Float32)
	wantInput(t, err, "fm: value 17 of the baseline is NaN, expected a finite number")
}

// A file that claims a table thousands of times its own size is not inflated. ParseModel,
// which does not inflate, reads it.
func TestCompactBomb(t *testing.T) {
	c, err := Parse("m", fileBytes(sampleEntries("dcn-mix"), map[string]string{
		metaArchitecture: string(mustMarshal(sampleArchitecture("dcn-mix"))),
	}))
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.compact(slices.Repeat([]bool{true}, 18), c.Architecture.Zero(), compact.Float32)
	if err != nil {
		t.Fatal(err)
	}
	f.Metadata[metaArchitecture] = strings.Replace(f.Metadata[metaArchitecture], "[2,3,4]", "[2,3,2000000]", 1)
	data := unsealed(f.Entries, f.Metadata)
	_, err = Parse("m", data)
	wantInput(t, err, "m: compact form: claims a table of 2000005 features x 2 columns in a file of ")
	m, _, err := ParseModel("m", data)
	if err != nil {
		t.Fatal(err)
	}
	scoreLast(m)
}

// Every flipped bit of a compact file is refused. Only a file of the older version may lack
// the digest.
func TestCompactDigest(t *testing.T) {
	c := fmOf(t, 3, 2)
	for i, v := range compact.Encodings() {
		path := filepath.Join(t.TempDir(), "m")
		if _, err := WriteCompact(path, c, every(6, 2+i), c.Architecture.Zero(), v); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := 0
		for at := range data {
			for bit := range 8 {
				data[at] ^= 1 << bit
				_, err := Parse("m", data)
				_, _, again := ParseModel("m", data)
				if !fault.IsInput(err) || !fault.IsInput(again) {
					t.Fatalf("%s: byte %d, bit %d: %v, %v", v, at, bit, err, again)
				}
				if strings.Contains(err.Error(), "m is damaged: ") {
					damaged++
				}
				data[at] ^= 1 << bit
			}
		}
		if damaged < 8*len(data)/4 {
			t.Errorf("%s: only %d of %d flipped bits are called damage", v, damaged, 8*len(data))
		}
		if _, err := Parse("m", data); err != nil {
			t.Errorf("%s: %v", v, err)
		}
		head, metadata, err := parseSafetensors("m", data)
		if err != nil {
			t.Fatal(err)
		}
		old := unsealed(head, metadata)
		if got, err := Parse("m", old); err != nil || got.Compact.Encoding() != v {
			t.Errorf("%s: a file of the older version: %v", v, err)
		}
		_, err = Parse("m", bytes.Replace(old, []byte(`"shaver.compact":"2"`), []byte(`"shaver.compact":"3"`), 1))
		wantInput(t, err, "m is damaged: its digest is missing")
		_, err = Parse("m", bytes.Replace(data, []byte(`"shaver.compact":"3"`), []byte(`"shaver.compact":"2"`), 1))
		wantInput(t, err, "m is damaged: compact files of version 2 have no digest")
	}
}

func TestCallersBugs(t *testing.T) {
	c := fmOf(t, 4, 2)
	for name, call := range map[string]func(){
		"table": func() { c.WithEmbedding(make([]float32, 7)) },
		"mask":  func() { _, _ = WriteCompact("", c, make([]bool, 7), c.Architecture.Zero(), compact.Float32) },
		"order": func() { _, _ = c.CompactDrop(make([]int32, 9), 0, model.Baseline{}, compact.Float32, 0) },
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
		t.Error("WithEmbedding changed the original, or did not change the copy")
	}
	m, err := changed.Model()
	if err != nil || m.Kind != model.DeepFM || m.Weights.Embedding[3] != 0 {
		t.Errorf("model %v", err)
	}
}

// A footprint has the length of the written file and of its tensors for the table. The
// table of a dense file takes as much memory as it takes in the file.
func TestFootprint(t *testing.T) {
	c := fmOf(t, 400, 16)
	for _, v := range compact.Encodings() {
		for _, gap := range []int{1, 3, 1000} {
			dropped, path := every(6400, gap), filepath.Join(t.TempDir(), "m")
			bytes, err := WriteCompact(path, c, dropped, c.Architecture.Zero(), v)
			if err != nil {
				t.Fatal(err)
			}
			f, err := c.compact(dropped, c.Architecture.Zero(), v)
			if err != nil {
				t.Fatal(err)
			}
			table := 0
			for _, e := range f.Entries {
				if _, rest := c.Tensors[e.Key]; !rest {
					table += len(e.Data)
				}
			}
			got := c.CompactFootprint(dropped, c.Architecture.Zero(), v)
			read, err := Read(path)
			if err != nil {
				t.Fatal(err)
			}
			memory := compact.Memory(&c.Architecture, read.Compact.Fields(), nil, v)
			if want := (Footprint{bytes, int64(table), memory}); got != want {
				t.Errorf("%s, one of %d entries kept: %+v, expected %+v", v, gap, got, want)
			}
		}
	}
	bytes, err := WriteDense(filepath.Join(t.TempDir(), "m"), c)
	if want := (Footprint{bytes, 4 * 6400, 4 * 6400}); err != nil || c.Footprint() != want {
		t.Errorf("dense: %+v, expected %+v, %v", c.Footprint(), want, err)
	}
}

// The tables of a dense file have all entries as parameters. Those of a compact file have the
// kept entries, and the codebook if it is the baseline.
func TestTableParameters(t *testing.T) {
	c := fmOf(t, 400, 16)
	if got := c.TableParameters(); got != 6400 {
		t.Errorf("dense: %d parameters, expected 6400", got)
	}
	baseline := c.Architecture.Zero()
	for _, want := range []int{1600, 1632} {
		path := filepath.Join(t.TempDir(), "m")
		if _, err := WriteCompact(path, c, every(6400, 4), baseline, compact.Float16); err != nil {
			t.Fatal(err)
		}
		read, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := read.TableParameters(); got != want {
			t.Errorf("compact: %d parameters, expected %d", got, want)
		}
		baseline.Values[3] = 1
	}
}
