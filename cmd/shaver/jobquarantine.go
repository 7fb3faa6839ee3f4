package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

func jobQuarantineCommand() *cobra.Command {
	o := &jobOptions{}
	var retry bool
	var shards []int
	c := o.command("quarantine [JOB]", "List or retry shards that could not be computed",
		`List the shards of a job that were set aside because they could not be computed,
with the reasons. With --retry, put them back. A running job then computes them
again, and a failed job does so when it is submitted again.`,
		`  shaver job quarantine 0123456789abcdef0123 --nats nats://nats:4222
  shaver job quarantine 0123456789abcdef0123 --nats nats://nats:4222 --retry`,
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			if len(shards) > 0 && !retry {
				return fault.Usagef("--shard needs --retry")
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
	c.Flags().BoolVar(&retry, "retry", false, "put the shards back instead of listing them")
	c.Flags().IntSliceVar(&shards, "shard", nil, "for --retry: `numbers` of the shards, separated by commas (default all)")
	return c
}

func quarantineTable(w io.Writer, aside []job.Quarantine) {
	fmt.Fprintln(w, "SHARD\tKIND\tWORKER\tREASON")
	for _, q := range aside {
		kind := "tries"
		if q.Input {
			kind = "input"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", q.Shard, kind, cli.Printable(q.Worker), cli.Printable(q.Reason))
	}
}
