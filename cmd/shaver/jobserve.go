package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
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
	"shaver/internal/ops/page"
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
		Short:   "Show all jobs on a page, export metrics, and size the workers",
		Long:    help.Text("job-serve") + "\n\n" + cli.ExitHelp,
		Example: help.Text("job-serve.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    cli.Run(o.run, o.connection.Check),
	}
	f := c.Flags()
	o.connection.Flags(c, "", 0)
	cli.MetricsFlag(c, &o.metrics)
	f.Lookup("metrics").Usage = "`address` HOST:PORT that serves the page, /healthz, /readyz and /metrics; :PORT means 127.0.0.1:PORT"
	f.StringVar(&o.nightly, "nightly", "", "`folder` or URL \"out\" of shaver nightly, whose nights are shown and exported too (default none)")
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

func (o *jobServeOptions) run(c *cobra.Command, _ []string) error {
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
	address, _, err := o.connection.Servers()
	if err != nil {
		return err
	}
	shown := page.NewServer(address)
	pages := page.NewHandler(shown, reader)
	server, err := metrics.ServeWith(o.metrics, set, pages)
	if err != nil {
		return err
	}
	defer server.Stop()
	defer pages.Close()
	log.Info("metrics", zap.String("address", server.Addr()), zap.String("page", "http://"+server.Addr()+"/"))
	config := overview.Config{Every: o.every, Metrics: exported, Scaler: scaler, Kernel: o.kernel, Log: log, OnRead: shown.See}

	// The nights are read even while NATS cannot be reached.
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if reader != nil {
			serveNights(ctx, overview.New(config), set, shown, reader)
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
	if err := shown.Connected(b); err != nil {
		return err
	}
	return overview.New(config).Run(ctx, b)
}

// serveNights exports the metrics of the last night, and shows all nights on the page, until ctx ends. open
// opens a file in the folder of the nights.
func serveNights(ctx context.Context, r *overview.Reader, set *metrics.Set, shown *page.Server, open func(name string) (io.ReadCloser, error)) {
	_ = overview.Every(ctx, r.Every, func() error { // it ends with ctx
		lines, current, err := nightly.Results(open)
		r.Note(metrics.FromNights, err)
		if err != nil {
			return nil
		}
		r.Metrics.Succeeded(metrics.FromNights, time.Now())
		shown.SetNights(nightsOf(lines, current))
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

// nightsOf returns the nights of a page, the latest one first. current is the published one, or nil.
func nightsOf(lines []nightly.Line, current *nightly.Current) []page.Night {
	var nights []page.Night
	for _, l := range slices.Backward(lines) {
		n := page.Night{Name: l.Night, Outcome: l.Outcome, Failed: l.Outcome == nightly.Failed, Kind: "full", Finished: night.Time(l.Finished), Rows: l.Rows,
			CoreSeconds: l.CoreSeconds, Change: costOf(&l), Published: current != nil && current.Night == l.Night, Report: true}
		if l.Generation > 0 {
			n.Kind = fmt.Sprintf("paired, %d", l.Generation)
		}
		nights = append(nights, n)
	}
	return nights
}

// costOf returns what pruning cost in a night.
func costOf(l *nightly.Line) string {
	switch {
	case len(l.Reasons) > 0:
		return strings.Join(l.Reasons, "; ")
	case l.AUCDrop != nil:
		return fmt.Sprintf("AUC %+.4f", -*l.AUCDrop)
	case l.RMSERise != nil:
		return fmt.Sprintf("RMSE %+.4f", *l.RMSERise)
	}
	return ""
}
