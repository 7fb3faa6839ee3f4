// Package steps has the steps from scores to a published model as functions over options that check themselves. Commands bind
// flags to the options, and nights the keys of their configuration.
package steps

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/sweep"
)

// Check says what the step check compares.
type Check struct {
	Model, Pruned string   // files
	ModelOutput   string   // output of the models, if they are .onnx files with several
	Tasks         []string // labels with outputs and weights; see model.ParseTasks
	Folders       []string // dataset, or those of a window's days
	Split         string
	Group         string // field within whose values rows are ranked, or ""
	Loss          string // one of loss.Names, or "" for that of the dataset's labels
	Bounds        gate.Bounds
	Out           string // file for the result, or ""
	Outputs       cli.Outputs
	Given         cli.Given
}

// NewCheck returns the defaults of a check.
func NewCheck() *Check { return &Check{Split: dataset.Test, Bounds: gate.DefaultBounds} }

// Run measures the model and its pruned form on all cores, as a sweep of one table does, decides, and writes the result to Out. It
// returns an error if something cannot be measured. A pruned model that fails is not an error.
func (o *Check) Run(ctx context.Context) (*gate.Document, error) {
	if err := o.Bounds.Check(); err != nil {
		return nil, err
	}
	if o.Out != "" || o.Given.Has("out") {
		o.Outputs.Inputs(checkpoint.Files(o.Model)...)
		o.Outputs.Inputs(checkpoint.Files(o.Pruned)...)
		o.Outputs.Inputs(dataset.Files(o.Folders...)...)
		if err := o.Outputs.Check("--out", o.Out, cli.Unless(gate.Written, "the result of a check"), ".json"); err != nil {
			return nil, err
		}
	}
	tasks, err := cli.Tasks(o.Tasks, o.ModelOutput)
	if err != nil {
		return nil, err
	}
	ck, m, err := checkpoint.ReadModel(o.Model, o.ModelOutput, tasks...)
	if err != nil {
		return nil, err
	}
	output := o.ModelOutput
	if !checkpoint.NamedONNX(o.Pruned) {
		output = ""
	}
	prunedCk, pruned, err := checkpoint.ReadModel(o.Pruned, output, tasks...)
	if err != nil {
		return nil, err
	}
	digest, d := ck.Digest(), prunedCk.Digest()
	if d != digest && slices.Contains(ck.Origins, d) {
		return nil, fault.Inputf("%s was pruned from %s: expected them the other way round", o.Model, o.Pruned)
	}
	if prunedCk.Origins != nil && !slices.Contains(prunedCk.Origins, digest) {
		return nil, fault.Inputf("%s was pruned from the model with the digest %.12s, but %s has the digest %.12s: expected the model that was pruned", o.Pruned, prunedCk.Origins[0], o.Model, digest)
	}
	before, err := measure.Open(o.Folders, o.Split, o.Loss, m, ck.Known())
	if err != nil {
		return nil, err
	}
	after := before
	if err := o.same(m, pruned); err != nil {
		if !slices.Contains(prunedCk.Origins, digest) { // which lacks fields or columns of the model
			return nil, err
		}
		if after, err = measure.Open(o.Folders, o.Split, o.Loss, pruned, prunedCk.Known()); err != nil {
			return nil, err
		}
	}
	if err := prunedCk.Apart(before.Dataset.Digest(), o.Split, checkpoint.Judge); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Pruned, err)
	}
	for _, name := range []string{"max-auc-drop", "max-logloss-rise", "max-rmse-rise"} {
		if o.Given.Has(name) && (name == "max-rmse-rise") != (before.Loss == loss.Squared) {
			return nil, fault.Usagef("--%s does not go with the loss %s", name, before.Loss.Name())
		}
	}
	if err := after.Dataset.CheckKnown(prunedCk.Known()); err != nil {
		return nil, err
	}
	for _, b := range []*measure.Bench{before, after} {
		if err := b.GroupBy(ctx, o.Group, 0); err != nil {
			return nil, err
		}
	}
	benches, rows := map[*model.Model]*measure.Bench{m: before, pruned: after}, 2*before.Rows
	validation := map[*model.Model]*measure.Bench{} // empty if no rows calibrate
	if len(tasks) < 2 && o.Split != dataset.Val && before.Dataset.Rows(dataset.Val) > 0 && prunedCk.Apart(before.Dataset.Digest(), dataset.Val, checkpoint.Choose) == nil {
		for i, of := range []*model.Model{m, pruned} {
			if validation[of], err = measure.Open(o.Folders, dataset.Val, o.Loss, of, []*checkpoint.Checkpoint{ck, prunedCk}[i].Known()); err != nil {
				return nil, err
			}
		}
		rows += 2 * validation[m].Rows
	}
	point := sweep.Point{Method: sweep.OfFile}
	if err := cut.SetSize(&point, prunedCk, m.Prunable()); err != nil {
		return nil, err
	}
	progress := cli.NewProgress("evaluate", "rows", rows)
	defer progress.End()
	predictions := map[*model.Model]*evaluate.Predictions{}
	predict := func(benches map[*model.Model]*measure.Bench) func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return func(ctx context.Context, of *model.Model) (*evaluate.Predictions, error) {
			found, err := benches[of].Predict(ctx, of, func(rows int) { progress.Add(int64(rows)) })
			if benches[of].Split == o.Split {
				predictions[of] = found
			}
			return found, err
		}
	}
	measured := &sweep.Document{Loss: before.Loss, Rows: before.Rows, Entries: m.Prunable()}
	config := sweep.Config{
		Model: m, Group: o.Group, Calibrate: len(validation) > 0, Optional: true, Predict: predict(benches), Validate: predict(validation),
		Models: []sweep.Ready{{File: sweep.ModelFile{File: o.Split}, Point: point, Open: func() (*model.Model, error) { return pruned, nil }}},
	}
	if config.Slices, err = sweep.NewSlicer(nil, nil, nil, tasks).Of(ctx, before.Loss, before.Source(nil)); err != nil {
		return nil, err
	}
	if err := config.Run(ctx, measured); err != nil {
		return nil, err
	}
	if before.Loss != loss.Squared && predictions[m].OneKind() {
		return nil, fault.Inputf("dataset %s: all %d rows of split %s have the label %v, so the AUC is undefined: expected both labels", strings.Join(o.Folders, ", "), before.Rows, o.Split, predictions[m].Labels[0])
	}
	cli.Note(cmp.Or(ck.Known().Unknown(), prunedCk.Known().Unknown()))
	for i, of := range []*model.Model{m, pruned} {
		if text := predictions[of].Doubt(); text != "" {
			cli.Warn([]string{o.Model, o.Pruned}[i] + " " + text)
		}
	}
	found := gate.Decide(o.Bounds, measured, predictions[m])
	found.Model, found.Pruned, found.Dataset, found.Split = digest, d, before.Dataset.Digest(), o.Split
	if o.Out == "" {
		return found, nil
	}
	return found, atomicfile.Write(o.Out, func(w io.Writer) error { return cli.WriteJSON(w, found) })
}

// same returns a bad-input error unless the pruned model has the architecture of the model m. Their weights may differ, because a
// calibration changes them.
func (o *Check) same(m, pruned *model.Model) error {
	a, b := &m.Architecture, &pruned.Architecture
	if a.Kind != model.Graph && b.Kind == model.Graph && checkpoint.IsONNX(o.Model) {
		// The calibration of an .onnx file adds nodes, so that its graph is not recognized.
		generic, err := checkpoint.ReadPart(o.Model, checkpoint.Options{Generic: true})
		if err != nil {
			return err
		}
		a = &generic.Architecture
	}
	before, err := json.Marshal(a)
	after, failed := json.Marshal(b)
	switch {
	case err != nil || failed != nil:
		return cmp.Or(err, failed)
	case bytes.Equal(before, after):
		return nil
	case a.Kind == b.Kind && a.Size() == b.Size():
		return fault.Inputf("%s does not say that it was pruned from %s, and their fields or hidden layers have other sizes (shaver model inspect); shaver evaluate --against compares any two models", o.Pruned, o.Model)
	}
	return fault.Inputf("%s does not say that it was pruned from %s, and it has the kind %s and %s, expected the kind %s and %s; shaver evaluate --against compares any two models", o.Pruned, o.Model, b.Kind, b.Size(), a.Kind, a.Size())
}

// Subject is a model in a file, with the rows that measure it.
type Subject struct {
	Checkpoint *checkpoint.Checkpoint
	Model      *model.Model
	Bench      *measure.Bench
}

// Open opens the model in a file for measuring it on a split. output and lossName may be "". Tasks are as for checkpoint.ReadOutput.
func Open(file, output string, folders []string, split, lossName string, tasks ...model.Task) (*Subject, error) {
	ck, m, err := checkpoint.ReadModel(file, output, tasks...)
	if err != nil {
		return nil, err
	}
	b, err := measure.Open(folders, split, lossName, m, ck.Known())
	return &Subject{ck, m, b}, err
}

// OpenBoth opens a model and, unless against is "", the model that it is compared with. tasks has at most one label.
func OpenBoth(file, against, output string, tasks, folders []string, split, lossName string) (both []*Subject, err error) {
	parsed, err := cli.Tasks(tasks, output)
	if err == nil && len(parsed) > 1 {
		err = fault.Usagef("--task: expected one label: rows of several tasks have no common order; shaver check and sweep judge each task")
	}
	for i, name := range []string{file, against} {
		if err != nil || name == "" {
			break
		}
		if i > 0 && !checkpoint.NamedONNX(name) {
			output = ""
		}
		var s *Subject
		s, err = Open(name, output, folders, split, lossName, parsed...)
		both = append(both, s)
	}
	return both, err
}

// Doubts returns what is probably wrong with the predictions of s, or with the rows, each to follow the name of its file.
func (s *Subject) Doubts(found *evaluate.Predictions) (all []string) {
	if text := found.Doubt(); text != "" {
		all = append(all, " "+text)
	}
	if err := s.Checkpoint.Apart(s.Bench.Dataset.Digest(), s.Bench.Split, checkpoint.Judge); err != nil {
		all = append(all, ": "+err.Error())
	}
	if text := s.Bench.Dataset.DoubtPads(s.Model, true); text != "" {
		all = append(all, ": "+text)
	}
	return all
}

// Measure returns the model in a file and its predictions of a split.
func Measure(ctx context.Context, file string, folders []string, split string) (*checkpoint.Checkpoint, *evaluate.Predictions, error) {
	s, err := Open(file, "", folders, split, "")
	if err != nil {
		return nil, nil, err
	}
	found, err := s.Bench.Predict(ctx, s.Model, nil)
	return s.Checkpoint, found, err
}
