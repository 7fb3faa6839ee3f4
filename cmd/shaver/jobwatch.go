package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/jobs/bus"
)

func jobWatchCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("watch JOB", "Follow a job until it ends",
		`Print a line whenever the state of a job changes, until the job ends. With -o
json each line is an object.`,
		"  shaver job watch 0123456789abcdef0123 --nats nats://nats:4222",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			out := cli.PrintableWriter(c.OutOrStdout())
			lines := json.NewEncoder(out)
			return b.Watch(ctx, id, func(s bus.Status) error {
				if o.output.JSON() {
					return lines.Encode(s.Progress)
				}
				p, waiting := &s.Progress, ""
				if p.Waiting != "" {
					waiting = "; waiting for " + cli.Printable(p.Waiting)
				}
				_, err := fmt.Fprintf(out, "%s %s: %d of %d rows, %.0f/s, %s left; %d workers, %d quarantined shards%s\n",
					time.Now().Format(time.TimeOnly), cli.Printable(p.State), p.Rows, p.RowsTotal, p.Rate, left(p), len(p.Workers), p.Quarantined, waiting)
				return err
			})
		})
}
