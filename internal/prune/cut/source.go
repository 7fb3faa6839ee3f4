// Package cut makes a model smaller. It opens a model and its scores, and walks along steps that remove fields, columns, entries
// and bits, each with a price in loss, until a budget is met. It writes what is left, which may be calibrated.
package cut

import (
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/keep"
	"shaver/internal/prune/sweep"
)

// Source is a model and its scores.
type Source struct {
	Checkpoint *checkpoint.Checkpoint // without Training, because a pruned model is not the one that the training made, and with its own digest as the last of Origins, and with the rows of Scores in Scored
	File       string                 // of the model
	Scores     []*scores.File
	Table      []float32 // [n, d]
	part       *part     // of another source, or nil
}

// Open reads a model and its scores, and checks that they belong together. output chooses one of
// several outputs of an .onnx file; see checkpoint.ReadOutput. Without output, the tasks of the scores choose.
func Open(modelFile, output string, scoresFiles ...string) (*Source, error) {
	var all []*scores.File
	for _, file := range scoresFiles {
		f, err := scores.Read(file)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	s, err := OpenFor(modelFile, output, all)
	if err != nil {
		return nil, err
	}
	for i, f := range all {
		if err := s.Add(f, scoresFiles[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// OpenFor reads a model for scores that are added later.
func OpenFor(modelFile, output string, all []*scores.File) (*Source, error) {
	var tasks []model.Task
	if len(all) > 0 && output == "" {
		tasks = all[0].Spec.Tasks
	}
	ck, err := checkpoint.ReadOutput(modelFile, output, tasks...)
	if err != nil {
		return nil, err
	}
	ck.Training = ""
	s := &Source{Checkpoint: ck, File: modelFile}
	if len(tasks) > 1 && checkpoint.IsONNX(modelFile) { // the pruned file is also one of the model of each task
		for _, t := range tasks {
			one, err := checkpoint.ReadOutput(modelFile, t.Output)
			if err != nil {
				return nil, err
			}
			ck.Origins = append(slices.Clip(ck.Origins), one.Digest())
		}
	}
	digest := ck.Digest()
	if n := len(ck.Origins); n == 0 || ck.Origins[n-1] != digest { // a file of prune that dropped nothing has its own digest
		ck.Origins = append(slices.Clone(ck.Origins), digest)
	}
	s.Table, err = ck.Embedding()
	return s, err
}

// Add adds scores of a file, and checks that they belong to the model and to the scores before.
func (s *Source) Add(f *scores.File, file string) error {
	ck := s.Checkpoint
	if err := f.CheckModel(&ck.Architecture, ck.Digest()); err != nil {
		return fmt.Errorf("%s and %s: %w", file, s.File, err)
	}
	if err := s.checkTasks(f, file); err != nil {
		return err
	}
	if s.Scores != nil && !slices.Equal(f.Spec.Freeze, s.Scores[0].Spec.Freeze) {
		return fault.Inputf("%s freezes other fields than the scores before it: expected scores of one game", file)
	}
	ck.Architecture.Frozen = f.Spec.Freeze
	s.Scores = append(s.Scores, f)
	ck.AddScored(Scored(f))
	return nil
}

// checkTasks returns an error unless f, of a file, has scores for the tasks of the model.
func (s *Source) checkTasks(f *scores.File, file string) error {
	if want := s.Checkpoint.Tasks; !slices.Equal(f.Spec.Tasks, want) {
		return fault.Inputf("%s has the tasks %s, expected %s", file, model.TasksText(f.Spec.Tasks), model.TasksText(want))
	}
	return nil
}

// loss returns the name of the loss of the scores, or "" without scores.
func (s *Source) loss() string {
	if s.Scores == nil {
		return ""
	}
	return s.Scores[0].Spec.Loss.Name()
}

// Scored returns on which rows scores were computed.
func Scored(f *scores.File) checkpoint.Scored {
	return checkpoint.Scored{Dataset: f.Spec.Dataset, Splits: f.Spec.Splits}
}

// CheckInitial returns an error unless f, of a file, has scores for SNIP.
func (s *Source) CheckInitial(f *scores.File, file string) error {
	if err := sweep.CheckSNIP(f, &s.Checkpoint.Architecture, s.Checkpoint.Digest()); err != nil {
		return fmt.Errorf("%s and %s: %w", file, s.File, err)
	}
	s.Checkpoint.AddScored(Scored(f))
	return s.checkTasks(f, file)
}

// Unpruned returns the table from which methods drop entries. They drop only entries that rules
// allow, and store the others as values says. d may be nil if there are scores and the method is
// not sweep.Frequency.
func (s *Source) Unpruned(d *dataset.Dataset, rules keep.Rules, values compact.Encoding) *sweep.Unpruned {
	var names []string
	if len(s.Scores) > 0 {
		names = s.Scores[0].Fields
	} else {
		names = d.Fields()
	}
	return &sweep.Unpruned{
		Architecture: &s.Checkpoint.Architecture, Names: names, Entries: s.Table, Keep: rules, Values: values,
		Counts: func() ([]int64, error) { return d.Occurrences() },
		Fit: func(order []int32, least int, baseline model.Baseline, bytes int64) (int, error) {
			return s.Checkpoint.CompactDrop(order, least, baseline, values, bytes)
		},
		Footprint: func(dropped []bool, baseline model.Baseline) (file, table, memory int64) {
			size := s.Checkpoint.CompactFootprint(dropped, baseline, values)
			return size.File, size.Table, size.Memory
		},
	}
}

// CheckFields returns an error unless the model ck in the file path reads the same rows as the model
// of s.
func (s *Source) CheckFields(ck *checkpoint.Checkpoint, path string) error {
	a, b := &s.Checkpoint.Architecture, &ck.Architecture
	switch {
	case !slices.Equal(a.FieldDims, b.FieldDims):
		return fault.Inputf("%s has fields of the sizes %v, but %s has %v: expected the same fields", path, b.FieldDims, s.File, a.FieldDims)
	case !slices.Equal(a.Lists, b.Lists):
		return fault.Inputf("%s and %s differ in the fields that are lists of ids: expected the same fields", path, s.File)
	case !slices.Equal(a.Dense, b.Dense):
		return fault.Inputf("%s has the dense inputs %v, but %s has %v: expected the same", path, b.Dense, s.File, a.Dense)
	case s.Checkpoint.Fields != nil && ck.Fields != nil && !slices.Equal(s.Checkpoint.Fields, ck.Fields):
		return fault.Inputf("%s has the fields %v, but %s has %v: expected the same fields", path, ck.Fields, s.File, s.Checkpoint.Fields)
	}
	return nil
}

// Deep returns a warning if the mask drops more entries than the path f dropped in rounds, or else
// "". f may also have values. file is the name of its file.
func Deep(f *scores.File, dropped []bool, file string) string {
	if !f.Path.Deeper(count(dropped), f.Layout.Prunable()) {
		return ""
	}
	return fmt.Sprintf("%s: beyond sparsity %.6g the order of the path is that of the last round that dropped", file, f.Path.Reach)
}

// count returns the number of dropped entries.
func count(dropped []bool) (n int) {
	for _, gone := range dropped {
		if gone {
			n++
		}
	}
	return n
}
