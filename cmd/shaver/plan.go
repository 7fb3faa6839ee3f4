package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/cli"
	"shaver/internal/coordinator"
	"shaver/internal/fault"
	"shaver/internal/launch"
)

// jobForecast is what "shaver plan" prints. Bytes are what blobs hold; tasks and
// results add about a kilobyte a shard.
type jobForecast struct {
	Job               string   `json:"job"`
	Kernel            string   `json:"kernel"`
	Rows              int64    `json:"rows"`             // with rounds at most, and again in each pass
	Rounds            int      `json:"rounds,omitempty"` // of a job that may stop early, after each of them
	Walks             int64    `json:"walks"`            // 0 of estimators without
	Players           int      `json:"players"`          // of a row
	Measured          measured `json:"measured"`
	RowsPerCore       float64  `json:"rows_per_core_second"`
	CoreHours         float64  `json:"core_hours"`
	AuditRows         int64    `json:"audit_rows,omitempty"`       // which its three estimators compute each
	AuditCoreHours    float64  `json:"audit_core_hours,omitempty"` // beside the job's
	Cores             int      `json:"cores"`
	Workers           int      `json:"workers"` // of so many threads as were measured
	Seconds           float64  `json:"seconds"` // of the whole job on these cores, and of its audit
	Shards            int      `json:"shards"`
	RowsPerShard      int64    `json:"rows_per_shard"`
	SecondsPerShard   float64  `json:"seconds_per_shard"` // of a worker
	ShardBytes        int64    `json:"shard_bytes"`
	PartialBytes      int64    `json:"partial_bytes"`
	PartialFeatures   int64    `json:"partial_features"` // expected in a shard, if rows are in random order
	BytesToWorkers    int64    `json:"bytes_to_workers"` // shards, and the model once a worker
	BytesFromWorkers  int64    `json:"bytes_from_workers"`
	WorkerMemory      int64    `json:"worker_memory"`
	CoordinatorMemory int64    `json:"coordinator_memory"`
}

// measured is the sample that a forecast rests on.
type measured struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Threads  int     `json:"threads"`
	Features int     `json:"features"`          // that occur in these rows; 0 = it did not get that far
	Expected int64   `json:"features_expected"` // if rows were in random order
}

// Memory that a process needs beside what grows with the job.
const (
	workerBase      = 256 << 20
	coordinatorBase = 512 << 20
)

func forecast(e *coordinator.Estimate, cores int) *jobForecast {
	plan, rows := e.Plan, e.Plan.RowsPerShard
	perCore := e.PerSecond() / float64(e.Threads)
	shards, workers := int64(plan.Shards()), (cores+e.Threads-1)/e.Threads
	rounds := (shards + int64(workers) - 1) / int64(workers)
	f := &jobForecast{
		Job: e.Spec.ID(), Kernel: e.Spec.Kernel, Rows: plan.Rows, Rounds: len(plan.Rounds), Players: e.Players,
		Measured:    measured{Rows: e.SampleRows, Seconds: e.SampleTook.Seconds(), Threads: e.Threads, Features: e.SampleFeatures, Expected: int64(e.Distinct(e.SampleRows))},
		RowsPerCore: perCore, CoreHours: float64(plan.Rows) / perCore / 3600,
		AuditRows: e.AuditRows, AuditCoreHours: e.AuditTook.Hours() * float64(e.Threads),
		Cores: cores, Workers: workers,
		// The last round keeps some workers waiting for others.
		Seconds: float64(plan.Rows) / (perCore * float64(cores)) * max(1, float64(rounds*int64(workers))/float64(shards)),
		Shards:  int(shards), RowsPerShard: rows, SecondsPerShard: float64(rows) / e.PerSecond(),
		ShardBytes: e.ShardBytes(rows), PartialBytes: e.PartialBytes(rows), PartialFeatures: int64(e.Distinct(rows)),
		BytesToWorkers:    e.ShardBytes(plan.Rows) + e.ModelBytes*int64(workers),
		BytesFromWorkers:  shards * e.PartialBytes(rows),
		CoordinatorMemory: e.SumsBytes() + coordinatorBase,
	}
	f.Seconds += f.AuditCoreHours * 3600 / float64(cores)
	f.Walks = plan.Rows * int64(e.Spec.TaskOptions().Walks())
	// The model's file and the model; a shard and its rows; the sums of each
	// thread with an index of the table, joined, and encoded.
	threads := int64(e.Threads)
	f.WorkerMemory = workerBase + 2*e.ModelBytes + 3*f.ShardBytes + threads*(e.PartialBytes((rows+threads-1)/threads)+4*int64(e.Features)) + 2*f.PartialBytes
	return f
}

type planOptions struct {
	launch.JobFlags
	config         coordinator.Config
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
	o.JobFlags.Add(c, &o.config)
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
	var err error
	if o.config.Log, err = cli.Logger("text", false); err != nil {
		return err
	}
	if err := o.Open(); err != nil {
		return err
	}
	e, err := coordinator.Measure(c.Context(), o.config, o.threads, measureWithin)
	if err != nil {
		return err
	}
	plan := forecast(e, o.cores)
	return o.output.Print(c.OutOrStdout(), plan, plan.table)
}

// table writes the forecast for people.
func (f *jobForecast) table(w io.Writer) {
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
