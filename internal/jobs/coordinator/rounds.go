package coordinator

import (
	"io"
	"math"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/paired"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/compare"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// firstHalf holds the sums of the first half of a job's work. The rule job.Overlap
// compares them with the sums of the second half. This is possible after a round for
// which job.Plan.Doubles holds, because all work is then twice that of the first half.
type firstHalf struct {
	rows   int64
	totals []float64 // phi * rows of all entries
}

// size returns the number of rows, or 0 if h is nil.
func (h *firstHalf) size() int64 {
	if h == nil {
		return 0
	}
	return h.rows
}

// halfChunk is the number of sums that are converted at a time.
const halfChunk = 1 << 16

func (h *firstHalf) write(w io.Writer) error {
	bits := make([]int64, min(halfChunk, len(h.totals)))
	for from := 0; from < len(h.totals); from += len(bits) {
		part := h.totals[from:min(from+len(bits), len(h.totals))]
		for i, v := range part {
			bits[i] = int64(math.Float64bits(v))
		}
		if err := tallyio.WriteInts(w, bits[:len(part)]); err != nil {
			return err
		}
	}
	return nil
}

func readFirstHalf(r io.Reader, rows int64, entries int) (*firstHalf, error) {
	h := &firstHalf{rows, make([]float64, entries)}
	bits := make([]int64, min(halfChunk, entries))
	for from := 0; from < entries; from += len(bits) {
		part := h.totals[from:min(from+len(bits), entries)]
		if err := tallyio.ReadInts(r, bits[:len(part)]); err != nil {
			return nil, err
		}
		for i := range part {
			part[i] = math.Float64frombits(uint64(bits[i]))
			if math.IsNaN(part[i]) || math.IsInf(part[i], 0) {
				return nil, fault.Inputf("%v among the sums of its first half", part[i])
			}
		}
	}
	return h, nil
}

// rounds decides after each round of a job whether the job goes on. It also converts sums
// over several passes to values and counts of rows, and the sums of a paired job to its
// estimate. For all other jobs it leaves them as they are.
type rounds struct {
	job      *prepare.Job
	sums     *sums
	stopped  *scores.Stopped  // how the job ended, after the last call of judge; nil without Until
	estimate *paired.Estimate // of a finished paired job, after the call of result; otherwise nil
	trend    []bus.Round      // what the rounds so far found, for people
}

// keepFirstHalf runs before each merge. At the first shard of a new round the sums are
// those of all earlier rounds. With the rule job.Overlap and in a paired job keepFirstHalf
// may keep a copy of them as the first half. This depends only on what is merged, so a new
// coordinator makes the same decision. An empty half is not kept. A half is empty if there
// are so few rows that the first portion has none, or if all its rows are quarantined.
func (r *rounds) keepFirstHalf(shard int) {
	until, plan, rows := r.job.Spec.Until, &r.job.Plan, r.sums.accumulator.Rows()
	if r.job.Previous == nil && (until == nil || until.Rule != job.Overlap) {
		return
	}
	before := plan.RoundOf(r.sums.shards)
	now, _, _ := plan.Locate(shard)
	if rows == 0 || now <= before || before > 0 && !plan.Doubles(before) {
		return
	}
	if r.job.Previous != nil {
		r.sums.half = nil // frees its memory
		r.sums.half = r.sums.accumulator.Clone()
	} else {
		r.sums.firstHalf = &firstHalf{rows, r.totals()}
	}
}

// newEstimate returns the estimate of a paired job from what is merged. There must be rows.
func (r *rounds) newEstimate() *paired.Estimate {
	var half paired.Sums
	if r.sums.half != nil {
		half = r.sums.half
	}
	return paired.New(r.sums.accumulator, half, r.job.Sampling(), r.job.Previous)
}

// totals returns phi * rows of all entries. An entry that does not occur in the
// second half has exactly the same total before and after it.
func (r *rounds) totals() []float64 {
	shape := r.job.Layout().Shape()
	totals := make([]float64, shape.Entries())
	for f := range shape.Rows() {
		from, to := shape.Row(f)
		r.sums.accumulator.Totals(f, r.job.Sampling(), totals[from:to])
	}
	return totals
}

// judge reports whether the job goes on after the given round. elapsed is the time for
// which the job was led, in seconds. If the job ends, judge sets r.stopped.
func (r *rounds) judge(round int, elapsed float64, log *zap.Logger) (more bool) {
	until, plan := r.job.Spec.Until, &r.job.Plan
	last := round == len(plan.Rounds)-1
	if until == nil { // a paired job that computes its whole sample
		return !last
	}
	s := &scores.Stopped{Rounds: round + 1, Passes: plan.Passes(round), Reason: scores.AllDone}
	if r.job.Previous != nil {
		s.Passes = r.job.Spec.Passes
	}
	figure, judged := r.figure(round)
	r.note(round, figure, judged)
	fields := []zap.Field{zap.Int("round", round+1), zap.Int64("rows", r.sums.accumulator.Rows())}
	if judged {
		s.Figure = &figure
		fields = append(fields, zap.Float64(until.Rule, figure), zap.Float64("bound", until.Bound))
	}
	switch {
	case judged && ruleMet(until, figure):
		s.Reason, s.Converged = scores.RuleMet, true
	case last:
		s.Converged = until.Rule == ""
	case r.timeOver(round, elapsed):
		s.Reason = scores.TimeOver
	default:
		log.Info("round done", fields...)
		return true
	}
	r.stopped = s
	log.Info("last round done", append(fields, zap.String("reason", s.Reason))...)
	return false
}

// note adds what a round found to the trend. Rounds that are unknown, because another coordinator
// led the job and its progress is lost, have no rows.
func (r *rounds) note(round int, figure float64, judged bool) {
	for len(r.trend) < round {
		r.trend = append(r.trend, bus.Round{})
	}
	found := bus.Round{Rows: r.sums.mergedRows()}
	if judged && !math.IsNaN(figure) && !math.IsInf(figure, 0) { // JSON has no others
		found.Figure = &figure
	}
	r.trend = append(r.trend[:round:round], found)
}

// figure returns the number that the rule compares with its bound. judged is false if
// there are no rows, or if the rule is not defined after this round.
func (r *rounds) figure(round int) (figure float64, judged bool) {
	until, plan := r.job.Spec.Until, &r.job.Plan
	if r.sums.accumulator.Rows() == 0 {
		return 0, false
	}
	if r.job.Previous != nil {
		return r.pairedFigure()
	}
	switch half := r.sums.firstHalf; {
	case until.Rule == job.Paper && round >= plan.Portions()-1:
		return r.relativeError()
	case until.Rule == job.Error:
		return r.meanError(plan.Passes(round))
	case until.Rule == job.Overlap && plan.Doubles(round) && half != nil:
		second := r.totals()
		for i := range second {
			second[i] -= half.totals[i]
		}
		return compare.Overlap(half.totals, second, r.job.Layout().Prunable(), until.Sparsity), true
	}
	return 0, false
}

// ruleMet reports whether figure is on the right side of the bound.
func ruleMet(until *job.Until, figure float64) bool {
	if until.Rule == job.Overlap {
		return figure > until.Bound
	}
	return figure < until.Bound
}

// pairedFigure is figure for a paired job. Its rules need two halves of the work, because
// without them nothing is known about the coefficients.
func (r *rounds) pairedFigure() (figure float64, judged bool) {
	if r.sums.half == nil || r.sums.half.Rows() == r.sums.accumulator.Rows() {
		return 0, false
	}
	estimate := r.newEstimate()
	switch until := r.job.Spec.Until; until.Rule {
	case job.Error:
		return estimate.Lineage(r.job.Spec.Model).Error, true
	case job.Overlap:
		shape := r.job.Layout().Shape()
		a, b := make([]float64, shape.Entries()), make([]float64, shape.Entries())
		for f := range shape.Rows() {
			from, to := shape.Row(f)
			if !estimate.Halves(f, a[from:to], b[from:to]) {
				return 0, false
			}
		}
		return compare.Overlap(a, b, r.job.Layout().Prunable(), until.Sparsity), true
	}
	return 0, false
}

// meanError returns the root mean square of the standard errors divided by that of the
// values, after the given number of passes. It is not defined if all values are 0.
func (r *rounds) meanError(passes int) (figure float64, defined bool) {
	var phi2, se2 float64
	shape := r.job.Layout().Shape()
	all := tally.Values{Phi: make([]float64, shape.Widest()), SE: make([]float32, shape.Widest())}
	for f := range shape.Rows() {
		from, to := shape.Row(f)
		v := tally.Values{Phi: all.Phi[:to-from], SE: all.SE[:to-from]}
		r.valuesAfter(passes, f, v)
		for c, phi := range v.Phi {
			phi2 += float64(phi * phi)
			se2 += float64(float64(v.SE[c]) * float64(v.SE[c]))
		}
	}
	return math.Sqrt(se2 / phi2), phi2 > 0
}

// relativeError returns the largest standard error divided by the range of the
// values. It is not defined if the range is 0. scores.Summary computes the same figure
// from a scores file; here the values are not in memory.
func (r *rounds) relativeError() (figure float64, defined bool) {
	least, most, worst := math.Inf(1), math.Inf(-1), float32(0)
	shape := r.job.Layout().Shape()
	all := tally.Values{Phi: make([]float64, shape.Widest()), SE: make([]float32, shape.Widest())}
	for f := range shape.Rows() {
		from, to := shape.Row(f)
		v := tally.Values{Phi: all.Phi[:to-from], SE: all.SE[:to-from]}
		r.sums.accumulator.Values(f, r.job.Sampling(), v)
		for c, phi := range v.Phi {
			least, most, worst = min(least, phi), max(most, phi), max(worst, v.SE[c])
		}
	}
	return float64(worst) / (most - least), most > least
}

// timeOver reports whether, at the rate so far, the next round would end after the
// job's time is over. It returns false for a job without rows, which has no rate yet.
func (r *rounds) timeOver(round int, elapsed float64) bool {
	until, rows := r.job.Spec.Until, r.sums.mergedRows()
	if until == nil || until.Seconds == 0 || rows == 0 {
		return false
	}
	perRow := elapsed / float64(rows)
	return elapsed+float64(perRow*float64(r.job.Plan.Rounds[round+1].Rows)) > until.Seconds
}

// values writes the values and errors of a feature of the finished job into the slices that
// are not nil.
func (r *rounds) values(feature int, into tally.Values) {
	switch {
	case r.estimate != nil:
		r.estimate.Values(feature, into)
	case r.stopped != nil:
		r.valuesAfter(r.stopped.Passes, feature, into)
	default:
		r.valuesAfter(1, feature, into)
	}
}

// valuesAfter writes the values and errors of a feature after the given number of passes,
// for a job that is not paired.
//
// The sums of a job with Until count a row once for each pass, as if each pass had
// other rows. For the value of the dataset's own rows, the standard error is therefore
// an upper bound. The rows of a sample, however, are drawn once, whatever the number of
// passes, so the error of a sample is that of one pass.
func (r *rounds) valuesAfter(passes, feature int, into tally.Values) {
	r.sums.accumulator.Values(feature, r.job.Sampling(), into)
	if passes == 1 {
		return
	}
	root := float32(math.Sqrt(float64(passes)))
	sampled := r.job.Sample.Keep < r.job.Sample.Rows
	for c := range into.PopulationSE {
		into.PopulationSE[c] *= root
		if sampled {
			into.SE[c] *= root
		}
	}
}

// result returns the result of the finished job without its values, and the lineage of a
// paired job. sampled is the result of the sums.
func (r *rounds) result(sampled *tally.Result) (tally.Result, *scores.Lineage) {
	if r.job.Previous == nil {
		return *sampled, nil
	}
	r.estimate = r.newEstimate()
	return r.estimate.Result(sampled), r.estimate.Lineage(r.job.Spec.Model)
}

// countRowsOnce divides the counts of f by the number of passes, so that each row
// counts once. A row that lacks a pass counts as missing. In a paired job each row counts
// once already.
func (r *rounds) countRowsOnce(f *scores.File) {
	if r.stopped == nil || r.stopped.Passes == 1 || r.job.Previous != nil {
		return
	}
	passes := int64(r.stopped.Passes)
	f.Rows, f.Weight = f.Rows/passes, f.Weight/passes
	f.Walked = (f.Walked + passes - 1) / passes
	f.QuarantinedRows = (f.QuarantinedRows + passes - 1) / passes
	count := make([]int64, len(f.Count))
	for i, n := range f.Count {
		count[i] = n / passes
	}
	f.Count = count
}
