package planted

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
)

// distance returns the root mean square of the difference of two tables, relative to that of
// the first.
func distance(a, b *Planted) float64 {
	x, y := a.Model.Weights.Embedding, b.Model.Weights.Embedding
	var off, all float64
	for i := range x {
		off += float64(x[i]-y[i]) * float64(x[i]-y[i])
		all += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(off / all)
}

// A drift turns the parameters by the asked amount and keeps their size. Another step drifts
// elsewhere, and gives other rows. Silent columns stay silent.
func TestDrifted(t *testing.T) {
	p, err := New(Default)
	if err != nil {
		t.Fatal(err)
	}
	one, err := p.Drifted(.1, 1)
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.Drifted(.1, 2)
	if err != nil {
		t.Fatal(err)
	}
	same, err := p.Drifted(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d := distance(p, same); d != 0 {
		t.Errorf("without a drift the table moves by %v", d)
	}
	if d := distance(p, one); d < .09 || d > .11 {
		t.Errorf("the table moved by %v, expected 0.1", d)
	}
	if d := distance(one, two); d < .12 || d > .16 {
		t.Errorf("two drifts differ by %v, expected 0.14", d)
	}
	var a, b model.Rows
	one.Rows(&a, 0, 100)
	two.Rows(&b, 0, 100)
	if slices.Equal(a.Features, b.Features) {
		t.Error("two steps have the same rows")
	}
	logits, without := make([]float64, 100), make([]float64, 100)
	one.Model.NewScorer().Logits(logits, &a)
	table := slices.Clone(one.Model.Weights.Embedding)
	for i := range table {
		if i%one.Model.Dim >= one.Informative {
			table[i] = 0
		}
	}
	one.Model.WithEmbedding(table).NewScorer().Logits(without, &a)
	if !slices.Equal(logits, without) {
		t.Error("the network reads a silent column")
	}
}

// A retraining moves the parameters by its rate, and adds its noise.
func TestRetrained(t *testing.T) {
	p, err := New(Default)
	if err != nil {
		t.Fatal(err)
	}
	truth, err := p.Drifted(.2, 1)
	if err != nil {
		t.Fatal(err)
	}
	whole := distance(p, truth)
	for _, c := range []struct{ rate, noise, moved, left float64 }{{0, 0, 0, whole}, {1, 0, whole, 0}, {.5, 0, whole / 2, whole / 2}, {0, .01, .01, whole}} {
		trained, err := p.Retrained(truth, c.rate, c.noise, 1)
		if err != nil {
			t.Fatal(err)
		}
		if moved, left := distance(p, trained), distance(truth, trained); math.Abs(moved-c.moved) > .002 || math.Abs(left-c.left) > .002 {
			t.Errorf("rate %v, noise %v: moved by %.4f and %.4f from the truth, expected %.4f and %.4f", c.rate, c.noise, moved, left, c.moved, c.left)
		}
	}
}
