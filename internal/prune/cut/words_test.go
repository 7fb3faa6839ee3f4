package cut_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/keep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// words replaces the scores of f by scores with two words for each field of more than two ids.
func (f *files) words(t *testing.T) *scores.File {
	t.Helper()
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	b := &s.Baseline
	for i := range b.Values {
		b.Values[i] = float32(i+1) / 16
	}
	for _, n := range s.Layout.FieldDims {
		words := min(2, n-1)
		for range (words - 1) * s.Layout.Dim {
			b.Values = append(b.Values, -float32(len(b.Values))/16)
		}
		b.Words = append(b.Words, words)
		for i := range n {
			b.Numbers = append(b.Numbers, uint8(i%words))
		}
	}
	s.Spec.Baseline, f.scores = baseline.Words, filepath.Join(f.dir, "words.arrow")
	if err := scores.Write(f.scores, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A file with several words keeps to its budget in bytes. A sweep knows its size, and readers get the words of the rows.
func TestWordsKeepToTheirBytes(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s := f.words(t)
	source, err := cut.Open(f.model, "", f.scores)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range compact.Encodings() {
		for kept := range f.entries {
			o := f.options("kept.safetensors", mask.Kept, float64(kept+len(s.Baseline.Values)))
			o.Form.Values = v
			_, sizes := prune(t, o)
			o = f.options("bytes.safetensors", mask.Bytes, float64(sizes.Bytes))
			o.Form.Values = v
			c, found := prune(t, o)
			info, err := os.Stat(o.Out)
			if err != nil || found.Bytes > sizes.Bytes || c.Kept < kept || info.Size() != found.Bytes {
				t.Fatalf("%s: %d entries in %d bytes, expected at least %d in %d", v, c.Kept, found.Bytes, kept, sizes.Bytes)
			}
			method, err := source.Unpruned(nil, keep.Rules{}, v).ByScores(s, 0, c.Aggregate, mask.Abs)
			if err != nil {
				t.Fatal(err)
			}
			p, entries, err := method.Cut(*o.Budget)
			if err != nil || *p.Bytes != found.Bytes || *p.TableBytes != found.TableBytes {
				t.Fatalf("%s: a sweep has %d bytes, expected %d: %v", v, *p.Bytes, found.Bytes, err)
			}
			read, err := checkpoint.Read(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			got, err := read.Embedding()
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if got[i] != entries[i] {
					t.Fatalf("%s: entry %d reads %v, expected %v", v, i, got[i], entries[i])
				}
			}
		}
	}
}

// The choices of a file with several words are kept without scores: the rows of the model read the words that they read, which are means of the
// model. Kept once more, the file is the same.
func TestKeptWords(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	s := f.words(t)
	first := len(s.Layout.FieldDims) * s.Layout.Dim // value of a second word
	prune(t, f.options("before.safetensors", mask.Sparsity, .7))
	f.scores = ""
	var data []string
	for _, name := range []string{"before", "after", "again"} {
		path := filepath.Join(f.dir, name+".safetensors")
		if name != "before" {
			o := f.options(name+".safetensors", "", 0)
			o.Previous, o.Budget = filepath.Join(f.dir, "before.safetensors"), nil
			if name == "again" {
				o.Previous = filepath.Join(f.dir, "after.safetensors")
			}
			if c, _ := prune(t, o); c.Baseline != baseline.Words || c.Method != cut.ByPrevious {
				t.Errorf("%s: method %s, baseline %s", name, c.Method, c.Baseline)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, string(text))
	}
	pruned := func(name string) ([]bool, model.Baseline) {
		ck, err := checkpoint.Read(filepath.Join(f.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		dropped, b, err := ck.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		return dropped, b
	}
	dropped, before := pruned("before.safetensors")
	kept, after := pruned("after.safetensors")
	if !slices.Equal(dropped, kept) || !slices.Equal(before.Numbers, after.Numbers) || !slices.Equal(before.Words, after.Words) || slices.Equal(before.Values[first:], after.Values[first:]) {
		t.Errorf("%v words, expected %v with other values", after.Words, before.Words)
	}
	if data[1] != data[2] {
		t.Error("kept once more, the file is another one")
	}
}

// The compact, the dense and the .onnx file have the same tables, in which dropped entries read the words of their rows.
func TestWordsInEachForm(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.model = filepath.Join("..", "..", "..", "testdata", "onnx", "pytorch-fm-deepfm.legacy.onnx")
	ck, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scores.Read(f.scores)
	if err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture
	s.Spec.Model, s.Layout, s.Fields, s.Baseline, f.entries = ck.Digest(), scores.LayoutOf(a), nil, a.Zero(), a.Parameters()
	for j := range a.FieldDims {
		s.Fields = append(s.Fields, string(rune('a'+j)))
	}
	s.Result = tally.Result{Rows: 8, Scores: tally.Scores{Shape: a.Shape(), Count: slices.Repeat([]int64{3}, a.Features()), Values: tally.NewValues(f.entries)}}
	for i := range s.Phi {
		s.Phi[i], s.RMS[i] = float64(i*7%f.entries), float32(i*7%f.entries)
	}
	if err := scores.Write(f.scores, s); err != nil {
		t.Fatal(err)
	}
	s = f.words(t)
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"compact.safetensors", "dense.safetensors", "pruned.onnx"} {
		o := f.options(form, mask.Sparsity, .5)
		o.Dataset, o.Form.Dense = nil, form == "dense.safetensors"
		c, _ := prune(t, o)
		if c.Words != s.WordsText(&s.Baseline) || c.Words == "" {
			t.Errorf("%s: the words are %q", form, c.Words)
		}
		read, err := checkpoint.Read(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read.Embedding()
		if err != nil {
			t.Fatal(err)
		}
		book, dropped := a.Book(s.Baseline), 0
		for j, span := range book.Spans {
			for i := range span.Rows * span.Dim {
				want := table[span.Entry+i]
				if got[span.Entry+i] != want {
					want = book.Of(j, i/span.Dim)[i%span.Dim]
					dropped++
				}
				if got[span.Entry+i] != want {
					t.Fatalf("%s: entry %d reads %v, expected its own value or %v", form, span.Entry+i, got[span.Entry+i], want)
				}
			}
		}
		if dropped != c.Dropped {
			t.Errorf("%s: %d entries read a word, expected %d", form, dropped, c.Dropped)
		}
	}
}

// A file with several words whose tables have other columns than the model's is bad input.
func TestKeptWordsOfOtherTables(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	f.model, f.scores = filepath.Join("..", "..", "..", "testdata", "onnx", "field-aware.legacy.onnx"), ""
	ck, err := checkpoint.Read(f.model)
	if err != nil {
		t.Fatal(err)
	}
	rows := filepath.Join(f.dir, "rows.csv")
	if err := os.WriteFile(rows, []byte("label,a,b,c\n0,0,7,18\n1,6,17,22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := f.options("out.safetensors", "", 0)
	o.Previous, o.Budget, o.Dataset = filepath.Join(f.dir, "before.safetensors"), nil, []string{filepath.Join(f.dir, "day")}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{rows}, Val: []string{rows}, Global: true, OnBadRow: ingest.Fail, Sizes: ck.Architecture.FieldDims, Out: o.Dataset[0]}); err != nil {
		t.Fatal(err)
	}
	a := &ck.Architecture
	a.Tables = slices.Clone(a.Tables)
	a.Tables[1].Dim, a.Tables[2].Dim = a.Tables[2].Dim, a.Tables[1].Dim // so that it has as many words and rows, and fewer entries
	ck.Tensors[ck.EmbeddingKey] = tensor.FromFloat32s([]int{a.Parameters()}, make([]float32, a.Parameters()))
	last := a.Spans()[len(a.Tables)-1]
	b := model.Baseline{Values: slices.Repeat([]float32{1}, 2*a.BaselineSize()), Words: slices.Repeat([]int{2}, len(a.Tables)), Numbers: make([]uint8, last.Row+last.Rows)}
	if _, err := checkpoint.WriteCompact(o.Previous, ck, slices.Repeat([]bool{true}, a.Parameters()), b, compact.Float32); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Choose(t.Context()); !fault.IsInput(err) || !strings.Contains(err.Error(), "columns for field") {
		t.Errorf("error %v", err)
	}
}
