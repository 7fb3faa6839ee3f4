package rivals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/steps"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/cputime"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
	"shaver/internal/prune/benchmark"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// compute computes all models that are missing, those that need the fewest trainings first.
func (r *run) compute(ctx context.Context) error {
	for _, kind := range r.Kinds {
		for seed := range r.each() {
			if err := r.full(ctx, kind, seed); err != nil {
				return err
			}
		}
		for seed := range r.each() {
			if err := r.pruned(ctx, kind, seed); err != nil {
				return err
			}
		}
		for _, sparsity := range r.Sparsities {
			for _, method := range benchmark.Tables() {
				for seed := range r.each() {
					if err := r.trained(ctx, benchmark.Line{Kind: kind, Method: method, Sparsity: sparsity}, seed); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// each iterates over the seeds.
func (r *run) each() func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for seed := range r.Seeds {
			if !yield(uint64(seed) + 1) {
				return
			}
		}
	}
}

// file returns the path of the model of a line.
func (r *run) file(l benchmark.Line, seed uint64) string {
	name := l.Method
	if l.Baseline != "" {
		name += "-" + l.Baseline
	}
	if l.Tuned {
		name += "-tuned"
	}
	if l.Sparsity > 0 {
		name += "-" + strconv.FormatFloat(l.Sparsity, 'g', -1, 64)
	}
	return r.path(l.Kind, fmt.Sprintf("%s-seed%d.safetensors", name, seed))
}

// step makes a model, measures it and stores the result, unless an earlier run did. make writes
// the model to out. seconds is the processor time to record; 0 means the time of the whole call.
func (r *run) step(ctx context.Context, l benchmark.Line, seed uint64, make func(out string) (seconds float64, err error)) error {
	out := r.file(l, seed)
	if done := r.document.Find(l, seed); done != nil {
		if done.Failed != "" && !r.Outputs.Force {
			return nil
		}
		if _, err := os.Stat(out); err == nil && done.Failed == "" {
			return nil
		}
	}
	result := benchmark.Result{Line: l, Seed: seed, Resumed: training.Started(out)}
	start := cputime.Process()
	seconds, err := make(out)
	if result.Seconds = seconds; seconds == 0 {
		result.Seconds = (cputime.Process() - start).Seconds()
	}
	var none *training.NoModel
	var diverged *train.Diverged
	switch {
	case errors.As(err, &none):
		result = benchmark.Result{Line: l, Seed: seed, Failed: err.Error(), Seconds: result.Seconds}
		if err = os.Remove(out); errors.Is(err, fs.ErrNotExist) { // a model of other settings
			err = nil
		}
	case err == nil, errors.As(err, &diverged): // if it diverged, out has the best epoch before
		err = r.measure(ctx, out, &result)
	}
	if err != nil {
		return err
	}
	r.document.Put(result)
	if err := r.save(); err != nil {
		return err
	}
	r.report(&result)
	return nil
}

// hasFull reports whether there is a model with the full table of a seed.
func (r *run) hasFull(kind string, seed uint64) bool {
	full := r.document.Find(benchmark.Line{Kind: kind, Method: benchmark.Full}, seed)
	return full != nil && full.Failed == ""
}

// errNoFull is the reason why models that begin with the full table are missing.
var errNoFull = &training.NoModel{Cause: errors.New("there is no model with the full table")}

// report prints a line about a result.
func (r *run) report(result *benchmark.Result) {
	text := result.Failed
	if text == "" {
		text = fmt.Sprintf("AUC %s, %d parameters", cli.Metric(result.AUC), result.Parameters)
	}
	sparsity := ""
	if result.Sparsity > 0 {
		sparsity = fmt.Sprintf(" at %v", result.Sparsity)
	}
	fmt.Fprintf(r.Say, "%s: %s%s, seed %d: %s, %s\n", result.Kind, &result.Line, sparsity, result.Seed, text, time.Duration(result.Seconds*float64(time.Second)).Round(time.Second/10))
}

// measure measures the model in a file on the split test.
func (r *run) measure(ctx context.Context, path string, result *benchmark.Result) error {
	ck, found, err := steps.Measure(ctx, path, r.Folders, dataset.Test)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	metrics := found.Metrics()
	result.Parameters, result.Bytes = ck.TableParameters(), info.Size()
	result.AUC, result.LogLoss = scores.Figure(metrics.AUC), metrics.Loss
	return nil
}

// full trains the model with the full table.
func (r *run) full(ctx context.Context, kind string, seed uint64) error {
	return r.trained(ctx, benchmark.Line{Kind: kind, Method: benchmark.Full}, seed)
}

// trained trains a model with the full table, or with one of benchmark.Tables if the command
// compares it. With seed 1 it searches the settings first.
func (r *run) trained(ctx context.Context, l benchmark.Line, seed uint64) error {
	full := l.Method == benchmark.Full
	if !full && !slices.Contains(r.Methods, l.Method) {
		return nil
	}
	return r.step(ctx, l, seed, func(out string) (float64, error) {
		t := r.settings(seed)
		if !full {
			t.Table, t.Sparsity, t.WarmUp = l.Method, l.Sparsity, r.Settings.WarmUp
		}
		switch s := r.document.FindSearch(l.Kind, l.Method, l.Sparsity); {
		case s != nil:
			t.LearningRate, t.WeightDecay, t.Dropout = s.LearningRate, s.WeightDecay, s.Dropout
		case seed == 1:
			t.Search = r.Settings.Search
		case r.Settings.Search > 0:
			return 0, &training.NoModel{Cause: errors.New("the search with seed 1 found no settings")}
		}
		resumed := training.Started(out)
		c, err := r.course(model.Kind(l.Kind), t, out)
		if err != nil {
			return 0, err
		}
		found, err := c.Train(ctx)
		if err != nil || t.Search == 0 {
			return 0, err
		}
		best := found.Trials[found.Best-1]
		s := benchmark.Search{
			Kind: l.Kind, Method: l.Method, Sparsity: l.Sparsity, Trials: len(found.Trials), Resumed: resumed,
			LearningRate: best.LearningRate, WeightDecay: best.WeightDecay, Dropout: best.Dropout,
		}
		for _, t := range found.Trials {
			s.Seconds += t.Seconds
			if t.Best == nil {
				s.Failed++
			}
		}
		r.document.Searches = append(r.document.Searches, s)
		return best.Seconds, nil
	})
}

// settings returns the settings of a training without a search.
func (r *run) settings(seed uint64) training.Settings {
	s := &r.Settings
	t := training.Default()
	t.Epochs, t.Patience, t.Batch, t.Seed = s.Epochs, s.Patience, s.Batch, seed
	return t
}

// options returns the options of a training that writes to out.
func (r *run) options(t training.Settings, out string) *training.Options {
	return &training.Options{Settings: t, Out: out, Folders: r.Folders, Outputs: r.Outputs}
}

// course returns a training of a new model.
func (r *run) course(kind model.Kind, t training.Settings, out string) (*training.Course, error) {
	options := r.options(t, out)
	if err := options.Check(); err != nil {
		return nil, err
	}
	a, err := r.architecture(kind, r.data.FieldDims())
	if err != nil {
		return nil, err
	}
	c, err := options.Fresh(a, r.norm(kind), training.InitialDefault)
	if err != nil {
		return nil, err
	}
	c.Budget = r.Budget
	return c, nil
}

// pruned makes the models that begin with the model with the full table of a seed, or with its
// initial weights.
func (r *run) pruned(ctx context.Context, kind string, seed uint64) error {
	from := r.file(benchmark.Line{Kind: kind, Method: benchmark.Full}, seed)
	for _, base := range []string{baseline.Zero, baseline.Codebook} {
		for _, method := range []string{benchmark.Path, benchmark.Shapley, benchmark.ShapleyRMS} {
			if !slices.Contains(r.Methods, method) {
				continue
			}
			by := estimator.Multilinear
			if method == benchmark.Path {
				by = estimator.Path
			}
			scored, err := r.scoreOf(ctx, benchmark.Scoring{Kind: kind, Seed: seed, Estimator: by, Baseline: base}, from)
			if err != nil {
				return err
			}
			for _, sparsity := range r.Sparsities {
				l := benchmark.Line{Kind: kind, Method: method, Baseline: base, Sparsity: sparsity}
				if err := r.single(ctx, l, seed, from, scored); err != nil {
					return err
				}
			}
		}
	}
	return r.masked(ctx, kind, seed, from)
}

// single makes the model of a single-shot line, and the same model tuned.
func (r *run) single(ctx context.Context, l benchmark.Line, seed uint64, from, scored string) error {
	err := r.step(ctx, l, seed, func(out string) (float64, error) {
		if scored == "" {
			return 0, errNoFull
		}
		return 0, r.prune(ctx, l.Method, l.Sparsity, from, scored, out)
	})
	if err != nil {
		return err
	}
	pruned := r.file(l, seed)
	l.Tuned = true
	tune := training.DefaultTuning()
	tune.Seed = seed
	return r.step(ctx, l, seed, func(out string) (float64, error) {
		if scored == "" {
			return 0, errNoFull
		}
		return 0, r.tune(ctx, tune, pruned, out)
	})
}

// masked makes the models of SNIP and SSEDS, which are trained after the table was pruned. full is
// the path of the model with the full table.
func (r *run) masked(ctx context.Context, kind string, seed uint64, full string) error {
	for _, method := range []string{benchmark.SNIP, benchmark.SSEDS} {
		if !slices.Contains(r.Methods, method) {
			continue
		}
		from, initial := full, method == benchmark.SNIP
		if initial {
			from = r.path(kind, fmt.Sprintf("initial-seed%d.safetensors", seed))
			if err := r.writeInitial(model.Kind(kind), seed, from); err != nil {
				return err
			}
		}
		scored, err := r.scoreOf(ctx, benchmark.Scoring{Kind: kind, Seed: seed, Initial: initial, Estimator: estimator.Taylor, Baseline: baseline.Zero}, from)
		if err != nil {
			return err
		}
		for _, sparsity := range r.Sparsities {
			l := benchmark.Line{Kind: kind, Method: method, Sparsity: sparsity}
			if err := r.step(ctx, l, seed, func(out string) (float64, error) { return 0, r.cut(ctx, l, seed, from, scored, out) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut prunes the model in a file by SNIP or SSEDS, and trains what is left with the settings of the
// full table. The pruned model is in a hidden file meanwhile.
func (r *run) cut(ctx context.Context, l benchmark.Line, seed uint64, from, scored, out string) error {
	if scored == "" {
		return errNoFull
	}
	hidden := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".pruned")
	defer atomicfile.Track(hidden).Remove()
	if err := r.prune(ctx, l.Method, l.Sparsity, from, scored, hidden); err != nil {
		return err
	}
	t := r.settings(seed)
	if s := r.document.FindSearch(l.Kind, benchmark.Full, 0); s != nil {
		t.LearningRate, t.WeightDecay, t.Dropout = s.LearningRate, s.WeightDecay, s.Dropout
	}
	t.Tune = true
	return r.tune(ctx, t, hidden, out)
}

// writeInitial writes the model of a kind before its training.
func (r *run) writeInitial(kind model.Kind, seed uint64, out string) error {
	a, err := r.architecture(kind, r.data.FieldDims())
	if err != nil {
		return err
	}
	ck := checkpoint.New(*a, train.Initial(a, r.norm(kind), seed))
	ck.Identities = r.data.Identities()
	_, err = checkpoint.WriteDense(out, ck)
	return err
}

// scoreOf is like score, but returns "" if the model with the full table is missing and s needs it.
func (r *run) scoreOf(ctx context.Context, s benchmark.Scoring, from string) (out string, err error) {
	if !s.Initial && !r.hasFull(s.Kind, s.Seed) {
		return "", nil
	}
	return r.score(ctx, s, from)
}

// score scores the model in a file on the training rows, unless an earlier run did, and returns
// the path of the scores.
func (r *run) score(ctx context.Context, s benchmark.Scoring, from string) (out string, err error) {
	name := s.Estimator + "-" + s.Baseline
	if s.Initial {
		name = "initial-" + name
	}
	out = r.path(s.Kind, fmt.Sprintf("%s-seed%d.arrow", name, s.Seed))
	step := score.NewOptions(score.Recorded)
	step.Model, step.Dataset, step.Job.Out, step.Job.Outputs, *step.Kernel = from, r.Folders, out, r.Outputs, cli.Kernel(kernel.Name())
	q := &step.Job.Request
	q.Options.Estimator, q.Baseline, q.Splits, q.Seed, q.Note = s.Estimator, s.Baseline, []string{dataset.Train}, s.Seed, nil
	report, err := step.Run(ctx)
	if err != nil || r.document.FindScoring(s) != nil {
		return out, err
	}
	s.Seconds, s.Resumed = report.CPUSeconds, report.Resumed
	r.document.Scorings = append(r.document.Scorings, s)
	return out, r.save()
}

// prune prunes the model in a file by a method, and writes the compact form.
func (r *run) prune(ctx context.Context, method string, sparsity float64, from, scored, out string) error {
	o := steps.NewPrune()
	o.Model, o.Scores, o.Out, o.Outputs.Force, o.Warn = from, scored, out, true, nil
	o.Budget, o.SSEDS = &mask.Budget{Unit: mask.Sparsity, Amount: sparsity}, method == benchmark.SSEDS
	o.Aggregate = cmp.Or(map[string]string{benchmark.Path: scores.ByPath, benchmark.ShapleyRMS: scores.RMS}[method], scores.Sum)
	_, err := o.Run(ctx)
	return err
}

// tune trains the pruned model in a file.
func (r *run) tune(ctx context.Context, t training.Settings, from, out string) error {
	c, err := r.options(t, out).Tuning(from)
	if err != nil {
		return err
	}
	_, err = c.Train(ctx)
	return err
}
