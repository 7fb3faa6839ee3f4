// Package quickstart runs all steps of shaver on generated data.
package quickstart

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"shaver/internal/app/cli"
	"shaver/internal/app/compress"
	"shaver/internal/app/launch"
	"shaver/internal/app/score"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/atomicfile"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// Steps says what to run.
type Steps struct {
	Rows   int  // number of rows to generate
	Train  bool // train the model on the rows, and tune it after pruning
	Seed   uint64
	Folder string // for the files; it exists
	Say    func(format string, args ...any)

	number int // of steps that have begun
}

// next says that a step begins.
func (o *Steps) next(format string, args ...any) {
	o.number++
	o.Say("%d. "+format, append([]any{o.number}, args...)...)
}

// file returns the path of a file in the folder.
func (o *Steps) file(name string) string { return filepath.Join(o.Folder, name) }

// Run runs the steps. It returns what the methods cost, and the smallest file.
func (o *Steps) Run(ctx context.Context) (*sweep.Document, *compress.Result, error) {
	d, err := o.run(ctx)
	if err != nil {
		return nil, nil, err
	}
	small := compress.Options{
		Recipe: compress.Recipe{Within: float64(sweep.DefaultBound)}, Model: o.file("model.safetensors"), Folders: []string{o.file("dataset")}, Scores: o.file("order.arrow"),
		Out: o.file("small.safetensors"), Say: func(format string, args ...any) { o.Say("   "+format, args...) },
	}
	o.next("make the smallest file that is certain to be within %g, as shaver compress does", small.Within)
	r, err := small.Run(ctx)
	if errors.Is(err, cli.ErrGate) {
		o.Say("   %v", err)
		err = nil
	}
	return d, r, err
}

// run runs the steps before the last one.
func (o *Steps) run(ctx context.Context) (*sweep.Document, error) {
	o.next("make a click model and %d rows from it", o.Rows)
	config := planted.Default
	config.Seed = o.Seed
	p, err := planted.New(config)
	if err != nil {
		return nil, err
	}
	if !o.Train {
		if _, err := checkpoint.WriteDense(o.file("model.safetensors"), p.Checkpoint); err != nil {
			return nil, err
		}
	}
	if err := atomicfile.Write(o.file("rows.csv"), func(w io.Writer) error { return p.WriteCSV(w, o.Rows) }); err != nil {
		return nil, err
	}

	o.next("import the rows, split 8:1:1")
	if _, err := ingest.ImportEncoded(ctx, ingest.EncodedConfig{
		Train: []string{o.file("rows.csv")}, Split: "8:1:1", Seed: o.Seed, Sizes: config.FieldDims, Out: o.file("dataset"),
	}); err != nil {
		return nil, err
	}

	if o.Train {
		o.next("train a DeepFM on the rows")
		if err := o.fit(ctx); err != nil {
			return nil, err
		}
	}

	o.next("find the order in which entries are dropped: a path, to prune")
	report, err := o.score(ctx, o.file("order.arrow"), estimator.Path)
	if err != nil {
		return nil, err
	}
	o.Say("   %d rounds in %.1f s", len(report.Path.Rounds), report.Seconds)

	o.next("compute the Shapley value of each entry, to quote")
	report, err = o.score(ctx, o.file("scores.arrow"), estimator.Debiased)
	if err != nil {
		return nil, err
	}
	o.Say("   %d rows in %.1f s, efficiency error %.2g, standard error %.2g", report.Rows, report.Seconds, *report.EfficiencyError, report.EfficiencySE)

	o.next("prune and measure on the test split")
	compared := sweeping.Input{
		Model: o.file("model.safetensors"), Scores: []string{o.file("order.arrow"), o.file("scores.arrow")}, Folders: []string{o.file("dataset")}, Split: dataset.Test,
		Aggregates: []string{scores.DefaultAggregate}, Rank: mask.Abs, Budgets: mask.Budgets(mask.Sparsity, .5, .8, .9, .95),
		Rivals: []string{sweep.Magnitude}, Values: []compact.Encoding{compact.Float32}, Calibrate: true, Optional: true,
	}
	found, err := compared.Run(ctx)
	if err != nil {
		return nil, err
	}
	if o.Train {
		o.next("prune to a sparsity of 0.95, and tune the model")
		tuned, err := o.tune(ctx)
		if err != nil {
			return nil, err
		}
		o.Say("   %d epochs: AUC %s -> %s", tuned.Epochs, cli.Metric(tuned.Before), cli.Metric(tuned.After))
	}
	return found, nil
}

// score runs a job of an estimator with its defaults, and writes its scores to out.
func (o *Steps) score(ctx context.Context, out, by string) (*launch.JobReport, error) {
	step := score.NewOptions(score.Advised)
	step.Model, step.Dataset, step.Job.Out, step.Job.Once = o.file("model.safetensors"), []string{o.file("dataset")}, out, true
	r := &step.Job.Request
	r.Options.Estimator, r.Baseline, r.Seed, r.Note = by, baseline.Words, o.Seed, nil
	step.Given = func(setting string) bool { return setting == "estimator" || setting == "baseline" }
	return step.Run(ctx)
}
