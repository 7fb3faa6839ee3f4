package tally

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
)

// The standard error of the mean of rows with weights is that of a ratio of sums: the root of the sum of the squares of
// w*(c - mean), divided by the sum of w. It is right even if the weights depend on what rows contribute, as with negatives of which one in a hundred was
// drawn. The root mean square is that of w equal rows.
func TestRowWeights(t *testing.T) {
	const n = 60
	by := estimator.Weights{Rows: 1000}
	e := Sampling{Passes: 2, Walks: 2, Rows: 3 * n, Efficient: true, Weights: by}
	r := rand.New(rand.NewPCG(1, 2))
	b := NewBuilder(layout.Of(3, 1), 2, Form{Within: true})
	b.Weigh(by)
	type row struct{ w, c, v float64 }
	rows := map[int32][]row{}
	var weight, squares float64
	for i := range n {
		w := int64(1)
		played := &Played{LossFull: 1 << 36, Sum: []int64{r.Int64N(1<<34) + 1<<36, 0}} // 2 contributions of about 1/2 nat
		if i%2 == 1 {
			w = []int64{100, 1000}[i/2%2]
			played.Sum[0] = r.Int64N(1 << 31)
		}
		played.Sum[1] = r.Int64N(1<<32) - 1<<30
		played.Weight, played.LossEmpty = w, played.LossFull+(played.Sum[0]+played.Sum[1])/2
		played.Sum[1] += (played.Sum[0] + played.Sum[1]) % 2
		played.LossEmpty = played.LossFull + (played.Sum[0]+played.Sum[1])/2
		features, within := []int32{0, 1 + int32(i%2)}, []int64{r.Int64N(1 << 40), r.Int64N(1 << 40)}
		for k, f := range features {
			rows[f] = append(rows[f], row{float64(w), float64(played.Sum[k]) * LossUnit / 2, float64(within[k]) * SquareUnit / 4})
		}
		weight, squares = weight+float64(w), squares+float64(w*w)
		if err := b.Add(features, played, within); err != nil {
			t.Fatal(err)
		}
	}
	a := NewAccumulator(layout.Of(3, 1), e.Form(2))
	if err := a.Merge(b.Partial()); err != nil {
		t.Fatal(err)
	}
	got, err := a.Result(e)
	if err != nil {
		t.Fatal(err)
	}
	for f, all := range rows {
		var sum, rms, apart, within float64
		for _, r := range all {
			sum, rms, within = sum+r.w*r.c, rms+r.w*r.c*r.c, within+r.w*r.w*r.v
		}
		mean := sum / weight
		for _, r := range all {
			apart += r.w * r.w * (r.c - mean) * (r.c - mean)
			squares -= r.w * r.w
		}
		apart += squares * mean * mean // of the rows without the feature
		for _, r := range all {
			squares += r.w * r.w
		}
		variance := apart * n / (n - 1)
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"value", got.Phi[f], mean},
			{"root mean square", float64(got.RMS[f]), math.Sqrt(rms / weight)},
			{"standard error of the population", float64(got.PopulationSE[f]), math.Sqrt(variance) / weight},
			{"standard error of the dataset", float64(got.SE[f]), math.Sqrt(2./3*variance+within/3) / weight},
		} {
			if math.Abs(c.got-c.want) > 1e-5*c.want {
				t.Errorf("entry %d: the %s is %v, expected %v", f, c.name, c.got, c.want)
			}
		}
	}
	if got.Weight != int64(weight) || got.Rows != n {
		t.Errorf("%d rows of weight %d, expected %d of %v", got.Rows, got.Weight, n, weight)
	}
}

// The largest weight of a job times what a contribution may be at most neither overflows nor loses small ones. What does not fit is an error that says so.
func TestLargestWeight(t *testing.T) {
	for _, largest := range []int64{16, 17, 1000, estimator.MostWeight} {
		by := estimator.Weights{Rows: largest}
		most := 16 << by.Shift()
		if int64(most) < largest || int64(most) >= 2*largest && by.Shift() > 0 {
			t.Errorf("the weight %d has the shift %d", largest, by.Shift())
		}
		builder := func() *Builder {
			b := NewBuilder(layout.Of(1, 1), 1, Form{Within: true})
			b.Weigh(by)
			return b
		}
		played := func(w int64, nat float64) *Played {
			x := int64(nat / LossUnit)
			return &Played{Weight: w, LossEmpty: x, Sum: []int64{x}}
		}
		for _, w := range []int64{1, (largest + 15) / 16, largest} {
			for _, nat := range []float64{1e-3, 1, 45} {
				b, row := builder(), played(w, nat)
				if !b.Fits(row) {
					t.Fatalf("%v nat of weight %d do not fit", nat, w)
				}
				if err := b.Add([]int32{0}, row, []int64{1 << 50}); err != nil {
					t.Fatalf("%v nat of weight %d: %v", nat, w, err)
				}
				a := NewAccumulator(layout.Of(1, 1), Form{Within: true, Weighted: true})
				if err := a.Merge(b.Partial()); err != nil {
					t.Fatalf("%v nat of weight %d: %v", nat, w, err)
				}
				v := NewValues(1)
				a.Values(0, Sampling{Passes: 2, Walks: 1, Rows: 1, Weights: by}, v)
				if math.Abs(float64(v.RMS[0])-nat) > .01*nat || math.Abs(v.Phi[0]-nat) > .01*nat {
					t.Errorf("%v nat of weight %d have the root mean square %v and the mean %v", nat, w, v.RMS[0], v.Phi[0])
				}
			}
		}
		for _, w := range []int64{1, largest} {
			b, row := builder(), played(w, 730)
			if b.Fits(row) {
				t.Errorf("730 nat of weight %d fit", w)
			}
			if err := b.Add([]int32{0}, row, nil); err == nil || !strings.Contains(err.Error(), "overflows") && !strings.Contains(err.Error(), "choose smaller weights") {
				t.Errorf("730 nat of weight %d: %v", w, err)
			}
		}
		if err := builder().Add([]int32{0}, played(1, 1), []int64{math.MaxInt64}); err != nil {
			t.Error(err)
		}
		if err := builder().Add([]int32{0}, played(largest, 1), []int64{math.MaxInt64}); err == nil || !strings.Contains(err.Error(), "the variance of player 0") {
			t.Errorf("a variance that overflows: %v", err)
		}
		rounded := builder()
		if got, ok := rounded.timesSquare(3<<(2*by.Shift())/2, 1); !ok || by.Shift() > 0 && got != 2 {
			t.Errorf("1.5 is rounded to %d", got)
		}
		row := played(largest, 0)
		row.LossFull = MaxLoss / LossUnit
		if err := builder().Add([]int32{0}, row, nil); largest > 16 && (err == nil || !strings.Contains(err.Error(), "choose smaller weights")) {
			t.Errorf("a loss that overflows with the weight %d: %v", largest, err)
		}
		terms := NewTermsBuilder(layout.Of(1, 1), layout.NewMask(1))
		terms.Weigh(by)
		if err := terms.AddTerms([]int32{0}, &Terms{LossFull: 1 << 36, Weight: largest, Change: []float64{1e6}, First: 1, Second: 1}); err != nil {
			t.Fatal(err)
		}
		p, unit := terms.Partial(), SquareUnit*float64(int64(1)<<by.Shift())
		if first, second := float64(p.Sum[0])*LossUnit, float64(p.Square[0])*unit; p.High != nil || first != float64(32*largest) || second != float64(1024*largest) {
			t.Errorf("clipped terms of weight %d are %v and %v", largest, first, second)
		}
	}
	for _, c := range []struct {
		weights estimator.Weights
		rows    int64
		fits    bool
	}{
		{estimator.Weights{Rows: estimator.MostWeight}, 1 << 30, true},
		{estimator.Weights{Rows: estimator.MostWeight + 1}, 1, false},
		{estimator.Weights{Fresh: 16, Rows: estimator.MostWeight / 16}, 1, true},
		{estimator.Weights{Fresh: 16, Rows: estimator.MostWeight/16 + 1}, 1, false},
		{estimator.Weights{Rows: estimator.MostWeight}, 1 << 31, false},
	} {
		if err := c.weights.Validate(c.rows); (err == nil) != c.fits {
			t.Errorf("%+v of %d rows: %v", c.weights, c.rows, err)
		}
	}
}

// The rows of the tasks of a row of data may be copies of each other. The population's standard error of n rows, each copied four times, is that
// of the n rows, except for the degrees of freedom.
func TestErrorsOfTasks(t *testing.T) {
	const n, centre, square = 50., 3., 20.
	one, four := Sampling{Rows: n}, Sampling{Rows: 4 * n, Tasks: 4}
	_, want := one.errors(weights{n, n, n}, centre, square, 0)
	_, got := four.errors(weights{4 * n, 4 * n, 4 * n}, 4*centre, 4*square, 0)
	if want *= math.Sqrt(4 * (n - 1) / (4*n - 1)); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v, expected %v", got, want)
	}
}
