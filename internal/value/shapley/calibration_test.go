package shapley_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// population is a distribution of rows whose values are known. It lists all possible rows
// with their probabilities and exact values.
type population struct {
	game    shapley.Game
	rows    *model.Rows
	until   []float64   // sum of the probabilities up to and including each row
	exact   [][]float64 // exact values of each row, [D], nat
	average []float64   // mean of the exact values over the distribution, [n, d], nat
}

// newPopulation returns a population whose features differ in frequency as much as those
// of click logs. The label depends on the features.
func newPopulation(t *testing.T, a model.Architecture) *population {
	middle := 6
	a.FieldDims, a.Dim = []int{12, middle, 20}, 2
	if a.Kind == model.NeuMF { // two fields; with fewer than 12 players, two passes are often equal and their intervals too short
		middle, a.FieldDims, a.Dim = 1, []int{12, 20}, 6
	}
	m := modeltest.Random(t, a, 6)
	p := &population{game: shapley.Game{Model: m, Baseline: baseline(m)}, rows: &model.Rows{Width: a.Fields()}, average: make([]float64, a.Parameters())}
	weights, total := []float64{}, 0.0
	offsets := a.Offsets()
	for at := range 2 * 12 * middle * 20 {
		i, j, k, label := at/2%12, at/24%middle, at/24/middle, at%2
		p.rows.Number = append(p.rows.Number, int64(at))
		p.rows.Label = append(p.rows.Label, float32(label))
		p.rows.Features = append(p.rows.Features, offsets[0]+int32(i))
		if middle > 1 {
			p.rows.Features = append(p.rows.Features, offsets[1]+int32(j))
		}
		p.rows.Features = append(p.rows.Features, offsets[a.Fields()-1]+int32(k))
		share := 1 / (1 + math.Exp(float64((7*i+5*j+3*k)%5)-1.5))
		if label == 0 {
			share = 1 - share
		}
		weights = append(weights, share/float64((i+1)*(j+1))/math.Pow(float64(k+1), 1.3))
		total += weights[at]
	}
	sum := 0.0
	for at, weight := range weights {
		sum += weight / total
		p.until = append(p.until, sum)
		one := p.rows.Slice(at, at+1)
		partial, err := shapley.Estimate(t.Context(), p.game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, &one, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		exact := make([]float64, a.Players())
		for i, units := range partial.Sum { // the features ascend in the order of the fields
			exact[i] = float64(units) * tally.LossUnit
			p.average[int(one.Features[i/a.Dim])*a.Dim+i%a.Dim] += weight / total * exact[i]
		}
		p.exact = append(p.exact, exact)
	}
	return p
}

// draw returns n random rows and the mean of their exact values, [n, d].
func (p *population) draw(r *rand.Rand, n int) (rows *model.Rows, average []float64) {
	rows, average = &model.Rows{Width: p.rows.Width}, make([]float64, len(p.average))
	dim := p.game.Model.Dim
	for number := range n {
		at, _ := slices.BinarySearch(p.until, r.Float64())
		at = min(at, len(p.until)-1)
		rows.Number = append(rows.Number, int64(number))
		rows.Label = append(rows.Label, p.rows.Label[at])
		rows.Features = append(rows.Features, p.rows.Row(at)...)
		for i, v := range p.exact[at] {
			average[int(p.rows.Row(at)[i/dim])*dim+i%dim] += v / float64(n)
		}
	}
	return rows, average
}

// coverage counts, for each kind of value and each class of feature frequency, how many
// values lie in their intervals and how many there are.
type coverage map[string][2]int

func (c coverage) add(what string, count int64, off float64, se float32, t float64) {
	if math.IsNaN(t) {
		return
	}
	class := "5 to 9 rows"
	switch {
	case count >= 40:
		class = "40 rows and more"
	case count >= 10:
		class = "10 to 39 rows"
	}
	for _, key := range []string{what, what + ", " + class} {
		v := c[key]
		if v[1]++; math.Abs(off) <= t*float64(se)+1e-7 { // rounding of float32
			v[0]++
		}
		c[key] = v
	}
}

// Over many seeds, models, samples and entries, 93% to 97% of the exact values lie in their
// 95% intervals. This holds for the dataset's own values, from all rows and from a sample,
// and for the population's values. It also holds for features that occur in the fewest rows
// for which there are intervals. Of each kind there is one model, for which it is 91% to 98%.
func TestIntervalsAreCalibrated(t *testing.T) {
	long.Heavy(t)
	found, kinds := coverage{}, coverage{}
	r := rand.New(rand.NewPCG(1, 2))
	const rows, sampled, seeds = 500, 200, 30
	architectures := modeltest.Architectures()
	for _, name := range slices.Sorted(maps.Keys(architectures)) { // sorted, so that every run draws the same rows
		p := newPopulation(t, architectures[name])
		add := func(what string, count int64, off float64, se float32, t float64) {
			found.add(what, count, off, se, t)
			kind, _, _ := strings.Cut(what, ",")
			kinds.add(name+" "+kind, count, off, se, t)
		}
		for seed := range uint64(seeds) {
			all, average := p.draw(r, rows)
			for _, passes := range []int{1, 2, 4} {
				o := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: passes}, Seed: seed}
				result := play(t, p.game, o, all)
				for i, phi := range result.Phi {
					count := result.Count[i/p.game.Model.Dim]
					dataset, population := tally.NewSampling(o.Options, rows).Interval(count, rows)
					add(fmt.Sprintf("population, passes %d", passes), count, phi-p.average[i], result.PopulationSE[i], population)
					if passes > 1 {
						add(fmt.Sprintf("dataset, passes %d", passes), count, phi-average[i], result.SE[i], dataset)
					}
				}
			}
			sample := &model.Rows{Width: all.Width}
			for _, at := range r.Perm(rows)[:sampled] {
				sample.Number, sample.Label = append(sample.Number, int64(at)), append(sample.Label, all.Label[at])
				sample.Features = append(sample.Features, all.Row(at)...)
			}
			o := shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 2}, Seed: seed}
			result := playOf(t, p.game, o, sample, rows)
			for i, phi := range result.Phi {
				count := result.Count[i/p.game.Model.Dim]
				dataset, _ := tally.NewSampling(o.Options, rows).Interval(count, sampled)
				add("dataset, a sample", count, phi-average[i], result.SE[i], dataset)
			}
		}
	}
	if len(found) != 24 {
		t.Fatalf("values in %d classes, expected 24", len(found))
	}
	for what, v := range found {
		share := float64(v[0]) / float64(v[1])
		if t.Logf("%s: %.1f%% of %d", what, 100*share, v[1]); share < .93 || share > .97 {
			t.Errorf("%s: 95%% intervals contain %.1f%% of the exact values, expected 93%% to 97%%", what, 100*share)
		}
	}
	for what, v := range kinds {
		if strings.Contains(what, ",") {
			continue // a class of frequencies
		}
		if share := float64(v[0]) / float64(v[1]); share < .91 || share > .98 {
			t.Errorf("%s: 95%% intervals contain %.1f%% of the exact values, expected 91%% to 98%%", what, 100*share)
		}
	}
}
