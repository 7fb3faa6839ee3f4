package shapley_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"shaver/internal/checkpoint"
	"shaver/internal/dissect"
	"shaver/internal/estimator"
	"shaver/internal/graph"
	"shaver/internal/model"
	"shaver/internal/onnx"
	"shaver/internal/shapley"
	"shaver/internal/tally"
)

const exports = "../../testdata/onnx/"

// reference computes the logit of the head of an exported model by package graph alone.
type reference struct {
	t   *testing.T
	n   *dissect.Network
	ids []int // of the fields
}

// logit returns the logit with the given values for the look-ups with players, in the order
// of the fields, of which each has one such look-up.
func (r *reference) logit(x []float32) float64 {
	var in []*graph.Tensor
	for _, l := range r.n.LookUps {
		table := &r.n.Tables[l.Table]
		values := make([]float32, table.Dim)
		if l.Player {
			copy(values, x[l.Field*table.Dim:])
		} else if err := table.Read(values, r.ids[l.Field]+l.Offset); err != nil {
			r.t.Fatal(err)
		}
		in = append(in, graph.NewFloats(values, 1, table.Dim))
	}
	out, err := r.n.Head.Run(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return float64(out.Floats[0])
}

// Exact values of heads that are not ours agree with enumeration, in which package graph
// computes every logit. Half of the players equal their baseline: their values are 0, and
// only the others are enumerated.
func TestExactOfGraphs(t *testing.T) {
	for _, name := range []string{"recbole-autoint.dynamo", "recbole-xdeepfm.dynamo", "recbole-pnn.legacy", "recbole-afm.dynamo"} {
		t.Run(name, func(t *testing.T) {
			c, err := checkpoint.Read(exports + name + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			file, err := onnx.Open(exports + name + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			n, err := dissect.Dissect(file, dissect.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			ref := &reference{t, n, nil}
			row := &model.Rows{Fields: m.Fields(), Number: []int64{0}, Label: []uint8{1}}
			for j, offset := range m.Offsets() {
				ref.ids = append(ref.ids, r.IntN(m.FieldDims[j]))
				row.Features = append(row.Features, offset+int32(ref.ids[j]))
			}
			entries := make([]float32, m.Players())
			m.Embed(entries, row.Features)
			game := shapley.Game{Model: m, Baseline: make([]float32, m.Players())}
			var active []int
			for i, p := range r.Perm(m.Players()) {
				if game.Baseline[p] = entries[p]; i%2 == 0 {
					active = append(active, p)
					game.Baseline[p] = float32(r.NormFloat64())
				}
			}
			partial, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := enumerate(ref, entries, game.Baseline, active)
			largest := 0.0
			for p, v := range want {
				got := float64(partial.Sum[p]) * tally.LossUnit
				if largest = max(largest, math.Abs(v)); !(math.Abs(got-v) <= 1e-6) {
					t.Errorf("player %d has the value %v, expected %v", p, got, v)
				}
			}
			if largest < 1e-3 {
				t.Errorf("the largest value is %v, which is too small for a comparison", largest)
			}
		})
	}
}

// enumerate returns the Shapley values of all players for label 1. Only the active ones
// differ from their baseline.
func enumerate(ref *reference, entries, baseline []float32, active []int) []float64 {
	losses := make([]float64, 1<<len(active))
	x := make([]float32, len(entries))
	for set := range losses {
		copy(x, entries)
		for i, p := range active {
			if set>>i&1 == 0 {
				x[p] = baseline[p]
			}
		}
		losses[set] = model.Loss(ref.logit(x), 1)
	}
	values := make([]float64, len(entries))
	for i, p := range active {
		for set := range losses {
			if set>>i&1 == 1 {
				continue
			}
			weight := 1 / float64(len(active)) // s! (n-1-s)! / n!
			for s, k := bits.OnesCount(uint(set)), 1; k <= s; k++ {
				weight *= float64(k) / float64(len(active)-k)
			}
			values[p] += weight * (losses[set] - losses[set|1<<i])
		}
	}
	return values
}

// Walks of tables with different widths satisfy the efficiency identity.
func TestEfficiencyOfGraphs(t *testing.T) {
	for _, name := range []string{"ncf.dynamo", "keras", "fuxictr-dcn.dynamo"} {
		t.Run(name, func(t *testing.T) {
			c, err := checkpoint.Read(exports + name + ".onnx")
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 4))
			rows := &model.Rows{Fields: m.Fields(), Inputs: len(m.Dense)}
			for i := range 20 {
				rows.Number, rows.Label = append(rows.Number, int64(i)), append(rows.Label, uint8(i%2))
				for j, offset := range m.Offsets() {
					rows.Features = append(rows.Features, offset+int32(r.IntN(m.FieldDims[j])))
				}
				for range rows.Inputs {
					rows.Dense = append(rows.Dense, r.Float32())
				}
			}
			game := shapley.Game{Model: m, Baseline: baseline(m)}
			for _, name := range []string{estimator.Permutation, estimator.Antithetic} {
				p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: estimator.Options{Estimator: name, Passes: 2}, Seed: 4}, rows, 2, nil)
				if err != nil {
					t.Fatal(err)
				}
				sum, walks := int64(0), int64(2)
				if name == estimator.Antithetic {
					walks = 4
				}
				for _, s := range p.Sum {
					sum += s
				}
				if sum != walks*(p.LossEmpty-p.LossFull) || p.LossEmpty == p.LossFull {
					t.Errorf("%s: the contributions sum to %d, expected %d times %d", name, sum, walks, p.LossEmpty-p.LossFull)
				}
			}
		})
	}
}
