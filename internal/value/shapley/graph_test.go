package shapley_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

const exports = "../../../testdata/onnx/"

// exported returns the model in a file of exports.
func exported(t *testing.T, name string) *model.Model {
	t.Helper()
	c, err := checkpoint.Read(exports + name + ".onnx")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Model()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

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
// computes every logit, and walks agree with the exact values. Half of the players equal their baseline: their values are 0, and
// only the others are enumerated. The attention of FiGNN is masked.
func TestExactOfGraphs(t *testing.T) {
	for _, name := range []string{"masked-fignn.dynamo", "recbole-autoint.dynamo", "recbole-xdeepfm.dynamo", "recbole-pnn.legacy", "recbole-afm.dynamo"} {
		t.Run(name, func(t *testing.T) {
			m := exported(t, name)
			file, err := wire.Open(exports + name + ".onnx")
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
			row := &model.Rows{Width: m.Fields(), Number: []int64{0}, Label: []float32{1}}
			for j, offset := range m.Offsets() {
				ref.ids = append(ref.ids, r.IntN(m.FieldDims[j]))
				row.Features = append(row.Features, offset+int32(ref.ids[j]))
			}
			entries := make([]float32, m.Players())
			m.Embed(entries, row.Features)
			game := shapley.Game{Model: m, Baseline: m.Zero()}
			var active []int
			for i, p := range r.Perm(m.Players()) {
				if game.Baseline.Values[p] = entries[p]; i%2 == 0 {
					active = append(active, p)
					game.Baseline.Values[p] = float32(r.NormFloat64())
				}
			}
			options := shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}
			partial, err := shapley.Estimate(t.Context(), game, options, row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := enumerate(ref, entries, game.Baseline.Values, active)
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
			exact := play(t, game, options, row)
			walks := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 200}, Seed: 2}, row)
			for i, want := range exact.Phi {
				if math.Abs(walks.Phi[i]-want) > 5*float64(walks.SE[i])+1e-6 {
					t.Errorf("walks give entry %d the value %v, expected %v within 5 times %v", i, walks.Phi[i], want, walks.SE[i])
				}
			}
		})
	}
}

// Taylor has the same values for a network as for the graph that computes it, up to float32.
// The values of multilinear differ, because graphs have no kink terms.
func TestDerivativesOfGraphs(t *testing.T) {
	for name, a := range modeltest.Architectures() {
		if a.Kind != model.DeepFM && a.Kind != model.DCNv2 {
			continue
		}
		rows := modeltest.Rows(a, 60, 4)
		network, head := modeltest.Random(t, a, 3), modeltest.Graph(a, modeltest.Weights(a, 3))
		for _, o := range []estimator.Options{{Estimator: estimator.Taylor, Passes: 1}} {
			options := shapley.Options{Options: o, Seed: 5}
			want := play(t, shapley.Game{Model: network, Baseline: baseline(network)}, options, rows).Phi
			got := play(t, shapley.Game{Model: head, Baseline: baseline(network)}, options, rows).Phi
			largest := 0.0
			for i, v := range want {
				if largest = max(largest, math.Abs(v)); !(math.Abs(got[i]-v) <= 2e-6) {
					t.Errorf("%s, %s: entry %d has the value %v, expected %v", name, o.Estimator, i, got[i], v)
				}
			}
			if largest < 1e-3 {
				t.Errorf("%s, %s: the largest value is %v", name, o.Estimator, largest)
			}
		}
	}
}

// The mean of multilinear over many seeds is near the exact values. The difference is its
// bias, which is larger if the baseline is far from the entries.
func TestMultilinearOfGraphs(t *testing.T) {
	for _, name := range []string{"recbole-autoint.dynamo", "recbole-xdeepfm.dynamo", "recbole-pnn.legacy", "recbole-afm.dynamo"} {
		m := exported(t, name)
		rows := modeltest.Rows(m.Architecture, 1, 8)
		game := shapley.Game{Model: m, Baseline: m.Zero()}
		m.Embed(game.Baseline.Values, rows.Row(0))
		for p := 0; p < m.Players(); p += 2 { // the other half has the value 0
			game.Baseline.Values[p] -= 0.4
		}
		entries := []int{}
		for _, s := range m.Spans() {
			for k := range s.Dim {
				entries = append(entries, s.Entry+(int(rows.Row(0)[s.Field])-s.Feature)*s.Dim+k)
			}
		}
		exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows).Phi
		const seeds = 300
		mean := make([]float64, len(exact))
		for seed := range uint64(seeds) {
			o := shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 8, Endpoints: estimator.Balanced}, Seed: seed}
			for i, v := range play(t, game, o, rows).Phi {
				mean[i] += v / seeds
			}
		}
		off, size := 0.0, 0.0
		for _, i := range entries {
			off += (mean[i] - exact[i]) * (mean[i] - exact[i])
			size += exact[i] * exact[i]
		}
		if rms := math.Sqrt(off / size); !(rms < 0.15) || size == 0 {
			t.Errorf("%s: the relative RMS of the difference is %.3f", name, rms)
		} else {
			t.Logf("%s: the relative RMS of the difference is %.3f", name, rms)
		}
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
		losses[set] = loss.Logistic.Of(ref.logit(x), 1)
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

// Walks of tables with different widths, and of lists that share tables with targets,
// satisfy the efficiency identity.
func TestEfficiencyOfGraphs(t *testing.T) {
	for _, name := range []string{"ncf.dynamo", "keras", "fuxictr-dcn.dynamo", "deepctr-torch-din.dynamo", "deepctr-torch-bags.legacy", "padded-bags.dynamo", "positions.legacy", "buckets.dynamo", "last-item.legacy", "torch-rechub-din.dynamo", "torch-rechub-youtube.dynamo", "fuxictr-din.legacy",
		"entire-space.dynamo", "regions.legacy", "field-aware.dynamo", "masked-bst.dynamo", "masked-sasrec.legacy", "masked-attention.legacy", "masked-pooled.dynamo", "masked-transact.legacy"} {
		t.Run(name, func(t *testing.T) {
			m := exported(t, name)
			rows := modeltest.Rows(m.Architecture, 20, 3)
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

// The sums of a model of Kind Graph do not depend on how the rows are cut into tasks, in which
// order these are merged, or how many goroutines compute a task. They also do not depend on
// the other rows of a task. The models have dense inputs, tables whose entries are no
// players, and tables of different widths.
func TestCutsOfGraphs(t *testing.T) {
	for i, name := range []string{"deepctr-torch-autoint.dynamo", "torch-rechub-mmoe.legacy", "keras", "dlrm-offsets.dynamo"} {
		t.Run(name, func(t *testing.T) {
			c, err := checkpoint.ReadPart(exports+name+".onnx", checkpoint.Options{Generic: true})
			if err != nil {
				t.Fatal(err)
			}
			m, err := c.Model()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Dense) == 0 {
				t.Fatal("the model has no dense inputs")
			}
			r := rand.New(rand.NewPCG(uint64(i), 6))
			rows := modeltest.Rows(m.Architecture, 75, 9)
			game := shapley.Game{Model: m, Baseline: baseline(m)}
			estimators := []estimator.Options{
				{Estimator: estimator.Permutation, Passes: 2}, {Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain},
				{Estimator: estimator.Multilinear, Passes: 1, Draws: 6, Endpoints: estimator.Balanced}, {Estimator: estimator.Taylor, Passes: 1},
			}
			if i%2 == 1 {
				estimators[0].Estimator = estimator.Antithetic
			}
			var options shapley.Options
			merge := func(cuts []int) tally.State {
				a := tally.NewAccumulator(m.Shape(), tally.Form{Within: options.Passes > 1})
				for _, k := range r.Perm(len(cuts) - 1) {
					part := rows.Slice(cuts[k], cuts[k+1])
					p, err := shapley.Estimate(t.Context(), game, options, &part, 1+r.IntN(3), nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := a.Merge(p); err != nil {
						t.Fatal(err)
					}
				}
				return a.State()
			}
			for _, o := range estimators {
				options = shapley.Options{Options: o, Seed: 3}
				want := merge([]int{0, rows.Len()})
				if o.Traits().Efficient && want.Current.ResidualSquare != [2]int64{} {
					t.Errorf("%s: the residuals are %v, expected 0", o.Estimator, want.Current.ResidualSquare)
				}
				for range 4 {
					cuts := []int{0}
					for cuts[len(cuts)-1] < rows.Len() {
						cuts = append(cuts, min(rows.Len(), cuts[len(cuts)-1]+1+r.IntN(30)))
					}
					if got := merge(cuts); !reflect.DeepEqual(got, want) {
						t.Errorf("%s: the sums of rows cut at %v are %v, expected %v", o.Estimator, cuts, got, want)
					}
				}
			}
		})
	}
}

// Walks that update layers satisfy the efficiency identity within its tolerance. Their sums do
// not depend on how the rows are cut into tasks, nor on the number of goroutines.
func TestUpdatesOfGraphs(t *testing.T) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: slices.Repeat([]int{20}, 20), Dim: 8, Hidden: []int{40, 20}}
	for name, m := range map[string]*model.Model{"DeepFM": modeltest.Graph(a, modeltest.Weights(a, 2)), "DIN": modeltest.DIN(6, 2, 1)} {
		t.Run(name, func(t *testing.T) {
			if m.WalkProducts() >= m.Products() {
				t.Fatal("walks update no layer")
			}
			r := rand.New(rand.NewPCG(7, 8))
			rows := modeltest.Rows(m.Architecture, 30, 9)
			game := shapley.Game{Model: m, Baseline: baseline(m)}
			for _, o := range []estimator.Options{{Estimator: estimator.Permutation, Passes: 2}, {Estimator: estimator.Antithetic, Passes: 1}} {
				merge := func(cuts []int) tally.State {
					sums := tally.NewAccumulator(m.Shape(), tally.Form{Within: o.Passes > 1})
					for _, k := range r.Perm(len(cuts) - 1) {
						part := rows.Slice(cuts[k], cuts[k+1])
						p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 3}, &part, 1+r.IntN(3), nil)
						if err != nil {
							t.Fatal(err)
						}
						if err := sums.Merge(p); err != nil {
							t.Fatal(err)
						}
					}
					return sums.State()
				}
				want := merge([]int{0, rows.Len()})
				for _, cuts := range [][]int{{0, 1, 2, 29, 30}, {0, 11, 30}} {
					if got := merge(cuts); !reflect.DeepEqual(got, want) {
						t.Errorf("%s: the sums of rows cut at %v are %v, expected %v", o.Estimator, cuts, got, want)
					}
				}
				p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 3}, rows, 2, nil)
				if err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, s := range p.Sum {
					sum += s
				}
				effect := 2 * (p.LossEmpty - p.LossFull) // both have two walks a row
				if off := math.Abs(float64(sum - effect)); !(off <= 1e-5*math.Abs(float64(effect))) || effect == 0 {
					t.Errorf("%s: the contributions sum to %d, expected %d", o.Estimator, sum, effect)
				}
				play(t, game, shapley.Options{Options: o, Seed: 3}, rows) // checks the identity too
			}
		})
	}
}

// A player whose entry equals its baseline has exactly the value 0, and an estimator that
// computes a row's full state in a walk finds the logit that the scorer finds.
func TestNullPlayersOfGraphs(t *testing.T) {
	files, err := filepath.Glob(exports + "*.dynamo.onnx")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d models, %v", len(files), err)
	}
	tested, lists := 0, 0
	for _, file := range files {
		c, err := checkpoint.ReadPart(file, checkpoint.Options{Generic: true})
		if err != nil {
			continue // it needs an option
		}
		if len(c.Architecture.Lists) > 0 { // then players are not the elements
			lists++
			continue
		}
		m, err := c.Model()
		if err != nil {
			t.Fatal(err)
		}
		tested++
		rows := modeltest.Rows(m.Architecture, 50, 5)
		full := make([]float64, rows.Len())
		m.NewScorer().Logits(full, rows)
		row := rows.Slice(40, 41)
		entries := make([]float32, m.Players())
		m.Embed(entries, row.Row(0))
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		for p := 0; p < m.Players(); p += 3 {
			game.Baseline.Values[p] = entries[p]
		}
		for _, o := range []estimator.Options{
			{Estimator: estimator.Permutation, Passes: 1}, {Estimator: estimator.Antithetic, Passes: 1},
			{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}, {Estimator: estimator.Taylor, Passes: 1},
		} {
			p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 1}, &row, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			var spread int64
			at := map[int32]int{} // first entry of each row of the tables
			for i, from := 0, 0; i < len(p.Features); i++ {
				at[p.Features[i]] = from
				first, end := p.Shape.Row(int(p.Features[i]))
				from += end - first
			}
			k := 0
			roster := model.NewRoster(&m.Architecture)
			roster.Set(row.Row(0))
			for _, f := range roster.Rows() {
				first, end := p.Shape.Row(int(f))
				for c := range end - first {
					v := p.Sum[at[f]+c]
					if k%3 == 0 && v != 0 {
						t.Errorf("%s: player %d has the value %d, expected 0", file, k, v)
					}
					spread |= v
					k++
				}
			}
			if spread == 0 && !o.Traits().Derivatives || k != m.Players() { // in one model no unit is active
				t.Errorf("%s: the values of all %d players are 0", file, k)
			}
		}
		probe := m.NewProbe(m.Book(game.Baseline))
		order, logits := make([]int32, m.Players()), make([]float64, m.Players()+1)
		for r := range rows.Len() {
			probe.Reset(rows, r)
			for i, p := range rand.New(rand.NewPCG(uint64(r), 1)).Perm(len(order)) {
				order[i] = int32(p)
			}
			if probe.Walk(order, logits); logits[len(order)] != full[r] {
				t.Errorf("%s, row %d: a walk ends at the logit %v, the scorer finds %v", file, r, logits[len(order)], full[r])
			}
		}
	}
	if tested < (len(files)-lists)*9/10 {
		t.Errorf("%d of %d models were tested", tested, len(files))
	}
}

// A logit that is not finite is an error that names the row and the number of entries that
// are present.
func TestInfiniteLogits(t *testing.T) {
	for name, build := range map[string]func(b *modeltest.Builder, x graph.Value) graph.Value{
		"logit is NaN": func(b *modeltest.Builder, x graph.Value) graph.Value { return b.Node("Sqrt", nil, x) },
		"logit is +Inf": func(b *modeltest.Builder, x graph.Value) graph.Value {
			return b.Node("Exp", nil, b.Node("Abs", nil, b.Node("Mul", nil, x, b.Floats("", []float32{1e3}))))
		},
		"logit is -Inf": func(b *modeltest.Builder, x graph.Value) graph.Value {
			return b.Node("Log", nil, b.Node("Relu", nil, x))
		},
	} {
		b := new(modeltest.Builder)
		x := b.AddInput("x", graph.Float, []int{1, 2})
		b.Output = b.Node("ReduceSum", graph.Attributes{"keepdims": int64(0)}, build(b, x), b.Ints(1))
		m, err := model.New(model.Architecture{Kind: model.Graph, FieldDims: []int{2}, Dim: 2}, model.Weights{
			Embedding: []float32{1, 2, -1, -2}, Graph: &model.GraphHead{Graph: &b.Graph, LookUps: []graph.Value{x}},
		})
		if err != nil {
			t.Fatal(err)
		}
		game := shapley.Game{Model: m, Baseline: model.Baseline{Values: []float32{0.01, 0.01}}}
		for _, label := range []float32{0, 1} {
			rows := &model.Rows{Width: 1, Number: []int64{7}, Label: []float32{label}, Features: []int32{1}}
			for _, e := range []string{estimator.Permutation, estimator.Exact, estimator.Multilinear, estimator.Taylor} {
				o := estimator.Options{Estimator: e, Passes: 1}
				o.SetDefaults()
				_, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o}, rows, 1, nil)
				if err == nil || !strings.Contains(err.Error(), "row 7: ") || !strings.Contains(err.Error(), name) {
					t.Errorf("%s, label %v: error %v, expected the row and that the %s", e, label, err, name)
				}
			}
		}
	}
}

// What derivatives give a row does not depend on the rows next to it, also if several layers have
// kink terms.
func TestSingleRowsOfGraphs(t *testing.T) {
	for _, name := range []string{"fuxictr-finalmlp.legacy", "fuxictr-masknet.dynamo", "fuxictr-deepfm.dynamo"} {
		m := exported(t, name)
		rows := modeltest.Rows(m.Architecture, 10, 4)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		for _, o := range []estimator.Options{{Estimator: estimator.Multilinear, Passes: 1}, {Estimator: estimator.Debiased, Passes: 1}} {
			o.SetDefaults()
			estimate := func(rows *model.Rows) *tally.Partial {
				p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 3}, rows, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			var sum *tally.Partial
			for i := range rows.Len() {
				row := rows.Slice(i, i+1)
				p := estimate(&row)
				if sum != nil {
					p = tally.Combine(sum, p)
				}
				sum = p
			}
			if !reflect.DeepEqual(estimate(rows), sum) {
				t.Errorf("%s, %s: rows have other values together than alone", name, o.Estimator)
			}
		}
	}
}
