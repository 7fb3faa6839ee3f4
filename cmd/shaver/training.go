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
	"path/filepath"

	"github.com/spf13/cobra"

	"shaver/internal/checkpoint"
	"shaver/internal/cli"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/filelock"
	"shaver/internal/kernel"
	"shaver/internal/loss"
	"shaver/internal/model"
	"shaver/internal/scores"
	"shaver/internal/train"
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
}

// trained is the metadata of a trained model.
type trained struct {
	training
	train.Epoch
}

// standing is what the state of a training holds besides the trainer's numbers.
type standing struct {
	Settings training      `json:"settings"`
	Steps    int64         `json:"steps"`
	History  []train.Epoch `json:"history"`
	Best     int           `json:"best"`
	Digest   string        `json:"digest,omitempty"` // SHA-256 of the file at --out; empty if there is none yet
}

// trainingResult is what "train" and "tune" print.
type trainingResult struct {
	Out     string        `json:"out"`
	Rows    int64         `json:"rows"`
	Best    int           `json:"best"` // number of the epoch whose model is at Out
	History []train.Epoch `json:"history"`
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
	cli.KernelFlag(c)
	c.Flags().Lookup("kernel").Usage = "float32 kernel, such as avx2; others give slightly different weights"
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

// course is one training: from a checkpoint to the file of the best epoch.
type course struct {
	*trainingOptions
	from     *checkpoint.Checkpoint // has the shapes of the model to write
	dropped  []bool                 // with baseline, if the model is pruned; else nil
	baseline []float32
	compact  bool // whether to write the compact form
	data     *dataset.Dataset
	digest   string // SHA-256 of the file that was written last; "" if none was
}

// run trains, writes the best epoch, and prints the history.
func (o *course) run(c *cobra.Command) error {
	state := o.state()
	unlock, err := filelock.Lock(state + ".lock")
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("another process is training %s", o.out)
	}
	if err != nil {
		return err
	}
	defer unlock()
	p, err := o.from.Parameters()
	if err != nil {
		return err
	}
	trainer, err := train.New(o.from.Architecture, p, o.settings(o.dropped))
	if err != nil {
		return fault.Usagef("%w", err)
	}
	r := &train.Run{
		Trainer: trainer, Epochs: o.Epochs, Patience: o.Patience, Shuffle: o.Order == orderShuffle,
		Untrained: o.Model != "" || o.Epochs == 0,
	}
	if err := o.resume(state, r); err != nil {
		return err
	}
	if r.Rows, err = o.rows(c.Context()); err != nil {
		return err
	}
	n := int64(r.Rows.Len())
	progress := cli.NewProgress("train", "rows", n*int64(o.Epochs))
	defer progress.End()
	progress.Set(n * int64(max(0, last(r.History))))
	r.Stepped = func(rows int) { progress.Add(int64(rows)) }
	if o.data.Rows(dataset.Val) > 0 {
		b := &bench{o.data, dataset.Val, o.data.Rows(dataset.Val), loss.Logistic}
		r.Measure = func(ctx context.Context, m *model.Model) (*train.Metrics, error) {
			found, err := b.predict(ctx, m, nil)
			if err != nil {
				return nil, err
			}
			metrics := found.Metrics()
			return &train.Metrics{AUC: scores.Figure(metrics.AUC), LogLoss: metrics.Loss}, nil
		}
	}
	r.Done = func(e train.Epoch, best bool) error {
		if best {
			if err := o.write(trainer.Parameters(), e); err != nil {
				return err
			}
		}
		progress.Note(epochNote(e, r))
		return o.save(state, r)
	}
	err = r.Run(c.Context())
	var diverged *train.Diverged
	if errors.As(err, &diverged) {
		if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		kept := "nothing was written"
		if best := r.BestEpoch(); best != nil {
			kept = fmt.Sprintf("%s has the model of epoch %d", o.out, best.Number)
		}
		return fault.Usagef("%w; %s; try a lower --learning-rate", diverged, kept)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(state); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	progress.End()
	result := &trainingResult{o.out, n, r.Best, r.History}
	return o.output.Print(c.OutOrStdout(), result, result.table)
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

// write writes the model of an epoch to --out.
func (o *course) write(p *model.Parameters, e train.Epoch) error {
	c, err := o.from.WithParameters(p)
	if err != nil {
		return err
	}
	text, err := json.Marshal(trained{o.training, e})
	if err != nil {
		return err
	}
	c.Training = string(text)
	if o.compact {
		_, err = checkpoint.WriteCompact(o.out, c, o.dropped, o.baseline, o.from.Compact.Encoding())
	} else {
		_, err = checkpoint.WriteDense(o.out, c)
	}
	if err != nil {
		return err
	}
	o.digest, err = digestOf(o.out)
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

// state returns the path of the state, from which the same command continues.
func (o *course) state() string {
	return filepath.Join(filepath.Dir(o.out), "."+filepath.Base(o.out)+".training")
}

// save writes the state after an epoch.
func (o *course) save(path string, r *train.Run) error {
	text, err := json.Marshal(standing{o.training, r.Trainer.Steps(), r.History, r.Best, o.digest})
	if err != nil {
		return err
	}
	return checkpoint.WriteVectors(path, string(text), vectors(r.Trainer))
}

func vectors(t *train.Trainer) (all []checkpoint.Vector) {
	for _, v := range t.State() {
		all = append(all, checkpoint.Vector(v))
	}
	return all
}

// resume continues from the state at path, if there is one.
func (o *course) resume(path string, r *train.Run) error {
	var s standing
	err := checkpoint.ReadVectors(path, func(text string) ([]checkpoint.Vector, error) {
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return nil, fault.Inputf("%s: %w", path, err)
		}
		ours, err := json.Marshal(o.training)
		if err != nil {
			return nil, err
		}
		theirs, err := json.Marshal(s.Settings)
		if err != nil {
			return nil, err
		}
		if string(ours) != string(theirs) {
			if o.outputs.Force {
				return nil, errForced
			}
			return nil, fault.Usagef("%s is the state of a training with other settings, another model or another dataset: give --force to start over", path)
		}
		return vectors(r.Trainer), nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errForced):
		return nil
	case err != nil:
		return err
	}
	if s.Digest != "" {
		if digest, err := digestOf(o.out); err != nil || digest != s.Digest {
			return fault.Inputf("%s is not the file that the training wrote: delete %s to start over", o.out, path)
		}
	}
	for i, e := range s.History {
		if e.Number != s.History[0].Number+i || e.Validation == nil && o.data.Rows(dataset.Val) > 0 {
			return fault.Inputf("%s has an invalid history: delete it to start over", path)
		}
	}
	if n := len(s.History); n == 0 || s.Best < s.History[0].Number || s.Best > s.History[n-1].Number {
		return fault.Inputf("%s has an invalid history: delete it to start over", path)
	}
	o.digest, r.History, r.Best = s.Digest, s.History, s.Best
	r.Trainer.Resume(s.Steps)
	return nil
}

// errForced means that --force discards a state.
var errForced = errors.New("state discarded")

func (r *trainingResult) table(w io.Writer) {
	fmt.Fprintf(w, "EPOCH\tLOSS\tVALIDATION AUC\tLOGLOSS\t\n")
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
