package coordinator

import (
	"context"
	"io"
	"math"
	"time"

	"go.uber.org/zap"

	"shaver/internal/compare"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/scores"
	"shaver/internal/tally"
)

// half is the sums of the first half of a job's work, which the rule job.Overlap
// holds against the second: the sums of a round that job.Plan.Doubles are then
// half of those before.
type half struct {
	rows int64
	sums []float64 // phi * rows, [n, d]
}

func (h *half) size() int64 {
	if h == nil {
		return 0
	}
	return h.rows
}

func (h *half) write(w io.Writer) error {
	bits := make([]int64, min(step, len(h.sums)))
	for from := 0; from < len(h.sums); from += len(bits) {
		part := h.sums[from:min(from+len(bits), len(h.sums))]
		for i, v := range part {
			bits[i] = int64(math.Float64bits(v))
		}
		if err := writeInts(w, bits[:len(part)]); err != nil {
			return err
		}
	}
	return nil
}

func readHalf(r io.Reader, rows int64, entries int) (*half, error) {
	h := &half{rows, make([]float64, entries)}
	bits := make([]int64, min(step, entries))
	for from := 0; from < entries; from += len(bits) {
		part := h.sums[from:min(from+len(bits), entries)]
		if err := readInts(r, bits[:len(part)]); err != nil {
			return nil, err
		}
		for i := range part {
			part[i] = math.Float64frombits(uint64(bits[i]))
			if math.IsNaN(part[i]) || math.IsInf(part[i], 0) {
				return nil, fault.Inputf("the checkpoint has %v among the sums of its first half", part[i])
			}
		}
	}
	return h, nil
}

// turn is called before a shard is merged. The first of a round finds the sums of
// the rounds before, of which the rule may want to keep some: so what is kept
// follows from what is merged, for whoever leads. No row is no half: the first
// portion of very few rows may be empty, or all of it in quarantine.
func (r *run) turn(shard int) {
	if r.Until == nil || r.Until.Rule != job.Overlap {
		return
	}
	before := r.plan.RoundOf(r.shards)
	now, _, _ := r.plan.Locate(shard)
	if r.sums.Rows() > 0 && now > before && (before == 0 || r.plan.Doubles(before)) {
		r.half = &half{r.sums.Rows(), r.totals()}
	}
}

// totals returns phi * rows of all entries. What did not occur since has the same
// total: none at all in the second half.
func (r *run) totals() []float64 {
	dim := r.arch.Dim
	totals := make([]float64, r.arch.Features()*dim)
	for f := range r.arch.Features() {
		r.sums.Totals(f, r.estimate(), totals[f*dim:(f+1)*dim])
	}
	return totals
}

// judge decides whether the job goes on after a round.
func (r *run) judge(ctx context.Context, round int) (end job.Action, err error) {
	s := &scores.Stopped{Rounds: round + 1, Passes: r.plan.Passes(round), Reason: scores.AllDone}
	last := round == len(r.plan.Rounds)-1
	figure, judged := r.figure(round)
	fields := []zap.Field{zap.Int("round", round+1), zap.Int64("rows", r.sums.Rows())}
	if judged {
		s.Figure = &figure
		fields = append(fields, zap.Float64(r.Until.Rule, figure), zap.Float64("bound", r.Until.Bound))
	}
	switch {
	case judged && r.met(figure):
		s.Reason, s.Converged = scores.RuleMet, true
	case last:
		s.Converged = r.Until.Rule == ""
	case r.late(round):
		s.Reason = scores.TimeOver
	default:
		r.log.Info("round done", fields...)
		return r.step(ctx, job.Judged{More: true})
	}
	r.stopped = s
	r.log.Info("last round done", append(fields, zap.String("reason", s.Reason))...)
	return r.step(ctx, job.Judged{})
}

// figure returns what the rule looks at, if it does so after the round.
func (r *run) figure(round int) (figure float64, judged bool) {
	if r.sums.Rows() == 0 {
		return 0, false
	}
	switch {
	case r.Until.Rule == job.Paper && round >= r.plan.Portions()-1:
		return r.spread()
	case r.Until.Rule == job.Overlap && r.plan.Doubles(round) && r.half != nil:
		second := r.totals()
		for i := range second {
			second[i] -= r.half.sums[i]
		}
		return compare.Overlap(r.half.sums, second, r.Until.Sparsity), true
	}
	return 0, false
}

func (r *run) met(figure float64) bool {
	if r.Until.Rule == job.Paper {
		return figure < r.Until.Bound
	}
	return figure > r.Until.Bound
}

// spread returns the largest standard error relative to the range of the values, if
// that is not 0.
func (r *run) spread() (float64, bool) {
	least, most, worst := math.Inf(1), math.Inf(-1), float32(0)
	v := tally.Values{Phi: make([]float64, r.arch.Dim), SE: make([]float32, r.arch.Dim)}
	for f := range r.arch.Features() {
		r.sums.Values(f, r.estimate(), v)
		for c, phi := range v.Phi {
			least, most, worst = min(least, phi), max(most, phi), max(worst, v.SE[c])
		}
	}
	return float64(worst) / (most - least), most > least
}

// late reports whether the round after the given one would end after the time that
// the job has, by the rate so far: no row has none, and is no end of a job.
func (r *run) late(round int) bool {
	if r.Until.Seconds == 0 || r.sums.Rows() == 0 {
		return false
	}
	elapsed := r.elapsed()
	perRow := elapsed / float64(r.sums.Rows())
	return elapsed+float64(perRow*float64(r.plan.Rounds[round+1].Rows)) > r.Until.Seconds
}

// elapsed returns for how many seconds the job was led, by whomever.
func (r *run) elapsed() float64 { return r.seconds + time.Since(r.pace.saved).Seconds() }

// values writes what is told of a feature. The sums of a job with Until count a row
// again in each pass, as if it were another row. For the rows' own value that gives
// an upper bound of the standard error. But where the rows are a sample they are
// drawn once, whatever the passes, and the bound is that of one pass.
func (r *run) values(feature int, into tally.Values) {
	r.sums.Values(feature, r.estimate(), into)
	if r.stopped == nil || r.stopped.Passes == 1 {
		return
	}
	root := float32(math.Sqrt(float64(r.stopped.Passes)))
	for c := range into.PopulationSE {
		into.PopulationSE[c] *= root
		if r.sample.Keep < r.sample.Rows {
			into.SE[c] *= root
		}
	}
}

// perPass has each row count once that f's sums count in each pass. A row that lacks
// a pass is missing.
func (r *run) perPass(f *scores.File) {
	if r.stopped == nil || r.stopped.Passes == 1 {
		return
	}
	passes := int64(r.stopped.Passes)
	f.Rows /= passes
	f.QuarantinedRows = (f.QuarantinedRows + passes - 1) / passes
	count := make([]int64, len(f.Count))
	for i, n := range f.Count {
		count[i] = n / passes
	}
	f.Count = count
}
