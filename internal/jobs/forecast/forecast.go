// Package forecast estimates the cost of a job. It measures a few of the job's rows on
// this machine.
package forecast

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sort"
	"time"

	"go.uber.org/zap"

	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/value/mask"
	"shaver/internal/value/path"
)

// Forecast is the estimated cost of a job on a number of cores. Bytes are the sizes of
// blobs. Tasks and results add about a kilobyte for each shard.
type Forecast struct {
	Job               string  `json:"job"`
	Kernel            string  `json:"kernel"`
	Kernels           []Rate  `json:"kernels,omitempty"` // rates of the kernels among which Kernel was chosen; nil = no measurement
	Rows              int64   `json:"rows"`              // rows to compute, at most; with rounds, a row counts once for each pass
	Rounds            int     `json:"rounds,omitempty"`  // largest number of rounds, of a job that may end after each
	Walks             int64   `json:"walks"`             // 0 for estimators without walks
	Players           int     `json:"players"`           // players of a row; in models with lists, the largest number
	Measured          Sample  `json:"measured"`
	RowsPerCore       float64 `json:"rows_per_core_second"`
	CoreHours         float64 `json:"core_hours"`
	AuditRows         int64   `json:"audit_rows,omitempty"`       // rows that each of the audit's estimators computes
	AuditCoreHours    float64 `json:"audit_core_hours,omitempty"` // core-hours of the audit, which CoreHours does not include
	Cores             int     `json:"cores"`
	Workers           int     `json:"workers"` // workers with Measured.Threads threads each
	Seconds           float64 `json:"seconds"` // time of the job and its audit on these cores, which the server and the coordinator share
	Shards            int     `json:"shards"`
	RowsPerShard      int64   `json:"rows_per_shard"`
	SecondsPerShard   float64 `json:"seconds_per_shard"` // time that one worker needs
	ShardBytes        int64   `json:"shard_bytes"`
	ShardsPerPartial  int     `json:"shards_per_partial"` // shards that a worker adds up before it stores their partial
	PartialBytes      int64   `json:"partial_bytes"`      // of these shards
	PartialFeatures   int64   `json:"partial_features"`   // features that these shards have if rows are in random order
	Ranges            int     `json:"ranges,omitempty"`   // ranges of features whose sums mergers keep
	Blobs             int64   `json:"blobs"`              // blobs of all partials
	BytesToWorkers    int64   `json:"bytes_to_workers"`   // shards, and the model once for each worker
	BytesFromWorkers  int64   `json:"bytes_from_workers"`
	WorkerMemory      int64   `json:"worker_memory"`
	CoordinatorMemory int64   `json:"coordinator_memory"`
	MergerMemory      int64   `json:"merger_memory,omitempty"` // of the merger that needs most
}

// Sample describes the rows that were measured.
type Sample struct {
	Rows     int64   `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Threads  int     `json:"threads"`
	Share    float64 `json:"share"`             // portion of its time in which a thread ran; small if other programs used the machine
	Features int     `json:"features"`          // features that occur in these rows; 0 = there was no time to count them
	Expected int64   `json:"features_expected"` // features that these rows have if rows are in random order
}

// Busy reports whether other programs slowed the measurement down. A measurement of less
// than half a second is too short to judge.
func (s *Sample) Busy() bool { return s.Seconds >= longEnough.Seconds() && s.Share < 0.85 }

// Audit is the estimated cost of an audit.
type Audit struct {
	Rows int64         // rows that each of its estimators computes; 0 = no audit
	Took time.Duration // time for all estimators on the measured threads
}

// Config says on what hardware the job will run, and how long to measure.
type Config struct {
	Cores   int           // cores of all workers together
	Threads int           // threads of one worker; the measurement uses as many on this machine
	Within  time.Duration // time for measuring the job; measuring its audit takes as long again
	Log     *zap.Logger
}

// New measures the job that r asks for and returns its forecast. The plan is the one
// that a coordinator would choose for workers with c.Threads.
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

// measureAudit measures the audit's reference. It takes the speed of the job's own
// estimator from m.
func measureAudit(ctx context.Context, r prepare.Request, c Config, m *Measurement) (a Audit, err error) {
	requests := r.AuditRequests(float64(m.Job.Sample.Keep) / float64(m.Job.Sample.Rows))
	p, err := prepare.New(requests[prepare.ByFlips][0], c.Log)
	if err != nil {
		return Audit{}, err
	}
	measured, err := Measure(ctx, p, c.Threads, c.Within)
	if err != nil {
		return Audit{}, err
	}
	a.Rows = 2 * p.Sample.Keep
	a.Took = time.Duration(float64(a.Rows) * (1/m.Speed() + 1/measured.Speed()) * float64(time.Second))
	return a, nil
}

// processBase is the memory that a process needs regardless of the job.
const processBase = 48 << 20

// collected is the number of bytes in use for each byte of garbage at which the garbage collector
// of a process runs.
const collected = 10

// holdFor is the time in seconds for which a worker adds up tasks by default.
const holdFor = 60

// The time in seconds between two rounds of a path: that of the messages, which is shorter in one
// process, and for each entry of the tables, that in which the coordinator adds up and chooses, and that
// in which a worker makes the tables of the round.
const (
	barrier      = 0.3
	localBarrier = 0.05
	entryBarrier = 100e-9
	entryTables  = 7e-9
)

// partialByte is the processor time in seconds in which a server stores a byte of a partial and the coordinator adds it
// up, with checkpoints. Each takes about half. They run on the cores of the workers, and no job ends before the
// server has passed on all partials.
const partialByte = 16e-9

// pathSeconds returns the time of a path. All workers wait for the last shard of a round, and then for
// the coordinator, which cuts and calibrates. Forward evaluations take a third of the time of a row.
func (m *Measurement) pathSeconds(workers int) (seconds float64) {
	plan, messages := &m.Job.Plan, barrier
	if workers == 1 {
		messages = localBarrier
	}
	for round := range plan.Rounds {
		shards, perShard := plan.ShardsOf(round)
		turns := (shards + workers - 1) / workers
		seconds += float64(int64(turns)*perShard)/m.Speed() + messages + (entryBarrier+entryTables)*float64(m.Job.Architecture.Parameters()) + float64(path.CalibrationRows(m.Job.Sample.Keep))/3/m.Speed()
	}
	return seconds
}

// mostRows returns the number of rows of the largest shard of a plan.
func mostRows(plan *job.Plan) (rows int64) {
	if len(plan.Rounds) == 0 {
		return plan.RowsPerShard
	}
	for round := range plan.Rounds {
		_, perShard := plan.ShardsOf(round)
		rows = max(rows, perShard)
	}
	return rows
}

// roundsBytes returns the bytes of all partials of a job with rounds. Those of a path leave out the
// sums of the entries that a round does not measure, which are taken to be those of the rarest features.
func (m *Measurement) roundsBytes() (bytes int64) {
	plan, left, drops := &m.Job.Plan, 1.0, math.MaxInt
	if m.Job.Spec.Adds {
		drops, _ = path.Rounds(&m.Job.Architecture, m.Job.Spec.Sparsity)
	}
	for round := range plan.Rounds {
		shards, perShard := plan.ShardsOf(round)
		bytes += int64(shards) * m.partialBytes(mostFrequent(m.occurrences, left), perShard)
		if m.Job.Spec.Traits().Ranks {
			left *= 1 - 1./mask.PathCut
		}
		if round+1 >= drops {
			left = path.MostAdded
		}
	}
	return bytes
}

// mostFrequent returns the given portion of the features: those that occur most often.
func mostFrequent(features []widthOccurrences, portion float64) (all []widthOccurrences) {
	if portion == 1 {
		return features
	}
	for _, w := range features {
		total := 0.0
		for _, o := range w.occurrences {
			total += float64(o.Features)
		}
		left, kept := int64(portion*total), widthOccurrences{dim: w.dim}
		for _, o := range slices.Backward(w.occurrences) { // ascending by Times
			o.Features = min(o.Features, left)
			left -= o.Features
			kept.occurrences = append(kept.occurrences, o)
		}
		all = append(all, kept)
	}
	return all
}

// Of returns the forecast of the measured job and its audit on the given number of
// cores.
func Of(m *Measurement, audit Audit, cores int) *Forecast {
	j := m.Job
	plan, rows := j.Plan, mostRows(&j.Plan)
	perCore := m.Speed() / float64(m.Threads)
	shards, workers := int64(plan.Shards()), (cores+m.Threads-1)/m.Threads
	turns := (shards + int64(workers) - 1) / int64(workers) // number of shards of the busiest worker
	seconds := float64(rows) / m.Speed()                    // for a shard
	combined := int64(1)                                    // shards of one partial
	if plan.Combines() {
		combined = min(job.MostCombined, turns, max(1, int64(math.Ceil(holdFor/seconds))))
		over := sort.Search(int(combined-1), func(n int) bool { return m.sumsMemory(int64(n+1)*rows) >= job.FullBytes })
		combined = int64(over) + 1
	}
	together := min(rows*combined, plan.Rows)
	f := &Forecast{
		Job: j.ID, Kernel: j.Spec.Kernel, Rows: plan.Rows, Rounds: len(plan.Rounds), Players: j.Players(),
		Measured:    Sample{Rows: m.Rows, Seconds: m.Took.Seconds(), Threads: m.Threads, Share: m.Share(runtime.GOMAXPROCS(0)), Features: m.Features, Expected: int64(m.Distinct(m.Rows))},
		RowsPerCore: perCore, CoreHours: float64(plan.Rows) / perCore / 3600,
		AuditRows: audit.Rows, AuditCoreHours: audit.Took.Hours() * float64(m.Threads),
		Cores: cores, Workers: workers,
		// In the last turn some workers have no shard to compute.
		Seconds: float64(plan.Rows) / (perCore * float64(cores)) * max(1, float64(turns*int64(workers))/float64(shards)),
		Shards:  int(shards), RowsPerShard: rows, SecondsPerShard: seconds,
		ShardBytes: m.ShardBytes(rows), ShardsPerPartial: int(combined), PartialBytes: m.PartialBytes(together), PartialFeatures: int64(m.Distinct(together)),
		BytesToWorkers: m.ShardBytes(plan.Rows) + m.ModelBytes*int64(workers),
		Ranges:         plan.Ranges, MergerMemory: m.MergerMemory(together),
	}
	partials := (shards + combined - 1) / combined
	f.Blobs = partials * int64(max(1, plan.Ranges))
	f.BytesFromWorkers = partials*f.PartialBytes + (f.Blobs-partials)*partialHead
	if !plan.Combines() {
		f.BytesFromWorkers = m.roundsBytes()
	}
	if j.Spec.Traits().Ranks {
		f.Seconds = m.pathSeconds(workers)
		f.CoreHours += entryTables * float64(j.Architecture.Parameters()*len(plan.Rounds)*workers) / 3600
	}
	if !j.Spec.Traits().Ranks {
		merging := partialByte * float64(f.BytesFromWorkers)
		f.Seconds = max(f.Seconds+merging/float64(cores), merging/2)
	}
	// Each round of a job reads all rows of the splits, also those that it does not compute. A
	// worker reads on one core.
	reading := m.reading * float64(j.Sample.Rows) * float64(max(1, len(plan.Rounds)))
	f.CoreHours += reading / 3600
	f.Seconds += reading/float64(workers) + f.AuditCoreHours*3600/float64(cores)
	f.CoordinatorMemory, f.WorkerMemory = m.coordinatorMemory(together), m.workerMemory(rows, combined)
	f.Walks = plan.Rows * int64(j.Spec.TaskOptions().Walks())
	if j.Spec.Previous != nil {
		f.Walks *= 2
	}
	return f
}

// coordinatorMemory returns the memory of the coordinator, if partials have the given number of rows.
// First it holds the model and its file. Then it has the sums, and a partial as stored and as
// decoded. With ranges, mergers have these, and it has the counts of the features and, in a path, the ranks and the model.
func (m *Measurement) coordinatorMemory(rows int64) int64 {
	later := m.SumsBytes() + m.PartialBytes(rows) + m.sumsMemory(rows)
	if m.Job.Plan.Ranges > 0 {
		shape := m.Job.Layout().Shape()
		later = 8 * int64(shape.Rows())
		if m.Job.Spec.Traits().Ranks { // as in SumsBytes, without the terms
			later += 2*rankBytes*int64(shape.Entries()) + m.ModelBytes // at its end it has the ranks twice
		}
	}
	return withGarbage(max(2*m.ModelBytes, later))
}

// workerMemory returns the memory of a worker that adds up the given number of shards with the
// given number of rows each. First it holds the model and its file. Then it has the model, and for a
// path also the tables of a round, and in a round that adds those with what it measures; a shard and its rows; and what the largest of three steps needs.
// While it computes it has for each thread its sums and an index of the tables, the sums of all threads,
// and those of earlier shards. When it adds up it has the sums of a shard, and those of the others
// with and without it. When it stores sums it also has what is stored of them, in a buffer that grows.
func (m *Measurement) workerMemory(rows, shards int64) int64 {
	threads, models := int64(m.Threads), m.ModelBytes
	if m.Job.Spec.Traits().Ranks {
		models *= 2
	}
	if m.Job.Spec.Adds {
		models += m.ModelBytes
	}
	shape, together := m.Job.Layout().Shape(), min(rows*shards, m.Job.Plan.Rows)
	one, all := m.sumsMemory(rows), m.sumsMemory(together)
	computes := threads*(m.sumsMemory((rows+threads-1)/threads)+4*int64(shape.Rows())) + one
	stores := all + 2*m.PartialBytes(together)
	if shards > 1 {
		computes = max(computes+all, one+2*all)
	}
	return withGarbage(max(2*m.ModelBytes, models+3*m.ShardBytes(rows)+max(computes, stores)))
}

// withGarbage returns the memory of a process with the given number of bytes in use.
func withGarbage(used int64) int64 { return processBase + used + used/collected }
