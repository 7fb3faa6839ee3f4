package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/baseline"
	"shaver/internal/checkpoint"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/model"
	"shaver/internal/shapley"
	"shaver/internal/tally"
)

// The bias of the multilinear estimator on trained models is below a bound. The bias is
// its distance from many walks of the same rows, minus what the standard errors of the
// walks explain. The estimator has 1024 draws, so that its own noise is small. The test
// takes three minutes.
func TestFlightsMultilinear(t *testing.T) {
	if os.Getenv("SHAVER_LONG") != "1" {
		t.Skip("SHAVER_LONG is not 1")
	}
	flights, dir := importFlights(t)
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	counts, err := d.Frequencies(dataset.Train, dataset.Val)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		rows   int
		passes int
		worst  float64 // largest bias with plain end points
	}{{"deepfm", 200, 150, .3}, {"dcn-mix", 48, 100, .25}} {
		ck, err := checkpoint.Read(filepath.Join(flights, c.name+".pth"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ck.Model()
		if err != nil {
			t.Fatal(err)
		}
		rows := firstRows(t, d, c.rows)
		for _, kind := range baseline.Names() {
			base, _, err := baseline.Of(kind, &m.Architecture, m.Weights.Embedding, counts)
			if err != nil {
				t.Fatal(err)
			}
			game := shapley.Game{Model: m, Baseline: base}
			want := estimate(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: c.passes}, Seed: 1}, rows)
			bias := map[string]float64{}
			for _, endpoints := range []string{estimator.Plain, estimator.Balanced} {
				found := estimate(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 1024, Endpoints: endpoints}, Seed: 1}, rows)
				bias[endpoints] = distance(found, want)
				t.Logf("%s, %s, %s: bias %.2f%%; efficiency error %.3g, standard error %.2g, %.3g to explain", c.name, kind, endpoints, 100*bias[endpoints],
					found.EfficiencyError, found.EfficiencySE, found.LossEmpty-found.LossFull)
			}
			if !(bias[estimator.Plain] <= c.worst) || !(bias[estimator.Balanced] < bias[estimator.Plain]/1.5) {
				t.Errorf("%s, %s: expected at most %g%%, and less by a third with balanced end points", c.name, kind, 100*c.worst)
			}
		}
	}
}

// distance returns the root mean square of the difference of two results, relative to
// the second, minus what the standard errors of the second explain.
func distance(found, want *tally.Result) float64 {
	off, size := 0.0, 0.0
	for i, phi := range want.Phi {
		off += (found.Phi[i]-phi)*(found.Phi[i]-phi) - float64(want.SE[i])*float64(want.SE[i])
		size += phi * phi
	}
	return math.Sqrt(max(0, off) / size)
}

func estimate(t *testing.T, game shapley.Game, o shapley.Options, rows *model.Rows) *tally.Result {
	t.Helper()
	return estimateOf(t, game, o, rows, rows.Len())
}

// estimateOf is like estimate, but the rows are a sample of a dataset with of rows.
func estimateOf(t *testing.T, game shapley.Game, o shapley.Options, rows *model.Rows, of int) *tally.Result {
	t.Helper()
	p, err := shapley.Estimate(t.Context(), game, o, rows, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	sampling := tally.NewSampling(o.Options, int64(of))
	a := tally.NewAccumulator(game.Model.Shape(), sampling.Form(game.Model.Fields()))
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	r, err := a.Result(sampling)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// firstRows returns the first n rows of the training split.
func firstRows(t *testing.T, d *dataset.Dataset, n int) *model.Rows {
	t.Helper()
	all := &model.Rows{Width: len(d.Fields())}
	enough := errors.New("enough")
	err := d.Scan(t.Context(), []string{dataset.Train}, n, func(rows *model.Rows) error {
		all.Number, all.Label, all.Features = append(all.Number, rows.Number...), append(all.Label, rows.Label...), append(all.Features, rows.Features...)
		return enough
	})
	if !errors.Is(err, enough) || all.Len() != n {
		t.Fatalf("%d rows: %v", all.Len(), err)
	}
	return all
}
