package shapley

import (
	"math"
	"testing"

	"shaver/internal/estimator"
	"shaver/internal/model/modeltest"
	"shaver/internal/tally"
)

// The values with flips have the exact values as their mean, and the players of each row sum
// to what they are worth. Multilinear alone does not have them for these models.
func TestFlipsAreUnbiased(t *testing.T) {
	far, all := 0, 0
	for name, a := range modeltest.Architectures() {
		a.FieldDims, a.Dim = []int{2, 2, 2}, 2
		m := modeltest.Random(t, a, 6)
		base := make([]float32, m.Players())
		for i := range base {
			base[i] = 0.1 * float32(i%3)
		}
		game := Game{Model: m, Baseline: base}
		rows := modeltest.Rows(a, 4, 6)
		players := m.Players()
		exact := make([]float64, rows.Len()*players)
		probe := m.NewProbe(base)
		s := &setup{game, Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, probe}
		e := newExact(s)
		full := make([]float64, rows.Len())
		if err := e.play(t.Context(), full, rows); err != nil {
			t.Fatal(err)
		}
		sum := make([]int64, players)
		for r := range rows.Len() {
			probe.Reset(rows, r)
			if err := e.values(sum, nil, r); err != nil {
				t.Fatal(err)
			}
			for i, v := range sum {
				exact[r*players+i] = float64(v) * tally.LossUnit
			}
		}
		const seeds = 3000
		n := len(exact)
		mean, square, plain := make([]float64, n), make([]float64, n), make([]float64, n)
		o := Options{Options: estimator.Options{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 4}}
		d := newDebiased(&setup{game, o, m.NewProbe(base)}).(*debiased)
		for seed := range uint64(seeds) {
			d.options.Seed = seed
			if err := d.play(t.Context(), full, rows); err != nil {
				t.Fatal(err)
			}
			for i, v := range d.value {
				if i >= n {
					break
				}
				v *= tally.LossUnit
				mean[i] += v / seeds
				square[i] += v * v / seeds
				plain[i] += d.base[i] * tally.LossUnit / seeds
			}
		}
		var bias, before, size float64
		for i, want := range exact {
			se := math.Sqrt((square[i] - mean[i]*mean[i]) / seeds)
			if all++; math.Abs(mean[i]-want) > 4*se+1e-6 {
				far++
				t.Logf("%s: player %d of row %d is %g on average, expected %g +- %g", name, i%players, i/players, mean[i], want, se)
			}
			bias, before, size = bias+math.Pow(mean[i]-want, 2), before+math.Pow(plain[i]-want, 2), size+want*want
		}
		t.Logf("%s: bias %.2f%%, without flips %.2f%%", name, 100*math.Sqrt(bias/size), 100*math.Sqrt(before/size))
	}
	if far > all/100 {
		t.Errorf("%d of %d values are more than 4 standard errors off", far, all)
	}
}
