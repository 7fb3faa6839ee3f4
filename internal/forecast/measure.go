package forecast

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"shaver/internal/arrowio"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/prepare"
	"shaver/internal/shapley"
	"shaver/internal/shard"
	"shaver/internal/tally"
)

// Measurement is how fast this machine computed some rows of a job, and how much
// space the rows and their sums took.
type Measurement struct {
	Job        *prepare.Job
	ModelBytes int64 // size of the model's file

	Rows     int64         // rows that were computed
	Took     time.Duration // time for them on all Threads
	Threads  int
	Features int // features that occur in the rows; 0 = the time did not suffice to count them

	rowBytes    float64 // bytes of a row in a shard
	partialHead int64   // bytes of a partial besides its features
	capacity    float64 // rows that a partial has room for; 0 = not known
	occurrences []job.Occurrence
}

// maxSampleRows bounds what is read and computed to measure.
const maxSampleRows = 1 << 16

// Measure computes some of the job's first rows, at least one, on the given number
// of threads, in about the given time. It sends and stores nothing.
func Measure(ctx context.Context, p *prepare.Prepared, threads int, within time.Duration) (*Measurement, error) {
	rows, err := firstRows(ctx, p.Job)
	if err != nil {
		return nil, err
	}
	m := &Measurement{Job: p.Job, ModelBytes: p.Checkpoint.Size(), Threads: threads}
	if m.occurrences, err = occurrences(p.Job); err != nil {
		return nil, err
	}
	encoded, err := shard.Encode(p.Dataset.Fields(), p.Architecture.FieldDims, rows)
	if err != nil {
		return nil, err
	}
	m.rowBytes = float64(len(encoded)) / float64(rows.Len())
	begun := time.Now()
	// Goroutines take 24 rows at a time, so fewer would not occupy them.
	for n := min(rows.Len(), 24*threads); ; {
		part := rows.Slice(0, n)
		partial, err := m.compute(ctx, p, &part, within-time.Since(begun))
		if errors.Is(err, tally.ErrOverflow) && m.capacity > 0 { // the speed is known nevertheless
			return m, nil
		}
		if err != nil {
			return nil, err
		}
		left := (within - time.Since(begun)).Seconds()
		more := min(rows.Len(), int(0.9*left*m.PerSecond()))
		if partial != nil {
			if err := m.weigh(partial); err != nil {
				return nil, err
			}
		}
		if partial == nil || more <= 2*n {
			return m, nil
		}
		n = more
	}
}

// PerSecond returns rows a second on all Threads.
func (m *Measurement) PerSecond() float64 { return float64(m.Rows) / m.Took.Seconds() }

// RowsPerShard returns how many rows a shard should have for workers like this
// machine with as many threads as were measured.
func (m *Measurement) RowsPerShard() int64 {
	s := job.Sizing{Rows: m.Job.Sample.Keep, PerSecond: m.PerSecond(), PartialBytes: m.PartialBytes, Capacity: m.capacity}
	return s.RowsPerShard()
}

// ShardBytes returns the size of a shard of the given number of rows. It assumes
// that every row takes what the measured rows took.
func (m *Measurement) ShardBytes(rows int64) int64 { return int64(m.rowBytes * float64(rows)) }

// Distinct returns the expected number of features in a shard of the given number
// of rows, from how often each occurs in the dataset; see job.Distinct.
func (m *Measurement) Distinct(rows int64) float64 {
	return job.Distinct(m.occurrences, m.Job.Sample.Rows, rows)
}

// PartialBytes returns the expected size of the partial of the given number of
// rows. A feature takes an id, a count and its sums, uncompressed. The rest takes
// what it took in a measured partial.
func (m *Measurement) PartialBytes(rows int64) int64 {
	return m.partialHead + int64(m.Distinct(rows)*float64(12+m.sumsBytes()))
}

// SumsBytes returns the memory that the coordinator's sums take, with the two
// halves that job.Overlap compares.
func (m *Measurement) SumsBytes() int64 {
	feature := 8 + m.sumsBytes()
	if u := m.Job.Spec.Until; u != nil && u.Rule == job.Overlap {
		feature += 16 * m.Job.Architecture.Dim
	}
	return int64(m.Job.Architecture.Features()) * int64(feature)
}

// sumsBytes returns the bytes of a feature's sums.
func (m *Measurement) sumsBytes() int {
	return 8 * tally.Lists(m.Job.Sampling().Within()) * m.Job.Architecture.Dim
}

// compute plays the games of the rows until the time is up, but of at least one
// row, and notes the speed. The partial is nil if the time was too short for all rows.
func (m *Measurement) compute(ctx context.Context, p *prepare.Prepared, rows *model.Rows, within time.Duration) (*tally.Partial, error) {
	timed, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	begun := time.Now()
	partial, err := shapley.Estimate(timed, shapley.Game{Model: p.Model, Baseline: p.Baseline}, p.TaskOptions(), rows, m.Threads, func(n int) {
		done.Add(int64(n))
		if time.Since(begun) > within {
			stop()
		}
	})
	m.Rows, m.Took = done.Load(), max(time.Since(begun), time.Microsecond)
	if err != nil && (ctx.Err() != nil || timed.Err() == nil) {
		return nil, cmp.Or(ctx.Err(), err)
	}
	return partial, nil
}

// weigh notes how many features and bytes a partial has, and how many rows it has
// room for.
func (m *Measurement) weigh(partial *tally.Partial) error {
	var encoded bytes.Buffer
	if err := arrowio.EncodePartial(&encoded, partial); err != nil {
		return err
	}
	m.Features, m.capacity = len(partial.Features), partial.Capacity()
	m.partialHead = max(0, int64(encoded.Len())-int64(len(partial.Features)*(12+m.sumsBytes())))
	return nil
}

// firstRows returns the first rows of the job's splits.
func firstRows(ctx context.Context, j *prepare.Job) (*model.Rows, error) {
	enough := errors.New("enough")
	all := &model.Rows{Fields: j.Architecture.Fields()}
	err := j.Scan(ctx, func(rows *model.Rows) error {
		all.Number = append(all.Number, rows.Number...)
		all.Label = append(all.Label, rows.Label...)
		all.Features = append(all.Features, rows.Features...)
		if all.Len() >= min(maxSampleRows, int(j.Sample.Keep)) {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	return all, nil
}

// occurrences returns how often the features of the job's splits occur.
func occurrences(j *prepare.Job) ([]job.Occurrence, error) {
	counts, err := j.Dataset.Frequencies(j.Spec.Splits...)
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
