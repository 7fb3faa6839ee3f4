package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/value/mask"
)

// paletteOf returns a palette with all numbers of bits, which the rows of c use in turn.
func paletteOf(c *Checkpoint) *compact.Palette {
	p := &compact.Palette{Quantizers: []compact.Quantizer{
		{Bits: 32}, {Bits: 16}, {Bits: 8, Origin: -3.5, Step: .03}, {Bits: 4, Origin: -3, Step: .4}, {Bits: 3, Origin: -3, Step: .8}, {Bits: 2, Origin: -2, Step: 1.25},
	}}
	pads := c.Architecture.FixedRows()
	for _, s := range c.Architecture.Spans() {
		for i := range s.Rows {
			number := uint8(0)
			if _, pad := slices.BinarySearch(pads, s.Row+i); !pad {
				number = uint8((s.Row + i) % len(p.Quantizers))
			}
			p.Rows = append(p.Rows, number)
		}
		p.Codebook = append(p.Codebook, uint8(s.Row%3))
	}
	return p
}

// A file with a quantizer for each row reads as the table of the rounded values with its
// logits, for models with one table and with several.
func TestMixed(t *testing.T) {
	models := []*Checkpoint{graphOf(t, "ncf.dynamo"), graphOf(t, "recbole-autoint.dynamo")}
	for _, dim := range []int{1, 3, 16, 17, 70} {
		models = append(models, fmOf(t, 40, dim))
	}
	for _, c := range models {
		a := &c.Architecture
		n := a.Parameters()
		for _, kept := range []int{0, 1, n / 8, n - 1, n} {
			dropped := make([]bool, n)
			for i := range dropped {
				dropped[i] = i*7919%n >= kept // 7919 is coprime to every length here
			}
			checkMixed(t, c, dropped, bookOf(c), kept)
			checkMixed(t, c, dropped, wordsOf(c), kept)
		}
	}
}

func checkMixed(t *testing.T, c *Checkpoint, dropped []bool, given model.Baseline, kept int) {
	t.Helper()
	p, baseline := paletteOf(c), readOf(c, dropped, given.Scaled(1))
	table, err := c.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	book := c.Architecture.Book(baseline)
	for j, s := range book.Spans {
		for n := range book.NumberOfWords(j) {
			for k, v := range book.Word(j, n) {
				_, book.Word(j, n)[k] = p.Quantizers[p.Codebook[j]].Nearest(v)
			}
		}
		for i := range s.Rows * s.Dim {
			_, table[s.Entry+i] = p.Quantizers[p.Rows[s.Row+i/s.Dim]].Nearest(table[s.Entry+i])
		}
	}
	want := c.WithEmbedding(mask.Apply(&c.Architecture, table, dropped, baseline))
	path := filepath.Join(t.TempDir(), "m.safetensors")
	bytes, err := WriteMixed(path, c, dropped, given, p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Compact == nil || got.Compact.Encoding() != compact.Mixed || got.Compact.Kept() != kept {
		t.Fatalf("the file keeps %d entries as %s, expected %d", got.Compact.Kept(), got.Compact.Encoding(), kept)
	}
	if gone, book, err := got.Pruned(); err != nil || !slices.Equal(gone, dropped) || !book.Equal(&baseline) {
		t.Errorf("another mask or codebook came back: %v", err)
	}
	checkSame(t, got, want)
	checkModel(t, path, want)
	again := got.Compact.Palette()
	size, err := got.MixedFootprint(dropped, baseline, again)
	if memory := got.Compact.Memory(); err != nil || size.File != bytes || size.Memory != memory || size.Table >= bytes {
		t.Errorf("a footprint of %+v for a file of %d bytes that takes %d in memory: %v", size, bytes, memory, err)
	}
	second := path + "2"
	if _, err := WriteMixed(second, got, dropped, baseline, again); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(second); err != nil || string(after) != string(before) {
		t.Errorf("a file that is written again has other bytes: %v", err)
	}
}

func TestMixedRefuses(t *testing.T) {
	c := fmOf(t, 60, 16)
	f, _, err := c.mixed(every(960, 3), c.Architecture.Zero(), paletteOf(c))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("m", resealed(f.Entries, f.Metadata)); err != nil {
		t.Fatal(err)
	}
	metadata := maps.Clone(f.Metadata)
	metadata[metaFields] = "[]"
	_, err = Parse("m", resealed(f.Entries, metadata))
	wantInput(t, err, "m: compact form: metadata shaver.fields: version 5 has none")
	_, err = Parse("m", unsealed(f.Entries, f.Metadata))
	wantInput(t, err, "m is damaged: its digest is missing")
	for i, e := range f.Entries {
		want := map[string]string{
			tensorPalette: "m: compact form: expected tensor shaver.palette of type U8 and shape [*], found I8 [54]", tensorPositions: "tensor shaver.positions", tensorValues: "tensor shaver.values",
		}[e.Key]
		if want == "" {
			continue
		}
		entries := slices.Clone(f.Entries)
		entries[i].DType = I8
		_, err := Parse("m", resealed(entries, f.Metadata))
		wantInput(t, err, want)
		entries[i] = tensor.Entry{Key: e.Key, Tensor: Tensor{DType: U8, Shape: []int{len(e.Data) - 1}, Data: e.Data[1:]}}
		_, err = Parse("m", resealed(entries, f.Metadata))
		wantInput(t, err, "m: compact form: ")
		_, err = Parse("m", resealed(append(entries[:i:i], entries[i+1:]...), f.Metadata))
		wantInput(t, err, "m: compact form: expected tensor "+e.Key)
	}
	entries := append(slices.Clone(f.Entries), tensor.Entry{Key: c.EmbeddingKey, Tensor: tensor.FromFloat32s([]int{1}, []float32{1})})
	_, err = Parse("m", resealed(entries, f.Metadata))
	wantInput(t, err, "is stored both as a tensor and in compact form")
}

// Every flipped bit of the file is refused.
func TestMixedDigest(t *testing.T) {
	c := fmOf(t, 3, 2)
	for _, baseline := range []model.Baseline{c.Architecture.Zero(), wordsOf(c)} {
		path := filepath.Join(t.TempDir(), "m")
		if _, err := WriteMixed(path, c, every(6, 2), baseline, paletteOf(c)); err != nil {
			t.Fatal(err)
		}
		checkDigests(t, path)
	}
}

func checkDigests(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		for bit := range 8 {
			data[at] ^= 1 << bit
			if _, err := Parse("m", data); !fault.IsInput(err) {
				t.Fatalf("byte %d, bit %d: %v", at, bit, err)
			}
			data[at] ^= 1 << bit
		}
	}
}

// A file with several words has a version of its own, which earlier programs refuse, and a file without them has the bytes of theirs.
func TestWordsVersion(t *testing.T) {
	older, err := filepath.Glob(filepath.Join("..", "..", "..", "testdata", "older", "compact-[35].safetensors"))
	if err != nil || len(older) != 2 {
		t.Fatalf("%v, %v", older, err)
	}
	for _, path := range older {
		c, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		dropped, baseline, err := c.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "again")
		write := func(path string, baseline model.Baseline) (err error) {
			if p := c.Compact.Palette(); p != nil {
				_, err = WriteMixed(path, c, dropped, baseline, p)
			} else {
				_, err = WriteCompact(path, c, dropped, baseline, c.Compact.Encoding())
			}
			return err
		}
		if err := write(again, baseline); err != nil {
			t.Fatal(err)
		}
		before, err1 := os.ReadFile(path)
		after, err2 := os.ReadFile(again)
		if err1 != nil || err2 != nil || string(before) != string(after) {
			t.Errorf("%s: other bytes: %v, %v", path, err1, err2)
		}
		if err := write(again, wordsOf(c)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		entries, metadata, err := parseSafetensors("m", data)
		if err != nil || metadata[metaCompact] != "6" {
			t.Fatalf("%s: version %s, %v", path, metadata[metaCompact], err)
		}
		for i, e := range entries {
			if e.Key == tensorWords {
				entries = slices.Delete(entries, i, i+1)
				break
			}
		}
		_, err = Parse("m", resealed(entries, metadata))
		wantInput(t, err, "m: compact form: expected tensor shaver.words of type U8 with at least one byte, found ")
		read, err := Read(again)
		if err != nil {
			t.Fatal(err)
		}
		if size := read.CompactFootprint(dropped, read.Compact.Baseline(), compact.Float16); read.Compact.Encoding() == compact.Float32 {
			n, err := WriteCompact(again, read, dropped, read.Compact.Baseline(), compact.Float16)
			if err != nil || n != size.File {
				t.Errorf("%s: a footprint of %+v for a file of %d bytes: %v", path, size, n, err)
			}
		}
	}
}
