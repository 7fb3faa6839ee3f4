// Package scorestest makes small scores files, for tests.
package scorestest

import (
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// Tables returns scores of a model with look-ups.
func Tables() *scores.File {
	a := modeltest.LookUps()
	f := &scores.File{
		Fields: []string{"x", "y", "z"}, Layout: a, Baseline: a.Zero(), DatasetRows: 8,
		Spec:   job.Spec{Version: job.SpecVersion, Splits: []string{"train"}, Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}},
		Result: tally.Result{Rows: 8, Scores: tally.Scores{Shape: a.Shape(), Count: make([]int64, 12), Values: tally.NewValues(a.Parameters())}},
	}
	for i := range f.Phi {
		f.Phi[i], f.RMS[i] = float64(i), float32(i)
	}
	f.Count = a.RowCounts([]int64{7, 8, 0, 1, 2, 3, 4, 5, 6})
	return f
}

// Paired returns the scores of a paired job.
func Paired() *scores.File {
	f := &scores.File{
		Fields: []string{"x", "y"}, Layout: model.Architecture{FieldDims: []int{1, 1}, Dim: 2}, Baseline: model.Baseline{Values: make([]float32, 4)}, DatasetRows: 80,
		Spec: job.Spec{Version: job.SpecVersion, Model: "new", Splits: []string{"train"}, Sample: .25, Baseline: "zero",
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Previous: &job.Previous{Model: "old", Generation: 1}},
		Result: tally.Result{Rows: 80, Scores: tally.Scores{Shape: layout.Of(2, 2), Count: []int64{80, 16}, Values: tally.NewPairedValues(4)}},
		Lineage: &scores.Lineage{Generation: 1, Models: []string{"old", "new"}, Rows: 20, Error: .01, Plain: .04, Reduction: 30, RMSReduction: 20,
			Fields: []scores.PairedField{{Field: "x", Reduction: scores.MaxReduction, Sum: 1, Abs: 1, RMS: 1}, {Field: "y", Reduction: 1, Sum: 0, Abs: .5, RMS: .25}}},
	}
	for i := range f.Phi {
		f.Phi[i] = float64(i)
		f.PairedSE[i], f.AbsPairedSE[i], f.RMSPairedSE[i] = float32(i)+.125, float32(i)+.25, float32(i)+.5
	}
	return f
}
