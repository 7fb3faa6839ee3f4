package shapley_test

import (
	"math"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// Walks of a model with EmbeddingBags that have a padding_idx agree with enumeration, in
// which package graph computes every logit. The bag is a sum, a mean or a maximum of two
// rows, while the other bags are empty.
func TestWalksOfPaddedBags(t *testing.T) {
	t.Parallel()
	const name = exports + "padded-bags.dynamo.onnx"
	c, err := checkpoint.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	file, err := wire.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n, err := dissect.Dissect(file, dissect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(n.LookUps) != 4 || len(n.IDs) != 3 || len(m.Lists) != 3 {
		t.Fatalf("%d look-ups, %d fields as numbers and the lists %v, expected 4, 3 and 3", len(n.LookUps), len(n.IDs), m.Lists)
	}
	const length, dim = 4, 4
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	for bag := 1; bag <= 3; bag++ {
		ids := make([]int, m.Width()) // 0 = the pad
		ids[0], ids[1+length*(bag-1)], ids[3+length*(bag-1)] = 2+bag, 3, 1
		row := &model.Rows{Width: m.Width(), Number: []int64{0}, Label: []float32{1}}
		var inputs []*graph.Tensor
		var entries, starts []float32
		var where []*float32 // where the inputs have each player
		var numbers []int    // of the entries in the table
		for _, s := range m.Spans() {
			at, positions := 0, 1
			if s.Field > 0 {
				at, positions = 1+length*(s.Field-1), length
			}
			values := make([]float32, positions*dim)
			table := &n.Tables[n.LookUps[s.LookUp].Table]
			for i := range positions {
				id := ids[at+i]
				row.Features = append(row.Features, int32(s.Feature+id))
				x := values[i*dim : (i+1)*dim]
				if err := table.Read(x, id); err != nil {
					t.Fatal(err)
				}
				for k := range x {
					if s.Field > 0 && id == 0 {
						continue
					}
					entries, starts = append(entries, x[k]), append(starts, game.Baseline.Values[s.Baseline+k])
					where, numbers = append(where, &x[k]), append(numbers, s.Entry+id*dim+k)
				}
			}
			inputs = append(inputs, graph.NewFloats(values, positions, dim))
		}
		for _, d := range n.IDs {
			var list []float32
			for i := range length {
				list = append(list, float32(ids[1+length*(d.Field-1)+i]))
			}
			inputs = append(inputs, graph.NewFloats(list, 1, length))
		}
		losses := make([]float64, 1<<len(where))
		for set := range losses {
			for i, x := range where {
				if *x = entries[i]; set>>i&1 == 0 {
					*x = starts[i]
				}
			}
			out, err := n.Head.Run(inputs)
			if err != nil {
				t.Fatal(err)
			}
			losses[set] = loss.Logistic.Of(float64(out.Floats[0]), 1)
		}
		values := shapleyOf(losses, len(where))
		walks := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 2000}, Seed: 3}, row).Phi
		largest, off := 0.0, 0.0
		for i, v := range values {
			largest, off = max(largest, math.Abs(v)), max(off, math.Abs(walks[numbers[i]]-v))
		}
		if !(off <= 0.02*largest) || largest < 1e-3 || len(values) != 3*dim {
			t.Errorf("bag %d: walks differ by up to %.2g from the exact values of %d players, of up to %.2g", bag, off, len(values), largest)
		}
	}
}

// shapleyOf returns the Shapley values of n players from the loss of each set of them.
func shapleyOf(losses []float64, n int) []float64 {
	weights := make([]float64, n) // s! (n-1-s)! / n! by s
	for s := range weights {
		weights[s] = 1 / float64(n)
		for k := 1; k <= s; k++ {
			weights[s] *= float64(k) / float64(n-k)
		}
	}
	values := make([]float64, n)
	for set := range losses {
		size := 0
		for i := range n {
			size += set >> i & 1
		}
		for i := range n {
			if set>>i&1 == 0 {
				values[i] += weights[size] * (losses[set] - losses[set|1<<i])
			}
		}
	}
	return values
}
