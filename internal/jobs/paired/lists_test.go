package paired

import (
	"math"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// The corrected values of a model with lists and shared rows are finite and near those of a
// full job, and the rows of pads have neither values nor errors.
func TestLists(t *testing.T) {
	before, after := modeltest.ListModel("mean", 3), modeltest.ListModel("mean", 3)
	table := append([]float32(nil), after.Weights.Embedding...)
	for i := range table {
		table[i] *= 1.05
	}
	after = after.WithEmbedding(table)
	rows := modeltest.Rows(before.Architecture, 4000, 2)
	for _, o := range []estimator.Options{
		{Estimator: estimator.Permutation, Passes: 1},
		{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 8},
	} {
		t.Run(o.Estimator, func(t *testing.T) { testLists(t, before, after, rows, shapley.Options{Options: o, Seed: 4}) })
	}
}

func testLists(t *testing.T, before, after *model.Model, rows *model.Rows, o shapley.Options) {
	sampling := tally.NewSampling(o.Options, 4000)
	pair := sampling
	pair.Paired = true
	book := before.Zero()
	full := func(m *model.Model) *scores.File {
		p, err := shapley.Estimate(t.Context(), shapley.Game{Model: m, Baseline: book}, o, rows, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		sums := tally.NewAccumulator(m.Shape(), sampling.Form(4))
		if err := sums.Merge(p); err != nil {
			t.Fatal(err)
		}
		r, err := sums.Result(sampling)
		if err != nil {
			t.Fatal(err)
		}
		return &scores.File{
			Fields: []string{"item", "user", "history", "tags"}, Layout: scores.LayoutOf(&m.Architecture), Baseline: book, DatasetRows: 4000, Result: *r,
			Spec: job.Spec{Version: job.SpecVersion, Options: o.Options},
		}
	}
	previous, truth := full(before), full(after)
	sampled := func(n int) *tally.Accumulator {
		part := rows.Slice(0, n)
		p, err := shapley.EstimatePair(t.Context(), shapley.Game{Model: after, Baseline: book}, shapley.Game{Model: before, Baseline: book}, o, &part, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		sums := tally.NewAccumulator(before.Shape(), pair.Form(4))
		if err := sums.Merge(p); err != nil {
			t.Fatal(err)
		}
		return sums
	}
	s := New(sampled(800), sampled(400), pair, previous)
	all := tally.NewPairedValues(17)
	for row := range 12 {
		s.Values(row, all.Part(previous.Shape.Row(row)))
	}
	off, uncorrected, far := 0.0, 0.0, 0
	for i := range all.Phi {
		for _, v := range []float64{all.Phi[i], float64(all.Abs[i]), float64(all.RMS[i]), float64(all.SE[i]), float64(all.PairedSE[i]), float64(all.AbsPairedSE[i]), float64(all.RMSPairedSE[i])} {
			if math.IsNaN(v) || math.IsInf(v, 0) || i < 2 && v != 0 || i >= 2 && v == 0 {
				t.Errorf("entry %d has a value of %v", i, v)
			}
		}
		if math.Abs(all.Phi[i]-truth.Phi[i]) > 3*float64(all.PairedSE[i]) {
			far++
		}
		off += (all.Phi[i] - truth.Phi[i]) * (all.Phi[i] - truth.Phi[i])
		uncorrected += (previous.Phi[i] - truth.Phi[i]) * (previous.Phi[i] - truth.Phi[i])
	}
	if !(off < uncorrected/4) || uncorrected == 0 {
		t.Errorf("the mean square error is %g of that of the previous values", off/uncorrected)
	}
	if far > 1 {
		t.Errorf("%d of %d values are more than 3 standard errors off", far, len(all.Phi))
	}
	for _, g := range s.Lineage("m").Fields {
		if math.IsNaN(g.Sum) || math.IsNaN(g.Abs) || math.IsNaN(g.RMS) {
			t.Errorf("the coefficients of field %s are %+v", g.Field, g)
		}
	}
}
