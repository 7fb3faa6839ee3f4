package main

import (
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

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/data/dataset"
	"shaver/internal/num/kernel"
	"shaver/internal/prune/benchmark"
	"shaver/internal/prune/picture"
)

type benchmarkOptions struct {
	out        string
	dataset    []string
	kinds      []string
	methods    []string
	sparsities []float64
	seeds      int
	budget     time.Duration
	settings   benchmark.Settings
	outputs    cli.Outputs
	output     cli.Output
}

func benchmarkCommand() *cobra.Command {
	var o benchmarkOptions
	c := &cobra.Command{
		Use:   "benchmark",
		Short: "Compare single-shot pruning with trained small tables",
		Long:  help("benchmark"),
		Example: `  shaver benchmark --dataset data --out benchmark
  shaver benchmark --dataset data --kinds dcn-mix --search 10 --budget 30m \
      --out benchmark`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	datasetFlag(c, &o.dataset, "dataset `folder`, with the splits train, val and test")
	f.StringVar(&o.out, "out", "", "`folder` for the models and the results")
	cli.Folder(c, "out")
	f.StringSliceVar(&o.kinds, "kinds", []string{string(model.DeepFM)}, "`kinds` of models, separated by commas; shaver train --help lists them")
	f.Lookup("kinds").DefValue = string(model.DeepFM)
	f.StringSliceVar(&o.methods, "methods", []string{"all"}, "`methods`, separated by commas")
	f.Lookup("methods").DefValue = "all"
	portionsFlag(c, &o.sparsities, "sparsities", []float64{.5, .8, .95}, "`portions` of the entries to drop, separated by commas")
	f.IntVar(&o.seeds, "seeds", 3, "`number` of seeds, from 1 on, with which each model is trained")
	s := &o.settings
	f.IntVar(&s.Search, "search", 10, "`number` of trials of each search; 0 = no search, but the settings of shaver train")
	f.DurationVar(&o.budget, "budget", 0, "`time` after which a search starts no more trials (default unlimited)")
	f.IntVar(&s.Dim, "dim", 16, "`number` of columns of the embedding table")
	f.IntSliceVar(&s.Hidden, "hidden", defaultHidden, "`widths` of the hidden layers, separated by commas")
	f.Lookup("hidden").DefValue = hiddenHelp
	f.BoolVar(&s.BatchNorm, "batch-norm", true, "put a BatchNorm after each hidden layer")
	f.IntVar(&s.CrossLayers, "cross-layers", 3, "`number` of cross layers of a dcn-mix or dcnv2")
	f.IntVar(&s.Experts, "experts", 4, "`number` of experts of a dcn-mix")
	f.IntVar(&s.Rank, "rank", 64, "`rank` of the experts of a dcn-mix")
	f.IntVar(&s.Epochs, "epochs", 15, "largest `number` of epochs of a training")
	f.IntVar(&s.Patience, "patience", 3, "`number` of epochs without a better one after which a training stops; 0 = never")
	f.IntVar(&s.Batch, "batch", 2048, "`number` of rows of a step")
	f.IntVar(&s.WarmUp, "warm-up", defaultWarmUp, "`number` of epochs until the thresholds of pep and cerp have grown to the largest initial value")
	cli.KernelFlag(c, "`name` of the float32 kernel, such as avx2; others give slightly different weights; auto is the one with the widest vectors of this machine")
	o.outputs.Flag(c, "the results of a benchmark with other settings in --out")
	o.output.Flag(c)
	cli.Group(c, "Files", "dataset", "out", "force")
	cli.Group(c, "Comparison", "kinds", "methods", "sparsities", "seeds", "search", "budget")
	cli.Group(c, "Training", "dim", "hidden", "batch-norm", "cross-layers", "experts", "rank", "epochs", "patience", "batch", "warm-up", "kernel")
	cli.MarkRequired(c, "dataset", "out")
	return c
}

// check checks the flags.
func (o *benchmarkOptions) check() error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if len(o.methods) == 1 && o.methods[0] == "all" {
		o.methods = benchmark.Methods()
	}
	for _, name := range o.methods {
		if !slices.Contains(benchmark.Methods(), name) {
			return fault.Usagef("--methods %q: expected all, or some of %s", name, strings.Join(benchmark.Methods(), ", "))
		}
	}
	for _, t := range o.sparsities {
		if !(t > 0 && t < 1) {
			return fault.Usagef("--sparsities: %v is outside (0, 1)", t)
		}
	}
	switch s := &o.settings; {
	case len(o.kinds) == 0 || len(o.sparsities) == 0 || len(o.methods) == 0:
		return fault.Usagef("--kinds, --methods and --sparsities need at least one value each")
	case o.seeds < 1:
		return fault.Usagef("--seeds %d: expected at least 1", o.seeds)
	case s.Search < 0 || o.budget < 0:
		return fault.Usagef("--search %d and --budget %s: expected at least 0", s.Search, o.budget)
	case s.Search == 0 && o.budget > 0:
		return fault.Usagef("--budget has no effect without a search")
	case s.Epochs < 1 || s.Patience < 0:
		return fault.Usagef("--epochs %d and --patience %d: expected at least 1 epoch and a patience of at least 0", s.Epochs, s.Patience)
	case s.WarmUp < 0 || s.WarmUp >= s.Epochs:
		return fault.Usagef("--warm-up %d: expected at least 0 and fewer epochs than --epochs %d", s.WarmUp, s.Epochs)
	}
	o.settings.Kernel = kernel.Name()
	if o.budget > 0 {
		o.settings.Budget = o.budget.String()
	}
	slices.Sort(o.sparsities)
	return nil
}

// architecture returns the architecture of a kind.
func (o *benchmarkOptions) architecture(kind model.Kind, fieldDims []int) (*model.Architecture, error) {
	s := &o.settings
	a := &model.Architecture{
		Kind: kind, FieldDims: fieldDims, Dim: s.Dim, Hidden: s.Hidden, CrossLayers: s.CrossLayers,
		Experts: s.Experts, Rank: s.Rank, Structure: model.Stacked,
	}
	trim(a)
	if kind == model.NeuMF && slices.Equal(s.Hidden, defaultHidden) {
		a.Hidden = neumfHidden
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
func (o *benchmarkOptions) norm(kind model.Kind) bool {
	return o.settings.BatchNorm && describes("batch-norm", kind)
}

func (o *benchmarkOptions) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	d, err := dataset.OpenAll(o.dataset)
	if err != nil {
		return err
	}
	for _, split := range []string{dataset.Train, dataset.Val, dataset.Test} {
		if d.Rows(split) < 2 {
			return fault.Inputf("dataset %s has %d rows in the split %s: a benchmark needs at least 2 in each of %s, %s and %s", joined(o.dataset), d.Rows(split), split, dataset.Train, dataset.Val, dataset.Test)
		}
	}
	for _, kind := range o.kinds {
		if _, err := o.architecture(model.Kind(kind), d.FieldDims()); err != nil {
			return err
		}
	}
	for _, kind := range o.kinds {
		if err := os.MkdirAll(filepath.Join(o.out, kind), 0o755); err != nil {
			return fault.Usagef("--out: %w", err)
		}
	}
	unlock, err := filelock.Lock(filepath.Join(o.out, ".lock"))
	if errors.Is(err, filelock.ErrLocked) {
		return fmt.Errorf("another process writes to %s", o.out)
	}
	if err != nil {
		return err
	}
	defer unlock()
	r := &benchmarkRun{benchmarkOptions: o, data: d, say: c.ErrOrStderr()}
	if err := r.open(); err != nil {
		return err
	}
	if err := r.compute(c.Context()); err != nil {
		return err
	}
	for _, kind := range r.document.Kinds() {
		if err := picture.Benchmark(r.document, kind).Write(filepath.Join(o.out, kind+".svg")); err != nil {
			return err
		}
	}
	return o.output.Print(c.OutOrStdout(), r.document, r.document.WriteTable)
}

// benchmarkRun is a benchmark under way.
type benchmarkRun struct {
	*benchmarkOptions
	data     *dataset.Dataset
	document *benchmark.Document
	say      io.Writer // takes a line for each model
}

// open reads the results of earlier runs, or begins a new document.
func (r *benchmarkRun) open() error {
	path := r.path("benchmark.json")
	empty := &benchmark.Document{
		Version: benchmark.Version, Dataset: r.data.Digest(), Fields: len(r.data.Fields()), Settings: r.settings,
		Rows:     benchmark.Rows{Train: r.data.Rows(dataset.Train), Validation: r.data.Rows(dataset.Val), Test: r.data.Rows(dataset.Test)},
		Searches: []benchmark.Search{}, Scorings: []benchmark.Scoring{}, Results: []benchmark.Result{},
	}
	for _, size := range r.data.FieldDims() {
		empty.Features += size
	}
	text, err := os.ReadFile(path)
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
		if !r.outputs.Force {
			return fault.Usagef("%s is of another dataset, other settings or another kernel: choose another --out, or give --force to start over", path)
		}
		return r.replace(&found, empty)
	}
	r.document = &found
	return nil
}

// replace deletes the files of an earlier benchmark and begins a new document.
func (r *benchmarkRun) replace(earlier, empty *benchmark.Document) error {
	for _, kind := range earlier.Kinds() {
		if err := os.RemoveAll(r.path(kind)); err != nil {
			return err
		}
		if err := os.Remove(r.path(kind + ".svg")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, kind := range r.kinds {
		if err := os.MkdirAll(r.path(kind), 0o755); err != nil {
			return err
		}
	}
	r.document = empty
	return r.save()
}

// save writes the results so far.
func (r *benchmarkRun) save() error {
	return atomicfile.Write(r.path("benchmark.json"), func(w io.Writer) error { return cli.WriteJSON(w, r.document) })
}

// path returns the path of a file in --out.
func (r *benchmarkRun) path(name ...string) string {
	return filepath.Join(append([]string{r.out}, name...)...)
}
