package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/bus"
)

// How long a coordinator may take to end a cancelled job: one that leads it, and
// one that may be about to.
const (
	cancelPatience = 20 * time.Second
	startPatience  = 6 * time.Second
)

func jobCancelCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("cancel JOB", "End a job and delete all that is stored of it",
		"Its coordinator does that and ends with exit code 130; without one it is done here.",
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

// awaitEnd waits until a cancelled job is gone, and ends it itself if no
// coordinator does.
func awaitEnd(ctx context.Context, b *bus.Bus, id string) error {
	for begun := time.Now(); ; {
		s, err := b.JobStatus(ctx, id)
		if errors.Is(err, bus.ErrNoJob) {
			return nil
		}
		if err != nil {
			return err
		}
		patience := startPatience
		if slices.Contains([]string{bus.Running, bus.Stalled, bus.Cancelled}, s.Progress.State) {
			patience = cancelPatience
		}
		if s.Progress.State == bus.Failed || time.Since(begun) > patience {
			claim, err := b.Claim(ctx, id)
			if err != nil {
				return err
			}
			if err := claim.End(ctx); err != nil {
				return err
			}
			return b.Cleanup(ctx, id)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
