package shapley_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// The 95% intervals of fields hold the values of the population in about 95% of the samples, for exact values and for
// walks. A field that the model does not use has the value 0 in each of them.
func TestFieldIntervals(t *testing.T) {
	const drawn, samples = 80, 400
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{6, 5, 4, 3}, Dim: 3, Hidden: []int{7}}
	w := modeltest.Weights(a, 2)
	unused := a.Features() - a.FieldDims[3]
	for f := unused; f < a.Features(); f++ { // all features of the last field are the same
		copy(w.Embedding[f*a.Dim:(f+1)*a.Dim], w.Embedding[unused*a.Dim:])
		w.FirstOrder[f] = w.FirstOrder[unused]
	}
	m, err := model.New(a, w)
	if err != nil {
		t.Fatal(err)
	}
	population, background := modeltest.Rows(a, 300, 5), modeltest.Rows(a, 4, 6)
	want := make([]float64, a.Fields()) // over all rows and all background rows
	for b := range background.Len() {
		one := background.Slice(b, b+1)
		game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: &shapley.Fields{Background: &one}}
		for i, phi := range valuesOf(t, game, estimator.Exact, 1, population).Phi {
			want[i] += phi / float64(background.Len())
		}
	}
	game := shapley.Game{Model: m, Loss: loss.Logistic, Fields: &shapley.Fields{Background: background}}
	for _, name := range []string{estimator.Exact, estimator.Antithetic} {
		r, held, number := rand.New(rand.NewPCG(7, 8)), make([]int, a.Fields()), int64(0)
		_, factor := tally.NewSampling(estimator.Options{Estimator: name, Passes: 1}, drawn).Interval(drawn, drawn)
		for range samples {
			rows := &model.Rows{}
			for range drawn {
				rows.Append(population, r.IntN(population.Len()))
				rows.Number[rows.Len()-1] = number // draws its own background row and order
				number++
			}
			result := valuesOf(t, game, name, 1, rows)
			for i, phi := range result.Phi {
				if math.Abs(phi-want[i]) <= factor*float64(result.PopulationSE[i]) {
					held[i]++
				}
			}
			if last := a.Fields() - 1; result.Phi[last] != 0 || result.PopulationSE[last] != 0 {
				t.Fatalf("%s: the unused field has the value %v with the standard error %v", name, result.Phi[last], result.PopulationSE[last])
			}
		}
		for i, n := range held[:a.Fields()-1] {
			if rate := float64(n) / samples; rate < .92 || rate > .98 {
				t.Errorf("%s: the intervals of field %d hold in %.1f%% of %d samples", name, i, 100*rate, samples)
			}
		}
	}
}
