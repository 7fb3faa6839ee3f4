package scores

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// AggregateSE predicts how much the aggregates of simulated entries vary from sample to
// sample. Each entry occurs in a portion of the rows, and its contributions have one of
// several distributions. The errors of Sum and Abs are right for all of them. That of RMS is
// right if contributions are equal in magnitude, and larger than the truth, by at most a
// third, for the other distributions.
func TestAggregateSE(t *testing.T) {
	const rows, repeats = 2000, 1500
	shapes := []func(*rand.Rand) float64{
		func(r *rand.Rand) float64 { return r.NormFloat64() - .3 },
		func(r *rand.Rand) float64 { return r.ExpFloat64() * float64(1-2*r.IntN(2)) },
		func(r *rand.Rand) float64 { return float64(1 - 2*r.IntN(2)) },
		func(r *rand.Rand) float64 { return r.Float64() },
	}
	portions := []float64{.05, .5}
	n := len(shapes) * len(portions)
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{Sum, Abs, RMS}
	type moments struct{ sum, square, variance float64 }
	all := make([][]moments, len(names))
	for a := range all {
		all[a] = make([]moments, n)
	}
	f := &File{DatasetRows: rows, Result: tally.Result{Rows: rows, Scores: tally.Scores{Shape: layout.Of(n, 1), Count: make([]int64, n), Values: tally.NewValues(n)}}}
	for range repeats {
		for i := range n {
			var sum, abs, square float64
			f.Count[i] = 0
			for range rows {
				if random.Float64() < portions[i%2] {
					c := shapes[i/2](random)
					sum, abs, square = sum+c, abs+math.Abs(c), square+c*c
					f.Count[i]++
				}
			}
			f.Phi[i], f.Abs[i], f.RMS[i] = sum/rows, float32(abs/rows), float32(math.Sqrt(square/rows))
			f.PopulationSE[i] = float32(math.Sqrt((square - sum*sum/rows) / (rows - 1) / rows))
		}
		for a, name := range names {
			values, err := f.Aggregate(name)
			if err != nil {
				t.Fatal(err)
			}
			errors, err := f.AggregateSE(name)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				m := &all[a][i]
				m.sum, m.square, m.variance = m.sum+values[i], m.square+values[i]*values[i], m.variance+errors[i]*errors[i]
			}
		}
	}
	for a, name := range names {
		for i := range n {
			m := all[a][i]
			truth := math.Sqrt(m.square/repeats - m.sum/repeats*(m.sum/repeats))
			ratio, most := math.Sqrt(m.variance/repeats)/truth, 1.06
			if name == RMS && i/2 != 2 {
				most = 1.35
			}
			if ratio < .94 || ratio > most {
				t.Errorf("%s, distribution %d, portion %g: the mean standard error is %.3f of the truth, expected %.2f to %.2f", name, i/2, portions[i%2], ratio, .94, most)
			}
		}
	}
}

// A single row, an entry that does not occur, and the errors of a paired job.
func TestAggregateSEOfFewRows(t *testing.T) {
	f := example()
	f.Count = []int64{1, 0, 4}
	f.Phi, f.Abs, f.RMS = []float64{.5, 0, 0, 0, 1, 2}, []float32{.5, 0, 0, 0, 1, 2}, []float32{1, 0, 0, 0, 1, 2}
	near := func(name string, i int, want float64) {
		t.Helper()
		got, err := f.AggregateSE(name)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got[i]-want) > 1e-6 {
			t.Errorf("the error of %s of entry %d is %v, expected %v", name, i, got[i], want)
		}
	}
	near(Sum, 0, .2)
	near(Abs, 0, math.Sqrt((1-.25)/3))
	near(RMS, 0, math.Sqrt(1-.25)/2) // one row of four
	near(Abs, 2, 0)
	near(RMS, 2, 0)
	near(Abs, 4, 0) // the same contribution in every row
	near(RMS, 4, 0)
	f.Rows, f.DatasetRows = 1, 1
	near(Abs, 0, 1)
	f.Rows, f.DatasetRows, f.Lineage = 4, 8, &Lineage{}
	f.AbsPairedSE, f.RMSPairedSE = []float32{0, 0, 3, 0, 0, 0}, []float32{3, 0, 2, 0, 0, 0}
	near(Abs, 0, math.Sqrt((1-.25)/7))
	near(Abs, 2, 3)
	near(RMS, 0, math.Sqrt(9+1./4*(1./2-1./8)))
	near(RMS, 2, 2)
	if _, err := f.AggregateSE("max"); err == nil || !strings.Contains(err.Error(), "the aggregates are rms, sum, abs") {
		t.Error(err)
	}
}
