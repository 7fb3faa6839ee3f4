package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/fault"
	"shaver/internal/forecast"
	"shaver/internal/launch"
	"shaver/internal/prepare"
)

type planOptions struct {
	launch.JobFlags
	request        prepare.Request
	cores, threads int
	output         cli.Output
}

// measureWithin is how long a plan measures.
const measureWithin = 5 * time.Second

// planCommand is "shaver plan".
func planCommand() *cobra.Command {
	var o planOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "Tell what a job will cost, before anything is started",
		Long: `Tell what a job will cost, by computing some of its rows for about five seconds
on this machine, ten with --audit; cores elsewhere are taken to be as fast.

The size of shards is what one takes that was encoded. The size of partials
follows how many features a shard has: that is computed from how often each
occurs in the dataset, as if rows were in random order, and what the measured
rows have is printed beside what they should have. Where neighbours are alike,
as in a log in order of time, partials are smaller than planned.

` + cli.ExitHelp,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.Required(c, "model", "dataset"); err != nil {
				return err
			}
			return o.run(c)
		},
	}
	o.JobFlags.Add(c, &o.request)
	f := c.Flags()
	f.IntVar(&o.cores, "cores", runtime.GOMAXPROCS(0), "cores that all workers have together")
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "threads of one worker")
	o.output.Flag(c)
	return c
}

func (o *planOptions) run(c *cobra.Command) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	if o.cores < 1 || o.threads < 1 {
		return fault.Usagef("--cores and --threads are at least 1")
	}
	log, err := cli.Logger("text", false)
	if err != nil {
		return err
	}
	if err := o.Open(); err != nil {
		return err
	}
	f, err := forecast.New(c.Context(), o.request, forecast.Config{Cores: o.cores, Threads: o.threads, Within: measureWithin, Log: log})
	if err != nil {
		return err
	}
	return o.output.Print(c.OutOrStdout(), f, func(w io.Writer) { forecastTable(w, f) })
}

// forecastTable writes a forecast for people.
func forecastTable(w io.Writer, f *forecast.Forecast) {
	m := &f.Measured
	fmt.Fprintf(w, "job\t%s\tkernel %s\n", f.Job, f.Kernel)
	fmt.Fprintf(w, "rows\t%d\t%d walks of %d players\n", f.Rows, f.Walks, f.Players)
	if f.Rounds > 0 {
		fmt.Fprintf(w, "rounds\t%d\tat most: what follows is of all of them\n", f.Rounds)
	}
	fmt.Fprintf(w, "rows a second and core\t%.3g\tmeasured on %d rows in %.1f s, %d threads\n", f.RowsPerCore, m.Rows, m.Seconds, m.Threads)
	fmt.Fprintf(w, "core-hours\t%.3g\n", f.CoreHours)
	if f.AuditRows > 0 {
		fmt.Fprintf(w, "audit\t%.3g\tcore-hours beside them, %d rows by each of three estimators\n", f.AuditCoreHours, f.AuditRows)
	}
	fmt.Fprintf(w, "time\t%v\ton %d cores, %d workers\n", time.Duration(f.Seconds*float64(time.Second)).Round(time.Second), f.Cores, f.Workers)
	fmt.Fprintf(w, "shards\t%d\tof %d rows, %.3g s each\n", f.Shards, f.RowsPerShard, f.SecondsPerShard)
	fmt.Fprintf(w, "a shard\t%s\tits partial %s, %d features\n", size(f.ShardBytes), size(f.PartialBytes), f.PartialFeatures)
	fmt.Fprintf(w, "over the wire\t%s to workers\t%s from them\n", size(f.BytesToWorkers), size(f.BytesFromWorkers))
	fmt.Fprintf(w, "memory\t%s a worker\t%s the coordinator\n", size(f.WorkerMemory), size(f.CoordinatorMemory))
	if m.Features > 0 {
		fmt.Fprintf(w, "features in the measured rows\t%d\t%d expected in random order\n", m.Features, m.Expected)
	}
}

// size writes bytes for people.
func size(bytes int64) string {
	v, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for v >= 1024 && len(units) > 1 {
		v, units = v/1024, units[1:]
	}
	return fmt.Sprintf("%.3g %s", v, units[0])
}
