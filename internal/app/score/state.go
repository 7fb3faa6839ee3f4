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
func (o *scoreOptions) addState(c *cobra.Command) {
	c.Flags().StringVar(&o.state, "state", "", "`folder` that keeps the sums of each day of a window and a copy of the newest model: 24 to 56 bytes for each day and entry, and 4 for each parameter (default none)")
	for _, name := range []string{"sample", "full-every", "max-inherited-error"} {
		f := c.Flags().Lookup(name)
		f.Usage = strings.Replace(f.Usage, "with --previous", "with --previous or --state", 1)
	}
	cli.Folder(c, "state")
	cli.Group(c, previousGroup, "state")
}

// notWithState are the flags that a night cannot have.
var notWithState = []string{"previous", "max-rows", "until", "bound", "sparsity", "max-time", "audit", "allow-quarantined", "store"}

// checkState checks the flags of a night, before Open. Settings that the user did not give
// are those of the state.
func (o *scoreOptions) checkState(c *cobra.Command) error {
	if o.state == "" {
		return fault.Usagef(`--state "": expected the name of a folder`)
	}
	for _, name := range notWithState {
		if c.Flags().Changed(name) {
			return fault.Usagef("--%s and --state exclude each other", name)
		}
	}
	if err := o.previous.check(); err != nil {
		return err
	}
	if !o.previous.changed("sample") {
		o.job.Sample = pairedSample
	}
	was, err := window.ReadSettings(o.state)
	if err == nil && was != nil {
		o.previous.inherit(&o.job.Request, &scores.File{Spec: job.Spec{Baseline: was.Baseline, Seed: was.Seed, Splits: was.Splits, Options: was.Options}})
	}
	if options := &o.job.Request.Options; err == nil && options.Traits().Ranks {
		return fault.Usagef("--state needs an estimator of values, such as %s, not %s", estimator.Debiased, options.Estimator)
	}
	return err
}

// night returns the night that the flags describe. The request must be open.
func (o *scoreOptions) night() *launch.Night {
	n := &launch.Night{Job: o.job, State: o.state, FullEvery: o.previous.fullEvery, MaxInheritedError: o.previous.maxInherited}
	if o.previous.model != "" {
		n.PreviousModel = func() (*checkpoint.Checkpoint, error) { return checkpoint.Read(o.previous.model) }
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
