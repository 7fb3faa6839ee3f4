package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/bus"
	"shaver/internal/fault"
	"shaver/internal/job"
)

func jobQuarantineCommand() *cobra.Command {
	o := &jobOptions{}
	var retry bool
	var shards []int
	c := o.command("quarantine JOB", "List the shards of a job that were set aside, or put them back",
		"A job that runs computes them again; one that has failed does so when it is\nsubmitted again.",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			if len(shards) > 0 && !retry {
				return fault.Usagef("--shard is for --retry, which is not given")
			}
			if _, err := b.JobStatus(ctx, id); err != nil {
				return err
			}
			aside, err := b.Quarantined(ctx, id)
			if err != nil {
				return err
			}
			if !retry {
				return o.output.Print(c.OutOrStdout(), aside, func(w io.Writer) { quarantineTable(w, aside) })
			}
			n, err := b.Retry(ctx, id, shards...)
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), map[string]int{"put_back": n}, func(w io.Writer) { fmt.Fprintf(w, "put back\t%d shards\n", n) })
		})
	c.Flags().BoolVar(&retry, "retry", false, "put them back")
	c.Flags().IntSliceVar(&shards, "shard", nil, "with --retry: only these")
	return c
}

func quarantineTable(w io.Writer, aside []job.Quarantine) {
	fmt.Fprintln(w, "SHARD\tKIND\tWORKER\tREASON")
	for _, q := range aside {
		kind := "tries"
		if q.Input {
			kind = "input"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", q.Shard, kind, q.Worker, q.Reason)
	}
}
