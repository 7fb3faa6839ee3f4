package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"shaver/internal/arrowio"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/shapley"
	"shaver/internal/shard"
	"shaver/internal/tally"
)

// Estimate is what a job will cost, measured on a sample of its rows by the
// kernel of this machine.
type Estimate struct {
	Spec    job.Spec
	Plan    job.Plan
	Players int // of a row

	SampleRows     int64         // that were computed
	SampleTook     time.Duration // on all Threads
	SampleFeatures int           // that occur in them; 0 = it did not get that far
	Threads        int

	AuditRows int64         // of both samples of the audit; 0 = there is none
	AuditTook time.Duration // that the audit will take on all Threads

	ModelBytes int64 // of its file
	Features   int   // of the table
	Dim        int

	lists       int   // of a partial's sums
	allRows     int64 // of the splits
	scored      int64 // of them
	rowBytes    float64
	partialHead int64
	capacity    float64 // rows that a partial has room for; 0 = not known
	occurrences []job.Occurrence
}

// PerSecond returns rows a second on all Threads.
func (e *Estimate) PerSecond() float64 { return float64(e.SampleRows) / e.SampleTook.Seconds() }

// ShardBytes returns the size of a shard of so many rows, at what a row takes in
// a shard that was encoded.
func (e *Estimate) ShardBytes(rows int64) int64 { return int64(e.rowBytes * float64(rows)) }

// Distinct returns how many features a shard of so many rows is expected to have,
// by how often each occurs in the dataset; see job.Distinct.
func (e *Estimate) Distinct(rows int64) float64 { return job.Distinct(e.occurrences, e.allRows, rows) }

// PartialBytes returns the expected size of the partial of so many rows: an id,
// a count, and some sums a column for each feature, uncompressed, and what a
// partial that was encoded had beside them.
func (e *Estimate) PartialBytes(rows int64) int64 {
	return e.partialHead + int64(e.Distinct(rows)*float64(12+e.sumsBytes()))
}

// SumsBytes returns the memory of the coordinator's sums, with the two halves that a
// rule may compare.
func (e *Estimate) SumsBytes() int64 {
	feature := 8 + e.sumsBytes()
	if u := e.Spec.Until; u != nil && u.Rule == job.Overlap {
		feature += 16 * e.Dim
	}
	return int64(e.Features) * int64(feature)
}

// sumsBytes returns the bytes of a feature's sums.
func (e *Estimate) sumsBytes() int { return 8 * e.lists * e.Dim }

// maxSampleRows bounds what is read and computed to measure.
const maxSampleRows = 1 << 16

// Measure measures what the job would cost, in about the given time, twice that with an
// audit, and plans it as Run would with workers of so many threads. It sends and stores
// nothing.
func Measure(ctx context.Context, c Config, threads int, within time.Duration) (*Estimate, error) {
	r, err := newRun(nil, &c)
	if err != nil {
		return nil, err
	}
	e, err := r.measure(ctx, threads, within)
	if err != nil {
		return nil, err
	}
	if c.RowsPerShard == 0 {
		r.plan.RowsPerShard = e.sizing().RowsPerShard()
	}
	e.Plan = r.plan
	if c.Audit > 0 {
		err = e.measureAudit(ctx, &c, within/2)
	}
	return e, err
}

// measureAudit measures its estimators, but for the job's own.
func (e *Estimate) measureAudit(ctx context.Context, c *Config, within time.Duration) error {
	perRow := 1 / e.PerSecond()
	for _, estimator := range []int{byWalks, otherwise} {
		sub := c.auditJob(estimator, 0, float64(e.scored)/float64(e.allRows))
		r, err := newRun(nil, &sub)
		if err != nil {
			return err
		}
		measured, err := r.measure(ctx, e.Threads, within)
		if err != nil {
			return err
		}
		perRow += 1 / measured.PerSecond()
		e.AuditRows = 2 * r.sample.Keep
	}
	e.AuditTook = time.Duration(float64(e.AuditRows) * perRow * float64(time.Second))
	return nil
}

func (e *Estimate) sizing() *job.Sizing {
	return &job.Sizing{Rows: e.scored, PerSecond: e.PerSecond(), PartialBytes: e.PartialBytes, Capacity: e.capacity}
}

// chooseWithin is how long a job may be delayed to choose the size of its shards.
const chooseWithin = 500 * time.Millisecond

// choose sets the rows a shard, if nobody did: by measuring, as if workers were
// like this machine. A small job is not measured, one that is stored keeps its
// plan.
func (r *run) choose(ctx context.Context) error {
	size := job.Sizing{Rows: r.sample.Keep}
	if r.RowsPerShard > 0 || size.Sized() {
		return nil
	}
	if open, err := r.bus.IsOpen(ctx, r.id); err != nil || open {
		return err
	}
	e, err := r.measure(ctx, runtime.GOMAXPROCS(0), chooseWithin)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // a bad row, say, which is one shard's trouble and not the job's
		r.log.Warn("cannot measure how fast rows are computed", zap.Error(err))
		r.plan.RowsPerShard = min(r.plan.RowsPerShard, 4096)
		return nil
	}
	r.plan.RowsPerShard = e.sizing().RowsPerShard()
	r.log.Debug("measured", zap.Float64("rows/s", e.PerSecond()), zap.Int64("rows a shard", r.plan.RowsPerShard))
	return nil
}

func (r *run) measure(ctx context.Context, threads int, within time.Duration) (*Estimate, error) {
	rows, err := r.firstRows(ctx)
	if err != nil {
		return nil, err
	}
	e := &Estimate{Spec: r.spec, Plan: r.plan, Players: r.model.Players(), Threads: threads, allRows: r.sample.Rows, scored: r.sample.Keep,
		ModelBytes: r.checkpoint.Size(), Features: r.model.Features(), Dim: r.model.Dim, lists: tally.Lists(r.within())}
	if e.occurrences, err = r.occurrences(); err != nil {
		return nil, err
	}
	encoded, err := shard.Encode(r.Dataset.Fields(), r.model.FieldDims, rows)
	if err != nil {
		return nil, err
	}
	e.rowBytes = float64(len(encoded)) / float64(rows.Len())
	begun := time.Now()
	// Goroutines take 24 rows at a time: fewer would not occupy them.
	for n := min(rows.Len(), 24*threads); ; {
		part := rows.Slice(0, n)
		partial, err := e.compute(ctx, r, &part, within-time.Since(begun))
		if errors.Is(err, tally.ErrOverflow) && e.capacity > 0 { // how fast rows are computed is known all the same
			return e, nil
		}
		if err != nil {
			return nil, err
		}
		left := (within - time.Since(begun)).Seconds()
		more := min(rows.Len(), int(0.9*left*e.PerSecond()))
		if partial != nil {
			if err := e.weigh(partial); err != nil {
				return nil, err
			}
		}
		if partial == nil || more <= 2*n {
			return e, nil
		}
		n = more
	}
}

// compute plays the games of the rows until the time is up, though at least one,
// and notes how fast. The partial is nil if it did not get to the end.
func (e *Estimate) compute(ctx context.Context, r *run, rows *model.Rows, within time.Duration) (*tally.Partial, error) {
	timed, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	begun := time.Now()
	partial, err := shapley.Estimate(timed, shapley.Game{Model: r.model, Baseline: r.baseline}, shapley.Options{Options: r.Options, Seed: r.Seed}, rows, e.Threads, func(n int) {
		done.Add(int64(n))
		if time.Since(begun) > within {
			stop()
		}
	})
	e.SampleRows, e.SampleTook = done.Load(), max(time.Since(begun), time.Microsecond)
	if err != nil && (ctx.Err() != nil || timed.Err() == nil) {
		return nil, cmp.Or(ctx.Err(), err)
	}
	return partial, nil
}

// weigh notes what a partial takes, and has room for.
func (e *Estimate) weigh(partial *tally.Partial) error {
	var encoded bytes.Buffer
	if err := arrowio.EncodePartial(&encoded, partial); err != nil {
		return err
	}
	e.SampleFeatures, e.capacity = len(partial.Features), partial.Capacity()
	e.partialHead = max(0, int64(encoded.Len())-int64(len(partial.Features)*(12+e.sumsBytes())))
	return nil
}

// firstRows returns the first rows of the splits.
func (r *run) firstRows(ctx context.Context) (*model.Rows, error) {
	enough := errors.New("enough")
	all := &model.Rows{Fields: len(r.model.FieldDims)}
	err := r.Dataset.Scan(ctx, r.Splits, 4096, func(rows *model.Rows) error {
		all.Number = append(all.Number, rows.Number...)
		all.Label = append(all.Label, rows.Label...)
		all.Features = append(all.Features, rows.Features...)
		if all.Len() >= min(maxSampleRows, int(r.sample.Keep)) {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	return all, nil
}

// occurrences returns how often the splits' features occur.
func (r *run) occurrences() ([]job.Occurrence, error) {
	counts, err := r.Dataset.Frequencies(r.Splits...)
	if err != nil {
		return nil, err
	}
	slices.Sort(counts)
	var all []job.Occurrence
	for _, count := range counts {
		if n := len(all); n > 0 && all[n-1].Times == count {
			all[n-1].Features++
		} else {
			all = append(all, job.Occurrence{Times: count, Features: 1})
		}
	}
	return all, nil
}
