package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
)

// The orders in which an epoch reads the training rows.
const (
	orderShuffle = "shuffle"
	orderFile    = "file"
)

// trainingVersion is the version of the metadata of a trained model and of the state of a
// training.
const trainingVersion = 1

// training is the settings of "train" and "tune". Two trainings with the same settings give
// the same bytes.
type training struct {
	Version      int                 `json:"version"`
	Kernel       string              `json:"kernel"`
	Dataset      string              `json:"dataset"`           // digest
	Model        string              `json:"model,omitempty"`   // digest of the model from which the training started
	Initial      string              `json:"initial,omitempty"` // initialisation, if there is no such model
	Architecture *model.Architecture `json:"architecture,omitempty"`
	Tune         bool                `json:"tune,omitempty"`
	Epochs       int                 `json:"epochs"`
	Patience     int                 `json:"patience"`
	Optimizer    train.Optimizer     `json:"optimizer"`
	LearningRate float64             `json:"learning_rate"`
	WeightDecay  float64             `json:"weight_decay"`
	Dropout      float64             `json:"dropout"`
	Batch        int                 `json:"batch"`
	Order        string              `json:"order"`
	Seed         uint64              `json:"seed"`
	Search       int                 `json:"search,omitempty"` // number of trials; 0 = no search
	Table        string              `json:"table,omitempty"`  // as --table; empty = full
	Sparsity     float64             `json:"sparsity,omitempty"`
	WarmUp       int                 `json:"warm_up,omitempty"` // epochs
}

// trained is the metadata of a trained model.
type trained struct {
	training
	train.Epoch
}

// trial is one training of a search, after its end.
type trial struct {
	LearningRate float64      `json:"learning_rate"`
	WeightDecay  float64      `json:"weight_decay"`
	Dropout      float64      `json:"dropout"`
	Epochs       int          `json:"epochs"`             // number of epochs until it stopped
	Best         *train.Epoch `json:"best,omitempty"`     // nil if it has none
	Diverged     string       `json:"diverged,omitempty"` // where, if it diverged
	Failed       string       `json:"failed,omitempty"`   // why, if it could not reach the sparsity
	Seconds      float64      `json:"seconds"`            // processor time, without that of earlier processes
}

// standing is what the state of a training holds besides the trainer's numbers. Steps,
// History and Best are those of the trial after Trials, which is under way.
type standing struct {
	Settings training      `json:"settings"`
	Trials   []trial       `json:"trials,omitempty"`
	Finding  *finding      `json:"finding,omitempty"` // with a --table that finds entries to keep
	Steps    int64         `json:"steps"`
	History  []train.Epoch `json:"history"`
	Best     int           `json:"best"`
	Digest   string        `json:"digest,omitempty"` // SHA-256 of the file at --out; empty before the first
}

// trainingResult is what "train" and "tune" print.
type trainingResult struct {
	Out     string        `json:"out"`
	Rows    int64         `json:"rows"`
	Best    int           `json:"best"`              // number of the epoch whose model is at Out, or of the trial from 1
	Find    []findEpoch   `json:"find,omitempty"`    // epochs in which the entries to keep were found
	Kept    int           `json:"kept,omitempty"`    // number of these entries
	History []train.Epoch `json:"history,omitempty"` // absent with a search
	Trials  []trial       `json:"trials,omitempty"`
}

// trainingOptions are the flags that "train" and "tune" share.
type trainingOptions struct {
	training
	out       string
	dataset   []string
	optimizer string
	outputs   cli.Outputs
	output    cli.Output
}

// flags adds the flags. The fields have the defaults.
func (o *trainingOptions) flags(c *cobra.Command) {
	f := c.Flags()
	datasetFlag(c, &o.dataset, "dataset `folder`, whose splits train and val are read")
	outFlag(c, &o.out, "model `file` to write, .safetensors", "safetensors")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "largest `number` of times to read the training rows")
	f.IntVar(&o.Patience, "patience", o.Patience, "`number` of epochs without a better one after which to stop; 0 = never")
	f.Float64Var(&o.LearningRate, "learning-rate", o.LearningRate, "learning `rate`")
	f.Float64Var(&o.WeightDecay, "weight-decay", o.WeightDecay, "`factor` of each weight that is added to its gradient")
	f.Float64Var(&o.Dropout, "dropout", o.Dropout, "`probability` of dropping a unit of a hidden layer")
	f.IntVar(&o.Batch, "batch", o.Batch, "`number` of rows of a step")
	f.StringVar(&o.optimizer, "optimizer", string(train.Adam), "`rule` that moves the weights: "+string(train.Adam)+", or "+string(train.SparseAdam)+", which moves only the embeddings of a step's rows, without decay")
	cli.OneOf(c, "optimizer", string(train.Adam), string(train.SparseAdam))
	f.StringVar(&o.Order, "order", orderShuffle, "`order` of the rows: "+orderShuffle+", another one in each epoch, or "+orderFile)
	cli.OneOf(c, "order", orderShuffle, orderFile)
	seedFlag(c, &o.Seed)
	cli.KernelFlag(c, "`name` of the float32 kernel, such as avx2; others give slightly different weights; auto is the one with the widest vectors of this machine")
	o.outputs.Flag(c, "a file at --out that is not a model written by shaver, and the state of another training")
	o.output.Flag(c)
	cli.Group(c, "Training", "epochs", "patience", "learning-rate", "weight-decay", "dropout", "batch", "optimizer", "order", "seed", "kernel")
}

// check checks the flags before any file is read.
func (o *trainingOptions) check() error {
	o.Version, o.Kernel, o.Optimizer = trainingVersion, kernel.Name(), train.Optimizer(o.optimizer)
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.Epochs < 0 || o.Patience < 0 {
		return fault.Usagef("--epochs %d and --patience %d: expected numbers of at least 0", o.Epochs, o.Patience)
	}
	settings := o.settings(nil)
	if err := settings.Validate(); err != nil {
		return fault.Usagef("%w", err)
	}
	if err := o.checkTable(); err != nil {
		return err
	}
	o.outputs.Inputs(dataset.Files(o.dataset...)...)
	return o.outputs.Check("--out", o.out, models)
}

func (o *trainingOptions) settings(dropped []bool) train.Options {
	return train.Options{
		Optimizer: o.Optimizer, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
		Dropout: o.Dropout, Batch: o.Batch, Seed: o.Seed, Dropped: dropped,
	}
}

// open opens the dataset for a model and checks what training needs.
func (o *trainingOptions) open(a *model.Architecture, names []string) (*dataset.Dataset, error) {
	d, err := dataset.OpenAll(o.dataset)
	if err != nil {
		return nil, err
	}
	if a != nil {
		if d, err = d.For(a); err != nil {
			return nil, err
		}
		if err := d.CheckNames(names); err != nil {
			return nil, err
		}
	}
	kind, err := d.ChooseLoss("")
	if err != nil {
		return nil, err
	}
	if kind != loss.Logistic {
		return nil, fault.Inputf("dataset %s has numbers as labels: training needs labels of 0 and 1", joined(o.dataset))
	}
	if n := d.Rows(dataset.Train); n < 2 {
		return nil, fault.Inputf("dataset %s has %d rows in the split %s: training needs at least 2", joined(o.dataset), n, dataset.Train)
	}
	o.Dataset = d.Digest()
	return d, nil
}

// fresh returns the training of a new model with the architecture a, whose FieldDims it sets to
// those of the dataset. norm states whether each hidden layer has a BatchNorm. initial is one of
// the initialisations.
func (o *trainingOptions) fresh(a *model.Architecture, norm bool, initial string) (*course, error) {
	d, err := o.open(nil, nil)
	if err != nil {
		return nil, err
	}
	a.FieldDims = d.FieldDims()
	if err := a.Validate(); err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if d, err = d.For(a); err != nil {
		return nil, err
	}
	weights := train.Initial
	if initial == initialReference {
		weights = train.InitialReference
	}
	o.Initial, o.Architecture = initial, a
	return &course{trainingOptions: o, data: d, from: checkpoint.New(*a, weights(a, norm, o.Seed))}, nil
}

// course is one training: from a checkpoint to the file of the best epoch. A search has
// several trials, and writes the best epoch of all.
type course struct {
	*trainingOptions
	from     *checkpoint.Checkpoint // has the shapes of the model to write
	dropped  []bool                 // with baseline, if the model is pruned; else nil
	baseline []float32
	compact  bool            // whether to write the compact form
	shape    *composed.Shape // of a composed table; else nil
	cached   []int32         // features of it with rows of their own, after the first epoch
	data     *dataset.Dataset
	budget   time.Duration // time after which a search starts no more trials; 0 = unlimited

	standing
	kept     []bool              // entries to keep of the trial under way, once they are found; see train.Trainer.Kept
	best     []checkpoint.Vector // state of the best epoch of OptEmbed's first training; else nil
	all      *model.Rows         // of the training split
	progress *cli.Progress
}

// run trains, writes the best epoch, and prints the history.
func (o *course) run(c *cobra.Command) error {
	result, err := o.train(c.Context())
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), result, result.table)
}

// train trains and writes the best epoch.
func (o *course) train(ctx context.Context) (*trainingResult, error) {
	unlock, err := filelock.Lock(o.state() + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another process is training %s", o.out)
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o.Search > 0 && o.data.Rows(dataset.Val) == 0 {
		return nil, fault.Inputf("dataset %s has no rows in the split %s, by which a search chooses", joined(o.dataset), dataset.Val)
	}
	if o.method() == train.OptEmbed && o.data.Rows(dataset.Val) == 0 {
		return nil, fault.Inputf("dataset %s has no rows in the split %s, by which --table %s chooses columns", joined(o.dataset), dataset.Val, train.OptEmbed)
	}
	if err := o.chooseTable(); err != nil {
		return nil, err
	}
	o.Settings = o.training
	numbers, err := o.resume()
	if err != nil {
		return nil, err
	}
	if o.all, err = o.rows(ctx); err != nil {
		return nil, err
	}
	n, trials := int64(o.all.Len()), max(1, o.Search)
	passes := n * int64(o.Epochs) // of a trial
	if o.method() != "" {
		passes *= 2
	}
	o.progress = cli.NewProgress("train", "rows", passes*int64(trials))
	defer o.progress.End()
	start := time.Now()
	for number := len(o.Trials); number < trials; number++ {
		if number > 0 && o.budget > 0 && time.Since(start) > o.budget {
			break
		}
		o.progress.Set(passes*int64(number) + n*int64(o.epochs()))
		settings := o.settings(o.dropped)
		if o.Search > 0 {
			settings.Trial(number)
		}
		cpu := cputime.Process()
		err := o.trial(ctx, settings, numbers)
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
				err = &noModel{fault.Usagef("--table %s: %w", o.Table, missed)}
			}
		}
		if err != nil {
			return nil, err
		}
		if o.Search == 0 {
			break
		}
		done := trial{settings.LearningRate, settings.WeightDecay, settings.Dropout, last(o.History), bestOf(o.History, o.Best), "", "", (cputime.Process() - cpu).Seconds()}
		if diverged != nil {
			done.Diverged = fmt.Sprintf("epoch %d, batch %d", diverged.Epoch, diverged.Batch)
		}
		if missed != nil {
			done.Failed = missed.reason
		}
		o.Trials, o.History, o.Steps, o.Best = append(o.Trials, done), nil, 0, -1
		o.Finding, o.kept, o.best, o.dropped, o.baseline = nil, nil, nil, nil, nil
		if err := o.save(nil); err != nil {
			return nil, err
		}
	}
	if err := o.remove(); err != nil {
		return nil, err
	}
	o.progress.End()
	result := &trainingResult{Out: o.out, Rows: n, Best: o.Best, History: o.History, Trials: o.Trials}
	if o.Finding != nil {
		result.Find, result.Kept = o.Finding.Epochs, o.Finding.Kept
	}
	if o.Search > 0 {
		result.Best = o.bestTrial()
		if result.Best == 0 {
			return nil, &noModel{fault.Inputf("all %d trials failed: nothing was written%s", len(o.Trials), o.reasons())}
		}
	}
	return result, nil
}

// noModel is the error of a training that ended without a model. The same training would end in the
// same way.
type noModel struct{ error }

func (e *noModel) Unwrap() error { return e.error }

// reasons returns why the trials of a search failed, each reason once.
func (o *course) reasons() string {
	var all []string
	for _, t := range o.Trials {
		if reason := t.reason(); !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	return "; " + strings.Join(all, "; ")
}

// reason returns why a trial failed, or "" if it did not.
func (t *trial) reason() string {
	if t.Diverged != "" {
		return "diverged in " + t.Diverged
	}
	return t.Failed
}

// remove deletes the state, if there is one.
func (o *course) remove() error {
	if err := os.Remove(o.state()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// explain returns the error of a training that diverged, after removing its state.
func (o *course) explain(diverged *train.Diverged) error {
	if err := o.remove(); err != nil {
		return err
	}
	if best := bestOf(o.History, o.Best); best != nil {
		return fault.Usagef("%w; %s has the model of epoch %d; try a lower --learning-rate", diverged, o.out, best.Number)
	}
	return &noModel{fault.Usagef("%w; nothing was written; try a lower --learning-rate", diverged)}
}

// trial runs one training. If numbers is not nil, it continues from them.
func (o *course) trial(ctx context.Context, settings train.Options, numbers []checkpoint.Vector) error {
	p, err := o.from.Parameters()
	if err != nil {
		return err
	}
	if o.method() != "" {
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
		Trainer: trainer, Rows: o.all, Epochs: o.Epochs, Patience: o.Patience, Shuffle: o.Order == orderShuffle,
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
func (o *course) epochs() int {
	n := max(0, last(o.History))
	if o.Finding != nil {
		n += len(o.Finding.Epochs)
	}
	return n
}

// bestTrial returns the number of the best finished trial, from 1, or 0 without any.
func (o *course) bestTrial() (best int) {
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
func (o *course) measure() func(context.Context, *model.Model) (*train.Metrics, error) {
	rows := o.data.Rows(dataset.Val)
	if rows == 0 {
		return nil
	}
	b := &measure.Bench{Dataset: o.data, Split: dataset.Val, Rows: rows, Loss: loss.Logistic}
	return func(ctx context.Context, m *model.Model) (*train.Metrics, error) {
		found, err := b.Predict(ctx, m, nil)
		if err != nil {
			return nil, err
		}
		metrics := found.Metrics()
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
func (o *course) rows(ctx context.Context) (*model.Rows, error) {
	all := &model.Rows{}
	err := o.data.Scan(ctx, []string{dataset.Train}, 4096, func(rows *model.Rows) error {
		all.AppendAll(rows)
		return nil
	})
	return all, err
}

// with returns the training with the settings of a trial.
func (o *course) with(settings *train.Options) training {
	t := o.training
	t.LearningRate, t.WeightDecay, t.Dropout = settings.LearningRate, settings.WeightDecay, settings.Dropout
	return t
}

// untrained reports whether the model before training is a candidate.
func (o *course) untrained() bool { return o.Model != "" || o.Epochs == 0 }

// first returns the number of the first candidate.
func (o *course) first() int {
	if o.untrained() {
		return 0
	}
	return 1
}

// write writes the model of an epoch to --out. The metadata have the settings of its trial.
func (o *course) write(trainer *train.Trainer, e train.Epoch, settings *train.Options) error {
	c, err := o.from.WithParameters(trainer.Parameters())
	if err != nil {
		return err
	}
	text, err := json.Marshal(trained{o.with(settings), e})
	if err != nil {
		return err
	}
	c.Training = string(text)
	switch {
	case o.shape != nil:
		c.Composed = trainer.Composed()
		_, err = checkpoint.WriteComposed(o.out, c)
	case o.compact:
		values := compact.Float32
		if o.from.Compact != nil {
			values = o.from.Compact.Encoding()
		}
		_, err = checkpoint.WriteCompact(o.out, c, o.dropped, o.baseline, values)
	default:
		_, err = checkpoint.WriteDense(o.out, c)
	}
	if err != nil {
		return err
	}
	o.Digest, err = digestOf(o.out)
	return err
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func (r *trainingResult) table(w io.Writer) {
	if r.Trials != nil {
		r.search(w)
		return
	}
	fmt.Fprintf(w, "EPOCH\tLOSS\tVALIDATION AUC\tLOGLOSS\t\n")
	for _, e := range r.Find {
		auc, logLoss, note := "-", "-", ""
		if e.Validation != nil {
			auc, logLoss = metric(e.Validation.AUC), metric(&e.Validation.LogLoss)
		}
		if e.Remaining > 0 {
			note = fmt.Sprintf("%d entries left", e.Remaining)
		}
		fmt.Fprintf(w, "find %d\t%.6f\t%s\t%s\t%s\n", e.Number, *e.Loss, auc, logLoss, note)
	}
	for _, e := range r.History {
		training, auc, logLoss, best := "-", "-", "-", ""
		if e.Loss != nil {
			training = fmt.Sprintf("%.6f", *e.Loss)
		}
		if e.Validation != nil {
			auc, logLoss = metric(e.Validation.AUC), metric(&e.Validation.LogLoss)
		}
		if e.Number == r.Best {
			best = "written to " + r.Out
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", e.Number, training, auc, logLoss, best)
	}
}

// search writes the trials of a search.
func (r *trainingResult) search(w io.Writer) {
	fmt.Fprintf(w, "TRIAL\tLEARNING RATE\tWEIGHT DECAY\tDROPOUT\tEPOCHS\tVALIDATION AUC\tLOGLOSS\t\n")
	for i, t := range r.Trials {
		auc, logLoss, note := "-", "-", ""
		if t.Best != nil {
			auc, logLoss = metric(t.Best.Validation.AUC), metric(&t.Best.Validation.LogLoss)
		}
		switch {
		case i+1 == r.Best:
			note = fmt.Sprintf("epoch %d written to %s", t.Best.Number, r.Out)
		default:
			note = t.reason()
		}
		fmt.Fprintf(w, "%d\t%g\t%g\t%g\t%d\t%s\t%s\t%s\n", i+1, t.LearningRate, t.WeightDecay, t.Dropout, t.Epochs, auc, logLoss, note)
	}
}
