package score

import (
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/window"
	"shaver/internal/value/estimator"
)

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
	n := &launch.Night{Job: o.Job, State: o.State, FullEvery: p.FullEvery, MaxInheritedError: p.MaxInheritedError}
	if p.Model != "" {
		n.PreviousModel = func() (*checkpoint.Checkpoint, error) { return checkpoint.Read(p.Model) }
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
