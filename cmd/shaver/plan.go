package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"shaver/cmd/shaver/help"
	"shaver/internal/app/cli"
	"shaver/internal/app/score"
	"shaver/internal/app/sweeping"
	"shaver/internal/base/fault"
	"shaver/internal/jobs/forecast"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
)

type planOptions struct {
	score.JobOptions
	request        prepare.Request
	cores, threads int
	output         cli.Output
}

// measureWithin is the time for which a plan measures.
const measureWithin = 5 * time.Second

func planCommand() *cobra.Command {
	var o planOptions
	c := &cobra.Command{
		Use:     "plan",
		Short:   "Estimate the cost of a job without running it",
		Long:    help.Text("plan"),
		Example: help.Text("plan.example"),
		Args:    cli.Args(cobra.NoArgs),
		RunE:    cli.Run(o.run, o.output.Check),
	}
	o.JobOptions.Add(c, &o.request, score.Advised)
	o.AddPlayers(c)
	o.AddPrevious(c)
	f := c.Flags()
	f.IntVar(&o.cores, "cores", runtime.GOMAXPROCS(0), "number of cores of all workers together")
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "number of threads of each worker")
	f.Lookup("cores").DefValue, f.Lookup("threads").DefValue = "all cores of this machine", "all cores of this machine"
	f.IntVar(&o.request.Ranges, "ranges", 0, "`number` of processes \"coordinator merge\" that keep the sums (default the coordinator keeps them)")
	cli.Group(c, "Workers", "cores", "threads", "ranges")
	o.output.Flag(c)
	cli.MarkRequired(c, "model", "dataset")
	cli.Needed(c, "estimator", "baseline", "sample", "cores")
	return c
}

func (o *planOptions) run(c *cobra.Command, _ []string) error {
	if o.cores < 1 || o.threads < 1 {
		return fault.Usagef("--cores %d, --threads %d: expected at least 1", o.cores, o.threads)
	}
	if n := o.request.Ranges; n < 0 || n > job.MaxRanges {
		return fault.Usagef("--ranges %d: must be from 0 to %d", n, job.MaxRanges)
	}
	if err := o.Open(); err != nil {
		return err
	}
	o.Notices(cli.Log())
	rates, err := o.ChooseKernel(c.Context())
	if err != nil {
		return err
	}
	f, err := forecast.New(c.Context(), o.request, forecast.Config{Cores: o.cores, Threads: o.threads, Within: measureWithin, Log: cli.Log()})
	if err != nil {
		return err
	}
	f.Kernels = rates
	planned := struct {
		*forecast.Forecast
		Compress *sweeping.Cost `json:"compress,omitempty"`
	}{Forecast: f}
	if planned.Compress, err = sweeping.Finding(o.Model, o.ModelOutput, "", o.Dataset).Cost(c.Context(), measureWithin/5); err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), planned, func(w io.Writer) {
		forecastTable(w, f)
		if k := planned.Compress; k != nil {
			fmt.Fprintf(w, "compress\t%s more\tat most, to predict %d rows of val and test by %d tables on this machine\n", jobTime(k.Seconds), k.Rows, k.Predictions)
		}
	})
}

// forecastTable writes a forecast as a table.
func forecastTable(w io.Writer, f *forecast.Forecast) {
	m := &f.Measured
	fmt.Fprintf(w, "job\t%s\tkernel %s\n", f.Job, f.Kernel)
	for _, r := range f.Kernels {
		fmt.Fprintf(w, "\tkernel %s\t%.3g rows per second and core in a short run of one pass\n", r.Kernel, r.RowsPerCore)
	}
	effort := fmt.Sprintf("%d players per row", f.Players)
	if f.Walks > 0 {
		effort = fmt.Sprintf("%d walks of %d players", f.Walks, f.Players)
	}
	fmt.Fprintf(w, "rows\t%d\t%s\n", f.Rows, effort)
	if f.Rounds > 0 {
		fmt.Fprintf(w, "rounds\t%d\tat most; they follow one another, and the lines below are for all of them\n", f.Rounds)
	}
	fmt.Fprintf(w, "rows per second and core\t%.3g\tmeasured on %d rows in %.1f s, %d threads\n", f.RowsPerCore, m.Rows, m.Seconds, m.Threads)
	if m.Busy() {
		fmt.Fprintf(w, "\t\tother programs used this machine: the threads ran in %.0f%% of this time, so a job takes up to %.1f times as long while they run\n", 100*m.Share, 1/m.Share)
	}
	fmt.Fprintf(w, "core-hours\t%.3g\n", f.CoreHours)
	if f.AuditRows > 0 {
		fmt.Fprintf(w, "audit\t%.3g\tmore core-hours, for %d rows by each of three estimators\n", f.AuditCoreHours, f.AuditRows)
	}
	fmt.Fprintf(w, "time\t%s\ton %d cores, %d workers\n", jobTime(f.Seconds), f.Cores, f.Workers)
	fmt.Fprintf(w, "shards\t%d\tof %d rows, %.3g s each\n", f.Shards, f.RowsPerShard, f.SecondsPerShard)
	fmt.Fprintf(w, "bytes per shard\t%s\n", cli.Size(f.ShardBytes))
	fmt.Fprintf(w, "bytes per partial\t%s\t%d shards, %d features\n", cli.Size(f.PartialBytes), f.ShardsPerPartial, f.PartialFeatures)
	if f.Ranges > 0 {
		fmt.Fprintf(w, "blobs of partials\t%d\t%d for each partial\n", f.Blobs, f.Ranges)
	}
	fmt.Fprintf(w, "network\t%s to workers\t%s from workers\n", cli.Size(f.BytesToWorkers), cli.Size(f.BytesFromWorkers))
	fmt.Fprintf(w, "memory\t%s per worker\t%s for the coordinator\n", cli.Size(f.WorkerMemory), cli.Size(f.CoordinatorMemory))
	if f.Ranges > 0 {
		fmt.Fprintf(w, "\t%s per merger\tat most, with %d mergers\n", cli.Size(f.MergerMemory), f.Ranges)
	}
	if m.Features > 0 {
		fmt.Fprintf(w, "features in the measured rows\t%d\t%d expected in random order\n", m.Features, m.Expected)
	}
}

// jobTime returns the time of a job as text. That of a short job is mostly its start.
func jobTime(seconds float64) string {
	if seconds < 1 {
		return "about a second"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
