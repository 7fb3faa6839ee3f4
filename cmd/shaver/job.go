package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/bus"
	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/scores"
)

// jobOptions are those of all commands that look after jobs.
type jobOptions struct {
	connection cli.Connection
	output     cli.Output
}

// jobCommands are the commands under "shaver job". There is none that resumes a
// job: what is stored of it has digests of model and dataset, not where they are,
// so that the way is to submit it again, by "shaver score".
func jobCommands() []*cobra.Command {
	return []*cobra.Command{jobListCommand(), jobStatusCommand(), jobWatchCommand(), jobCancelCommand(), jobQuarantineCommand()}
}

// command returns a command that runs with a connection, and with a job's id if
// it takes one.
func (o *jobOptions) command(use, short, long string, run func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error) *cobra.Command {
	args := cobra.NoArgs
	if strings.Contains(use, "JOB") {
		args = cobra.ExactArgs(1)
	}
	c := &cobra.Command{
		Use: use, Short: short, Long: strings.TrimSpace(short+".\n\n"+long) + "\n\n" + cli.ExitHelp, Args: cli.Args(args),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			if err := cli.Required(c, "nats"); err != nil {
				return err
			}
			if err := o.connection.Check(); err != nil {
				return err
			}
			b, err := o.connection.Connect(c.Context(), cli.RoleOperator, "shaver job", zap.NewNop())
			if err != nil {
				return err
			}
			defer b.Close()
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			if err := run(c.Context(), b, c, id); errors.Is(err, bus.ErrNoJob) {
				return fault.Inputf("%w: it was never submitted, or is over", err)
			} else {
				return err
			}
		},
	}
	o.connection.Flags(c, "")
	o.output.Flag(c)
	return c
}

func jobListCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("list", "List the jobs that are stored", "A finished job is not: its scores file is what is left of it.",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, _ string) error {
			jobs, err := b.Jobs(ctx)
			if err != nil {
				return err
			}
			return o.output.Print(c.OutOrStdout(), jobs, func(w io.Writer) {
				fmt.Fprintln(w, "JOB\tSTATE\tROWS\tOF\tSHARDS\tOF\tQUARANTINED\tROWS/S\tLEFT")
				for _, s := range jobs {
					p := &s.Progress
					fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", s.ID, p.State, p.Rows, p.RowsTotal, p.Shards, p.ShardsTotal, p.Quarantined, p.Rate, left(p))
				}
			})
		})
}

func left(p *bus.Progress) string {
	if p.Left <= 0 {
		return "-"
	}
	return time.Duration(p.Left * float64(time.Second)).Round(time.Second).String()
}

func jobStatusCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("status JOB", "Tell how a job is doing", "", func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
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
		fmt.Fprintf(w, "waits for\t%s\n", p.Waiting)
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

func jobWatchCommand() *cobra.Command {
	o := &jobOptions{}
	return o.command("watch JOB", "Follow a job until it ends", "With -o json one object a line, whenever something changes.",
		func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error {
			out := c.OutOrStdout()
			lines := json.NewEncoder(out)
			return b.Watch(ctx, id, func(s bus.Status) error {
				if o.output.JSON() {
					return lines.Encode(s.Progress)
				}
				p := &s.Progress
				_, err := fmt.Fprintf(out, "%s %s: %d of %d rows, %.0f/s, %s left; %d workers, %d quarantined shards; waits for %s\n",
					time.Now().Format(time.TimeOnly), p.State, p.Rows, p.RowsTotal, p.Rate, left(p), len(p.Workers), p.Quarantined, p.Waiting)
				return err
			})
		})
}

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
