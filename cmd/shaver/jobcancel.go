package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/jobs/bus"
)

// How long the command waits for a coordinator to end the cancelled job.
const (
	cancelPatience = 20 * time.Second // if a coordinator leads the job
	startPatience  = 6 * time.Second  // if a coordinator may be starting
)

func jobCancelCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("cancel JOB", "Cancel a job and delete its state",
		`Cancel a job and delete everything that the server stores for it. The job's
coordinator does this and exits with code 6. If there is no coordinator, or if
the job is unreadable, this command does it.`,
		"  shaver job cancel 0123456789abcdef0123 --nats nats://nats:4222",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			if err := b.Cancel(ctx, id); err != nil {
				return err
			}
			if err := awaitEnd(ctx, b, id); err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), map[string]string{"job": id, "state": bus.Cancelled}, func(w io.Writer) { fmt.Fprintf(w, "job\t%s\tcancelled\n", id) })
		})
}

// awaitEnd waits until a cancelled job is gone. If no coordinator ends the job, awaitEnd
// does.
func awaitEnd(ctx context.Context, b *bus.Bus, id string) error {
	for begun := time.Now(); ; {
		s, err := b.JobStatus(ctx, id)
		if errors.Is(err, bus.ErrNoJob) {
			return nil
		}
		if err != nil && !errors.Is(err, bus.ErrUnreadable) {
			return err
		}
		patience := startPatience
		if slices.Contains([]string{bus.Running, bus.Stalled, bus.Cancelled}, s.Progress.State) {
			patience = cancelPatience
		}
		if err != nil || s.Progress.State == bus.Failed || time.Since(begun) > patience {
			return b.Remove(ctx, id)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
