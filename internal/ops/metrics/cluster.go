package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Cluster is what a NATS server holds for all jobs.
type Cluster struct {
	Jobs    []ClusterJob
	Kernels []ClusterKernel
}

// ClusterJob is a job that has not finished.
type ClusterJob struct {
	ID, State, Kernel           string
	Rows, RowsTotal             int64
	Shards, ShardsTotal         int
	Results, Quarantined        int
	Workers                     int // workers whose results were merged lately
	Rate                        float64
	Epoch                       int64
	Submitted, Progress, Stored time.Time // Stored is the time of the last checkpoint; zero = unknown or none
}

// ClusterKernel is the state of the tasks of a kernel.
type ClusterKernel struct {
	Kernel              string
	Waiting, Held, Idle int
}

// Scale is the size of a Deployment of workers.
type Scale struct{ Wanted, Replicas int }

// The sources of the values that a Reader exports.
const (
	FromNATS       = "nats"
	FromNights     = "nights"
	FromKubernetes = "kubernetes"
)

// Reader exports what a process has read from elsewhere, and when it last read it. Values stay
// until the next successful reading, so they may be old. A Reader is safe for concurrent use.
type Reader struct {
	mu      sync.Mutex
	states  []string
	cluster *Cluster
	scale   *Scale
	read    map[string]time.Time
	failed  map[string]int
}

// Read registers the metrics of a Reader. states lists all states of a job, and sources what
// the process reads. Call it at most once for a set.
func (s *Set) Read(states, sources []string) *Reader {
	r := &Reader{states: states, read: map[string]time.Time{}, failed: map[string]int{}}
	for _, source := range sources {
		r.read[source], r.failed[source] = time.Time{}, 0
	}
	s.registry.MustRegister(r)
	return r
}

// Cluster replaces what is known about the jobs.
func (r *Reader) Cluster(c *Cluster, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cluster, r.read[FromNATS] = c, now
}

// Scale replaces what is known about the Deployment.
func (r *Reader) Scale(s Scale, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scale, r.read[FromKubernetes] = &s, now
}

// Succeeded says that a source was read.
func (r *Reader) Succeeded(source string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read[source] = now
}

// Failed counts a failed reading.
func (r *Reader) Failed(source string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[source]++
}

// The metrics of a Reader. The label is job_id and not job, because Prometheus gives every
// metric a label job of its own. Their names differ from those of a coordinator, so that no sum
// over all processes counts a job twice.
var (
	tasksWaiting   = describe("cluster_tasks_waiting", "Tasks that were given to no worker.", "kernel")
	tasksHeld      = describe("cluster_tasks_held", "Tasks that were given to a worker and are not finished.", "kernel")
	workersIdle    = describe("cluster_workers_idle", "Workers that wait for a task.", "kernel")
	jobsByState    = describe("cluster_jobs", "Jobs that have not finished, by state.", "state")
	jobInfo        = describe("cluster_job_info", "1 for each job that has not finished, with its state and kernel.", "job_id", "state", "kernel")
	jobRows        = describe("cluster_job_rows", "Rows to score.", "job_id")
	jobMerged      = describe("cluster_job_merged_rows", "Rows merged so far.", "job_id")
	jobShards      = describe("cluster_job_shards", "Shards of the job.", "job_id")
	jobDone        = describe("cluster_job_merged_shards", "Shards merged so far.", "job_id")
	jobRate        = describe("cluster_job_rows_per_second", "Rows merged per second since the coordinator began, or 0 without a coordinator.", "job_id")
	jobResults     = describe("cluster_job_results", "Results that are stored and not covered by a checkpoint.", "job_id")
	jobQuarantined = describe("cluster_job_quarantined_shards", "Shards in quarantine.", "job_id")
	jobWorkers     = describe("cluster_job_workers", "Workers whose results were merged in the last ten minutes of progress.", "job_id")
	jobEpoch       = describe("cluster_job_epoch", "Number of times that a coordinator took over the job.", "job_id")
	jobSubmitted   = describe("cluster_job_submitted_timestamp_seconds", "Unix time at which the job was submitted.", "job_id")
	jobProgress    = describe("cluster_job_progress_timestamp_seconds", "Unix time at which a coordinator last wrote the job's progress, or of the submission if none did.", "job_id")
	jobStored      = describe("cluster_job_checkpoint_timestamp_seconds", "Unix time of the job's last checkpoint, or of the submission before the first.", "job_id")
	readTime       = describe("read_timestamp_seconds", "Unix time of the last successful reading, or 0 before the first.", "source")
	readFailures   = describe("read_failures_total", "Readings that failed.", "source")
	scaleWanted    = describe("scale_wanted_replicas", "Workers that the queue needs, within the limits.")
	scaleReplicas  = describe("scale_replicas", "Workers that the Deployment has now.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("shaver_"+name, help, labels, nil)
}

// Describe sends nothing, because the metrics depend on what was read.
func (r *Reader) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics of the last readings.
func (r *Reader) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for source, at := range r.read {
		gauge(readTime, unix(at), source)
		to <- prometheus.MustNewConstMetric(readFailures, prometheus.CounterValue, float64(r.failed[source]), source)
	}
	if s := r.scale; s != nil {
		gauge(scaleWanted, float64(s.Wanted))
		gauge(scaleReplicas, float64(s.Replicas))
	}
	if r.cluster == nil {
		return
	}
	for _, k := range r.cluster.Kernels {
		gauge(tasksWaiting, float64(k.Waiting), k.Kernel)
		gauge(tasksHeld, float64(k.Held), k.Kernel)
		gauge(workersIdle, float64(k.Idle), k.Kernel)
	}
	states := map[string]int{}
	for _, state := range r.states {
		states[state] = 0
	}
	for _, j := range r.cluster.Jobs {
		if _, known := states[j.State]; !known { // it comes from a message, and metrics must have few labels
			j.State = "unknown"
		}
		states[j.State]++
		r.job(&j, gauge)
	}
	for state, n := range states {
		gauge(jobsByState, float64(n), state)
	}
}

// job sends the metrics of a job.
func (r *Reader) job(j *ClusterJob, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	gauge(jobInfo, 1, j.ID, j.State, j.Kernel)
	gauge(jobRows, float64(j.RowsTotal), j.ID)
	gauge(jobMerged, float64(j.Rows), j.ID)
	gauge(jobShards, float64(j.ShardsTotal), j.ID)
	gauge(jobDone, float64(j.Shards), j.ID)
	gauge(jobRate, j.Rate, j.ID)
	gauge(jobResults, float64(j.Results), j.ID)
	gauge(jobQuarantined, float64(j.Quarantined), j.ID)
	gauge(jobWorkers, float64(j.Workers), j.ID)
	gauge(jobEpoch, float64(j.Epoch), j.ID)
	if j.Submitted.IsZero() {
		return
	}
	since := func(t time.Time) float64 {
		if t.IsZero() {
			t = j.Submitted
		}
		return unix(t)
	}
	gauge(jobSubmitted, unix(j.Submitted), j.ID)
	gauge(jobProgress, since(j.Progress), j.ID)
	gauge(jobStored, since(j.Stored), j.ID)
}

// unix returns Unix time in seconds, and 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
