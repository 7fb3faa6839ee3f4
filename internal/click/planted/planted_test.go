package planted

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
)

func TestSilentColumnsAreSilent(t *testing.T) {
	p, err := New(Default)
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, 200)
	before, after := make([]float64, 200), make([]float64, 200)
	p.Model.NewScorer().Logits(before, &rows)
	for _, silent := range []bool{true, false} {
		table := slices.Clone(p.Model.Weights.Embedding)
		for i := range table {
			if (i%p.Model.Dim >= p.Informative) == silent {
				table[i] = 0
			}
		}
		p.Model.WithEmbedding(table).NewScorer().Logits(after, &rows)
		if slices.Equal(before, after) != silent {
			t.Errorf("columns with silent = %v: dropping them leaves the logits unchanged: %v", silent, !silent)
		}
	}
}

// Rows depend only on their numbers, follow Zipf's law, and have labels with the model's
// probabilities.
func TestRows(t *testing.T) {
	p, err := New(Default)
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	var all, part model.Rows
	p.Rows(&all, 0, n)
	p.Rows(&part, 500, 10)
	if !slices.Equal(all.Features[500*len(p.Fields):510*len(p.Fields)], part.Features) || !slices.Equal(all.Label[500:510], part.Label) {
		t.Error("rows depend on the first row number")
	}
	logits := make([]float64, n)
	p.Model.NewScorer().Logits(logits, &all)
	expected, positives, harmonic, first := 0.0, 0.0, 0.0, 0.0
	for i := range n {
		if err := p.Model.CheckRow(all.Row(i)); err != nil {
			t.Fatal(err)
		}
		expected += 1 / (1 + math.Exp(-logits[i]))
		positives += float64(all.Label[i])
		if all.Row(i)[0] == 0 {
			first++
		}
	}
	for k := range p.FieldDims[0] {
		harmonic += 1 / float64(k+1)
	}
	if math.Abs(positives-expected) > 4*math.Sqrt(n)/2 {
		t.Errorf("%v positives, expected %.0f", positives, expected)
	}
	if want := n / harmonic; math.Abs(first-want) > 5*math.Sqrt(want) {
		t.Errorf("the most frequent feature occurs %v times, expected %.0f", first, want)
	}
}
