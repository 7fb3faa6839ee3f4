// Package process has what the processes of a cluster share: the flags and the set-up of workers and
// mergers, and the metrics of every process.
package process

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/internal/app/cli"
	"shaver/internal/jobs/bus"
)

// Options are the settings that workers and mergers share.
type Options struct {
	Name      string
	Log       *zap.Logger // set by Start
	Telemetry Telemetry   // serves once Start returned

	connection cli.Connection
	metrics    string
	format     string
	verbose    bool
}

// Flags declares the flags of c. name describes --name.
func (o *Options) Flags(c *cobra.Command, name string) {
	o.connection.Flags(c, "", 0)
	cli.MetricsFlag(c, &o.metrics)
	c.Flags().StringVar(&o.Name, "name", "", name+" (default the host and the process id)")
	cli.LogFlags(c, &o.format, &o.verbose)
	cli.MarkRequired(c, "nats")
}

// Start checks the flags, opens the log, and begins to serve the metrics. host names a process on an
// unknown host. The caller must call Telemetry.Stop, even if Start fails.
func (o *Options) Start(host string) (err error) {
	if err := o.connection.Check(); err != nil {
		return err
	}
	if o.Log, err = cli.Logger(o.format, o.verbose); err != nil {
		return err
	}
	if o.Name == "" {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
		o.Name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	return o.Telemetry.Start(o.metrics, nil, o.Log)
}

// Connect connects to the servers. If it is interrupted, its error is cli.ErrDrained: the process had no
// work yet. The caller closes the bus.
func (o *Options) Connect(ctx context.Context, role string) (*bus.Bus, error) {
	o.connection.OnBlob = o.Telemetry.OnBlob()
	b, err := o.connection.Connect(ctx, role, o.Name, o.Log)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, cli.ErrDrained
	case err != nil:
		return nil, err
	}
	o.Telemetry.Connected(b)
	return b, nil
}

// CollectOften makes the garbage collector keep little garbage in memory. Nearly all memory of a process
// that computes or merges is a model, rows and sums, which contain no pointers. Frequent collection is then
// cheap.
func CollectOften() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(10)
	}
}
