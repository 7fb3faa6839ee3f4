package sweeping

import (
	"context"
	"slices"
	"time"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// DefaultSparsities are measured unless others are named.
var DefaultSparsities = []float64{.5, .8, .9, .95, .99}

// Finding returns what finds the smallest tables of the order of one scores file within sweep.Rungs. The split test judges, and val
// calibrates if it may.
func Finding(model, output, scoresFile string, folders []string) *Input {
	return &Input{
		Model: model, ModelOutput: output, Scores: []string{scoresFile}, Folders: folders, Split: dataset.Test,
		Aggregates: []string{scores.DefaultAggregate}, Rank: mask.Abs, Values: []compact.Encoding{compact.Float32},
		Budgets: mask.Budgets(mask.Sparsity, DefaultSparsities...), Unnamed: true, Within: slices.Clone(sweep.Rungs), Calibrate: true, Optional: true,
	}
}

// Cost is what shaver compress costs after the scores, at most.
type Cost struct {
	Rows        int64   `json:"rows"`        // of val and test
	Predictions int     `json:"predictions"` // of all of them: one for each table
	Seconds     float64 `json:"seconds"`     // on this machine, by the rows that it predicts in a short time
}

// Cost measures the cost of Finding and of the tables that compress tries, for at most the given time. It returns nil if the dataset
// has no rows that judge.
func (o *Input) Cost(ctx context.Context, within time.Duration) (*Cost, error) {
	ck, m, err := checkpoint.ReadModel(o.Model, o.ModelOutput)
	if err != nil {
		return nil, err
	}
	d, err := dataset.OpenAll(o.Folders)
	if err != nil || d.Rows(o.Split) == 0 {
		return nil, err
	}
	b, err := measure.Open(o.Folders, o.Split, "", m, ck.Known())
	if err != nil {
		return nil, err
	}
	c := &Cost{Rows: d.Rows(o.Split) + d.Rows(dataset.Val), Predictions: len(o.Budgets) + sweep.MostFound(len(o.Within)) + 16}
	short, stop := context.WithTimeout(ctx, within)
	defer stop()
	begun, seen := time.Now(), int64(0)
	_, err = b.Predict(short, m, func(rows int) { seen += int64(rows) })
	if err != nil && (ctx.Err() != nil || short.Err() == nil) {
		return nil, err
	}
	if seen == 0 {
		return nil, nil // not even a batch
	}
	c.Seconds = time.Since(begun).Seconds() * float64(c.Predictions) * float64(c.Rows) / float64(seen)
	return c, nil
}

// Measured reports whether d is the result of Run for the first scores file, with the same bounds.
func (o *Input) Measured(d *sweep.Document) bool {
	p, err := cut.Open(o.Model, o.ModelOutput, o.Scores[0])
	if err != nil {
		return false
	}
	data, err := dataset.OpenAll(o.Folders)
	if err != nil || d.Model != p.Checkpoint.Digest() || d.Dataset != data.Digest() || d.GroupField() != o.Group || len(d.Sources) != 1 || d.Sources[0].Job != p.Scores[0].Spec.ID() || d.Answer == nil {
		return false
	}
	bounds := slices.Clone(o.Within)
	slices.Sort(bounds)
	return slices.EqualFunc(d.Answer.Rungs, slices.Compact(bounds), func(r sweep.Rung, b float64) bool { return r.Within == b })
}
