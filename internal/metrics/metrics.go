// Package metrics counts what a process does, and tells it to Prometheus and to
// whoever asks whether the process is well. Nothing depends on it: without it
// the callbacks that feed it are nil.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Set is what one process counts. Safe for concurrent use.
type Set struct {
	registry *prometheus.Registry

	rows, walks prometheus.Counter
	tasks       *prometheus.HistogramVec
	tries       prometheus.Counter
	blobs       *prometheus.CounterVec
	job         jobSet
}

// jobSet is what a coordinator says of its job.
type jobSet struct {
	rows, rowsTotal, shards, shardsTotal, open, quarantined, epoch, checkpoint prometheus.Gauge
	lag                                                                        prometheus.Histogram
}

// New returns an empty set, with what Go's runtime and the system say of the
// process.
func New() *Set {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "shaver_" + name, Help: help})
	}
	s := &Set{
		registry: prometheus.NewRegistry(),
		rows:     counter("rows_total", "Rows computed in this process, those of tasks that failed included."),
		walks:    counter("walks_total", "Walks of tasks that were computed to their end in this process: rows times passes."),
		tries:    counter("redeliveries_total", "Tasks that came to this process after another try at them."),
		tasks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shaver_task_seconds", Help: "Seconds from a task's arrival until its fate is stored, by outcome.",
			Buckets: []float64{.1, .3, 1, 3, 10, 30, 60, 120, 300, 900, 3600},
		}, []string{"outcome"}),
		blobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shaver_blob_bytes_total", Help: "Bytes of blobs that this process sent to the store or received from it, those of tries that failed included.",
		}, []string{"direction"}),
	}
	s.registry.MustRegister(s.rows, s.walks, s.tries, s.tasks, s.blobs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s
}

// Rows counts rows that were computed.
func (s *Set) Rows(n int) { s.rows.Add(float64(n)) }

// Task counts a task that came as the given try, took so long and ended so. walks
// are those of its rows, 0 if they are not done.
func (s *Set) Task(outcome string, try int, walks int64, took time.Duration) {
	if try > 1 {
		s.tries.Inc()
	}
	s.walks.Add(float64(walks))
	s.tasks.WithLabelValues(outcome).Observe(took.Seconds())
}

// Blob counts bytes of blobs.
func (s *Set) Blob(sent bool, bytes int) {
	direction := "received"
	if sent {
		direction = "sent"
	}
	s.blobs.WithLabelValues(direction).Add(float64(bytes))
}

// Job is how a coordinator's job is doing.
type Job struct {
	Rows, RowsTotal     int64 // merged, of all
	Shards, ShardsTotal int   // the same
	Open                int   // published and not merged
	Quarantined         int
	Epoch               int64
	Checkpoint          time.Time // the last one; zero = none
}

// Lead registers what a coordinator says of its job; call it once, before Job
// and Merged.
func (s *Set) Lead() {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "shaver_job_" + name, Help: help})
		s.registry.MustRegister(g)
		return g
	}
	s.job = jobSet{
		rows:        gauge("merged_rows", "Rows that are merged."),
		rowsTotal:   gauge("rows", "Rows to score."),
		shards:      gauge("merged_shards", "Shards that are merged."),
		shardsTotal: gauge("shards", "Shards of the job."),
		open:        gauge("open_shards", "Shards that are published and not merged."),
		quarantined: gauge("quarantined_shards", "Shards that are set aside."),
		epoch:       gauge("epoch", "How often the job was claimed."),
		checkpoint:  gauge("checkpoint_timestamp_seconds", "When the last checkpoint was stored, 0 = never; its age is time() less this."),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shaver_merge_lag_seconds", Help: "Seconds from a result's being stored until it is merged.",
			Buckets: []float64{.01, .03, .1, .3, 1, 3, 10, 30, 100, 300, 1000},
		}),
	}
	s.registry.MustRegister(s.job.lag)
}

// Job sets how the job is doing.
func (s *Set) Job(j Job) {
	for gauge, value := range map[prometheus.Gauge]int64{
		s.job.rows: j.Rows, s.job.rowsTotal: j.RowsTotal, s.job.shards: int64(j.Shards), s.job.shardsTotal: int64(j.ShardsTotal),
		s.job.open: int64(j.Open), s.job.quarantined: int64(j.Quarantined), s.job.epoch: j.Epoch,
	} {
		gauge.Set(float64(value))
	}
	if !j.Checkpoint.IsZero() {
		s.job.checkpoint.Set(float64(j.Checkpoint.UnixMilli()) / 1000)
	}
}

// Merged counts a merged result, stored so long before.
func (s *Set) Merged(lag time.Duration) { s.job.lag.Observe(max(lag, 0).Seconds()) }
