package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
)

// Course is one training: from a checkpoint to the file of the best epoch. A search has
// several trials, and writes the best epoch of all.
type Course struct {
	*Options
	from     *checkpoint.Checkpoint // has the shapes of the model to write, and the identities of the dataset's fields
	Unknown  string                 // sentence that the model with which the training begins does not know its fields, or ""
	dropped  []bool                 // with baseline, if the model is pruned; else nil
	baseline model.Baseline
	compact  bool            // whether to write the compact form
	shape    *composed.Shape // of a composed table; else nil
	cached   []int32         // features of it with rows of their own, after the first epoch
	data     *dataset.Dataset
	Budget   time.Duration // time after which a search starts no more trials; 0 = unlimited

	State
	kept     []bool              // entries to keep of the trial under way, once they are found; see train.Trainer.Kept
	best     []checkpoint.Vector // state of the best epoch of OptEmbed's first training; else nil
	all      *model.Rows         // of the training split
	progress *cli.Progress
}

// settings returns the settings of a trainer. A step has at most all rows, so that a larger Batch
// takes no more memory.
func (o *Course) settings(dropped []bool) train.Options {
	settings := o.Options.settings(dropped)
	if o.data != nil {
		settings.Batch = int(min(int64(settings.Batch), o.data.Rows(dataset.Train)))
	}
	return settings
}

// Train trains and writes the best epoch.
func (o *Course) Train(ctx context.Context) (*Result, error) {
	unlock, err := filelock.Lock(o.state() + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another process is training %s", o.Out)
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	atomicfile.Sweep(o.state())
	if o.Search > 0 {
		if err := o.NeedValidation("a search chooses"); err != nil {
			return nil, err
		}
	}
	if o.Method() == train.OptEmbed {
		if err := o.NeedValidation(fmt.Sprintf("--table %s chooses columns", train.OptEmbed)); err != nil {
			return nil, err
		}
	}
	if err := o.chooseTable(); err != nil {
		return nil, err
	}
	o.State.Settings = o.Options.Settings
	numbers, err := o.resume()
	if err != nil {
		return nil, err
	}
	if o.all, err = o.rows(ctx); err != nil {
		return nil, err
	}
	n, trials := int64(o.all.Len()), max(1, o.Search)
	passes := n * int64(o.Epochs) // of a trial
	if o.Method() != "" {
		passes *= 2
	}
	o.progress = cli.NewProgress("train", "rows", passes*int64(trials))
	defer o.progress.End()
	start := time.Now()
	for number := len(o.Trials); number < trials; number++ {
		if number > 0 && o.Budget > 0 && time.Since(start) > o.Budget {
			break
		}
		o.progress.Set(passes*int64(number) + n*int64(o.epochs()))
		settings := o.settings(o.dropped)
		if o.Search > 0 {
			settings.Trial(number)
		}
		cpu := cputime.Process()
		err := o.runTrial(ctx, settings, numbers)
		numbers = nil
		var diverged *train.Diverged
		var missed *unreachable
		switch failed := errors.As(err, &diverged) || errors.As(err, &missed); {
		case failed && o.Search > 0:
			err = nil
		case diverged != nil:
			err = o.explain(diverged)
		case missed != nil:
			err = o.remove()
			if err == nil {
				err = &NoModel{fault.Usagef("--table %s: %w", o.Table, missed)}
			}
		}
		if err != nil {
			return nil, err
		}
		if o.Search == 0 {
			break
		}
		done := Trial{settings.LearningRate, settings.WeightDecay, settings.Dropout, last(o.History), bestOf(o.History, o.Best), "", "", (cputime.Process() - cpu).Seconds()}
		if diverged != nil {
			done.Diverged = fmt.Sprintf("epoch %d, batch %d", diverged.Epoch, diverged.Batch)
		}
		if missed != nil {
			done.Failed = missed.reason
		}
		o.Trials, o.History, o.Steps, o.Best = append(o.Trials, done), nil, 0, -1
		o.Finding, o.kept, o.best, o.dropped, o.baseline = nil, nil, nil, nil, model.Baseline{}
		if err := o.save(nil); err != nil {
			return nil, err
		}
	}
	if err := o.remove(); err != nil {
		return nil, err
	}
	o.progress.End()
	result := &Result{Out: o.Out, Rows: n, Best: o.Best, History: o.History, Trials: o.Trials}
	if o.Finding != nil {
		result.Find, result.Kept = o.Finding.Epochs, o.Finding.Kept
	}
	if o.Search > 0 {
		result.Best = o.bestTrial()
		if result.Best == 0 {
			return nil, &NoModel{fault.Inputf("all %d trials failed: nothing was written%s", len(o.Trials), o.reasons())}
		}
	}
	return result, nil
}

// NeedValidation returns bad input unless the dataset has validation rows. what says what they are
// for, such as "a search chooses".
func (o *Course) NeedValidation(what string) error {
	if o.data.Rows(dataset.Val) == 0 {
		return fault.Inputf("dataset %s has no rows in the split %s, by which %s", strings.Join(o.Folders, ", "), dataset.Val, what)
	}
	return nil
}

// NoModel is the error of a training that ended without a model. The same training would end in the
// same way.
type NoModel struct{ Cause error }

func (e *NoModel) Error() string { return e.Cause.Error() }
func (e *NoModel) Unwrap() error { return e.Cause }

// reasons returns why the trials of a search failed, each reason once.
func (o *Course) reasons() string {
	var all []string
	for _, t := range o.Trials {
		if reason := t.reason(); !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	return "; " + strings.Join(all, "; ")
}

// reason returns why a trial failed, or "" if it did not.
func (t *Trial) reason() string {
	if t.Diverged != "" {
		return "diverged in " + t.Diverged
	}
	return t.Failed
}

// remove deletes the state, if there is one.
func (o *Course) remove() error {
	if err := os.Remove(o.state()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// explain returns the error of a training that diverged, after removing its state.
func (o *Course) explain(diverged *train.Diverged) error {
	if err := o.remove(); err != nil {
		return err
	}
	if best := bestOf(o.History, o.Best); best != nil {
		return fault.Usagef("%w; %s has the model of epoch %d; try a lower --learning-rate", diverged, o.Out, best.Number)
	}
	return &NoModel{fault.Usagef("%w; nothing was written; try a lower --learning-rate", diverged)}
}

// runTrial runs one training. If numbers is not nil, it continues from them.
func (o *Course) runTrial(ctx context.Context, settings train.Options, numbers []checkpoint.Vector) error {
	p, err := o.from.Parameters()
	if err != nil {
		return err
	}
	if o.Method() != "" {
		if o.kept == nil {
			if err := o.find(ctx, settings, numbers); err != nil {
				return err
			}
			numbers = nil
			o.progress.Note(fmt.Sprintf("found %d entries to keep", o.Finding.Kept))
		}
		o.apply(p, &settings)
	} else {
		settings = o.withTable(settings)
	}
	trainer, err := train.New(o.from.Architecture, p, settings)
	if err != nil {
		return fault.Usagef("%w", err)
	}
	r := &train.Run{
		Trainer: trainer, Rows: o.all, Epochs: o.Epochs, Patience: o.Patience, Shuffle: o.Order == OrderShuffle,
		Untrained: o.untrained(), Measure: o.measure(),
		Stepped: func(rows int) { o.progress.Add(int64(rows)) },
	}
	if numbers != nil {
		for i, v := range trainer.State() {
			copy(v.Values, numbers[i].Values)
		}
		trainer.Resume(o.Steps)
		r.History, r.Best = o.History, o.Best
	}
	best := o.bestTrial()
	r.Done = func(e train.Epoch, first bool) error {
		if first && (best == 0 || e.Validation.Better(o.Trials[best-1].Best.Validation)) {
			if err := o.write(trainer, e, &settings); err != nil {
				return err
			}
		}
		o.progress.Note(epochNote(e, r))
		o.History, o.Best, o.Steps = r.History, r.Best, trainer.Steps()
		return o.save(trainer)
	}
	err = r.Run(ctx)
	o.History, o.Best = r.History, r.Best
	return err
}

// epochs returns the number of epochs of the trial under way.
func (o *Course) epochs() int {
	n := max(0, last(o.History))
	if o.Finding != nil {
		n += len(o.Finding.Epochs)
	}
	return n
}

// bestTrial returns the number of the best finished trial, from 1, or 0 without any.
func (o *Course) bestTrial() (best int) {
	for i, t := range o.Trials {
		if t.Best != nil && (best == 0 || t.Best.Validation.Better(o.Trials[best-1].Best.Validation)) {
			best = i + 1
		}
	}
	return best
}

// bestOf returns the epoch with the given number, or nil if the history lacks it.
func bestOf(history []train.Epoch, best int) *train.Epoch {
	for i := range history {
		if history[i].Number == best {
			return &history[i]
		}
	}
	return nil
}

// measure returns the function that measures models on the validation rows, or nil without
// such rows.
func (o *Course) measure() func(context.Context, *model.Model) (*train.Metrics, error) {
	rows := o.data.Rows(dataset.Val)
	if rows == 0 {
		return nil
	}
	b := &measure.Bench{Dataset: o.data, Split: dataset.Val, Rows: rows, Loss: loss.Logistic}
	warned := false
	return func(ctx context.Context, m *model.Model) (*train.Metrics, error) {
		found, err := b.Predict(ctx, m, nil)
		if err != nil {
			return nil, err
		}
		metrics := found.Metrics()
		before := o.untrained() && len(o.History) == 0 // the model is that with which the training begins
		text := found.Doubt()
		if text == "" && !before && found.Weights == nil { // the few rows on which a training diverges have most of the loss, and their standard error is large
			positives := int64(0)
			for _, label := range found.Labels {
				positives += int64(label)
			}
			text = evaluate.DoubtOf(metrics.Loss, rows, positives, rows)
		}
		switch {
		case text == "" || o.Warn == nil || warned:
		case before && o.Model != "":
			o.Warn("before this training the model " + text)
			warned = true
		case !before && o.Search == 0:
			o.Warn(fmt.Sprintf("after epoch %d the model %s, or give a lower --learning-rate", last(o.History)+1, text))
			warned = true
		}
		return &train.Metrics{AUC: scores.Figure(metrics.AUC), LogLoss: metrics.Loss}, nil
	}
}

// last returns the number of the last epoch, or 0 without one.
func last(history []train.Epoch) int {
	if len(history) == 0 {
		return 0
	}
	return history[len(history)-1].Number
}

func epochNote(e train.Epoch, r *train.Run) string {
	text := fmt.Sprintf("epoch %d of %d", e.Number, r.Epochs)
	if v := e.Validation; v != nil && v.AUC != nil {
		text += fmt.Sprintf(", validation AUC %.4f, best %.4f", *v.AUC, *r.BestEpoch().Validation.AUC)
	}
	return text
}

// rows reads all rows of the training split.
func (o *Course) rows(ctx context.Context) (*model.Rows, error) {
	all := &model.Rows{}
	err := o.data.Scan(ctx, []string{dataset.Train}, 4096, func(rows *model.Rows) error {
		all.AppendAll(rows)
		return nil
	})
	return all, err
}

// with returns the training with the settings of a trial.
func (o *Course) with(settings *train.Options) Settings {
	t := o.Options.Settings
	t.LearningRate, t.WeightDecay, t.Dropout = settings.LearningRate, settings.WeightDecay, settings.Dropout
	return t
}

// untrained reports whether the model before training is a candidate.
func (o *Course) untrained() bool { return o.Model != "" || o.Epochs == 0 }

// first returns the number of the first candidate.
func (o *Course) first() int {
	if o.untrained() {
		return 0
	}
	return 1
}

// write writes the model of an epoch to Out. The metadata have the settings of its trial.
func (o *Course) write(trainer *train.Trainer, e train.Epoch, settings *train.Options) error {
	c, err := o.from.WithParameters(trainer.Parameters())
	if err != nil {
		return err
	}
	text, err := json.Marshal(Trained{o.with(settings), e})
	if err != nil {
		return err
	}
	c.Training = string(text)
	switch {
	case o.shape != nil:
		c.Composed = trainer.Composed()
		_, err = checkpoint.WriteComposed(o.Out, c)
	case o.compact && o.from.Compact != nil && o.from.Compact.Encoding() == compact.Mixed:
		_, err = checkpoint.WriteMixed(o.Out, c, o.dropped, o.baseline, o.from.Compact.Palette())
	case o.compact:
		values := compact.Float32
		if o.from.Compact != nil {
			values = o.from.Compact.Encoding()
		}
		_, err = checkpoint.WriteCompact(o.Out, c, o.dropped, o.baseline, values)
	default:
		_, err = checkpoint.WriteDense(o.Out, c)
	}
	if err != nil {
		return err
	}
	o.Digest, err = files.Digest(o.Out)
	return err
}
