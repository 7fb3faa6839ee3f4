package checkpoint

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/composed"
	"shaver/internal/click/tensor"
)

// composedSamples returns the sample model of a DeepFM with composed tables.
func composedSamples(t testing.TB) map[string]*Checkpoint {
	t.Helper()
	all := map[string]*Checkpoint{}
	for name, s := range map[string]composed.Shape{
		"qr": composed.ForDivider(9, 2, 4), "tt": composed.ForRanks(9, 2, []int{2, 3}, 0),
		"tt-cache": composed.ForRanks(9, 2, []int{2, 3}, 2), "cerp": composed.ForBuckets(9, 2, 4),
	} {
		c, err := Parse("m", fileBytes(append(sampleEntries("deepfm"), offsetsOf(0, 2, 5)), nil))
		if err != nil {
			t.Fatal(err)
		}
		table := composed.New(s)
		for k, w := range table.Tensors {
			for i := range w.Values {
				w.Values[i] = float32((k+3*i)%7-3) / 4
			}
		}
		if s.Cached > 0 {
			table.FillCache([]int32{1, 8})
		}
		if s.Scheme == composed.CERP {
			mask := make([]bool, 16)
			for i := range mask {
				mask[i] = i%3 != 0
			}
			table.Keep(mask)
		}
		e := make([]float32, 18)
		table.All(e)
		c = c.WithEmbedding(e)
		c.Composed, c.Training = table, `{"seed":1}`
		all[name] = c
	}
	return all
}

// A file with a composed table reads as the model with the whole table, and has the small form. The
// model that ParseModel returns has the same weights. A changed byte is noticed.
func TestComposedFile(t *testing.T) {
	for name, c := range composedSamples(t) {
		path := filepath.Join(t.TempDir(), "m.safetensors")
		n, err := WriteComposed(path, c)
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.composedFile()
		if err != nil || data.Size() != n || !Written(path) {
			t.Fatalf("%s: %d bytes, expected %d (%v)", name, n, data.Size(), err)
		}
		back, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		size, err := back.ComposedFootprint()
		rest := n - size.Table // the head and the header
		if got := back.TableParameters(); err != nil || got != c.Composed.Parameters() || size.File != n || size.Table < 4*int64(got) || rest < 0 || size.Memory != 4*18 {
			t.Errorf("%s: %d parameters and the footprint %+v of a file of %d bytes (%v)", name, got, size, n, err)
		}
		if back.Digest() != c.Digest() || back.Training != c.Training || back.Compact != nil {
			t.Errorf("%s: the file has another model", name)
		}
		x, errX := json.Marshal(c.Composed)
		y, errY := json.Marshal(back.Composed)
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			t.Errorf("%s: the file has the table %s, expected %s", name, y, x)
		}
		if slices.ContainsFunc(back.Keys, func(key string) bool { return strings.Contains(key, "emb1") || strings.Contains(key, "tt_c") }) {
			t.Errorf("%s: the keys are %v", name, back.Keys)
		}
		e, err := back.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		if other := back.WithEmbedding(e); other.Composed != nil || other.Digest() != c.Digest() {
			t.Errorf("%s: WithEmbedding keeps the composed table", name)
		}
		again := filepath.Join(t.TempDir(), "again.safetensors")
		if _, err := WriteComposed(again, back); err != nil || !bytes.Equal(bytesOf(t, path), bytesOf(t, again)) {
			t.Errorf("%s: written again the file differs (%v)", name, err)
		}
		raw := bytesOf(t, path)
		m, _, err := ParseModel("m", raw)
		if err != nil || !slices.Equal(m.Weights.Embedding, e) {
			t.Errorf("%s: ParseModel: %v", name, err)
		}
		raw = bytes.Clone(raw)
		raw[len(raw)-1] ^= 1
		if _, err := Parse("m", raw); err == nil || !strings.Contains(err.Error(), "digest") {
			t.Errorf("%s: a changed byte: %v", name, err)
		}
	}
}

func bytesOf(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sealedBytes returns the bytes of a file after change.
func sealedBytes(t testing.TB, c *Checkpoint, change func(f *tensor.File)) []byte {
	t.Helper()
	f, err := c.composedFile()
	if err != nil {
		t.Fatal(err)
	}
	change(f)
	return sealAgain(t, f)
}

func sealAgain(t testing.TB, f *tensor.File) []byte {
	t.Helper()
	f.Metadata[metaDigest] = seal.Blank
	if err := f.Seal(metaDigest); err != nil {
		t.Fatal(err)
	}
	return fileBytes(f.Entries, f.Metadata)
}

// Defects of a composed table are input errors that name the tensor or the metadata. A small file
// that claims a large table is refused before memory is allocated.
func TestHostileComposedFiles(t *testing.T) {
	samples := composedSamples(t)
	find := func(f *tensor.File, key string) *tensor.Entry {
		for i := range f.Entries {
			if f.Entries[i].Key == key {
				return &f.Entries[i]
			}
		}
		t.Fatalf("no tensor %s", key)
		return nil
	}
	shape := func(s composed.Shape) func(f *tensor.File) {
		return func(f *tensor.File) { f.Metadata[metaTable] = string(mustMarshal(s)) }
	}
	for want, c := range map[string]struct {
		name   string
		change func(f *tensor.File)
	}{
		"divider is 0": {"qr", shape(composed.ForDivider(9, 2, 0))},
		"expected tensor embedding.emb1.weight of": {"qr", shape(composed.ForDivider(9, 2, 3))},
		"it has 10 features":                       {"qr", func(f *tensor.File) { f.Metadata[metaTable] = `{"scheme":"qr","features":10,"dim":2,"divider":4}` }},
		"metadata shaver.table: features is 0":     {"qr", func(f *tensor.File) { f.Metadata[metaTable] = "{}" }},
		"metadata shaver.table: unexpected end":    {"qr", func(f *tensor.File) { f.Metadata[metaTable] = "{" }},
		"both shaver.composed and shaver.compact":  {"qr", func(f *tensor.File) { f.Metadata[metaCompact] = compactVersion }},
		"version \"2\", expected 1":                {"qr", func(f *tensor.File) { f.Metadata[metaComposed] = "2" }},
		"lacks dim":                                {"qr", func(f *tensor.File) { f.Metadata[metaArchitecture] = "{}" }},
		"is stored next to": {"qr", func(f *tensor.File) {
			f.Entries = append(f.Entries, tensor.Entry{Key: composedKey, Tensor: tensor.FromFloat32s([]int{9, 2}, make([]float32, 18))})
			tensor.Arrange(f.Entries)
		}},
		"has the value NaN": {"tt", func(f *tensor.File) { copy(find(f, "embedding.tt_cores.0").Data, []byte{0, 0, 0xc0, 0x7f}) }},
		"is +Inf": {"qr", func(f *tensor.File) {
			for _, key := range []string{"embedding.emb1.weight", "embedding.emb2.weight"} {
				copy(find(f, key).Data, []byte{0, 0, 0x7f, 0x7f})
			}
		}},
		"cache has feature 1 after 1": {"tt-cache", func(f *tensor.File) { copy(find(f, tensorCached).Data[4:], []byte{1, 0, 0, 0}) }},
		"expected 0 or 1":             {"cerp", func(f *tensor.File) { find(f, "embedding.p_mask").Data[0] = 2 }},
		"is not kept":                 {"cerp", func(f *tensor.File) { copy(find(f, "embedding.p_weight").Data, []byte{0, 0, 0x80, 0x3f}) }},
	} {
		_, err := Parse("m.safetensors", sealedBytes(t, samples[c.name], c.change))
		if err == nil || !fault.IsInput(err) || !strings.HasPrefix(err.Error(), "m.safetensors") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	large := sealedBytes(t, samples["tt"], func(f *tensor.File) {
		s := composed.Shape{Scheme: composed.TT, Features: 1 << 30, Dim: 2, Rows: []int{1 << 10, 1 << 10, 1 << 10}, Columns: []int{1, 1, 2}, Ranks: []int{1, 1}}
		f.Metadata[metaTable] = string(mustMarshal(s))
		f.Metadata[metaArchitecture] = `{"kind":"deepfm","field_dims":[1073741824],"dim":2}`
		for _, w := range s.Tensors() {
			find(f, composedPrefix+w.Name).Tensor = tensor.FromFloat32s(w.Shape, make([]float32, w.Elements()))
		}
	})
	if _, err := Parse("m", large); err == nil || !strings.Contains(err.Error(), "claims") {
		t.Errorf("a file of %d bytes with a table of 2^30 features: %v", len(large), err)
	}
	unsealed := sealedBytes(t, samples["qr"], func(*tensor.File) {})
	entries, metadata, err := parseSafetensors("m", unsealed)
	if err != nil {
		t.Fatal(err)
	}
	delete(metadata, metaDigest)
	if _, err := Parse("m", fileBytes(entries, metadata)); err == nil || !strings.Contains(err.Error(), "digest is missing") {
		t.Errorf("a file without a digest: %v", err)
	}
}

// A file whose digest is right gives a checkpoint that is written and read again unchanged, or an
// input error.
func FuzzComposed(f *testing.F) {
	for _, c := range composedSamples(f) {
		f.Add(sealedBytes(f, c, func(*tensor.File) {}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, metadata, err := parseSafetensors("m", data)
		if err != nil || metadata[metaComposed] == "" {
			return
		}
		c, err := Parse("m", sealAgain(t, &tensor.File{Entries: entries, Metadata: metadata}))
		checkFuzzed(t, c, err)
		if err != nil || c.Composed == nil {
			return
		}
		back, err := Parse("again", sealedBytes(t, c, func(*tensor.File) {}))
		if err != nil || back.Digest() != c.Digest() {
			t.Fatalf("the file reads as another checkpoint: %v", err)
		}
	})
}
