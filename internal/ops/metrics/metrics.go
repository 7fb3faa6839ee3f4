// Package metrics counts what a process does. It reports the counts to Prometheus and
// answers health checks. It is optional: without it, the callbacks that feed it are nil.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Set holds the metrics of one process. It is safe for concurrent use.
type Set struct {
	registry *prometheus.Registry

	rows, walks prometheus.Counter
	tasks       *prometheus.HistogramVec
	tries       prometheus.Counter
	blobs       *prometheus.CounterVec
	job         jobSet
	night       nightSet
}

// jobSet holds a coordinator's metrics of its job.
type jobSet struct {
	rows, rowsTotal, shards, shardsTotal, open, quarantined, epoch, checkpoint, stalled prometheus.Gauge
	lag                                                                                 prometheus.Histogram
}

// New returns an empty set. It includes metrics of the Go runtime and of the process.
func New() *Set {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "shaver_" + name, Help: help})
	}
	s := &Set{
		registry: prometheus.NewRegistry(),
		rows:     counter("rows_total", "Rows computed in this process, including rows of tasks that failed."),
		walks:    counter("walks_total", "Walks of the tasks completed in this process: rows times passes."),
		tries:    counter("redeliveries_total", "Tasks received by this process that had been tried before."),
		tasks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shaver_task_seconds", Help: "Seconds from a task's arrival until its outcome is stored, by outcome.",
			Buckets: []float64{.1, .3, 1, 3, 10, 30, 60, 120, 300, 900, 3600},
		}, []string{"outcome"}),
		blobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shaver_blob_bytes_total", Help: "Bytes of blobs that this process sent to the store or received from it, including failed attempts.",
		}, []string{"direction"}),
	}
	s.registry.MustRegister(s.rows, s.walks, s.tries, s.tasks, s.blobs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Rows counts n computed rows.
func (s *Set) Rows(n int) { s.rows.Add(float64(n)) }

// Task counts a task with its outcome and duration. try is the number of the attempt,
// from 1 on. walks is the number of its walks, or 0 if the task was not completed.
func (s *Set) Task(outcome string, try int, walks int64, took time.Duration) {
	if try > 1 {
		s.tries.Inc()
	}
	s.walks.Add(float64(walks))
	s.tasks.WithLabelValues(outcome).Observe(took.Seconds())
}

// Blob counts the bytes of a blob that was sent or received.
func (s *Set) Blob(sent bool, bytes int) {
	direction := "received"
	if sent {
		direction = "sent"
	}
	s.blobs.WithLabelValues(direction).Add(float64(bytes))
}

// Job is the progress of a coordinator's job.
type Job struct {
	Rows, RowsTotal     int64 // merged rows, and all rows of the job
	Shards, ShardsTotal int   // merged shards, and all shards of the job
	Open                int   // shards that are published and not merged
	Quarantined         int
	Epoch               int64
	Checkpoint          time.Time // time of the last checkpoint; zero before the first
	Stalled             bool      // no result came for a while, or no worker can compute the job
}

// Lead registers the metrics of a coordinator's job. Call it once, before Job and Merged.
func (s *Set) Lead() {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "shaver_job_" + name, Help: help})
		s.registry.MustRegister(g)
		return g
	}
	s.job = jobSet{
		rows:        gauge("merged_rows", "Rows merged so far."),
		rowsTotal:   gauge("rows", "Rows to score."),
		shards:      gauge("merged_shards", "Shards merged so far."),
		shardsTotal: gauge("shards", "Shards of the job."),
		open:        gauge("open_shards", "Shards that are published and not merged."),
		quarantined: gauge("quarantined_shards", "Shards in quarantine."),
		epoch:       gauge("epoch", "Number of times that a coordinator took over the job."),
		checkpoint:  gauge("checkpoint_timestamp_seconds", "Unix time of the last checkpoint, or 0 before the first. Its age is time() minus this value."),
		stalled:     gauge("stalled", "Whether the job is stalled, 1 or 0: no result came for a while, or no worker can compute it."),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shaver_merge_lag_seconds", Help: "Seconds from the storing of a result to its merge.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000},
		}),
	}
	s.registry.MustRegister(s.job.lag)
}

// Job sets the job's progress.
func (s *Set) Job(j Job) {
	for gauge, value := range map[prometheus.Gauge]int64{
		s.job.rows: j.Rows, s.job.rowsTotal: j.RowsTotal, s.job.shards: int64(j.Shards), s.job.shardsTotal: int64(j.ShardsTotal),
		s.job.open: int64(j.Open), s.job.quarantined: int64(j.Quarantined), s.job.epoch: j.Epoch,
	} {
		gauge.Set(float64(value))
	}
	stalled := 0.0
	if j.Stalled {
		stalled = 1
	}
	s.job.stalled.Set(stalled)
	if !j.Checkpoint.IsZero() {
		s.job.checkpoint.Set(float64(j.Checkpoint.UnixMilli()) / 1000)
	}
}

// Merged counts a merged result. lag is the time since the result was stored.
func (s *Set) Merged(lag time.Duration) { s.job.lag.Observe(max(lag, 0).Seconds()) }
