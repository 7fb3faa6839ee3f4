package launch

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
)

// mergeOptions are the settings of mergeCommand.
type mergeOptions struct {
	connection cli.Connection
	metrics    string
	name, log  string
	verbose    bool
}

// mergeCommand returns the command "coordinator merge".
func mergeCommand() *cobra.Command {
	var o mergeOptions
	c := &cobra.Command{
		Use:   "merge",
		Short: "Keep a part of the sums of large jobs",
		Long:  help("coordinator-merge") + "\n\n" + cli.ExitHelp,
		Example: `  coordinator merge --nats nats://nats:4222
  coordinator merge --nats tls://nats:4222 --creds shaver.creds --metrics :9090`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	o.connection.Flags(c, "", 0)
	cli.MetricsFlag(c, &o.metrics)
	f.StringVar(&o.name, "name", "", "`name` of this process in logs (default the host and the process id)")
	cli.LogFlags(c, &o.log, &o.verbose)
	cli.Group(c, cli.OutputFlags, "metrics", "name")
	cli.MarkRequired(c, "nats")
	return c
}

func (o *mergeOptions) run(ctx context.Context) error {
	if err := o.connection.Check(); err != nil {
		return err
	}
	log, err := cli.Logger(o.log, o.verbose)
	if err != nil {
		return err
	}
	if o.name == "" {
		o.name = processName("merger")
	}
	var telemetry telemetry
	defer telemetry.stop()
	if err := telemetry.start(o.metrics, log); err != nil {
		return err
	}
	o.connection.OnBlob = telemetry.onBlob()
	b, err := o.connection.Connect(ctx, cli.RoleCoordinator, o.name, log)
	switch {
	case err != nil && ctx.Err() != nil:
		return cli.ErrDrained
	case err != nil:
		return err
	}
	defer b.Close()
	telemetry.connected(b)
	collectOften()
	log.Info("merger ready", zap.String("name", o.name), zap.Int("protocol", job.Protocol), zap.String("program", cli.Program()))
	if err := merger.Run(ctx, merger.Config{Bus: b, Name: o.name, Log: log}); ctx.Err() == nil {
		return err
	}
	return cli.ErrDrained
}

// processName returns a name for this process. host replaces the name of an unknown host.
func processName(host string) string {
	if name, err := os.Hostname(); err == nil {
		host = name
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
