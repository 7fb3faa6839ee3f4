package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/bus"
	"shaver/internal/cli"
	"shaver/internal/fault"
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
			b, err := o.connection.Connect(c.Context(), cli.RoleOperator, "shaver job", nil)
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

func left(p *bus.Progress) string {
	if p.Left <= 0 {
		return "-"
	}
	return time.Duration(p.Left * float64(time.Second)).Round(time.Second).String()
}
