package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
)

func jobStatusCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("status JOB", "Print the state of a job", help("job-status"),
		"  shaver job status 0123456789abcdef0123 --nats nats://nats:4222", func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			s, err := b.JobStatus(ctx, id)
			if err != nil {
				return err
			}
			connected, err := b.Connected(ctx)
			if err != nil {
				return err
			}
			all := struct {
				bus.Status
				Connected []job.Build `json:"connected"`
			}{s, connected}
			return o.output.Print(c.OutOrStdout(), all, func(w io.Writer) {
				statusTable(w, &s)
				for _, b := range connected {
					fmt.Fprintf(w, "connected\t%s\tkernel %s\tprotocol %d\t%s\n", cli.Printable(b.Name), cli.Printable(b.AllKernels()), b.Protocol, cli.Printable(b.Program))
				}
			})
		})
}

func statusTable(w io.Writer, s *bus.Status) {
	p := &s.Progress
	fmt.Fprintf(w, "job\t%s\n", s.ID)
	fmt.Fprintf(w, "state\t%s\n", cli.Printable(p.State))
	if p.Waiting != "" {
		fmt.Fprintf(w, "waiting for\t%s\n", cli.Printable(p.Waiting))
	}
	fmt.Fprintf(w, "rows\t%d of %d\t%.0f/s\t%s left\n", p.Rows, p.RowsTotal, p.Rate, left(p))
	fmt.Fprintf(w, "shards\t%d of %d\t%d open\t%d quarantined\n", p.Shards, p.ShardsTotal, p.Open, p.Quarantined)
	fmt.Fprintf(w, "estimator\t%s\t%s\n", cli.Printable(s.Spec.Estimator), cli.Printable(scores.Effort(&s.Spec)))
	fmt.Fprintf(w, "kernel\t%s\n", cli.Printable(s.Spec.Kernel))
	if p.Epoch > 0 {
		fmt.Fprintf(w, "coordinator\tepoch %d\tsince %s\n", p.Epoch, clock(p.Started, time.DateTime))
	} else {
		fmt.Fprintln(w, "coordinator\tnone yet")
	}
	fmt.Fprintf(w, "checkpoint\t%s\n", clock(p.Checkpoint, time.DateTime))
	for _, worker := range p.Workers {
		fmt.Fprintf(w, "worker\t%s\t%d shards\t%.0f rows/s\tlast %s\n", cli.Printable(worker.Name), worker.Shards, worker.Rate, clock(worker.Seen, time.TimeOnly))
	}
}

// clock returns a time in the zone of this machine as text, or "-" for the zero time.
func clock(at time.Time, layout string) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(layout)
}
