// Package training trains click models, tunes pruned ones, and searches their settings. A training
// writes its state, from which the same training continues.
package training

import (
	"fmt"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
)

// The orders in which an epoch reads the training rows.
const (
	OrderShuffle = "shuffle"
	OrderFile    = "file"
)

// trainingVersion is the version of the metadata of a trained model and of the state of a
// training.
const trainingVersion = 1

// Settings are the settings of "train" and "tune". Two trainings with the same settings give
// the same bytes.
type Settings struct {
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

// Trained is the metadata of a trained model.
type Trained struct {
	Settings
	train.Epoch
}

// Trial is one training of a search, after its end.
type Trial struct {
	LearningRate float64      `json:"learning_rate"`
	WeightDecay  float64      `json:"weight_decay"`
	Dropout      float64      `json:"dropout"`
	Epochs       int          `json:"epochs"`             // number of epochs until it stopped
	Best         *train.Epoch `json:"best,omitempty"`     // nil if it has none
	Diverged     string       `json:"diverged,omitempty"` // where, if it diverged
	Failed       string       `json:"failed,omitempty"`   // why, if it could not reach the sparsity
	Seconds      float64      `json:"seconds"`            // processor time, without that of earlier processes
}

// State is what the state of a training holds besides the trainer's numbers. Steps,
// History and Best are those of the trial after Trials, which is under way.
type State struct {
	Settings Settings      `json:"settings"`
	Trials   []Trial       `json:"trials,omitempty"`
	Finding  *Finding      `json:"finding,omitempty"` // with a --table that finds entries to keep
	Steps    int64         `json:"steps"`
	History  []train.Epoch `json:"history"`
	Best     int           `json:"best"`
	Digest   string        `json:"digest,omitempty"` // SHA-256 of the file at --out; empty before the first
}

// Options are the settings of a training with its files.
type Options struct {
	Settings
	Out     string   // file to write
	Folders []string // dataset
	Outputs cli.Outputs
	Replace bool // the caller has decided that the model at Out may be replaced
	// Warn takes a warning. It may be nil.
	Warn func(text string)

	// Unread is a sentence that the model does not read the dense inputs of the dataset, or "" if it has
	// no such inputs. The functions that return a Course set it.
	Unread string
}

// Check checks the settings before any file is read. It sets Version and Kernel.
func (o *Options) Check() error {
	o.Version, o.Kernel = trainingVersion, kernel.Name()
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
	o.Outputs.Inputs(dataset.Files(o.Folders...)...)
	return o.Outputs.Check("--out", o.Out, cli.Unless(checkpoint.Written, "a model"), ".safetensors")
}

func (o *Options) settings(dropped []bool) train.Options {
	return train.Options{
		Optimizer: o.Optimizer, LearningRate: o.LearningRate, WeightDecay: o.WeightDecay,
		Dropout: o.Dropout, Batch: o.Batch, Seed: o.Seed, Dropped: dropped,
	}
}

// checkMemory returns wrong usage if a training on a number of rows certainly needs more memory than
// most. It counts each weight with its two moments, and what the layers of a step's rows compute.
func (o *Options) checkMemory(a *model.Architecture, rows, most int64) error {
	width := float64(a.Players())
	units, weights := 2*width, float64(a.Parameters())
	for l, in := 0, width; l < len(a.Hidden); l++ {
		out := float64(a.Hidden[l])
		units, weights, in = units+2*out, weights+in*out, out
	}
	if a.Experts > 0 {
		rank := float64(a.Rank)
		weights += float64(a.CrossLayers) * float64(a.Experts) * (2*width*rank + rank*rank)
	} else {
		weights += float64(a.CrossLayers) * width * width
	}
	const number = 4 // bytes of a float32
	step := float64(min(int64(o.Batch), rows))
	if least := number * (3*weights + step*units); least > float64(most) {
		return fault.Usagef("a training of %.3g weights with %.3g rows in a step needs at least %.3g bytes of memory, and there are %.3g: expected a smaller model or --batch", weights, step, least, float64(most))
	}
	return nil
}

// open opens the dataset for the model ck, which may be nil, and checks what training needs.
func (o *Options) open(ck *checkpoint.Checkpoint) (*dataset.Dataset, error) {
	if ck != nil {
		if err := ck.CheckTrainable(); err != nil {
			return nil, err
		}
	}
	d, err := dataset.OpenAll(o.Folders)
	if err != nil {
		return nil, err
	}
	o.Unread = ""
	if names := d.RowForm().Dense; len(names) > 0 {
		o.Unread = fmt.Sprintf("the model does not read the dense inputs %s: train a model that reads them in another framework, and export it to ONNX", strings.Join(names, ", "))
	}
	if ck != nil {
		if d, err = d.For(&ck.Architecture, ck.Known()); err != nil {
			return nil, err
		}
	}
	if d.Loss() != loss.Logistic {
		return nil, fault.Inputf("dataset %s has numbers as labels: training needs labels of 0 and 1", strings.Join(o.Folders, ", "))
	}
	if n := d.Rows(dataset.Train); n < 2 {
		return nil, fault.Inputf("dataset %s has %d rows in the split %s: training needs at least 2", strings.Join(o.Folders, ", "), n, dataset.Train)
	}
	o.Dataset = d.Digest()
	return d, nil
}

// Fresh returns the training of a new model with the architecture a, whose FieldDims it sets to
// those of the dataset. norm states whether each hidden layer has a BatchNorm. initial is one of
// the initialisations.
func (o *Options) Fresh(a *model.Architecture, norm bool, initial string) (*Course, error) {
	d, err := o.open(nil)
	if err != nil {
		return nil, err
	}
	for j, f := range d.Manifest.Fields {
		if f.Length > 0 {
			return nil, fault.Inputf("field %d (%s) of dataset %s is a list, and no model that shaver trains reads lists: import the rows without it", j, f.Name, strings.Join(o.Folders, ", "))
		}
	}
	a.FieldDims = d.FieldDims()
	if err := a.Validate(); err != nil {
		return nil, fault.Usagef("%w", err)
	}
	if d, err = d.For(a, nil); err != nil {
		return nil, err
	}
	weights := train.Initial
	if initial == InitialReference {
		weights = train.InitialReference
	}
	if err := o.checkMemory(a, d.Rows(dataset.Train), cli.Memory()); err != nil {
		return nil, err
	}
	o.Initial, o.Architecture = initial, a
	t := &Course{Options: o, data: d, from: checkpoint.New(*a, weights(a, norm, o.Seed))}
	t.from.Identities, t.from.Standards = d.Identities(), d.Standards()
	return t, nil
}
