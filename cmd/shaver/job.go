package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
)

// jobOptions are the options of all commands under "shaver job".
type jobOptions struct {
	connection cli.Connection
	output     cli.Output
}

// jobCommands returns the commands under "shaver job". There is no command to resume a
// job. The server stores the digests of the model and the dataset but not their paths, so
// a job is resumed by submitting it again with "shaver score" or the coordinator.
func jobCommands() []*cobra.Command {
	return []*cobra.Command{jobListCommand(), jobStatusCommand(), jobWatchCommand(), jobCancelCommand(), jobQuarantineCommand(), jobServeCommand()}
}

// command returns a command that runs with a connection. If use has the word JOB, the
// command takes the id of a job, or its beginning, or no id if the server has one job.
func (o *jobOptions) command(use, short, long, example string, run func(ctx context.Context, b *bus.Bus, c *cobra.Command, id string) error) *cobra.Command {
	args := cobra.NoArgs
	if strings.Contains(use, "JOB") {
		args = cobra.MaximumNArgs(1)
	}
	c := &cobra.Command{
		Use: use, Short: short, Long: long + "\n\n" + cli.ExitHelp, Example: example, Args: cli.Args(args),
		RunE: cli.Run(func(c *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				if id = args[0]; !bus.IsJobPrefix(id) {
					return fault.Inputf("job id %q: expected up to 20 hexadecimal digits, the id of a job or its beginning", id)
				}
			}
			b, err := o.connection.Operate(c.Context(), "shaver job")
			if err != nil {
				return err
			}
			defer b.Close()
			if strings.Contains(use, "JOB") {
				if id, err = b.FindJob(c.Context(), id); err != nil {
					return err
				}
			}
			err = run(c.Context(), b, c, id)
			switch {
			case errors.Is(err, bus.ErrNoJob):
				return fault.Inputf("%w: it was never submitted, or it has ended", err)
			case errors.Is(err, bus.ErrUnreadable):
				return fmt.Errorf("%w (shaver job cancel removes it)", err)
			}
			return err
		}, o.output.Check, o.connection.Check),
	}
	o.connection.Flags(c, "", cli.AtTerminal)
	o.output.Flag(c)
	cli.MarkRequired(c, "nats")
	return c
}

// left returns the time left as text, "-" if it is not known.
func left(p *bus.Progress) string {
	if p.Left <= 0 {
		return "-"
	}
	return time.Duration(p.Left * float64(time.Second)).Round(time.Second).String()
}
