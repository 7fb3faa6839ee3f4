package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/jobs/bus"
)

func jobListCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("list", "List the jobs on the server",
		help("job-list"),
		"  shaver job list --nats nats://nats:4222",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, _ string) error {
			jobs, err := b.Jobs(ctx)
			if err != nil {
				return err
			}
			for _, s := range jobs {
				if s.Progress.State == bus.Unreadable && !o.output.JSON() {
					fmt.Fprintf(c.ErrOrStderr(), "unreadable %s\n", cli.Printable(s.Error))
				}
			}
			return o.output.Print(c.OutOrStdout(), jobs, func(w io.Writer) {
				fmt.Fprintln(w, "JOB\tSTATE\tROWS\tOF\tSHARDS\tOF\tQUARANTINED\tROWS/S\tLEFT")
				for _, s := range jobs {
					p := &s.Progress
					fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", s.ID, cli.Printable(p.State), p.Rows, p.RowsTotal, p.Shards, p.ShardsTotal, p.Quarantined, p.Rate, left(p))
				}
			})
		})
}
