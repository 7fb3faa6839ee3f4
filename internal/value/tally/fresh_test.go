package tally

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
)

// A fresh row counts as often as its weight says. Means are weighted means, and the standard error of one is that of a mean
// of independent rows with weights w, sum of (w*c)^2 about its mean, for which the definition is written out here.
func TestWeights(t *testing.T) {
	const weight, n = 5, 40
	r := rand.New(rand.NewPCG(1, 2))
	e := Sampling{Passes: 1, Walks: 1, Rows: 4 * n, Efficient: true, Weights: estimator.Weights{Fresh: weight}}
	b := NewBuilder(layout.Of(3, 1), 1, Form{})
	var w, square, losses float64 // sums of weights, of their squares, and of weighted losses
	var sum, size, squares [3]float64
	var fresh int64
	for row := range n {
		times := int64(1)
		if row%4 == 1 {
			times, fresh = weight, fresh+1
		}
		played := &Played{LossFull: 1<<34 + r.Int64N(1<<34), Weight: times, Sum: []int64{r.Int64N(1<<36) - 1<<35, r.Int64N(1<<36) - 1<<34}}
		played.LossEmpty = played.LossFull + played.Sum[0] + played.Sum[1]
		features := []int32{0, 1 + int32(row%2)}
		for i, f := range features {
			x := float64(times) * float64(played.Sum[i]) * LossUnit
			sum[f], size[f], squares[f] = sum[f]+x, size[f]+math.Abs(x), squares[f]+x*x
		}
		w, square, losses = w+float64(times), square+float64(times*times), losses+float64(times*played.LossFull)*LossUnit
		if !b.Fits(played) {
			t.Fatal("a small row does not fit")
		}
		if err := b.Add(features, played, nil); err != nil {
			t.Fatal(err)
		}
	}
	a := NewAccumulator(layout.Of(3, 1), Form{})
	if err := a.Merge(b.Partial()); err != nil {
		t.Fatal(err)
	}
	got, err := a.Result(e)
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, value, want float64) {
		t.Helper()
		if math.Abs(value-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s is %v, expected %v", name, value, want)
		}
	}
	for f := range sum {
		mean := sum[f] / w
		variance := (squares[f] - mean*mean*square) / (w * w) * n / (n - 1)
		near("a value", got.Phi[f], mean)
		near("an absolute value", float64(got.Abs[f]), size[f]/w)
		near("a root of a mean square", float64(got.RMS[f]), math.Sqrt(squares[f]/square))
		near("a standard error", float64(got.PopulationSE[f]), math.Sqrt(variance))
	}
	near("the loss", got.LossFull, losses/w)
	if got.Rows != n || got.Fresh != fresh || a.Summary().Weighed(e.Weights).Sum != int64(w) {
		t.Errorf("%d rows, %d fresh, weight %d", got.Rows, got.Fresh, a.Summary().Weighed(e.Weights).Sum)
	}
	if steep := (&Played{Weight: weight, Sum: []int64{maxContribution / 2, 0}, LossEmpty: maxContribution / 2}); b.Fits(steep) {
		t.Error("a row fits although its square overflows with its weight")
	}
}
