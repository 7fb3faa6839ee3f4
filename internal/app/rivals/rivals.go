// Package rivals runs the benchmark of single-shot pruning against trained small tables: it trains,
// scores, prunes and tunes every model that the folder of results lacks, and measures it.
package rivals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shaver/internal/app/cli"
	"shaver/internal/app/training"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/benchmark"
	"shaver/internal/prune/picture"
)

// Options say what a benchmark compares.
type Options struct {
	Out        string   // folder of the models and the results
	Folders    []string // dataset, with the splits train, val and test
	Kinds      []string
	Methods    []string // some of benchmark.Methods
	Sparsities []float64
	Seeds      int // number of seeds, from 1 on
	Budget     time.Duration
	Settings   benchmark.Settings
	Outputs    cli.Outputs
	Say        io.Writer // takes a line for each model
}

// architecture returns the architecture of a kind.
func (o *Options) architecture(kind model.Kind, fieldDims []int) (*model.Architecture, error) {
	s := &o.Settings
	a := &model.Architecture{
		Kind: kind, FieldDims: fieldDims, Dim: s.Dim, Hidden: s.Hidden, CrossLayers: s.CrossLayers,
		Experts: s.Experts, Rank: s.Rank, Structure: model.Stacked,
	}
	training.Trim(a)
	if kind == model.NeuMF && slices.Equal(s.Hidden, training.DefaultHidden) {
		a.Hidden = training.NeuMFHidden
	}
	if err := a.Validate(); err != nil {
		return nil, fault.Usagef("--kinds %s: %w", kind, err)
	}
	if err := train.Supports(a); err != nil {
		return nil, fault.Usagef("--kinds: %w", err)
	}
	return a, nil
}

// norm reports whether models of a kind have a BatchNorm after each hidden layer.
func (o *Options) norm(kind model.Kind) bool {
	return o.Settings.BatchNorm && training.Has(kind, "batch-norm")
}

// Run computes the models that are missing in the folder Out, and returns the results.
func (o *Options) Run(ctx context.Context) (*benchmark.Document, error) {
	d, err := dataset.OpenAll(o.Folders)
	if err != nil {
		return nil, err
	}
	for _, split := range []string{dataset.Train, dataset.Val, dataset.Test} {
		if d.Rows(split) < 2 {
			return nil, fault.Inputf("dataset %s has %d rows in the split %s: a benchmark needs at least 2 in each of %s, %s and %s", strings.Join(o.Folders, ", "), d.Rows(split), split, dataset.Train, dataset.Val, dataset.Test)
		}
	}
	for _, kind := range o.Kinds {
		if _, err := o.architecture(model.Kind(kind), d.FieldDims()); err != nil {
			return nil, err
		}
	}
	if err := cli.CheckFolder(o.Out, o.Folders...); err != nil {
		return nil, err
	}
	for _, kind := range o.Kinds {
		if err := os.MkdirAll(filepath.Join(o.Out, kind), 0o777); err != nil {
			return nil, fault.Usagef("--out: %w", err)
		}
	}
	unlock, err := filelock.Lock(filepath.Join(o.Out, ".lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another process writes to %s", o.Out)
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	atomicfile.SweepAll(o.Out)
	for _, kind := range o.Kinds {
		atomicfile.SweepAll(filepath.Join(o.Out, kind))
	}
	r := &run{Options: o, data: d}
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.compute(ctx); err != nil {
		return nil, err
	}
	for _, kind := range r.document.Kinds() {
		if err := picture.Sweep(r.document.Sweep(kind)).Write(filepath.Join(o.Out, kind+".svg")); err != nil {
			return nil, err
		}
	}
	return r.document, nil
}

// run is a benchmark under way.
type run struct {
	*Options
	data     *dataset.Dataset
	document *benchmark.Document
}

// open reads the results of earlier runs, or begins a new document.
func (r *run) open() error {
	path := r.path("benchmark.json")
	empty := &benchmark.Document{
		Version: benchmark.Version, Dataset: r.data.Digest(), Fields: len(r.data.Fields()), Settings: r.Settings,
		Rows:     benchmark.Rows{Train: r.data.Rows(dataset.Train), Validation: r.data.Rows(dataset.Val), Test: r.data.Rows(dataset.Test)},
		Searches: []benchmark.Search{}, Scorings: []benchmark.Scoring{}, Results: []benchmark.Result{},
	}
	for _, size := range r.data.FieldDims() {
		empty.Features += size
	}
	text, err := files.Small(path, 64, "the results of shaver benchmark")
	if errors.Is(err, fs.ErrNotExist) {
		r.document = empty
		return nil
	}
	if err != nil {
		return err
	}
	var found benchmark.Document
	if err := json.Unmarshal(text, &found); err != nil {
		return fault.Inputf("%s: %w", path, err)
	}
	if err := found.Check(); err != nil {
		return fault.Inputf("%s: %w", path, err)
	}
	same := func(d *benchmark.Document) string {
		text, _ := json.Marshal([]any{d.Dataset, d.Settings}) // strings and numbers always have a form in JSON
		return string(text)
	}
	if same(&found) != same(empty) {
		if !r.Outputs.Force {
			return fault.Usagef("%s is of another dataset, other settings or another kernel: choose another --out, or give --force to start over", path)
		}
		return r.replace(&found, empty)
	}
	r.document = &found
	return nil
}

// replace deletes the files of an earlier benchmark and begins a new document.
func (r *run) replace(earlier, empty *benchmark.Document) error {
	for _, kind := range earlier.Kinds() {
		if err := os.RemoveAll(r.path(kind)); err != nil {
			return err
		}
		if err := os.Remove(r.path(kind + ".svg")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, kind := range r.Kinds {
		if err := os.MkdirAll(r.path(kind), 0o777); err != nil {
			return err
		}
	}
	r.document = empty
	return r.save()
}

// save writes the results so far.
func (r *run) save() error {
	return atomicfile.Write(r.path("benchmark.json"), func(w io.Writer) error { return cli.WriteJSON(w, r.document) })
}

// path returns the path of a file in --out.
func (r *run) path(name ...string) string {
	return filepath.Join(append([]string{r.Out}, name...)...)
}
