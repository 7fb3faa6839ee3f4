package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"shaver/internal/jobs/bus"
)

func jobCancelCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("cancel [JOB]", "Cancel a job and delete its state",
		`Cancel a job and delete everything that the server stores for it. The job's
coordinator does this and exits with code 6. If there is no coordinator, or if
the job is unreadable, this command does it.`,
		"  shaver job cancel 0123456789abcdef0123 --nats nats://nats:4222",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			if err := b.End(ctx, id); err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), map[string]string{"job": id, "state": bus.Cancelled}, func(w io.Writer) { fmt.Fprintf(w, "job\t%s\tcancelled\n", id) })
		})
}
