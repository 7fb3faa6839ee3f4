package score

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
	"shaver/internal/value/estimator"
)

// pairedSample is the sample of a paired job without a stop rule if the user gives none.
const pairedSample = 0.05

// Previous names the previous scores that a job corrects, and limits their use.
type Previous struct {
	Scores, Model     string
	FullEvery         int     // see window.Night
	MaxInheritedError float64 // see window.Night

	windows bool // the command also has --state
	state   bool // a state has the previous sums, so there is no file of previous scores
}

// previousGroup is the title of the flags of previous scores.
const previousGroup = "Previous scores"

// add adds the flags to c, which has --sample.
func (o *Previous) add(c *cobra.Command) {
	f := c.Flags()
	f.Lookup("sample").Usage += fmt.Sprintf("; %g with --previous unless there is a stop rule", pairedSample)
	f.StringVar(&o.Scores, "previous", "", "scores `file` of the previous model, which the job corrects on a sample of the rows (default none: all rows are scored)")
	f.StringVar(&o.Model, "previous-model", "", "checkpoint `file` of the previous model, .pth or safetensors")
	f.IntVar(&o.FullEvery, "full-every", 0, "with --previous: score all rows in the `Nth` job after the last one that did (default no limit)")
	f.Float64Var(&o.MaxInheritedError, "max-inherited-error", 0, "with --previous: score all rows if the previous scores have a larger relative `error` (default no limit)")
	cli.Files(c, "previous", "arrow")
	cli.Files(c, "previous-model", cli.Checkpoints...)
	cli.Group(c, previousGroup, "previous", "previous-model", "full-every", "max-inherited-error")
}

// openPrevious checks the flags and reads the scores that they name. Settings of the request that
// the user did not give become those of the previous job. If the job has to score all rows,
// openPrevious returns the reason and does not set Previous of the request.
func (o *JobOptions) openPrevious(r *prepare.Request) (full string, err error) {
	if o.Previous.state {
		return "", nil
	}
	if o.Previous.Scores == "" {
		for _, name := range []string{"previous-model", "full-every", "max-inherited-error"} {
			if o.Given.Has(name) {
				needs := "--previous"
				if o.Previous.windows {
					needs = "--state or --previous"
				}
				return "", fault.Usagef("--%s needs %s", name, needs)
			}
		}
		return "", nil
	}
	if err := o.checkPrevious(); err != nil {
		return "", err
	}
	head, err := scores.ReadHead(o.Previous.Scores)
	if err != nil {
		return "", err
	}
	if err := head.CheckValues(o.Previous.Scores, "--previous"); err != nil {
		return "", err
	}
	o.inherit(r, head)
	if r.Options.Traits().Ranks {
		return "", fault.Usagef("--previous needs an estimator of values, such as %s, not %s", estimator.Debiased, r.Options.Estimator)
	}
	if full = o.full(head); full != "" {
		r.Sample, r.MaxRows, r.Until = 1, 0, nil
		return full, nil
	}
	if o.Previous.Model == "" {
		return "", fault.Usagef("--previous needs --previous-model, the checkpoint of the model with digest %s", head.Spec.Model)
	}
	if r.Until == nil && r.MaxRows == 0 && !o.Given.Has("sample") {
		r.Sample = pairedSample
	}
	r.Previous = &prepare.Previous{Name: o.Previous.Model, Open: func() (modelfile.Source, error) { return checkpoint.Read(o.Previous.Model) }}
	if r.Previous.Scores, err = scores.Read(o.Previous.Scores); err != nil {
		return "", err
	}
	r.Previous.Digest, err = files.Digest(o.Previous.Scores)
	return "", err
}

// checkPrevious checks the bounds.
func (o *JobOptions) checkPrevious() error {
	if o.Previous.FullEvery < 0 || o.Given.Has("full-every") && o.Previous.FullEvery == 0 {
		return fault.Refuse("full-every", o.Previous.FullEvery, "must be above 0")
	}
	if !(o.Previous.MaxInheritedError >= 0) || o.Given.Has("max-inherited-error") && o.Previous.MaxInheritedError == 0 {
		return fault.Refuse("max-inherited-error", o.Previous.MaxInheritedError, "must be above 0")
	}
	return nil
}

// inherit sets the settings of r that the user did not give to those of the previous job.
func (o *JobOptions) inherit(r *prepare.Request, previous *scores.File) {
	was := &previous.Spec
	if !o.Given.Has("baseline") {
		r.Baseline = was.Baseline
	}
	if !o.Given.Has("seed") {
		r.Seed = was.Seed
	}
	if !o.Given.Has("splits") {
		r.Splits = was.Splits
	}
	for _, j := range was.Freeze {
		if !o.Given.Has("freeze") {
			r.Freeze = append(r.Freeze, previous.Fields[j])
		}
	}
	options := was.TaskOptions()
	others := options.Settings()
	for i, s := range r.Options.Settings() {
		if o.Given.Has(s.Name) {
			continue
		}
		switch to := s.Target.(type) {
		case *string:
			*to = *others[i].Target.(*string)
		case *int:
			*to = *others[i].Target.(*int)
		case *float64:
			*to = *others[i].Target.(*float64)
		default:
			panic("score: no value for option " + s.Name)
		}
	}
}

// full returns the reason why the job has to score all rows, or "" if it does not.
func (o *JobOptions) full(previous *scores.File) string {
	generation := previous.Spec.Generation()
	if o.Previous.FullEvery > 0 && prepare.Generation(previous) >= o.Previous.FullEvery {
		return fmt.Sprintf("the previous scores are %d paired jobs after the last full one, and --full-every is %d", generation, o.Previous.FullEvery)
	}
	if l := previous.Lineage; o.Previous.MaxInheritedError > 0 && l != nil && l.Error > o.Previous.MaxInheritedError {
		return fmt.Sprintf("the previous scores have a relative error of %.3g, and --max-inherited-error is %g", l.Error, o.Previous.MaxInheritedError)
	}
	return ""
}

// previousFiles returns the files of previous scores.
func (o *JobOptions) previousFiles() []string {
	var files []string
	if o.Previous.Scores != "" {
		files = append(files, o.Previous.Scores)
	}
	if o.Previous.Model != "" {
		files = append(files, checkpoint.Files(o.Previous.Model)...)
	}
	return files
}

// addState adds the flag --state to c.
func (o *Options) addState(c *cobra.Command) {
	o.Previous.windows = true
	c.Flags().StringVar(&o.State, "state", "", "`folder` that keeps the sums of each day of a window and a copy of the newest model: 24 to 56 bytes for each day and entry, and 4 for each parameter (default none)")
	for _, name := range []string{"sample", "full-every", "max-inherited-error"} {
		f := c.Flags().Lookup(name)
		f.Usage = strings.Replace(f.Usage, "with --previous", "with --previous or --state", 1)
	}
	cli.Folder(c, "state")
	cli.Group(c, previousGroup, "state")
}

// notWithState are the flags that a night cannot have.
var notWithState = []string{"previous", "max-rows", "until", "bound", "sparsity", "max-time", "audit", "allow-quarantined", "store"}

// openState checks the settings of a night, before Open. Settings that the user did not give
// are those of the state.
func (o *Options) openState() error {
	if o.State == "" {
		return fault.Usagef(`--state "": expected the name of a folder`)
	}
	for _, name := range notWithState {
		if o.Given.Has(name) {
			return fault.Usagef("--%s and --state exclude each other", name)
		}
	}
	if !o.Given.Has("sample") {
		o.Job.Sample = pairedSample
	}
	was, err := window.ReadSettings(o.State)
	if err == nil && was != nil {
		o.inherit(&o.Job.Request, &scores.File{Spec: job.Spec{Baseline: was.Baseline, Seed: was.Seed, Splits: was.Splits, Options: was.Options}})
	}
	if options := &o.Job.Request.Options; err == nil && options.Traits().Ranks {
		return fault.Usagef("--state needs an estimator of values, such as %s, not %s", estimator.Debiased, options.Estimator)
	}
	return err
}

// night returns the night that the options describe. The request must be open.
func (o *Options) night() *launch.Night {
	p := &o.Previous
	n := &launch.Night{Job: o.Job, State: o.State, Read: func(path string) (modelfile.Source, error) { return checkpoint.Read(path) }, FullEvery: p.FullEvery, MaxInheritedError: p.MaxInheritedError}
	if p.Model != "" {
		n.PreviousModel = func() (modelfile.Source, error) { return checkpoint.Read(p.Model) }
	}
	return n
}

// openDataset opens the dataset in the given folders. It is a window if there are several, or
// if days is set.
func openDataset(dirs []string, days bool) (*dataset.Dataset, error) {
	if days {
		return dataset.OpenDays(dirs)
	}
	return dataset.OpenAll(dirs)
}
