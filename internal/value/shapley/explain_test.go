package shapley_test

import (
	"math"
	"math/bits"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/shapley"
)

// means returns the effects of an explanation, and their standard errors.
func means(e *shapley.Explanation) (effects, errors []float64) {
	for _, each := range e.Each {
		n, sum, squares := float64(len(each)), 0., 0.
		for _, effect := range each {
			sum += effect
			squares += effect * effect
		}
		effects, errors = append(effects, sum/n), append(errors, math.Sqrt(max(0, squares/n-sum*sum/n/n)/n))
	}
	return effects, errors
}

// coalitions returns the value of each coalition of the players of a row: the mean logit over the background rows, of which absent players read
// the values.
func coalitions(m *model.Model, row, background *model.Rows) []float64 {
	lengths, scorer, logit := m.Lengths(), m.NewScorer(), make([]float64, 1)
	values := make([]float64, 1<<(len(lengths)+len(m.Dense)))
	for set := range values {
		for b := range background.Len() {
			state := &model.Rows{}
			state.Append(background, b)
			at := 0
			for j, n := range lengths {
				if set>>j&1 == 1 {
					copy(state.Features[at:at+n], row.Features[at:])
				}
				at += n
			}
			for k := range m.Dense {
				if set>>(len(lengths)+k)&1 == 1 {
					state.Dense[k] = row.Dense[k]
				}
			}
			scorer.Logits(logit, state)
			values[set] += logit[0] / float64(background.Len())
		}
	}
	return values
}

// The effects of a row are the Shapley values of its players in the game of the mean logits, up to the noise of the orders. The base and all effects
// sum to the logit.
func TestExplain(t *testing.T) {
	for name, m := range fieldGames(t) {
		row, background := modeltest.Rows(m.Architecture, 1, 5), modeltest.Rows(m.Architecture, 3, 6)
		values := coalitions(m, row, background)
		players := bits.Len(uint(len(values) - 1))
		// Many seeds show the mean of the orders.
		const seeds = 300
		mean, squares := make([]float64, players), make([]float64, players)
		for seed := range uint64(seeds) {
			e := shapley.Explain(m, row, background, seed)
			sum := e.Base
			effects, _ := means(e)
			for i, effect := range effects {
				sum += effect
				mean[i] += effect / seeds
				squares[i] += effect * effect / seeds
			}
			if math.Abs(sum-e.Logit) > 1e-12*max(1, math.Abs(e.Logit)) || math.Abs(e.Base-values[0]) > 1e-6 || math.Abs(e.Logit-values[len(values)-1]) > 1e-6 {
				t.Fatalf("%s: base %v and effects %v sum to %v, and the logit is %v; expected the base %v and the logit %v", name, e.Base, effects, sum, e.Logit, values[0], values[len(values)-1])
			}
		}
		for i := range players {
			want := 0.
			for set := range values {
				if set>>i&1 == 0 {
					want += (values[set|1<<i] - values[set]) / (float64(players) * binomial(players-1, bits.OnesCount(uint(set))))
				}
			}
			se := math.Sqrt(max(0, squares[i]-mean[i]*mean[i]) / seeds)
			if math.Abs(mean[i]-want) > 4.5*se+1e-6 {
				t.Errorf("%s: player %d has the effect %v +- %v, expected %v", name, i, mean[i], se, want)
			}
		}
	}
}

// In a linear model one order gives the effects: a weight minus the mean weight of the background rows.
func TestExplainLinear(t *testing.T) {
	m, err := model.New(model.Architecture{Kind: model.FM, FieldDims: []int{3, 4, 2}, Dim: 1},
		model.Weights{Embedding: make([]float32, 9), FirstOrder: []float32{1, -2, .5, 3, 0, -1, 2, .25, 4}, Bias: .75})
	if err != nil {
		t.Fatal(err)
	}
	row, background := modeltest.Rows(m.Architecture, 1, 1), modeltest.Rows(m.Architecture, 7, 2)
	e := shapley.Explain(m, row, background, 9)
	effects, errors := means(e)
	base := float64(m.Weights.Bias)
	for i, effect := range effects {
		mean, squares := 0., 0.
		for b := range background.Len() {
			w := float64(m.Weights.FirstOrder[background.Row(b)[i]])
			mean += w / 7
			squares += w * w / 7
		}
		want, se := float64(m.Weights.FirstOrder[row.Row(0)[i]])-mean, math.Sqrt((squares-mean*mean)/7)
		if base += mean; math.Abs(effect-want) > 1e-6 || math.Abs(errors[i]-se) > 1e-6 {
			t.Errorf("player %d has the effect %v +- %v, expected %v +- %v", i, effect, errors[i], want, se)
		}
	}
	if math.Abs(e.Base-base) > 1e-6 {
		t.Errorf("base %v, expected %v", e.Base, base)
	}
}

// Two models with the same players get the same orders: half of a model has half of the effects, against each background row.
func TestExplainOrders(t *testing.T) {
	m := modeltest.Random(t, modeltest.Architectures()["fm"], 2)
	weights := m.Weights
	weights.FirstOrder, weights.Embedding, weights.Bias = halved(weights.FirstOrder, .5), halved(weights.Embedding, math.Sqrt2/2), weights.Bias/2
	half, err := model.New(m.Architecture, weights)
	if err != nil {
		t.Fatal(err)
	}
	row, background := modeltest.Rows(m.Architecture, 1, 5), modeltest.Rows(m.Architecture, 4, 6)
	a, b := shapley.Explain(m, row, background, 3), shapley.Explain(half, row, background, 3)
	for i := range a.Each {
		for k, effect := range a.Each[i] {
			if math.Abs(b.Each[i][k]-effect/2) > 1e-5 {
				t.Errorf("background row %d, player %d: effect %v, expected half of %v", k, i, b.Each[i][k], effect)
			}
		}
	}
}

func halved(values []float32, by float64) (scaled []float32) {
	for _, v := range values {
		scaled = append(scaled, float32(float64(v)*by))
	}
	return scaled
}
