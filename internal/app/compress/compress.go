// Package compress makes the smallest file of a model within a bound: it scores the model, finds the smallest table, chooses the bits
// of the values, calibrates, checks the file, and writes a page that says why.
package compress

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"shaver/internal/app/cli"
	"shaver/internal/app/reporting"
	"shaver/internal/app/score"
	"shaver/internal/app/steps"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/atomicfile"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/data/dataset"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Recipe says how small the file becomes. Exactly one of its settings is not 0.
type Recipe struct {
	Within   float64 `json:"within,omitempty"`   // the smallest file that is certain to be within this bound
	Bytes    int64   `json:"bytes,omitempty"`    // the best file of at most this size
	Sparsity float64 `json:"sparsity,omitempty"` // the file without this portion of the entries
}

// Options say what to compress.
type Options struct {
	Recipe
	From        string // file whose recipe is repeated, or ""
	Model       string // file
	ModelOutput string // output of the model, if it is an .onnx file with several
	Folders     []string
	Scores      string // file with scores of the model; "" = they are computed
	Out         string
	Outputs     cli.Outputs
	Given       cli.Given
	Say         func(format string, args ...any)
}

// Result says what was made.
type Result struct {
	Out    string         `json:"out,omitempty"` // empty if no file is certain to be within the bound
	Page   string         `json:"page"`
	Recipe Recipe         `json:"recipe"`
	Answer *sweep.Answer  `json:"answer"` // about all tables of the order
	Pruned *steps.Pruning `json:"pruned,omitempty"`
	Check  *gate.Document `json:"check,omitempty"` // of the file
}

// The files of a run. Those in the folder stay, so that the next run continues.
const (
	folderSuffix  = ".compress"
	scoresFile    = "scores.arrow"
	sweepFile     = "sweep.json"
	checkFile     = "check.json"
	candidateFile = "candidate.safetensors"
)

// stem returns the path of the output without its extension.
func (o *Options) stem() string { return strings.TrimSuffix(o.Out, filepath.Ext(o.Out)) }

// Page returns the path of the page.
func (o *Options) Page() string { return o.stem() + ".html" }

// file returns the path of a file in the folder.
func (o *Options) file(name string) string { return filepath.Join(o.stem()+folderSuffix, name) }

// Check checks the options before anything is computed, and reads the recipe.
func (o *Options) Check() error {
	given := slices.DeleteFunc([]string{"within", mask.Bytes, mask.Sparsity, "recipe"}, func(name string) bool { return !o.Given.Has(name) })
	switch {
	case len(given) > 1:
		return fault.Usagef("--%s and --%s both say how small the file becomes: give only one", given[0], given[1])
	case len(given) == 0 || given[0] == "within":
		o.Bytes, o.Sparsity = 0, 0
		if err := sweep.CheckBounds(o.Within); err != nil {
			return fault.Usagef("--within %v", err)
		}
	case given[0] == "recipe":
		ck, err := checkpoint.Read(o.From)
		if err != nil {
			return err
		}
		o.Recipe = Recipe{}
		if err := json.Unmarshal([]byte(ck.Recipe), &o.Recipe); err != nil || o.Recipe == (Recipe{}) {
			return fault.Inputf("%s has no recipe: expected a file that shaver compress wrote", o.From)
		}
	default:
		o.Within = 0
	}
	switch {
	case o.Sparsity != 0 && !(o.Sparsity > 0 && o.Sparsity <= 1) || o.Given.Has(mask.Sparsity) && o.Sparsity == 0:
		return fault.Refuse(mask.Sparsity, o.Sparsity, "expected a number above 0, at most 1")
	case o.Bytes < 0 || o.Given.Has(mask.Bytes) && o.Bytes == 0:
		return fault.Refuse(mask.Bytes, o.Bytes, "expected a whole number, at least 1")
	}
	o.Outputs.Inputs(checkpoint.Files(o.Model)...)
	o.Outputs.Inputs(dataset.Files(o.Folders...)...)
	o.Outputs.Inputs(o.Scores, o.From)
	pruned := func(path string) bool { _, ok := checkpoint.OriginsOf(path); return ok }
	if err := o.Outputs.Check("--out", o.Out, cli.Unless(pruned, "a pruned model"), ".safetensors"); err != nil {
		return err
	}
	return o.Outputs.Check("--out", o.Page(), cli.Unless(report.Written, "a page"))
}

// Run makes the file and the page. If no file is certain to be within the bound, it writes the page only, and returns cli.ErrGate
// with the result.
func (o *Options) Run(ctx context.Context) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	folder := o.stem() + folderSuffix
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, fault.Usagef("--out: %w", err)
	}
	if err := o.score(ctx); err != nil {
		return nil, err
	}
	o.Say("2. find the smallest table")
	d, err := o.sweep(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{Page: o.Page(), Recipe: o.Recipe, Answer: d.Answer}
	o.Say("3. choose bits, calibrate and check")
	if err := o.prune(ctx, d, r); err != nil {
		return nil, err
	}
	o.Say("4. write the page")
	page := reporting.New()
	page.Model, page.ModelOutput, page.Scores, page.Sweep, page.Folders, page.Out, page.Outputs.Force = o.Model, o.ModelOutput, o.Scores, o.file(sweepFile), o.Folders, r.Page, true
	if o.Within > 0 {
		page.Within = sweep.Bound(o.Within)
	}
	if _, err := page.Run(ctx); err != nil {
		return nil, err
	}
	if r.Out == "" {
		return r, fmt.Errorf("%w: no table is certain to be within %g on these %d rows of %s: allow more with --within, name --sparsity, or give more rows", cli.ErrGate, o.Within, d.Rows, d.Split)
	}
	return r, nil
}

// score computes the scores unless the user gave some. A job that was interrupted continues.
func (o *Options) score(ctx context.Context) error {
	if o.Scores != "" {
		o.Say("1. take the order of %s", o.Scores)
		return nil
	}
	o.Say("1. find the order in which entries are dropped")
	o.Scores = o.file(scoresFile)
	step := score.NewOptions(score.Advised)
	step.Model, step.ModelOutput, step.Dataset, step.Job.Out, step.Job.Outputs.Force = o.Model, o.ModelOutput, o.Folders, o.Scores, true
	step.Given = func(string) bool { return false }
	_, err := step.Run(ctx)
	return err
}

// sweep finds the smallest tables. It takes the result of an earlier run that measured the same.
func (o *Options) sweep(ctx context.Context) (*sweep.Document, error) {
	input := sweeping.Finding(o.Model, o.ModelOutput, o.Scores, o.Folders)
	if o.Within > 0 {
		input.Within = append(input.Within, o.Within)
	}
	if old, err := sweep.Read(o.file(sweepFile)); err == nil && input.Measured(old) {
		return old, nil
	}
	d, err := input.Run(ctx)
	if err != nil {
		return nil, err
	}
	return d, atomicfile.Write(o.file(sweepFile), func(w io.Writer) error { return cli.WriteJSON(w, d) })
}

// mostRounded is the number of tables of which prune rounds the values to few bits.
const mostRounded = 3

// prune writes the file. Within a bound it tries the tables that are certain to be within it, from the smallest one on, until the
// file, whose values and network are rounded, is certain as well. Then it rounds less.
func (o *Options) prune(ctx context.Context, d *sweep.Document, r *Result) error {
	_, m, err := checkpoint.ReadModel(o.Model, o.ModelOutput)
	if err != nil {
		return err
	}
	few := sweep.AutoValues
	if d.Unpruned.Calibration == nil || m.Differentiable() != nil { // then val may not choose bits
		few = string(compact.Float16)
	}
	if o.Within == 0 {
		return o.try(ctx, d, r, o.Recipe, few)
	}
	certain := []float64{0}
	if p := d.Decide(sweep.Bound(o.Within)); p != nil {
		for i := range d.Points {
			if q := &d.Points[i]; q.Method == p.Method && q.Sparsity <= p.Sparsity {
				certain = append(certain, q.Sparsity)
			}
		}
	}
	slices.SortFunc(certain, func(a, b float64) int { return cmp.Compare(b, a) })
	type candidate struct {
		sparsity float64
		values   string
	}
	var all []candidate
	for _, s := range certain[:min(mostRounded, len(certain))] {
		all = append(all, candidate{s, few})
	}
	for _, values := range []compact.Encoding{compact.Float16, compact.Float32} {
		all = append(all, candidate{certain[0], string(values)})
	}
	for _, c := range all {
		if c.sparsity == 0 && c.values == string(compact.Float32) {
			continue // the model itself
		}
		if err := o.try(ctx, d, r, Recipe{Sparsity: c.sparsity}, c.values); err != nil || r.Out != "" {
			return err
		}
	}
	return nil
}

// try prunes to a budget and checks the file. It becomes the output if it is certain to be within the bound, or without a
// bound.
func (o *Options) try(ctx context.Context, d *sweep.Document, r *Result, budget Recipe, values string) error {
	recipe, err := json.Marshal(o.Recipe)
	if err != nil {
		return err
	}
	p := steps.NewPrune()
	p.Model, p.ModelOutput, p.Scores, p.Dataset, p.Out, p.Recipe = o.Model, o.ModelOutput, o.Scores, o.Folders, o.file(candidateFile), string(recipe)
	p.Values, p.Calibrate, p.Bytes, p.Sparsity, p.Outputs.Force = values, d.Unpruned.Calibration != nil, budget.Bytes, budget.Sparsity, true
	p.Given = func(name string) bool {
		return name == mask.Bytes && budget.Bytes > 0 || name == mask.Sparsity && budget.Bytes == 0
	}
	made := atomicfile.Track(p.Out)
	defer made.Remove()
	if r.Pruned, err = p.Run(ctx); err != nil {
		return err
	}
	c := steps.NewCheck()
	c.Model, c.ModelOutput, c.Pruned, c.Folders, c.Out, c.Outputs.Force = o.Model, o.ModelOutput, p.Out, o.Folders, o.file(checkFile), true
	if o.Within > 0 {
		c.Bounds = gate.Bounds{AUCDrop: o.Within, LogLossRise: o.Within, RMSERise: o.Within}
	}
	if r.Check, err = c.Run(ctx); err != nil {
		return err
	}
	if o.Within > 0 && !slices.ContainsFunc(r.Check.Answer.Rungs, func(rung sweep.Rung) bool { return rung.Within == o.Within && rung.Certain != nil }) {
		return nil
	}
	r.Out, r.Pruned.Out = o.Out, o.Out
	return made.Rename(o.Out)
}
