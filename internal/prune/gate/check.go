package gate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
)

// Check says what a check compares.
type Check struct {
	Model, Pruned string   // files
	ModelOutput   string   // output of the models, if they are .onnx files with several
	Folders       []string // dataset, or those of a window's days
	Split         string
	Loss          string // one of loss.Names, or "" for that of the dataset's labels
	Bounds        Bounds

	// Accept is called with the loss once it is known. Its error ends the check. It may be nil.
	Accept func(kind loss.Kind) error
	// Begin is called with the number of rows of both models before they are read, and returns what
	// takes the number of rows of each batch. It may be nil.
	Begin func(rows int64) (read func(rows int))
	// Note takes a sentence for the user. It may be nil.
	Note func(text string)
	// Warn takes what is probably wrong with the predictions of a model, or with the rows. It may be nil.
	Warn func(text string)
}

// Written reports whether the file at path was written by shaver check --out.
func Written(path string) bool {
	return bytes.HasPrefix(files.Beginning(path, 64), []byte("{\n  \"version\": \"shaver.check/"))
}

// Run measures the model and its pruned form on all cores, and decides. It returns an error if
// something cannot be measured. A pruned model that fails is not an error.
func (o *Check) Run(ctx context.Context) (*Document, error) {
	ck, m, err := checkpoint.ReadModel(o.Model, o.ModelOutput)
	if err != nil {
		return nil, err
	}
	output := o.ModelOutput
	if !checkpoint.NamedONNX(o.Pruned) {
		output = ""
	}
	prunedCk, pruned, err := checkpoint.ReadModel(o.Pruned, output)
	if err != nil {
		return nil, err
	}
	digest := ck.Digest()
	if pruned := prunedCk.Digest(); pruned != digest && slices.Contains(ck.Origins, pruned) {
		return nil, fault.Inputf("%s was pruned from %s: expected them the other way round", o.Model, o.Pruned)
	}
	if prunedCk.Origins != nil && !slices.Contains(prunedCk.Origins, digest) {
		return nil, fault.Inputf("%s was pruned from the model with the digest %.12s, but %s has the digest %.12s: expected the model that was pruned", o.Pruned, prunedCk.Origins[0], o.Model, digest)
	}
	architecture := &m.Architecture
	if m.Kind != model.Graph && pruned.Kind == model.Graph && checkpoint.IsONNX(o.Model) {
		// The calibration of an .onnx file adds nodes, so that its graph is not recognized.
		generic, err := checkpoint.ReadPart(o.Model, checkpoint.Options{Generic: true})
		if err != nil {
			return nil, err
		}
		architecture = &generic.Architecture
	}
	b, err := measure.Open(o.Folders, o.Split, o.Loss, m, ck.Known())
	if err != nil {
		return nil, err
	}
	after := b
	if err := o.same(architecture, &pruned.Architecture); err != nil {
		if !slices.Contains(prunedCk.Origins, digest) { // which lacks fields or columns of the model
			return nil, err
		}
		if after, err = measure.Open(o.Folders, o.Split, o.Loss, pruned, prunedCk.Known()); err != nil {
			return nil, err
		}
	}
	if err := prunedCk.Apart(b.Dataset.Digest(), o.Split, checkpoint.Judge); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Pruned, err)
	}
	if o.Accept != nil {
		if err := o.Accept(b.Loss); err != nil {
			return nil, err
		}
	}
	if err := after.Dataset.CheckKnown(prunedCk.Known()); err != nil {
		return nil, err
	}
	p := pair{models: [2]*model.Model{m, pruned}, split: [2]*measure.Bench{b, after}}
	if err := p.calibrate(o.Folders, o.Loss, [2]*checkpoint.Checkpoint{ck, prunedCk}); err != nil {
		return nil, err
	}
	if o.Begin != nil {
		p.read = o.Begin(p.rows())
	}
	document, err := p.measure(ctx, prunedCk)
	if err != nil {
		return nil, err
	}
	all := &p.predictions
	if b.Loss != loss.Squared && all[0].OneKind() {
		return nil, fault.Inputf("dataset %s: all %d rows of split %s have the label %v, so the AUC is undefined: expected both labels", strings.Join(o.Folders, ", "), b.Rows, o.Split, all[0].Labels[0])
	}
	if text := cmp.Or(ck.Known().Unknown(), prunedCk.Known().Unknown()); text != "" && o.Note != nil {
		o.Note(text)
	}
	for i, name := range []string{o.Model, o.Pruned} {
		if text := all[i].Doubt(); text != "" && o.Warn != nil {
			o.Warn(name + " " + text)
		}
	}
	d := Decide(o.Bounds, all[0], all[1])
	d.Model, d.Pruned, d.Dataset, d.Split = ck.Digest(), prunedCk.Digest(), b.Dataset.Digest(), o.Split
	d.Answer = document.Ladder(o.Bounds.within()...)
	return d, nil
}

// same returns a bad-input error unless the pruned model has the architecture a
// of the model. Their weights may differ, because a calibration changes them.
func (o *Check) same(a, pruned *model.Architecture) error {
	text := func(a *model.Architecture) []byte {
		data, err := json.Marshal(a)
		if err != nil {
			panic(err) // an architecture has only numbers and strings
		}
		return data
	}
	if bytes.Equal(text(a), text(pruned)) {
		return nil
	}
	if a.Kind == pruned.Kind && a.Size() == pruned.Size() {
		return fault.Inputf("%s does not say that it was pruned from %s, and their fields or hidden layers have other sizes (shaver model inspect); shaver evaluate --against compares any two models", o.Pruned, o.Model)
	}
	return fault.Inputf("%s does not say that it was pruned from %s, and it has the kind %s and %s, expected the kind %s and %s; shaver evaluate --against compares any two models", o.Pruned, o.Model, pruned.Kind, pruned.Size(), a.Kind, a.Size())
}
