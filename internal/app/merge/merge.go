// Package merge is the command that keeps a part of the sums of large jobs.
package merge

import (
	"context"
	_ "embed"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/app/process"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
)

//go:embed help.txt
var help string

// Command returns the command "coordinator merge".
func Command() *cobra.Command {
	var o process.Options
	c := &cobra.Command{
		Use:   "merge",
		Short: "Keep a part of the sums of large jobs",
		Long:  help + "\n" + cli.ExitHelp,
		Example: `  coordinator merge --nats nats://nats:4222
  coordinator merge --nats tls://nats:4222 --creds shaver.creds --metrics :9090`,
		Args: cli.Args(cobra.NoArgs),
		RunE: cli.Run(func(c *cobra.Command, _ []string) error { return run(c.Context(), &o) }),
	}
	o.Flags(c, "`name` of this process in logs")
	cli.Group(c, cli.OutputFlags, "metrics", "name")
	return c
}

func run(ctx context.Context, o *process.Options) error {
	defer o.Telemetry.Stop()
	if err := o.Start("merger"); err != nil {
		return err
	}
	b, err := o.Connect(ctx, cli.RoleCoordinator)
	if err != nil {
		return err
	}
	defer b.Close()
	process.CollectOften()
	o.Log.Info("merger ready", zap.String("name", o.Name), zap.Int("protocol", job.Protocol), zap.String("program", cli.Program()))
	if err := merger.Run(ctx, merger.Config{Bus: b, Name: o.Name, Log: o.Log}); ctx.Err() == nil {
		return err
	}
	return cli.ErrDrained
}
