// Package compress makes the smallest file of a model within a bound: it scores the model, finds the smallest table, chooses the bits
// of the values, calibrates, checks the file, and writes a page that says why.
package compress

import (
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
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/report"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

// Recipe says how small the file becomes, by exactly one of its numbers.
type Recipe struct {
	Within   float64 `json:"within,omitempty"`   // the smallest file that is certain to be within this bound
	Bytes    int64   `json:"bytes,omitempty"`    // the best file of at most this size
	Sparsity float64 `json:"sparsity,omitempty"` // the file without this portion of the entries
	Group    string  `json:"group,omitempty"`    // field within whose values rows are ranked
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

	rounded bool // some numbers of the file have fewer than 32 bits
}

// The files of a run. Those in the folder stay, so that the next run continues.
const (
	folderSuffix  = ".compress"
	scoresFile    = "scores.arrow"
	sweepFile     = "sweep.json"
	checkFile     = "check.json"
	candidateFile = "candidate.safetensors"
	bestFile      = "best.safetensors"
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
		group := o.Group
		o.Recipe = Recipe{}
		if err := json.Unmarshal([]byte(ck.Recipe), &o.Recipe); err != nil || o.Recipe == (Recipe{Group: o.Group}) || o.Within != 0 && sweep.CheckBounds(o.Within) != nil {
			return fault.Inputf("%s has no recipe: expected a file that shaver compress wrote", o.From)
		}
		if group != "" && group != o.Group {
			return fault.Usagef("--group %s: the recipe of %s has the group %q: give only one", group, o.From, o.Group)
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
	ck, m, err := checkpoint.ReadModel(o.Model, o.ModelOutput)
	if err != nil {
		return nil, err
	}
	found := sweeping.Finding(o.Model, o.ModelOutput, "", o.Folders)
	found.Group = o.Group
	if err := found.CheckSplits(m, ck.Known()); err != nil { // before hours of scoring
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
	if err := o.prune(ctx, m, d, r); err != nil {
		return nil, err
	}
	o.Say("4. write the page")
	page := reporting.New()
	page.Model, page.ModelOutput, page.Scores, page.Sweep, page.Folders, page.Out, page.Outputs.Force = o.Model, o.ModelOutput, o.Scores, o.file(sweepFile), o.Folders, r.Page, true
	if o.Within > 0 {
		page.Within = sweep.Bound(o.Within)
	}
	if r.Out != "" {
		page.Shipped = &report.Shipped{File: filepath.Base(o.Out), Bytes: r.Pruned.Bytes, Dense: r.Pruned.DenseBytes, Kept: r.Pruned.Kept, Entries: r.Pruned.Entries, Rounded: r.rounded, Within: o.Within, Check: r.Check}
	}
	if head, err := scores.ReadHead(o.Scores); err != nil {
		return nil, err
	} else if head.Spec.Dataset != d.Dataset { // the page names features by the rows that were scored
		page.Folders = nil
	}
	if _, err := page.Run(ctx); err != nil {
		return nil, err
	}
	if r.Out == "" {
		err := fmt.Errorf("%w: no file is certain to be within %g on these %d rows of %s: allow more with --within, name --sparsity, or give more rows", cli.ErrGate, o.Within, d.Rows, d.Split)
		if _, stat := os.Lstat(o.Out); stat == nil {
			err = fmt.Errorf("%w; %s stays as it was", err, o.Out)
		}
		return r, err
	}
	return r, nil
}

// score computes the scores unless the user gave some. A job that was interrupted continues.
func (o *Options) score(ctx context.Context) error {
	if o.Scores != "" {
		head, err := scores.ReadHead(o.Scores)
		if err == nil && head.Spec.Tasks != nil {
			err = fault.Inputf("%s has scores for the tasks %s: compress judges by the first label, so take shaver sweep, prune and check", o.Scores, model.TasksText(head.Spec.Tasks))
		}
		o.Say("1. take the order of %s", o.Scores)
		return err
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
	input.Group = o.Group
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

// candidate is a file that may be within the bound.
type candidate struct {
	budget Recipe // Bytes or Sparsity
	values string // encoding
}

// prune writes the file. Within a bound, files that drop and round more and more follow one another, and the first that is not certain to
// be within it ends them, as in an order of a sweep. The tables of most of them leave to rounding what it may take of the bound.
func (o *Options) prune(ctx context.Context, m *model.Model, d *sweep.Document, r *Result) error {
	few := sweep.AutoValues
	if d.Unpruned.Calibration == nil || m.Differentiable() != nil { // then val may not choose bits
		few = string(compact.Float16)
	}
	best := atomicfile.Track(o.file(bestFile))
	defer best.Remove()
	if o.Within == 0 {
		if _, err := o.try(ctx, d, r, candidate{o.Recipe, few}); err != nil {
			return err
		}
		return o.take(r, best)
	}
	certain := sparsityOf(d, o.Within)
	sparsities := o.between(d, sparsityOf(d, o.Within-2*cut.DefaultRounding), certain)
	all := []candidate{{Recipe{Sparsity: sparsities[0]}, string(compact.Float16)}}
	for _, s := range sparsities {
		all = append(all, candidate{Recipe{Sparsity: s}, few})
	}
	for _, c := range slices.Compact(all) {
		if within, err := o.try(ctx, d, r, c); err != nil {
			return err
		} else if !within {
			break
		}
	}
	if r.Pruned == nil && certain > 0 { // whose table the sweep has judged
		if _, err := o.try(ctx, d, r, candidate{Recipe{Sparsity: certain}, string(compact.Float32)}); err != nil {
			return err
		}
	}
	if r.Pruned == nil {
		return nil
	}
	return o.take(r, best)
}

// between returns two sparsities, which may be equal, and between them that of a table in the middle of those that are certain to be
// within the bound.
func (o *Options) between(d *sweep.Document, low, high float64) []float64 {
	all := []float64{low, high}
	for p := range d.Certain(sweep.Bound(o.Within).Holds) {
		if p.Sparsity > low && p.Sparsity < high {
			all = append(all, p.Sparsity)
		}
	}
	slices.Sort(all)
	return slices.Compact([]float64{low, all[len(all)/2], high})
}

// take makes the best file the output.
func (o *Options) take(r *Result, best *atomicfile.Temporary) error {
	r.Out, r.Pruned.Out = o.Out, o.Out
	if err := atomicfile.Write(o.file(checkFile), func(w io.Writer) error { return cli.WriteJSON(w, r.Check) }); err != nil {
		return err
	}
	return best.Rename(o.Out)
}

// sparsityOf returns the sparsity of the smallest table that is certain to be within a bound, or 0.
func sparsityOf(d *sweep.Document, within float64) float64 {
	if p := d.Decide(sweep.Bound(within)); p != nil {
		return p.Sparsity
	}
	return 0
}

// try prunes to a candidate and checks the file, and reports whether it is certain to be within the bound, if there is one, and the rows
// do not show that it is worse as it is served. The smallest such file is the best one, which r describes. A model that has no file of
// this encoding is not within the bound.
func (o *Options) try(ctx context.Context, d *sweep.Document, r *Result, of candidate) (within bool, err error) {
	recipe, err := json.Marshal(o.Recipe)
	if err != nil {
		return false, err
	}
	p := steps.NewPrune()
	p.Model, p.ModelOutput, p.Scores, p.Dataset, p.Out, p.Recipe = o.Model, o.ModelOutput, o.Scores, o.Folders, o.file(candidateFile), string(recipe)
	p.Values, p.Calibrate, p.Bytes, p.Sparsity, p.Outputs.Force = of.values, d.Unpruned.Calibration != nil, of.budget.Bytes, of.budget.Sparsity, true
	p.Given = func(name string) bool {
		return name == mask.Bytes && p.Bytes > 0 || name == mask.Sparsity && p.Bytes == 0
	}
	made := atomicfile.Track(p.Out)
	defer made.Remove()
	pruned, err := p.Run(ctx)
	if o.Within > 0 && of.values != string(compact.Float32) && (fault.IsInput(err) || fault.IsUsage(err)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c := steps.NewCheck()
	c.Model, c.ModelOutput, c.Pruned, c.Folders, c.Group = o.Model, o.ModelOutput, p.Out, o.Folders, o.Group
	if o.Within > 0 {
		c.Bounds = gate.Bounds{AUCDrop: o.Within, LogLossRise: o.Within, RMSERise: o.Within}
	}
	check, err := c.Run(ctx)
	if err != nil {
		return false, err
	}
	if o.Within > 0 && (check.Refuted() || !slices.ContainsFunc(check.Answer.Rungs, func(rung sweep.Rung) bool { return rung.Within == o.Within && rung.Certain != nil })) {
		return false, nil
	}
	if r.Pruned != nil && r.Pruned.Bytes <= pruned.Bytes {
		return true, nil
	}
	r.Pruned, r.Check, r.rounded = pruned, check, of.values != string(compact.Float32)
	return true, made.Rename(o.file(bestFile))
}
