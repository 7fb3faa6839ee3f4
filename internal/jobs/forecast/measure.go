package forecast

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"shaver/internal/base/cputime"
	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/layout"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// Measurement says how fast this machine computed some rows of a job, and how much
// space the rows and their sums took.
type Measurement struct {
	Job        *prepare.Job
	ModelBytes int64 // size of the model's file; in a paired job, of both models' files

	Rows     int64         // rows that were computed
	Took     time.Duration // time to compute Rows on all Threads
	CPU      time.Duration // processor time that this process used meanwhile
	Threads  int
	Features int           // features that occur in the rows; 0 = there was no time to count them
	Result   *tally.Result // of the first rows, without values; nil if there was no time, and for a path

	rowBytes    float64 // bytes of a row in a shard
	reading     float64 // seconds in which a core reads a row of the dataset
	bits        float64 // bits of a contribution, averaged over features; 0 = unknown
	occurrences []widthOccurrences
	ranges      []featureRange // ranges of the plan, whose sums mergers keep; nil = the coordinator keeps all sums
}

// featureRange is a range of the features of a job.
type featureRange struct {
	shape       layout.Shape
	occurrences []widthOccurrences
}

// widthOccurrences says how often the features with a number of entries occur. In a model
// with look-ups, a feature is a row of a table.
type widthOccurrences struct {
	dim         int // number of entries of each feature
	occurrences []job.Occurrence
}

// maxSampleRows bounds the rows that are read and computed to measure.
const maxSampleRows = 1 << 16

// Measure computes the first rows of the job on the given number of threads. It takes
// about the given time, but computes at least one row. It sends and stores nothing.
func Measure(ctx context.Context, p *prepare.Prepared, threads int, within time.Duration) (*Measurement, error) {
	begun, used := time.Now(), cputime.Process()
	rows, err := firstRows(ctx, p.Job, maxSampleRows)
	if err != nil {
		return nil, err
	}
	m := &Measurement{Job: p.Job, ModelBytes: p.Source.Size(), Threads: threads}
	m.reading = min(time.Since(begun), cputime.Process()-used).Seconds() / float64(max(1, rows.Len()))
	if e := p.Earlier; e != nil && e.Source != p.Source {
		m.ModelBytes += e.Source.Size()
	}
	if err := m.count(); err != nil {
		return nil, err
	}
	encoded, err := shard.Encode(p.Dataset.Form(), rows)
	if err != nil {
		return nil, err
	}
	m.rowBytes = float64(len(encoded)) / float64(rows.Len())
	game, err := p.Game(ctx) // of all rows, so its time is not that of the rows below
	if err != nil {
		return nil, err
	}
	begun = time.Now()
	// A goroutine takes 24 rows at a time, so fewer rows would leave some idle.
	for n := min(rows.Len(), 24*threads); ; {
		part := rows.Slice(0, n)
		partial, err := m.compute(ctx, p, game, &part, within-time.Since(begun))
		if err != nil {
			return nil, err
		}
		left := (within - time.Since(begun)).Seconds()
		more := min(rows.Len(), int(0.9*left*m.PerSecond()))
		m.weigh(partial)
		if partial == nil || more <= 2*n {
			return m, nil
		}
		n = more
	}
}

// PerSecond returns the rows computed per second on all Threads.
func (m *Measurement) PerSecond() float64 { return float64(m.Rows) / m.Took.Seconds() }

// Speed is PerSecond without the time in which other programs used the processors. A measurement
// of less than half a second is too short to tell them apart.
func (m *Measurement) Speed() float64 {
	busy := m.Took.Seconds() * float64(m.Threads)
	if used := m.CPU.Seconds(); used > 0 && m.Took >= longEnough {
		busy = min(busy, used)
	}
	return float64(m.Rows) * float64(m.Threads) / busy
}

// longEnough is the shortest time of a measurement whose processor time is exact enough.
const longEnough = time.Second / 2

// Share returns the portion of its time in which a thread ran on the given number of
// processors. It is small if other programs used them.
func (m *Measurement) Share(processors int) float64 {
	return min(1, m.CPU.Seconds()/m.Took.Seconds()/float64(min(m.Threads, processors)))
}

// RowsPerShard returns how many rows a shard should have. It assumes that workers have
// Threads threads as fast as this machine's.
func (m *Measurement) RowsPerShard() int64 {
	s := job.Sizing{Rows: m.Job.Sample.Keep, PerSecond: m.PerSecond(), PartialBytes: m.PartialBytes, Columns: m.Job.Architecture.Columns()}
	return s.RowsPerShard()
}

// ShardBytes returns the size of a shard with the given number of rows. It assumes that
// rows take as many bytes on average as the measured ones.
func (m *Measurement) ShardBytes(rows int64) int64 { return int64(m.rowBytes * float64(rows)) }

// Distinct returns the expected number of features in a shard with the given number of
// rows. It is computed from how often each feature occurs in the dataset; see
// job.Distinct.
func (m *Measurement) Distinct(rows int64) float64 {
	found := 0.0
	for _, w := range m.occurrences {
		found += job.Distinct(w.occurrences, m.Job.Sample.Rows, rows)
	}
	return found
}

// partialHead is about the size of a partial without features.
const partialHead = 1 << 10

// PartialBytes returns the expected size of the partial of the given number of rows, as it is
// packed. It takes the numbers of rows in which a feature occurs as Poisson distributed.
func (m *Measurement) PartialBytes(rows int64) int64 { return m.partialBytes(m.occurrences, rows) }

// partialBytes is PartialBytes for features with the given occurrences.
func (m *Measurement) partialBytes(features []widthOccurrences, rows int64) int64 {
	bytes := float64(partialHead)
	share := float64(rows) / float64(m.Job.Sample.Rows)
	for _, w := range features {
		for _, o := range w.occurrences {
			mean := float64(o.Times) * share
			none := math.Exp(-mean)
			once, more := mean*none, 1-none-mean*none
			found := once * m.recordBytes(w.dim, 1)
			if more > 1e-9 {
				found += more * m.recordBytes(w.dim, (mean-once)/more)
			}
			bytes += float64(o.Features) * found
		}
	}
	return int64(bytes)
}

// featureBytes is the size of a feature in a partial, without the numbers of its sums: its id,
// its count, and the offset of its record.
const featureBytes = 16

// recordBytes returns the expected size in a partial of a feature with dim entries that occurs in
// the given number of rows. The sums of n contributions take log2(n) bits more than one. The unit
// of squares makes that of a contribution of b bits take 2b-28 bits. If a feature occurs in one
// row, absolute values and squares are not stored.
func (m *Measurement) recordBytes(dim int, rows float64) float64 {
	lists := float64(m.lists())
	if m.bits == 0 {
		return featureBytes + lists*float64(1+8*dim)
	}
	numbers := m.bits + max(0, lists-3)*m.bits
	if rows > 1 {
		numbers += m.bits + max(0, 2*m.bits-28) + lists*math.Log2(rows)
	}
	return featureBytes + lists + numbers*float64(dim)/8
}

// sumsMemory returns the expected memory of the sums of the given number of rows, and of their ids
// and counts.
func (m *Measurement) sumsMemory(rows int64) int64 { return m.memoryOf(m.occurrences, rows) }

// memoryOf is sumsMemory for features with the given occurrences.
func (m *Measurement) memoryOf(features []widthOccurrences, rows int64) int64 {
	bytes := 0.0
	for _, w := range features {
		bytes += job.Distinct(w.occurrences, m.Job.Sample.Rows, rows) * float64(12+m.sumsBytes(w.dim))
	}
	return int64(bytes)
}

// SumsBytes returns the memory that the coordinator's sums take. With the rule
// job.Overlap this includes the two halves that the rule compares. In a paired job it
// includes the sums of the first half of the rows, and the previous values. For a path it includes
// the ranks and its model.
func (m *Measurement) SumsBytes() int64 {
	shape := m.Job.Layout().Shape()
	bytes := m.allSums(&shape)
	if u := m.Job.Spec.Until; u != nil && u.Rule == job.Overlap {
		bytes += 16 * shape.Entries()
	}
	if m.Job.Spec.Previous != nil {
		const valueBytes = 8 + 7*4 // see tally.Values
		bytes = 2*bytes + 8*shape.Rows() + valueBytes*shape.Entries()
	}
	if m.Job.Spec.Traits().Ranks {
		return int64(bytes) + (termBytes-4+rankBytes)*int64(shape.Entries()) + m.ModelBytes // which has the weights
	}
	return int64(bytes)
}

// Bytes of an entry in a path.
const (
	termBytes = 3*4 + 4 // besides its sums: passes, weight and number, and what sorting a quarter of the entries takes
	rankBytes = 4
)

// allSums returns the memory of the sums and counts of all features of a shape.
func (m *Measurement) allSums(shape *layout.Shape) int {
	return 8*shape.Rows() + m.sumsBytes(shape.Entries())
}

// MergerMemory returns the memory of the merger that needs most, if partials have the given number
// of rows, or 0 if the plan has no ranges. A merger keeps the sums of its range, with the other terms of a path, and has a partial
// and the one before it, each as stored and as decoded.
func (m *Measurement) MergerMemory(rows int64) (most int64) {
	for i := range m.ranges {
		r := &m.ranges[i]
		sums := int64(m.allSums(&r.shape))
		if m.Job.Spec.Traits().Ranks {
			sums += termBytes * int64(r.shape.Entries())
		}
		most = max(most, withGarbage(sums)+2*(m.partialBytes(r.occurrences, rows)+m.memoryOf(r.occurrences, rows)))
	}
	return most
}

// sumsBytes returns the number of bytes of the sums of some entries.
func (m *Measurement) sumsBytes(entries int) int { return 8 * m.lists() * entries }

// lists returns the number of lists of sums in a partial.
func (m *Measurement) lists() int {
	return tally.Lists(m.Job.Sampling().Form(m.Job.Architecture.Fields()))
}

// compute computes rows of game until the time is up, and at least one row. It notes the speed.
// It returns nil without an error if there was no time for all rows.
func (m *Measurement) compute(ctx context.Context, p *prepare.Prepared, game shapley.Game, rows *model.Rows, within time.Duration) (*tally.Partial, error) {
	timed, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	begun, used := time.Now(), cputime.Process()
	progress := func(n int) {
		done.Add(int64(n))
		if time.Since(begun) > within {
			stop()
		}
	}
	var partial *tally.Partial
	var err error
	options := shapley.Options{Options: p.Spec.TaskOptions(), Seed: p.Spec.Seed, Weights: p.Spec.Weights()}
	if e := p.Earlier; e != nil {
		partial, err = shapley.EstimatePair(timed, game, shapley.Game{Model: e.Model, Baseline: e.Baseline, Loss: p.Spec.Loss}, options, rows, m.Threads, progress)
	} else {
		partial, err = shapley.Estimate(timed, game, options, rows, m.Threads, progress)
	}
	m.Rows, m.Took, m.CPU = done.Load(), max(time.Since(begun), time.Microsecond), cputime.Process()-used
	if err != nil && (ctx.Err() != nil || timed.Err() == nil) {
		return nil, cmp.Or(ctx.Err(), fault.Inputf("%w", err))
	}
	return partial, nil
}

// weigh notes the number of features of a partial, and the bits of their contributions. If partial is nil, the rows
// were not all computed, and their features are not known; the bits stay those of fewer rows.
func (m *Measurement) weigh(partial *tally.Partial) {
	if m.Features = 0; partial == nil {
		return
	}
	if partial.Dropped == nil {
		m.Result, _ = partial.Summary().Check(m.Job.Sampling()) // a violated identity ends the job later
	}
	m.Features, m.bits = len(partial.Features), 0
	at, total, features := 0, 0, 0
	for i, f := range partial.Features {
		from, to := partial.Shape.Row(int(f))
		sums := partial.Sum[at : at+to-from]
		at += to - from
		if partial.Count[i] > 1 {
			continue
		}
		largest := int64(0)
		for _, v := range sums {
			largest |= v ^ v>>63
		}
		total, features = total+bits.Len64(uint64(largest))+1, features+1
	}
	if features > 0 {
		m.bits = float64(total) / float64(features)
	}
}

// firstRows returns the first rows of the job's splits, about as many as the job scores, or
// most if that is less. A batch of rows is not cut.
func firstRows(ctx context.Context, j *prepare.Job, most int) (*model.Rows, error) {
	enough := errors.New("enough")
	all := &model.Rows{Width: j.Architecture.Width()}
	err := j.Scan(ctx, func(rows *model.Rows) error {
		all.AppendAll(rows)
		if all.Len() >= min(most, int(j.Sample.Keep)) {
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		return nil, err
	}
	return all, nil
}

// count counts how often the rows of the tables occur in the job's splits. A row of data that
// reads a row of the tables more than once counts as often.
func (m *Measurement) count() error {
	shape := m.Job.Layout().Shape()
	var rows []int64
	if !m.Job.Spec.OfFields() {
		counts, err := m.Job.Dataset.Frequencies(m.Job.Spec.Splits...)
		if err != nil {
			return err
		}
		rows = m.Job.Architecture.RowCounts(counts)
	} else {
		rows = slices.Repeat([]int64{m.Job.Sample.Rows}, shape.Rows())
	}
	m.occurrences = occurrences(&shape, rows, 0, shape.Rows())
	if n := m.Job.Plan.Ranges; n > 0 {
		starts := shape.Cut(n)
		for i := range n {
			from, to := starts[i], starts[i+1]
			m.ranges = append(m.ranges, featureRange{shape.Part(from, to), occurrences(&shape, rows, from, to)})
		}
	}
	return nil
}

// occurrences groups the counts of the features [from, to) by their numbers of entries.
func occurrences(shape *layout.Shape, counts []int64, from, to int) (all []widthOccurrences) {
	byDim := map[int][]int64{}
	for _, table := range shape.Tables(from, to) {
		rows, dim := table[0], table[1]
		byDim[dim] = append(byDim[dim], counts[from:from+rows]...)
		from += rows
	}
	for _, dim := range slices.Sorted(maps.Keys(byDim)) {
		all = append(all, widthOccurrences{dim, grouped(byDim[dim])})
	}
	return all
}

// grouped sorts counts and groups those that are equal.
func grouped(counts []int64) []job.Occurrence {
	slices.Sort(counts)
	var all []job.Occurrence
	for _, count := range counts {
		if n := len(all); n > 0 && all[n-1].Times == count {
			all[n-1].Features++
		} else {
			all = append(all, job.Occurrence{Times: count, Features: 1})
		}
	}
	return all
}
