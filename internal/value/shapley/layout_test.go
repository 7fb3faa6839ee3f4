package shapley_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/graph"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// A model whose table is cut into one table for each field, last field first, has the same
// values: they are only in other rows.
func TestTablesOfFields(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	plain := modeltest.Graph(a, modeltest.Weights(a, 3))
	cut := model.Architecture{Kind: model.Graph, FieldDims: a.FieldDims}
	w := plain.Weights
	w.Embedding = nil
	offsets := a.Offsets()
	for j := range a.FieldDims {
		last := len(a.FieldDims) - 1 - j // also the number of the table of field j
		cut.Tables = append(cut.Tables, model.Table{Name: fmt.Sprint(last), Rows: a.FieldDims[last], Dim: a.Dim})
		cut.LookUps = append(cut.LookUps, model.LookUp{Field: j, Table: last})
		w.Embedding = append(w.Embedding, plain.Weights.Embedding[int(offsets[last])*a.Dim:][:a.FieldDims[last]*a.Dim]...)
	}
	tables, err := model.New(cut, w)
	if err != nil {
		t.Fatal(err)
	}
	rows, values := modeltest.Rows(a, 60, 4), baseline(plain)
	for _, o := range []estimator.Options{{Estimator: estimator.Permutation, Passes: 1}, {Estimator: estimator.Antithetic, Passes: 3}} {
		options := shapley.Options{Options: o, Seed: 5}
		want := play(t, shapley.Game{Model: plain, Baseline: values}, options, rows)
		got := play(t, shapley.Game{Model: tables, Baseline: values}, options, rows)
		if got.EfficiencyError != want.EfficiencyError || got.LossFull != want.LossFull {
			t.Errorf("%s: %+v, expected %+v", o.Estimator, got, want)
		}
		for _, s := range cut.Spans() {
			from, to := s.Entries()
			first := s.Feature * a.Dim
			if !slices.Equal(got.Phi[from:to], want.Phi[first:first+to-from]) || !slices.Equal(got.SE[from:to], want.SE[first:first+to-from]) || !slices.Equal(got.Count[s.Row:s.Row+s.Rows], want.Count[s.Feature:s.Feature+s.Rows]) {
				t.Errorf("%s: the values of field %d differ", o.Estimator, s.Field)
			}
		}
	}
}

// quadratic returns a graph of the given layout. Its logit is s + s^2, where s is the sum
// of the players times their weights.
func quadratic(t testing.TB, a model.Architecture, weights, table []float32) *model.Model {
	t.Helper()
	a.Kind = model.Graph
	b := new(modeltest.Builder)
	head := &model.GraphHead{Graph: &b.Graph}
	for k, l := range a.LookUps {
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprint("look-up ", k), graph.Float, []int{1, a.Tables[l.Table].Dim}))
	}
	x := b.Node("Concat", graph.Attributes{"axis": int64(1)}, head.LookUps...)
	sum := b.Node("Gemm", graph.Attributes{"transB": int64(1)}, x, b.Floats("w", weights, 1, len(weights)))
	b.Output = b.Node("Add", nil, sum, b.Node("Mul", nil, sum, sum))
	m, err := model.New(a, model.Weights{Embedding: table, Graph: head})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The exact values of a model with tables of different widths agree with enumeration in
// float64. Field 1 has two tables, and fields 0 and 2 share one.
func TestExactOfLookUps(t *testing.T) {
	a := modeltest.LookUps()
	weights, table := make([]float32, a.Players()), make([]float32, a.Parameters())
	for p := range weights {
		weights[p] = float32(p%5) - 1.75
	}
	for i := range table {
		table[i] = float32(math.Sin(float64(i))) / 2
	}
	m := quadratic(t, a, weights, table)
	values := make([]float32, m.Players())
	for p := range values {
		values[p] = float32(p) / 40
	}
	rows := modeltest.Rows(a, 12, 8)
	got := play(t, shapley.Game{Model: m, Baseline: model.Baseline{Values: values}}, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)

	want, counts := make([]float64, len(table)), make([]int64, 12)
	firstEntry, firstRow := []int{0, 3, 15}, []int{0, 3, 9} // of the tables
	for r := range rows.Len() {
		var entries []int // the players' entries
		for _, l := range a.LookUps {
			id := int(rows.Row(r)[l.Field]-a.Offsets()[l.Field]) + l.Offset
			counts[firstRow[l.Table]+id]++
			for c := range a.Tables[l.Table].Dim {
				entries = append(entries, firstEntry[l.Table]+id*a.Tables[l.Table].Dim+c)
			}
		}
		n := len(entries)
		losses := make([]float64, 1<<n)
		for set := range losses {
			sum := 0.0
			for p, i := range entries {
				v := values[p]
				if set>>p&1 == 1 {
					v = table[i]
				}
				sum += float64(weights[p]) * float64(v)
			}
			losses[set] = loss.Logistic.Of(sum+sum*sum, rows.Label[r])
		}
		for p, i := range entries {
			for set := range losses {
				if set>>p&1 == 0 {
					size := 0
					for q := range n {
						size += set >> q & 1
					}
					weight := math.Gamma(float64(size+1)) * math.Gamma(float64(n-size)) / math.Gamma(float64(n+1))
					want[i] += weight * (losses[set] - losses[set|1<<p]) / float64(rows.Len())
				}
			}
		}
	}
	if !slices.Equal(got.Count, counts) {
		t.Errorf("the rows of the tables occur %v times, expected %v", got.Count, counts)
	}
	for i, phi := range got.Phi {
		if math.Abs(phi-want[i]) > 1e-6 {
			t.Errorf("entry %d has the value %v, expected %v", i, phi, want[i])
		}
	}
}
