package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/bus"
	"shaver/internal/scores"
)

func jobStatusCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("status JOB", "Print the state of a job", "Print the state of a job: its progress, its coordinator and its workers.",
		"  shaver job status 0123456789abcdef0123 --nats nats://nats:4222", func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			s, err := b.JobStatus(ctx, id)
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), s, func(w io.Writer) { statusTable(w, &s) })
		})
}

func statusTable(w io.Writer, s *bus.Status) {
	p := &s.Progress
	fmt.Fprintf(w, "job\t%s\n", s.ID)
	fmt.Fprintf(w, "state\t%s\n", p.State)
	if p.Waiting != "" {
		fmt.Fprintf(w, "waiting for\t%s\n", p.Waiting)
	}
	fmt.Fprintf(w, "rows\t%d of %d\t%.0f/s\t%s left\n", p.Rows, p.RowsTotal, p.Rate, left(p))
	fmt.Fprintf(w, "shards\t%d of %d\t%d open\t%d quarantined\n", p.Shards, p.ShardsTotal, p.Open, p.Quarantined)
	fmt.Fprintf(w, "estimator\t%s\t%s\n", s.Spec.Estimator, scores.Effort(&s.Spec))
	fmt.Fprintf(w, "kernel\t%s\n", s.Spec.Kernel)
	if p.Epoch > 0 {
		fmt.Fprintf(w, "coordinator\tepoch %d\tsince %s\n", p.Epoch, p.Started.Format(time.DateTime))
	}
	if !p.Checkpoint.IsZero() {
		fmt.Fprintf(w, "checkpoint\t%s\n", p.Checkpoint.Format(time.DateTime))
	}
	for _, worker := range p.Workers {
		fmt.Fprintf(w, "worker\t%s\t%d shards\t%.0f rows/s\tlast %s\n", worker.Name, worker.Shards, worker.Rate, worker.Seen.Format(time.TimeOnly))
	}
}
