package score

import (
	"fmt"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
)

// pairedSample is the sample of a paired job without a stop rule if the user gives none.
const pairedSample = 0.05

// previousFlags name the previous scores that a job corrects, and limit their use.
type previousFlags struct {
	scores, model string
	fullEvery     int
	maxInherited  float64
	command       *cobra.Command // has the flags
	state         bool           // --state is given: the state has the previous sums, so there is no file of previous scores
}

// previousGroup is the title of the flags of previous scores.
const previousGroup = "Previous scores"

// add adds the flags to c, which has --sample.
func (o *previousFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.Lookup("sample").Usage += fmt.Sprintf("; %g with --previous unless there is a stop rule", pairedSample)
	f.StringVar(&o.scores, "previous", "", "scores `file` of the previous model, which the job corrects on a sample of the rows (default none: all rows are scored)")
	f.StringVar(&o.model, "previous-model", "", "checkpoint `file` of the previous model, .pth or safetensors")
	f.IntVar(&o.fullEvery, "full-every", 0, "with --previous: score all rows in the `Nth` job after the last one that did (default no limit)")
	f.Float64Var(&o.maxInherited, "max-inherited-error", 0, "with --previous: score all rows if the previous scores have a larger relative `error` (default no limit)")
	cli.Files(c, "previous", "arrow")
	cli.Files(c, "previous-model", cli.Checkpoints...)
	cli.Group(c, previousGroup, "previous", "previous-model", "full-every", "max-inherited-error")
}

// changed reports whether the user gave the flag.
func (o *previousFlags) changed(name string) bool { return o.command.Flags().Changed(name) }

// open checks the flags and reads the scores that they name. Settings of the request that
// the user did not give become those of the previous job. If the job has to score all rows,
// open returns the reason and does not set Previous of the request.
func (o *previousFlags) open(r *prepare.Request) (full string, err error) {
	if o.state {
		return "", nil
	}
	if o.scores == "" {
		for _, name := range []string{"previous-model", "full-every", "max-inherited-error"} {
			if o.changed(name) {
				needs := "--previous"
				if o.command.Flags().Lookup("state") != nil {
					needs = "--state or --previous"
				}
				return "", fault.Usagef("--%s needs %s", name, needs)
			}
		}
		return "", nil
	}
	if err := o.check(); err != nil {
		return "", err
	}
	head, err := scores.ReadHead(o.scores)
	if err != nil {
		return "", err
	}
	if err := head.CheckValues(o.scores, "--previous"); err != nil {
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
	if o.model == "" {
		return "", fault.Usagef("--previous needs --previous-model, the checkpoint of the model with digest %s", head.Spec.Model)
	}
	if r.Until == nil && r.MaxRows == 0 && !o.changed("sample") {
		r.Sample = pairedSample
	}
	r.Previous = &prepare.Previous{Name: o.model, Open: func() (*checkpoint.Checkpoint, error) { return checkpoint.Read(o.model) }}
	if r.Previous.Scores, err = scores.Read(o.scores); err != nil {
		return "", err
	}
	r.Previous.Digest, err = files.Digest(o.scores)
	return "", err
}

// check checks the bounds.
func (o *previousFlags) check() error {
	if o.fullEvery < 0 || o.changed("full-every") && o.fullEvery == 0 {
		return fault.Usagef("--full-every %d: must be above 0", o.fullEvery)
	}
	if !(o.maxInherited >= 0) || o.changed("max-inherited-error") && o.maxInherited == 0 {
		return fault.Usagef("--max-inherited-error %g: must be above 0", o.maxInherited)
	}
	return nil
}

// inherit sets the settings of r that the user did not give to those of the previous job.
func (o *previousFlags) inherit(r *prepare.Request, previous *scores.File) {
	was := &previous.Spec
	if !o.changed("baseline") {
		r.Baseline = was.Baseline
	}
	if !o.changed("seed") {
		r.Seed = was.Seed
	}
	if !o.changed("splits") {
		r.Splits = was.Splits
	}
	for _, j := range was.Freeze {
		if !o.changed("freeze") {
			r.Freeze = append(r.Freeze, previous.Fields[j])
		}
	}
	options := was.TaskOptions()
	others := options.Settings()
	for i, s := range r.Options.Settings() {
		if o.changed(s.Name) {
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
func (o *previousFlags) full(previous *scores.File) string {
	generation := previous.Spec.Generation()
	if o.fullEvery > 0 && prepare.Generation(previous) >= o.fullEvery {
		return fmt.Sprintf("the previous scores are %d paired jobs after the last full one, and --full-every is %d", generation, o.fullEvery)
	}
	if l := previous.Lineage; o.maxInherited > 0 && l != nil && l.Error > o.maxInherited {
		return fmt.Sprintf("the previous scores have a relative error of %.3g, and --max-inherited-error is %g", l.Error, o.maxInherited)
	}
	return ""
}

// files returns the files that the flags name.
func (o *previousFlags) files() []string {
	var files []string
	if o.scores != "" {
		files = append(files, o.scores)
	}
	if o.model != "" {
		files = append(files, checkpoint.Files(o.model)...)
	}
	return files
}
