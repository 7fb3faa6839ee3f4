package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

// rounder leads a path from round to round. Between two rounds it drops or adds entries, calibrates the
// tables of the next round, and stores its masks. Its memory is that of the model and the order of the path.
type rounder struct {
	job   *prepare.Job
	model *model.Model
	sums  *sums
	terms terms
	rows  *model.Rows // to which the rounds are calibrated; nil = not read yet
	said  time.Time   // when the last round was logged
}

// sayEvery is the time between two rounds that are logged for people.
const sayEvery = 10 * time.Second

// terms are the G, D and T of all entries: those of this process, or of mergers. Their methods are those of path.Terms.
type terms interface {
	Begin(ctx context.Context, round int, unmeasured layout.Mask, f path.Fade) (fall float64, err error)
	End(ctx context.Context, passes float64) error
	Order(ctx context.Context, r path.Rank) path.Next
	Summary(ctx context.Context) (*tally.Summary, error) // of Sums
	Counts(ctx context.Context) ([]int64, error)         // number of rows in which each feature occurs
}

// own are terms in this process.
type own struct{ *path.Terms }

func (t own) Begin(_ context.Context, round int, unmeasured layout.Mask, f path.Fade) (float64, error) {
	return t.Terms.Begin(round, unmeasured, f), nil
}

func (t own) End(_ context.Context, passes float64) error {
	t.Terms.End(passes)
	return nil
}

func (t own) Order(_ context.Context, r path.Rank) path.Next { return t.Terms.Order(r) }

func (t own) Summary(context.Context) (*tally.Summary, error) { return t.Sums.Summary(), nil }

func (t own) Counts(context.Context) ([]int64, error) { return t.Sums.Counts(), nil }

// newRounder returns the rounder of the job j with the model m, or nil if the job is not a path.
func newRounder(m *model.Model, j *prepare.Job, s *sums) *rounder {
	if s.path == nil {
		return nil
	}
	r := &rounder{job: j, model: m, sums: s, terms: s.ranges, said: time.Now()}
	if s.terms != nil {
		r.terms = own{s.terms}
	}
	return r
}

// over reports whether all rounds are over.
func (r *rounder) over() bool { return len(r.sums.path.Rounds) == len(r.job.Plan.Rounds) }

// begin stores what the tasks of the next round need.
func (r *rounder) begin(ctx context.Context, in *inputs, log *zap.Logger) error {
	dropped := r.sums.path.Mask()
	p, err := r.predict(ctx, dropped)
	if err != nil {
		return err
	}
	least, most := scales(r.sums.path.Rounds, p)
	c := evaluate.CalibrateWithin(p, least, most)
	if len(r.sums.path.Rounds) == 0 { // nothing is dropped yet
		first := scores.Round{Rows: int64(len(p.Logits)), Scale: c.Scale}
		doubt := p.Doubt()
		if doubt != "" {
			log.Warn("the model " + doubt)
		}
		if first.Scaled() || doubt == "" && evaluate.CompareLoss(p, p, loss.Uncalibrated, c).High < -p.MeanLoss(loss.Uncalibrated)/100 {
			log.Info(scores.Uncalibrated(c.Scale, c.Offset))
		}
	}
	rounds, unmeasured := r.sums.path.Rounds, r.sums.path.Unmeasured()
	fall, err := r.terms.Begin(ctx, len(rounds), unmeasured, r.sums.path.Fade())
	if err != nil {
		return err
	}
	if !math.IsNaN(fall) {
		full, err := r.predict(ctx, nil)
		if err != nil {
			return err
		}
		if text := fits(full, p, r.rows, rounds[0].Calibration, fall/float64(rounds[0].Weight)); text != "" {
			log.Warn(text)
		}
	}
	return in.begin(ctx, len(rounds), &masks{dropped, unmeasured, r.sums.path.Adds()}, c)
}

// fits says that the first cut fits the rows; see scores.Fits. full and cut are predictions for the same rows, with
// nothing dropped and after the cut. c is the calibration of the first round, and predicted is as in scores.Fits.
func fits(full, cut *evaluate.Predictions, rows *model.Rows, c loss.Calibration, predicted float64) string {
	n := len(full.Logits)
	if n < 2 || n != len(cut.Logits) || n != rows.Len() { // rows whose logits are not finite are left out
		return ""
	}
	before, sum, weight, square, falls := 0.0, 0.0, 0.0, 0.0, make([]float64, n)
	for i, label := range full.Labels {
		l, w := full.Loss.Of(c.Apply(full.Logits[i]), label), float64(rows.Times(i))
		falls[i] = l - full.Loss.Of(c.Apply(cut.Logits[i]), label)
		before += w * l
		sum += w * falls[i]
		weight += w
	}
	for i, fall := range falls {
		apart := float64(rows.Times(i)) * (fall - sum/weight)
		square += apart * apart
	}
	return scores.Fits(before/weight, sum/weight, math.Sqrt(square*float64(n)/float64(n-1))/weight, predicted)
}

// scales returns the least and the largest scale of the calibration of a round with the predictions p. A table that
// predicts nothing would otherwise stop all terms, and few rows may make it steep. If the logits of the whole model are large,
// least is smaller, and if they are small, most is larger. Their standard deviation says so in the first round, and its scale afterwards.
func scales(rounds []path.Round, p *evaluate.Predictions) (least, most float64) {
	least, most = 0.05, 3
	scale := 1.0
	if len(rounds) > 0 {
		scale = rounds[0].Calibration.Scale
	} else if spread := p.Spread(); spread > 0 {
		scale = 1 / spread
	}
	return least * min(1, scale), most * max(1, scale)
}

// predict returns the predictions to which a round is calibrated: those of the model without the entries that are
// dropped, or of the whole model if dropped is nil. Rows that cannot be computed are left out. Workers report them.
func (r *rounder) predict(ctx context.Context, dropped layout.Mask) (*evaluate.Predictions, error) {
	m := r.model
	if r.rows == nil {
		rows, err := r.job.Calibration(ctx, path.CalibrationRows(r.job.Sample.Keep), m.CheckRow)
		if err != nil {
			return nil, err
		}
		r.rows = rows
	}
	if dropped != nil {
		m = m.Pruned(dropped, r.job.Baseline)
	}
	source := func(_ context.Context, each func(*model.Rows) error) error { return each(r.rows) }
	p, err := evaluate.PredictFinite(ctx, m, r.job.Spec.Loss, source, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, fault.Inputf("%w", err)
	}
	return p, nil
}

// end ends a round, and reports whether all rounds are over.
func (r *rounder) end(ctx context.Context, round int, in *inputs, log *zap.Logger) (over bool, err error) {
	p := r.sums.path
	if len(p.Rounds) > round { // the checkpoint was made after the end of the round
		return r.over(), nil
	}
	sums, err := r.terms.Summary(ctx)
	if err != nil {
		return false, err
	}
	if round == 0 {
		if p.Counts, err = r.terms.Counts(ctx); err != nil {
			return false, err
		}
	}
	if err := r.terms.End(ctx, p.Passes(sums)); err != nil {
		return false, err
	}
	if err := p.End(sums, in.round(round).Calibration, func(by path.Rank) path.Next { return r.terms.Order(ctx, by) }); err != nil {
		return false, err
	}
	r.sums.rows = 0
	last := p.Rounds[round]
	level := zap.DebugLevel
	if time.Since(r.said) >= sayEvery {
		level, r.said = zap.InfoLevel, time.Now()
	}
	log.Log(level, "round done", zap.Int("round", round+1), zap.Int("of", len(r.job.Plan.Rounds)), zap.Int64("rows", last.Rows), zap.Int("entries", last.Kept), zap.Float64("loss", last.Loss))
	return r.over(), nil
}

// trend returns what the rounds that are over found.
func (r *rounder) trend() (rounds []bus.Round) {
	for _, one := range r.sums.path.Rounds {
		round := bus.Round{Rows: one.Rows, Kept: one.Kept}
		if !math.IsNaN(one.Loss) && !math.IsInf(one.Loss, 0) { // JSON has no others
			round.Loss = one.Loss
		}
		rounds = append(rounds, round)
	}
	return rounds
}

// missingRows returns the number of rows that the scores of j lack without the shards. The rounds of a path
// measure the same rows, so that of a path is the largest number that one round lacks.
func missingRows(shards []job.Quarantine, j *prepare.Job) (rows int64) {
	if !j.Spec.Traits().Ranks {
		return rowsOf(shards, &j.Plan)
	}
	of := map[int]int64{}
	for _, q := range shards {
		round, _, _ := j.Plan.Locate(q.Shard)
		of[round] += j.Plan.ShardRows(q.Shard)
		rows = max(rows, of[round])
	}
	return rows
}

// result returns the head of the scores, and the function that writes the ranks of a feature.
func (r *rounder) result(ctx context.Context) (tally.Result, *scores.Path, func(int, tally.Values), error) {
	p, shape := r.sums.path, r.job.Architecture.Shape()
	if _, err := r.terms.Begin(ctx, len(p.Rounds)-1, p.Mask(), path.Fade{}); err != nil {
		return tally.Result{}, nil, nil, err
	}
	ranks, err := p.Ranks(func(by path.Rank) path.Next { return r.terms.Order(ctx, by) })
	if err != nil {
		return tally.Result{}, nil, nil, err
	}
	info := &scores.Path{Reach: p.Reach()}
	for _, round := range p.Rounds {
		info.Rounds = append(info.Rounds, scores.Round{Rows: round.Rows, Kept: int64(round.Kept), Loss: round.Loss, Scale: round.Calibration.Scale, Offset: round.Calibration.Offset})
	}
	result := tally.Result{Scores: tally.Scores{Shape: shape, Count: p.Counts}, Rows: p.Rounds[0].Rows, LossFull: p.Rounds[0].Loss}
	if r.job.Spec.LargestWeight != 0 {
		result.Weight = p.Rounds[0].Weight
	}
	return result, info, func(feature int, into tally.Values) {
		from, to := shape.Row(feature)
		copy(into.Rank, ranks[from:to])
	}, nil
}

// roundInputs are what the tasks of the rounds of a path need. They are safe for concurrent use.
type roundInputs struct {
	mu    sync.Mutex
	tasks map[int]*job.PathRound // by round, of the rounds that this coordinator began; nil = the job is not a path
	now   int                    // the current round
	masks *masks                 // of the current round
}

// masks are those of a round of a path; see job.PathRound.
type masks struct {
	dropped, unmeasured layout.Mask
	adds                bool
}

// unmeasured returns the mask of that name of the current round; nil if the job is not a path.
func (r *roundInputs) unmeasured() layout.Mask {
	if r.masks == nil {
		return nil
	}
	return r.masks.unmeasured
}

// bytes returns the blob of the masks.
func (m *masks) bytes() []byte {
	if m.adds {
		return slices.Concat(m.dropped, m.unmeasured)
	}
	return m.dropped
}

// round returns what the tasks of a round of a path have; nil if this coordinator did not begin it, or the
// job is not a path.
func (in *inputs) round(round int) *job.PathRound {
	in.rounds.mu.Lock()
	defer in.rounds.mu.Unlock()
	return in.rounds.tasks[round]
}

// begin begins a round of a path. It stores the masks, and deletes those of the round before.
func (in *inputs) begin(ctx context.Context, round int, m *masks, c loss.Calibration) error {
	data := m.bytes()
	sum, name := sha256.Sum256(data), bus.MaskName(in.job, round)
	in.rounds.mu.Lock()
	before := in.rounds.tasks[in.rounds.now]
	if in.rounds.tasks == nil {
		in.rounds.tasks = map[int]*job.PathRound{}
	}
	in.rounds.now, in.rounds.masks = round, m
	in.rounds.tasks[round] = &job.PathRound{Masks: job.Blob{Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, Adds: m.adds, Calibration: c}
	in.rounds.mu.Unlock()
	if err := in.storeMask(ctx); err != nil || before == nil {
		return err
	}
	return in.bus.Delete(ctx, before.Masks.Name)
}

// storeMask stores the masks of the current round unless the server has them. It replaces others: a
// coordinator that began the job before, and whose checkpoint is lost, may have dropped or added other entries.
func (in *inputs) storeMask(ctx context.Context) error {
	round := in.round(in.rounds.now)
	if round == nil {
		return nil
	}
	put := func() error {
		_, err := in.bus.PutFrom(ctx, round.Masks.Name, func(w io.Writer) error {
			_, err := w.Write(in.rounds.masks.bytes())
			return err
		}, &round.Masks)
		return err
	}
	err := put()
	if errors.Is(err, bus.ErrConflict) {
		if err = in.bus.Delete(ctx, round.Masks.Name); err == nil {
			err = put()
		}
	}
	return err
}
