package forecast

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/path"
)

// measured returns a measurement of 1000 rows, computed in the given time on four
// threads. The job has 100,000 rows in shards of 10,000, and two passes.
func measured(took time.Duration) *Measurement {
	return &Measurement{
		Job: &prepare.Job{
			ID:   "id",
			Spec: job.Spec{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: 2}, Kernel: "k"},
			Plan: job.Plan{Rows: 100_000, RowsPerShard: 10_000}, Sample: shard.NewSample(200_000, .5, 1),
			Architecture: model.Architecture{FieldDims: []int{60, 40}, Dim: 8},
		},
		ModelBytes: 5000, Rows: 1000, Took: took, Threads: 4, Features: 90,
		rowBytes: 20, occurrences: []widthOccurrences{{8, []job.Occurrence{{Times: 4000, Features: 100}}}},
	}
}

// Partials and sums are as large as the tables are wide.
func TestBytesOfLookUps(t *testing.T) {
	m := measured(time.Second)
	m.Job.Architecture = model.Architecture{FieldDims: []int{60, 40}, Tables: []model.Table{{Name: "a", Rows: 60, Dim: 8}, {Name: "b", Rows: 40, Dim: 2}}, LookUps: []model.LookUp{{}, {Field: 1, Table: 1}}}
	m.occurrences = []widthOccurrences{{2, []job.Occurrence{{Times: 4000, Features: 40}}}, {8, []job.Occurrence{{Times: 4000, Features: 60}}}}
	want := int64(partialHead + 60*(featureBytes+4*(1+8*8)) + 40*(featureBytes+4*(1+8*2)))
	if got := m.PartialBytes(10_000); got < want-2 || got > want {
		t.Errorf("partials of %d bytes, expected %d", got, want)
	}
	if got, want := m.SumsBytes(), int64(60*(8+4*8*8)+40*(8+4*8*2)); got != want {
		t.Errorf("sums of %d bytes, expected %d", got, want)
	}
}

// A forecast scales the measurement to the rows of the job and the given cores.
func TestOf(t *testing.T) {
	f := Of(measured(time.Second), Audit{}, 8)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: %v, expected %v", what, got, want)
		}
	}
	near("rows a second and core", f.RowsPerCore, 250)
	near("core-hours", f.CoreHours, 400./3600)
	near("seconds", f.Seconds, 50+partialByte*float64(f.BytesFromWorkers)/8)
	near("seconds a shard", f.SecondsPerShard, 10)
	if f.Job != "id" || f.Kernel != "k" || f.Rows != 100_000 || f.Players != 16 || f.Walks != 400_000 || f.Shards != 10 || f.Workers != 2 || f.Cores != 8 {
		t.Errorf("%+v", f)
	}
	// Every feature occurs in 2% of the rows, and so in every shard. For each feature,
	// a partial has four lists of 8 sums, because two passes have variances within rows.
	partial := int64(partialHead + 100*(featureBytes+4*(1+8*8)))
	if f.ShardBytes != 200_000 || f.PartialFeatures != 99 && f.PartialFeatures != 100 || f.PartialBytes < partial-2 || f.PartialBytes > partial {
		t.Errorf("shards of %d bytes, partials of %d bytes with %d features, expected %d", f.ShardBytes, f.PartialBytes, f.PartialFeatures, partial)
	}
	all := measured(time.Second).sumsMemory(50_000) // of a partial of five shards
	if all < 99*(12+4*8*8) || all > 100*(12+4*8*8) {
		t.Errorf("the sums of five shards take %d bytes", all)
	}
	if f.BytesToWorkers != 2_000_000+2*5000 || f.ShardsPerPartial != 5 || f.BytesFromWorkers != 2*f.PartialBytes || f.CoordinatorMemory != withGarbage(100*(8+4*8*8)+f.PartialBytes+all) {
		t.Errorf("%+v", f)
	}
}

// Slower rows take longer, and a worker adds up fewer shards within its minute. Everything else is
// the same.
func TestSlowAndFast(t *testing.T) {
	slow, fast := Of(measured(10*time.Second), Audit{}, 8), Of(measured(time.Second), Audit{}, 8)
	if math.Abs(slow.Seconds-10*fast.Seconds) > 1e-2 || math.Abs(slow.CoreHours-10*fast.CoreHours) > 1e-9 {
		t.Errorf("%v and %v seconds", slow.Seconds, fast.Seconds)
	}
	if slow.ShardsPerPartial != 1 || slow.BytesFromWorkers != 10*slow.PartialBytes || slow.Blobs != 10 || fast.Blobs != 2 || slow.WorkerMemory >= fast.WorkerMemory {
		t.Errorf("%d slow shards for each partial, %d bytes and %d blobs from workers, and %d fast blobs", slow.ShardsPerPartial, slow.BytesFromWorkers, slow.Blobs, fast.Blobs)
	}
	slow.ShardsPerPartial, slow.BytesFromWorkers, slow.Blobs, slow.WorkerMemory = fast.ShardsPerPartial, fast.BytesFromWorkers, fast.Blobs, fast.WorkerMemory
	slow.Measured, slow.Seconds, slow.CoreHours, slow.RowsPerCore, slow.SecondsPerShard = fast.Measured, fast.Seconds, fast.CoreHours, fast.RowsPerCore, fast.SecondsPerShard
	if !reflect.DeepEqual(slow, fast) {
		t.Errorf("%+v and %+v", slow, fast)
	}
	// 10 shards on 4 workers take 3 turns. In the last turn only half of the workers
	// have a shard.
	if f := Of(measured(time.Second), Audit{}, 16); math.Abs(f.Seconds-25*12./10) > 1e-3 {
		t.Errorf("%v seconds on 16 cores", f.Seconds)
	}
}

// The server passes on all partials, however many cores the workers have.
func TestPartialsBoundTime(t *testing.T) {
	m := measured(time.Second)
	m.occurrences = []widthOccurrences{{1 << 20, []job.Occurrence{{Times: 4000, Features: 100}}}}
	few, many := Of(m, Audit{}, 8), Of(m, Audit{}, 4000)
	merging := partialByte * float64(many.BytesFromWorkers)
	if merging < 50 || math.Abs(many.Seconds-merging/2) > 1e-9*merging || few.Seconds < 50+merging/16 {
		t.Errorf("%v seconds on many cores and %v on few, and the partials take %v", many.Seconds, few.Seconds, merging)
	}
}

// A measurement is slow if the threads did not get the processors. A short one and one with
// more threads than processors do not show this.
func TestBusy(t *testing.T) {
	for _, c := range []struct {
		took, cpu           time.Duration
		threads, processors int
		share               float64
		busy                bool
	}{
		{4 * time.Second, 16 * time.Second, 4, 8, 1, false},
		{4 * time.Second, 15 * time.Second, 4, 8, .9375, false},
		{4 * time.Second, 8 * time.Second, 4, 8, .5, true},
		{4 * time.Second, 8 * time.Second, 4, 2, 1, false},
		{400 * time.Millisecond, 800 * time.Millisecond, 4, 4, .5, false},
	} {
		m := &Measurement{Took: c.took, CPU: c.cpu, Threads: c.threads}
		s := Sample{Seconds: c.took.Seconds(), Share: m.Share(c.processors)}
		if math.Abs(s.Share-c.share) > 1e-9 || s.Busy() != c.busy {
			t.Errorf("%+v: %+v, busy %t", c, s, s.Busy())
		}
	}
}

// Time in which other programs used the processors does not count, unless the measurement was too
// short to know it. Threads that waited for a processor do not count either.
func TestSpeed(t *testing.T) {
	for _, c := range []struct {
		took, cpu time.Duration
		speed     float64
	}{
		{4 * time.Second, 0, 250},
		{4 * time.Second, 16 * time.Second, 250},
		{4 * time.Second, 17 * time.Second, 250}, // the garbage collector ran on other processors
		{4 * time.Second, 4 * time.Second, 1000},
		{400 * time.Millisecond, 400 * time.Millisecond, 2500},
	} {
		m := &Measurement{Rows: 1000, Took: c.took, CPU: c.cpu, Threads: 4}
		if got := m.Speed(); math.Abs(got-c.speed) > 1e-9*c.speed {
			t.Errorf("%v, %v of processor time: %v rows/s, expected %v", c.took, c.cpu, got, c.speed)
		}
	}
}

// A path has a partial for each shard of each round. A later round has fewer features left. Its
// shards have the rows of the round, not those of the plan. Each round reads all rows.
func TestOfPath(t *testing.T) {
	m := measured(time.Second)
	m.Job.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1}
	m.Job.Plan = job.Plan{Rows: 120_000, RowsPerShard: 10_000, Rounds: []job.Round{{Rows: 80_000, Take: 2, Parts: 4}, {Rows: 40_000, Part: 2, Take: 1, Parts: 4}}}
	m.occurrences = []widthOccurrences{{8, []job.Occurrence{{Times: 1, Features: 20}, {Times: 4000, Features: 80}}}}
	f := Of(m, Audit{}, 8)
	if want := (120_000/f.RowsPerCore + 2*2*800*entryTables) / 3600; math.Abs(f.CoreHours-want) > 1e-12 {
		t.Errorf("%v core-hours, expected %v with the tables of 800 entries of two workers in two rounds", f.CoreHours, want)
	}
	const passed = .05 // seconds for the messages of a round in one process
	calibrates := float64(path.CalibrationRows(m.Job.Sample.Keep)) / 3 / m.Speed()
	if one, want := Of(m, Audit{}, 4), (16*5000+10*4096)/m.Speed()+2*(passed+800*(entryBarrier+entryTables)+calibrates); math.Abs(one.Seconds-want) > 1e-9 {
		t.Errorf("one worker takes %v s, expected %v", one.Seconds, want)
	}
	m.reading = 1e-3
	if slow := Of(m, Audit{}, 8); math.Abs(slow.CoreHours-f.CoreHours-2*200./3600) > 1e-9 || math.Abs(slow.Seconds-f.Seconds-2*200./2) > 1e-9 {
		t.Errorf("reading 2 times 200,000 rows, each in 1 ms, adds %v core-hours and %v s with two workers", slow.CoreHours-f.CoreHours, slow.Seconds-f.Seconds)
	}
	// 16 shards of 5000 rows, and 10 of 4096 or what is left, without the 20 rare features
	frequent := []widthOccurrences{{8, []job.Occurrence{{Times: 4000, Features: 80}}}}
	want := 16*m.PartialBytes(5000) + 10*m.partialBytes(frequent, 4096)
	if f.RowsPerShard != 5000 || f.Shards != 26 || f.ShardsPerPartial != 1 || f.PartialBytes != m.PartialBytes(5000) || f.BytesFromWorkers != want {
		t.Errorf("%+v, expected %d bytes from workers", f, want)
	}
}

// The rounds of a path that add measure more entries than the last ones that drop.
func TestBytesOfAdditions(t *testing.T) {
	m := measured(time.Second)
	m.Job.Architecture = model.Architecture{FieldDims: []int{60_000, 40_000}, Dim: 8}
	m.Job.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Sparsity: .999}
	m.Job.Spec.Adds = true
	m.occurrences = []widthOccurrences{{8, []job.Occurrence{{Times: 4000, Features: 100_000}}}}
	drops, adds := path.Rounds(&m.Job.Architecture, .999)
	rounds := func(n int) int64 {
		m.Job.Plan.Rounds = slices.Repeat([]job.Round{{Rows: 4000, Take: 1, Parts: 25}}, n)
		return m.roundsBytes()
	}
	few := []widthOccurrences{{8, []job.Occurrence{{Times: 4000, Features: 3900}}}}
	if got, want := rounds(drops+adds)-rounds(drops), int64(adds)*m.partialBytes(few, 4000); adds == 0 || got != want {
		t.Errorf("%d bytes of %d rounds that add, expected %d", got, adds, want)
	}
}

// A worker stores its sums when their memory is large, even if its minute is not over.
func TestOfLargeSums(t *testing.T) {
	m := measured(time.Second)
	m.Job.Plan = job.Plan{Rows: 3_200_000, RowsPerShard: 1000}
	if f := Of(m, Audit{}, 8); f.ShardsPerPartial != job.MostCombined {
		t.Errorf("%d shards for each partial of small sums", f.ShardsPerPartial)
	}
	m.occurrences = []widthOccurrences{{8, []job.Occurrence{{Times: 20, Features: 5_000_000}}}}
	f := Of(m, Audit{}, 8)
	if n := int64(f.ShardsPerPartial); n < 2 || n >= job.MostCombined || m.sumsMemory(1000*(n-1)) >= job.FullBytes || m.sumsMemory(1000*n) < job.FullBytes {
		t.Errorf("%d shards for each partial, whose sums take %d bytes", n, m.sumsMemory(1000*n))
	}
}

// A worker holds a model and its file, and then the model, a shard, its sums and those of the shards
// before. In a path it also holds the tables of a round.
func TestWorkerMemory(t *testing.T) {
	m := measured(time.Second)
	one, all := m.sumsMemory(10_000), m.sumsMemory(50_000)
	computes := 4*(m.sumsMemory(2500)+4*100) + one
	for shards, want := range map[int64]int64{1: computes, 5: computes + all} {
		if got := m.workerMemory(10_000, shards); got != withGarbage(5000+3*m.ShardBytes(10_000)+want) {
			t.Errorf("%d shards: %d bytes, expected those of %d", shards, got, want)
		}
	}
	m.Threads = 1 // then what is stored of the sums counts, which takes more memory here because it is not packed
	if got := m.workerMemory(10_000, 1); got != withGarbage(5000+3*m.ShardBytes(10_000)+one+2*m.PartialBytes(10_000)) {
		t.Errorf("one thread: %d bytes", got)
	}
	m.Job.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1}
	few, more := *m, *m
	more.ModelBytes = 6000
	if got := more.workerMemory(10_000, 1) - few.workerMemory(10_000, 1); got != 2200 {
		t.Errorf("a thousand bytes more of the model add %d bytes, expected 2200", got)
	}
	few.Job.Spec.Adds = true // also that of more
	if got := more.workerMemory(10_000, 1) - few.workerMemory(10_000, 1); got != 3300 {
		t.Errorf("a thousand bytes more of the model add %d bytes to a path that adds, expected 3300", got)
	}
	more.ModelBytes = 1 << 40
	if got := more.workerMemory(10_000, 1); got < withGarbage(2<<40) {
		t.Errorf("%d bytes with a large model", got)
	}
}

// The total time includes the audit. CoreHours does not.
func TestOfAudit(t *testing.T) {
	plain, audited := Of(measured(time.Second), Audit{}, 8), Of(measured(time.Second), Audit{Rows: 50, Took: time.Minute}, 8)
	if audited.AuditRows != 50 || math.Abs(audited.AuditCoreHours-4./60) > 1e-9 || audited.CoreHours != plain.CoreHours || math.Abs(audited.Seconds-plain.Seconds-30) > 1e-9 {
		t.Errorf("%+v", audited)
	}
}

// New takes the plan from the request, or chooses the size of shards itself. It
// measures the audit's other estimators, and forecasts for the audit's number of rows.
func TestNew(t *testing.T) {
	r, _ := preparetest.Request(t)
	c := Config{Cores: 2, Threads: 1, Within: 100 * time.Millisecond, Log: zap.NewNop()}
	f, err := New(t.Context(), r, c)
	if err != nil {
		t.Fatal(err)
	}
	if f.Rows != 300 || f.RowsPerShard != 25 || f.Shards != 12 || f.Walks != 900 {
		t.Errorf("%+v", f)
	}
	r.RowsPerShard = 0
	r.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	r.Options.SetDefaults()
	r.Audit, r.MaxRows = .5, 100
	f, err = New(t.Context(), r, c)
	if err != nil {
		t.Fatal(err)
	}
	alone := 50 / f.RowsPerCore / 3600
	if f.RowsPerShard != 7 || f.Shards != 15 || f.Walks != 0 || f.AuditRows != 50 || f.AuditCoreHours <= alone {
		t.Errorf("%+v; the job's estimator alone takes %v core-hours for the audit", f, alone)
	}
	if spec, err := prepare.Spec(r); err != nil || f.Job != spec.ID() {
		t.Errorf("job %s, expected %v, %v", f.Job, spec, err)
	}
}

// With ranges, a merger needs its part of the sums and of partials, and the coordinator needs the
// model instead of the sums. Ranges have about equal numbers of entries, so small features
// concentrate in some of them, whose partials are larger.
func TestRanges(t *testing.T) {
	r, _ := preparetest.Request(t)
	r.Ranges = 3
	f, err := New(t.Context(), r, Config{Cores: 2, Threads: 1, Within: 100 * time.Millisecond, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	m, err := Measure(t.Context(), p, 1, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	features, sums := int64(0), int64(0)
	for _, r := range m.ranges {
		sums += int64(m.allSums(&r.shape))
		for _, w := range r.occurrences {
			for _, o := range w.occurrences {
				features += o.Features
			}
		}
	}
	if shape := p.Architecture.Shape(); len(m.ranges) != 3 || features != int64(shape.Rows()) || sums != m.SumsBytes() {
		t.Errorf("%d ranges with %d features and sums of %d bytes, expected 3, %d and %d", len(m.ranges), features, sums, shape.Rows(), m.SumsBytes())
	}
	least := withGarbage(sums / 3)
	if f.Ranges != 3 || f.Blobs != 3*((int64(f.Shards)+int64(f.ShardsPerPartial)-1)/int64(f.ShardsPerPartial)) || f.MergerMemory < least || f.MergerMemory > least+1<<20 || f.CoordinatorMemory != withGarbage(2*m.ModelBytes) {
		t.Errorf("%+v", f)
	}
}

// The memory of a merger of TestHugeTable in package merger was at most 1694 MiB. Each partial had
// a fortieth of the features of a range.
func TestMergerMemory(t *testing.T) {
	m := measured(time.Second)
	m.Job.Spec.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	shape := layout.Of(62_500_000/16, 16)
	m.ranges = []featureRange{{shape, []widthOccurrences{{16, []job.Occurrence{{Times: 1, Features: int64(shape.Rows())}}}}}}
	if got := m.MergerMemory(m.Job.Sample.Rows/40) >> 20; got < 1694 || got > 1694*11/10 {
		t.Errorf("%d MiB, expected 1694 to a tenth more", got)
	}
}
