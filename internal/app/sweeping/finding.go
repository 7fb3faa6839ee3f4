package sweeping

import (
	"slices"

	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Finding returns what finds the smallest tables of the order of one scores file within sweep.Rungs. The split test judges, and val
// calibrates if it may.
func Finding(model, output, scoresFile string, folders []string) *Input {
	return &Input{
		Model: model, ModelOutput: output, Scores: []string{scoresFile}, Folders: folders, Split: dataset.Test,
		Aggregates: []string{scores.DefaultAggregate}, Rank: mask.Abs, Values: []compact.Encoding{compact.Float32},
		Budgets: mask.Budgets(mask.Sparsity, .5, .8, .9, .95, .99), Within: slices.Clone(sweep.Rungs), Calibrate: true, Optional: true,
	}
}

// Measured reports whether d is the result of Run for the first scores file.
func (o *Input) Measured(d *sweep.Document) bool {
	p, err := cut.Open(o.Model, o.ModelOutput, o.Scores[0])
	if err != nil {
		return false
	}
	data, err := dataset.OpenAll(o.Folders)
	if err != nil || d.Model != p.Checkpoint.Digest() || d.Dataset != data.Digest() || len(d.Sources) != 1 || d.Sources[0].Job != p.Scores[0].Spec.ID() || d.Answer == nil {
		return false
	}
	for _, b := range o.Within {
		if !slices.ContainsFunc(d.Answer.Rungs, func(r sweep.Rung) bool { return r.Within == b }) {
			return false
		}
	}
	for _, b := range o.Budgets {
		if !slices.ContainsFunc(d.Points, func(p sweep.Point) bool { return p.Sparsity == b.Amount && p.Values == string(o.Values[0]) }) {
			return false
		}
	}
	return true
}
