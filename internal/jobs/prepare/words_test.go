package prepare

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/random"
	"shaver/internal/value/baseline"
)

// clustered returns a finder for an FM with a field of 800 features around 4 centres, and one of 3. spread is the distance of a feature from its
// centre. The labels follow the model.
func clustered(t *testing.T, centres bool, spread float64) *wordFinder {
	t.Helper()
	a := model.Architecture{Kind: model.FM, FieldDims: []int{800, 3}, Dim: 16}
	w := modeltest.Weights(a, 1)
	clear(w.Linear)
	s := random.At(5, random.Order, 0, 0)
	for i := range w.Embedding {
		w.Embedding[i] = float32((s.Float64() - .5) * 2 * spread)
		if row := i / 16; row >= 800 {
			w.Embedding[i] = 1
		} else if centres {
			w.Embedding[i] += float32(row%4) - 1.5
		}
	}
	m, err := model.New(a, w)
	if err != nil {
		t.Fatal(err)
	}
	f := &wordFinder{model: m, counts: make([]int64, 803), rows: &model.Rows{Width: 2}}
	for r := range 8000 {
		row := []int32{int32(s.Float64() * 800), 800 + int32(s.Float64()*3)}
		f.rows.Features, f.rows.Number = append(f.rows.Features, row...), append(f.rows.Number, int64(r))
		f.counts[row[0]]++
		f.counts[row[1]]++
	}
	logits := make([]float64, 8000)
	f.rows.Label = make([]float32, 8000)
	m.NewScorer().Logits(logits, f.rows)
	for r, logit := range logits {
		if s.Float64() < 1/(1+math.Exp(-logit)) {
			f.rows.Label[r] = 1
		}
	}
	f.finder = baseline.NewFinder(&m.Architecture, m.Weights.Embedding, f.counts)
	return f
}

// A field of a few clusters gets their words. A field around one centre keeps one word, because several save nothing and cost bits.
func TestNumbersOfWords(t *testing.T) {
	t.Parallel()
	f := clustered(t, true, .001)
	if err := f.choose(); err != nil {
		t.Fatal(err)
	}
	if f.numbers[0] != 4 || f.numbers[1] != 1 {
		t.Errorf("%v words, expected those of 4 clusters and 1", f.numbers)
	}
	b := f.words
	for i := range 800 {
		if f.counts[i] == 0 {
			continue
		}
		if word := f.model.Book(b).Of(0, i); math.Abs(float64(word[0])-(float64(i%4)-1.5)) > .1 {
			t.Fatalf("feature %d of cluster %d reads %v", i, i%4, word)
		}
	}
	f = clustered(t, false, .05)
	if err := f.choose(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.numbers, []int{1, 1}) || f.words.Words != nil {
		t.Errorf("%v words of rows around one centre", f.numbers)
	}
}

// Numbers of words are compared in tables of a sixty-fourth of the bits: words and numbers come first, and what is left is for the entries
// of which |weight - word| * sqrt(occurrences) is largest. Words that take more by themselves are not compared.
func TestTablesOfWords(t *testing.T) {
	t.Parallel()
	f := clustered(t, true, .5)
	a, table := &f.model.Architecture, f.model.Weights.Embedding
	b := f.finder.Words([]int{3, 1})
	values := make([]float64, len(table))
	for i := range values {
		span, row := 0, i/16
		if row >= 800 {
			span, row = 1, row-800
		}
		values[i] = math.Abs(float64(table[i])-float64(a.Book(b).Of(span, row)[i%16])) * math.Sqrt(float64(f.counts[i/16]))
	}
	kept := int((32*float64(len(table))/64 - 8*2*16 - numberBits(a.Book(b))) / 12)
	least := slices.Sorted(slices.Values(values))[len(values)-kept]
	pruned := slices.Clone(table)
	for i, v := range values {
		if v < least {
			pruned[i] = a.Book(b).Of(min(i/16/800, 1), i/16%800)[i%16]
		}
	}
	want := make([]float64, f.rows.Len())
	f.model.WithEmbedding(pruned).NewScorer().Logits(want, f.rows)
	got, err := f.predict(b)
	if err != nil || !slices.Equal(got.Logits, want) {
		t.Errorf("other logits than those of %d kept entries: %v", kept, err)
	}
	if got, err := f.predict(f.finder.Words([]int{256, 1})); got != nil || err != nil {
		t.Errorf("256 words fit: %v", err)
	}
}

// Rows that no method drops are kept, whatever their values are.
func TestDropWithoutFixedRows(t *testing.T) {
	t.Parallel()
	m := modeltest.ListModel("sum", 1)
	fixed, shape := m.FixedRows(), m.Shape()
	values := make([]float64, m.Parameters()) // 0 in fixed rows
	for row := range shape.Rows() {
		from, to := shape.Row(row)
		for i := from; i < to && !slices.Contains(fixed, row); i++ {
			values[i] = float64(1 + i)
		}
	}
	f := &wordFinder{model: m}
	for i, dropped := range f.drop(values, 0) {
		row := 0
		for _, to := shape.Row(row); i >= to; _, to = shape.Row(row) {
			row++
		}
		if is := slices.Contains(fixed, row); dropped == is {
			t.Errorf("entry %d of row %d, fixed %v: dropped %v", i, row, is, dropped)
		}
	}
}

// The bits of numbers are the sum over rows of -log2 of how often their word is read.
func TestNumberBits(t *testing.T) {
	t.Parallel()
	a := model.Architecture{FieldDims: []int{5, 4}, Dim: 1}
	b := model.Baseline{Values: []float32{1, 2, 3, 4}, Words: []int{3, 1}, Numbers: []uint8{0, 0, 1, 2, 0, 0, 0, 0, 0}}
	if err := a.CheckBaseline(&b); err != nil {
		t.Fatal(err)
	}
	want := -3*math.Log2(3./5) - 2*math.Log2(1./5)
	if got := numberBits(a.Book(b)); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v bits, expected %v", got, want)
	}
}
