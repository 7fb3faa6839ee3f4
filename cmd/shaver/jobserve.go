package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/night"
	"shaver/internal/app/places"
	"shaver/internal/base/fault"
	"shaver/internal/ops/autoscale"
	"shaver/internal/ops/metrics"
	"shaver/internal/ops/overview"
	"shaver/internal/prune/nightly"
)

type jobServeOptions struct {
	connection       cli.Connection
	metrics, nightly string
	every            time.Duration
	deployment       string
	namespace        string
	kernel           string
	rule             autoscale.Rule
	log              string
	verbose          bool

	cluster func(namespace, name string) (*autoscale.Kubernetes, error) // finds the Deployment
}

// scaleFlags are the flags that need --scale.
var scaleFlags = []string{"namespace", "scale-kernel", "max-workers", "min-workers", "tasks-per-worker", "scale-down-after"}

func jobServeCommand() *cobra.Command { return serveCommand(autoscale.InCluster) }

func serveCommand(cluster func(namespace, name string) (*autoscale.Kubernetes, error)) *cobra.Command {
	o := jobServeOptions{cluster: cluster}
	c := &cobra.Command{
		Use:     "serve",
		Short:   "Export metrics of all jobs, and size the workers by the queue",
		Long:    help.Text("job-serve") + "\n\n" + cli.ExitHelp,
		Example: help.Text("job-serve.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	f := c.Flags()
	o.connection.Flags(c, "", 0)
	cli.MetricsFlag(c, &o.metrics)
	f.Lookup("metrics").Usage = "`address` HOST:PORT that serves /healthz, /readyz and /metrics; :PORT means 127.0.0.1:PORT"
	f.StringVar(&o.nightly, "nightly", "", "`folder` or URL \"out\" of shaver nightly, whose last night is exported too (default none)")
	f.DurationVar(&o.every, "every", 10*time.Second, "time between two readings, at least 1s")
	f.StringVar(&o.deployment, "scale", "", "`name` of the Deployment whose workers are scaled (default none)")
	f.StringVar(&o.namespace, "namespace", "", "`namespace` of the Deployment (default that of the pod)")
	f.StringVar(&o.kernel, "scale-kernel", "", "`name` of the kernel whose tasks count (default all)")
	f.IntVar(&o.rule.Max, "max-workers", 0, "largest `number` of workers")
	f.IntVar(&o.rule.Min, "min-workers", 0, "least `number` of workers")
	f.IntVar(&o.rule.PerWorker, "tasks-per-worker", 1, "`number` of tasks for each worker")
	f.DurationVar(&o.rule.DownAfter, "scale-down-after", 2*time.Minute, "how long fewer workers must have been enough before workers end")
	cli.LogFlags(c, &o.log, &o.verbose)
	cli.Folder(c, "nightly")
	places.AddScratch(c)
	cli.Group(c, "Reading", "metrics", "nightly", "every")
	cli.Group(c, "Scaling", append([]string{"scale"}, scaleFlags...)...)
	cli.MarkRequired(c, "nats", "metrics")
	cli.Needed(c, "nightly", "scale", "max-workers")
	return c
}

// check returns wrong usage for flags that contradict each other.
func (o *jobServeOptions) check(c *cobra.Command) error {
	if err := o.connection.Check(); err != nil {
		return err
	}
	if o.every < time.Second {
		return fault.Usagef("--every %v: must be at least 1s", o.every)
	}
	if o.deployment != "" {
		if !c.Flags().Changed("max-workers") {
			return fault.Usagef("--scale needs --max-workers")
		}
		return o.rule.Validate()
	}
	if i := slices.IndexFunc(scaleFlags, func(name string) bool { return c.Flags().Changed(name) }); i >= 0 {
		return fault.Usagef("--%s needs --scale", scaleFlags[i])
	}
	return nil
}

func (o *jobServeOptions) run(c *cobra.Command) error {
	if err := o.check(c); err != nil {
		return err
	}
	log, err := cli.Logger(o.log, o.verbose)
	if err != nil {
		return err
	}
	sources := []string{metrics.FromNATS}
	var scaler *autoscale.Scaler
	if o.deployment != "" {
		deployment, err := o.cluster(o.namespace, o.deployment)
		if err != nil {
			return err
		}
		defer deployment.Close()
		scaler = &autoscale.Scaler{Rule: o.rule, Deployment: deployment, Log: log}
		sources = append(sources, metrics.FromKubernetes)
	}
	var reader func(name string) (io.ReadCloser, error)
	if o.nightly != "" {
		read, end, err := places.Reader(c, o.nightly)
		if err != nil {
			return err
		}
		defer end()
		reader = read
		sources = append(sources, metrics.FromNights)
	}
	set := metrics.New()
	exported := set.Read(overview.States, sources)
	server, err := metrics.Serve(o.metrics, set)
	if err != nil {
		return err
	}
	defer server.Stop()
	log.Info("metrics", zap.String("address", server.Addr()))
	config := overview.Config{Every: o.every, Metrics: exported, Scaler: scaler, Kernel: o.kernel, Log: log}

	// The nights are read even while NATS cannot be reached.
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if reader != nil {
			serveNights(ctx, overview.New(config), set, reader)
		}
	}()
	defer func() {
		cancel()
		<-ended
	}()
	b, err := o.connection.Connect(ctx, cli.RoleMonitor, "shaver job serve", log)
	if err != nil {
		return err
	}
	defer b.Close()
	server.SetReady(b.Ready)
	return overview.New(config).Run(ctx, b)
}

// serveNights exports the metrics of the last night until ctx ends. open opens a file in the
// folder of the nights.
func serveNights(ctx context.Context, r *overview.Reader, set *metrics.Set, open func(name string) (io.ReadCloser, error)) {
	_ = overview.Every(ctx, r.Every, func() error { // it ends with ctx
		lines, current, err := nightly.Results(open)
		r.Note(metrics.FromNights, err)
		if err != nil {
			return nil
		}
		r.Metrics.Succeeded(metrics.FromNights, time.Now())
		if len(lines) == 0 {
			return nil
		}
		n := night.Metrics(lines)
		if current != nil { // somebody may have gone back to an earlier night
			for _, l := range lines {
				if l.Night == current.Night {
					n.LastPublished = night.Time(l.Finished)
				}
			}
		}
		set.Night(n)
		return nil
	})
}
