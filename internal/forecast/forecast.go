// Package forecast estimates what a job will cost, from a measurement on this
// machine of a few of its rows.
package forecast

import (
	"context"
	"time"

	"go.uber.org/zap"

	"shaver/internal/prepare"
)

// Forecast is what a job will cost on a number of cores. Bytes are sizes of blobs;
// tasks and results add about a kilobyte for each shard.
type Forecast struct {
	Job               string  `json:"job"`
	Kernel            string  `json:"kernel"`
	Rows              int64   `json:"rows"`             // rows to compute, once for each pass of a job with rounds; the most there may be
	Rounds            int     `json:"rounds,omitempty"` // most rounds of a job that may stop after each
	Walks             int64   `json:"walks"`            // 0 for estimators without walks
	Players           int     `json:"players"`          // players of a row
	Measured          Sample  `json:"measured"`
	RowsPerCore       float64 `json:"rows_per_core_second"`
	CoreHours         float64 `json:"core_hours"`
	AuditRows         int64   `json:"audit_rows,omitempty"`       // rows that each of the audit's estimators computes
	AuditCoreHours    float64 `json:"audit_core_hours,omitempty"` // core-hours of the audit, in addition to CoreHours
	Cores             int     `json:"cores"`
	Workers           int     `json:"workers"` // workers that have as many threads as were measured
	Seconds           float64 `json:"seconds"` // time of the job and its audit on these cores
	Shards            int     `json:"shards"`
	RowsPerShard      int64   `json:"rows_per_shard"`
	SecondsPerShard   float64 `json:"seconds_per_shard"` // time of one worker
	ShardBytes        int64   `json:"shard_bytes"`
	PartialBytes      int64   `json:"partial_bytes"`
	PartialFeatures   int64   `json:"partial_features"` // features expected in a shard, if rows are in random order
	BytesToWorkers    int64   `json:"bytes_to_workers"` // shards, and the model once for each worker
	BytesFromWorkers  int64   `json:"bytes_from_workers"`
	WorkerMemory      int64   `json:"worker_memory"`
	CoordinatorMemory int64   `json:"coordinator_memory"`
}

// Sample is the sample of rows that a forecast rests on.
type Sample struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Threads  int     `json:"threads"`
	Features int     `json:"features"`          // features that occur in these rows; 0 = the time did not suffice to count them
	Expected int64   `json:"features_expected"` // features expected if rows were in random order
}

// Audit is what an audit will cost.
type Audit struct {
	Rows int64         // rows that each of its estimators computes; 0 = there is no audit
	Took time.Duration // time for all of them on the measured threads
}

// Config says what to forecast for.
type Config struct {
	Cores   int           // cores of all workers together
	Threads int           // threads of one worker, which are measured on this machine
	Within  time.Duration // how long to measure the job; its audit takes as long again
	Log     *zap.Logger
}

// New measures the job that r asks for and returns what it will cost. The plan is
// the one that a coordinator would choose for workers with c.Threads.
func New(ctx context.Context, r prepare.Request, c Config) (*Forecast, error) {
	p, err := prepare.New(r, c.Log)
	if err != nil {
		return nil, err
	}
	m, err := Measure(ctx, p, c.Threads, c.Within)
	if err != nil {
		return nil, err
	}
	if r.RowsPerShard == 0 {
		plan := p.Plan
		plan.RowsPerShard = m.RowsPerShard()
		m.Job = m.Job.WithPlan(plan)
	}
	var audit Audit
	if r.Audit > 0 {
		if audit, err = measureAudit(ctx, r, c, m); err != nil {
			return nil, err
		}
	}
	return Of(m, audit, c.Cores), nil
}

// measureAudit measures the audit's estimators, except the job's own, which m has.
func measureAudit(ctx context.Context, r prepare.Request, c Config, m *Measurement) (a Audit, err error) {
	perRow := 1 / m.PerSecond()
	requests := r.AuditRequests(float64(m.Job.Sample.Keep) / float64(m.Job.Sample.Rows))
	for _, estimator := range []int{prepare.ByWalks, prepare.OtherEndpoints} {
		p, err := prepare.New(requests[estimator][0], c.Log)
		if err != nil {
			return Audit{}, err
		}
		measured, err := Measure(ctx, p, c.Threads, c.Within/2)
		if err != nil {
			return Audit{}, err
		}
		perRow += 1 / measured.PerSecond()
		a.Rows = 2 * p.Sample.Keep
	}
	a.Took = time.Duration(float64(a.Rows) * perRow * float64(time.Second))
	return a, nil
}

// Memory that a process needs in addition to what grows with the job.
const (
	workerBase      = 256 << 20
	coordinatorBase = 512 << 20
)

// Of returns what the measured job and its audit will cost on the given number of
// cores.
func Of(m *Measurement, audit Audit, cores int) *Forecast {
	j := m.Job
	plan, rows := j.Plan, j.Plan.RowsPerShard
	perCore := m.PerSecond() / float64(m.Threads)
	shards, workers := int64(plan.Shards()), (cores+m.Threads-1)/m.Threads
	turns := (shards + int64(workers) - 1) / int64(workers) // shards of the busiest worker
	f := &Forecast{
		Job: j.ID, Kernel: j.Spec.Kernel, Rows: plan.Rows, Rounds: len(plan.Rounds), Players: j.Architecture.Players(),
		Measured:    Sample{Rows: m.Rows, Seconds: m.Took.Seconds(), Threads: m.Threads, Features: m.Features, Expected: int64(m.Distinct(m.Rows))},
		RowsPerCore: perCore, CoreHours: float64(plan.Rows) / perCore / 3600,
		AuditRows: audit.Rows, AuditCoreHours: audit.Took.Hours() * float64(m.Threads),
		Cores: cores, Workers: workers,
		// In the last turn some workers have no shard.
		Seconds: float64(plan.Rows) / (perCore * float64(cores)) * max(1, float64(turns*int64(workers))/float64(shards)),
		Shards:  int(shards), RowsPerShard: rows, SecondsPerShard: float64(rows) / m.PerSecond(),
		ShardBytes: m.ShardBytes(rows), PartialBytes: m.PartialBytes(rows), PartialFeatures: int64(m.Distinct(rows)),
		BytesToWorkers:    m.ShardBytes(plan.Rows) + m.ModelBytes*int64(workers),
		BytesFromWorkers:  shards * m.PartialBytes(rows),
		CoordinatorMemory: m.SumsBytes() + coordinatorBase,
	}
	f.Seconds += f.AuditCoreHours * 3600 / float64(cores)
	options := j.TaskOptions()
	f.Walks = plan.Rows * int64(options.Walks())
	// The model's file and the model; a shard and its rows; the sums of each
	// thread with an index of the table; the sums of all threads, and encoded.
	threads := int64(m.Threads)
	f.WorkerMemory = workerBase + 2*m.ModelBytes + 3*f.ShardBytes + threads*(m.PartialBytes((rows+threads-1)/threads)+4*int64(j.Architecture.Features())) + 2*f.PartialBytes
	return f
}
