package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
)

func jobListCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("list", "List the jobs on the server",
		help.Text("job-list"),
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
				if len(jobs) == 0 {
					fmt.Fprintln(w, "no jobs")
					return
				}
				fmt.Fprintln(w, "JOB\tSTATE\tROWS\tOF\tSHARDS\tOF\tQUARANTINED\tROWS/S\tLEFT")
				for _, s := range jobs {
					p := &s.Progress
					fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", s.ID, cli.Printable(p.State), p.Rows, p.RowsTotal, p.Shards, p.ShardsTotal, p.Quarantined, p.Rate, left(p))
				}
			})
		})
}

func jobStatusCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("status [JOB]", "Print the state of a job", help.Text("job-status"),
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
	for _, lost := range p.Lost {
		fmt.Fprintf(w, "lost\t%s\t%s\n", clock(lost.At, time.TimeOnly), cli.Printable(lost.Text()))
	}
}

// clock returns a time in the zone of this machine as text, or "-" for the zero time.
func clock(at time.Time, layout string) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(layout)
}

func jobWatchCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("watch [JOB]", "Follow a job until it ends",
		`Show how far a job has got, until the job ends: a bar on a terminal, and
otherwise a line for each change. It has the number of connected workers that
can compute the job. With -o json each line is an object.`,
		"  shaver job watch 0123456789abcdef0123 --nats nats://nats:4222",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			out := cli.PrintableWriter(c.OutOrStdout())
			lines := json.NewEncoder(out)
			var told time.Time // when the last lost worker of an earlier line was noticed
			last, bar := "", cli.NewBar("rows")
			if bar != nil {
				defer bar.End()
			}
			return b.Watch(ctx, id, func(s bus.Status) error {
				if o.output.JSON() {
					return lines.Encode(s.Progress)
				}
				p, waiting, silent := &s.Progress, "", ""
				if p.Waiting != "" {
					waiting = "; waiting for " + cli.Printable(p.Waiting)
				}
				before := told
				for _, lost := range p.Lost {
					if lost.At.After(before) {
						told = lost.At
						silent += "; " + cli.Printable(lost.Text())
					}
				}
				workers, err := connectedFor(ctx, b, &s)
				if err != nil {
					return err
				}
				state, figures := cli.Printable(p.State)+waiting, watched(p, workers)
				switch {
				case bar == nil:
					_, err = fmt.Fprintf(out, "%s %s: %s%s\n", time.Now().Format(time.TimeOnly), cli.Printable(p.State), figures, waiting+silent)
				case state != last || silent != "":
					bar.Show(0, 0, "")
					_, err = fmt.Fprintln(out, time.Now().Format(time.TimeOnly), state+silent)
				}
				if last = state; bar != nil && !p.Over() {
					bar.Show(p.Rows, p.RowsTotal, fmt.Sprintf("%d%%, %s", 100*p.Rows/max(p.RowsTotal, 1), figures))
				}
				return err
			})
		})
}

// watched returns the figures of a job in a few words.
func watched(p *bus.Progress, workers int) string {
	text := fmt.Sprintf("%d of %d, %.0f/s, %s left, %d workers", p.Rows, p.RowsTotal, p.Rate, left(p), workers)
	if p.Quarantined > 0 {
		text += fmt.Sprintf(", %d quarantined", p.Quarantined)
	}
	return text
}

// connectedFor returns the number of connected workers that can compute the job. Progress.Workers
// has only those that have already sent a result.
func connectedFor(ctx context.Context, b *bus.Bus, s *bus.Status) (n int, err error) {
	connected, err := b.Connected(ctx)
	for _, w := range connected {
		if w.Computes(s.Spec.Kernel) && w.Protocol == job.Protocol {
			n++
		}
	}
	return n, err
}
