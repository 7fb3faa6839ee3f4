// Package coordinator leads a job. It cuts the dataset into shards, publishes
// them, merges the partials that come back, and normalises the sums. job.Machine
// decides what to do next, and this package does it.
package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/forecast"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/merger"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/tally"
)

// Config describes a job and how to run it. Run does not modify it.
type Config struct {
	prepare.Request

	Out string // path of the scores file; without effect if Sink is set
	// Place says where the scores go, for other coordinators of the same job; "" = the
	// absolute path of Out. A coordinator waits for another one that writes elsewhere, and
	// takes over the job of one that writes to the same place.
	Place string
	// Local returns the path of a copy of the scores at the place of another coordinator; nil =
	// the place is a path.
	Local func(ctx context.Context, place string) (string, error)
	// RunID is an id that all tries of a run have; see job.Lead.
	RunID string
	// Sink receives the scores of a finished job, which are then not written to Out. In f,
	// Phi and SE are empty. The function values writes the values of one feature into
	// those slices of into that are not nil. It is valid until Sink returns. With a Sink,
	// Run computes the job even if Out holds its scores already.
	Sink func(f *scores.File, values func(feature int, into tally.Values)) error
	// Sums is called with the sums of a finished job, before Sink. It must not keep or
	// change them; nil = no call.
	Sums func(*tally.Accumulator) error

	// AllowQuarantined finishes a job without the shards that cannot be computed.
	AllowQuarantined bool
	// Verify is the portion of the shards that another worker computes again; 0 = none. A worker whose results
	// differ from those of two others gets no more tasks, and the job begins again if something of it is merged.
	Verify float64
	wrong  []string // workers that have computed wrong, if the job began again
	// SaveEvery is the time between checkpoints; 0 = 30 s. A checkpoint is made only if
	// something new was merged. Checkpoints take at most a twentieth of the time.
	SaveEvery time.Duration

	Program string // version of this program, stored with the job for people
	Queue   bus.Queue
	Log     *zap.Logger
	// OnScores is called when the scores are written, before what is stored of the job is
	// deleted; nil = no call. If it returns an error, the job can be resumed.
	OnScores func(ctx context.Context, o *Outcome) error
	// OnStart is called once, with the job and the number of its rows that an earlier
	// coordinator merged; nil = no call.
	OnStart func(spec job.Spec, plan job.Plan, merged int64)
	// OnMerged is called after each shard with the number of rows merged so far;
	// nil = no call.
	OnMerged func(rows int64)
	// OnLag is called after each merge with the time since the result was stored;
	// nil = no call.
	OnLag func(time.Duration)
	// OnProgress is called every two seconds and at the end; nil = no call.
	OnProgress func(bus.Progress)
}

// Outcome describes a finished job.
type Outcome struct {
	Scores   scores.File    // without Phi and SE, which are in the file
	Plan     job.Plan       // zero if the scores existed already
	Workers  map[string]int // number of shards by the worker that computed them
	CPU      float64        // core-seconds that workers of other processes report
	Existing bool           // the scores existed already and nothing was computed
	Resumed  bool           // an earlier coordinator had begun the job
	Verified int            // number of shards that were computed twice with the same result
	Wrong    []string       // workers that have computed wrong; nothing of theirs is in the scores
	// Quarantined lists the shards that are missing from the scores; empty without
	// AllowQuarantined.
	Quarantined []job.Quarantine
}

// ErrQuarantined says that shards cannot be computed. All other shards are merged, and the
// checkpoint that contains them is kept. The error is bad input if one of the quarantined
// shards failed because of bad input. Other errors that Run returns are bus.ErrFenced,
// bus.ErrEnded and, if nothing of the job is kept, bus.ErrCancelled.
var ErrQuarantined = errors.New("shards cannot be computed")

// Run runs the job to its end on b and writes the scores file. If Out already holds the
// scores of this job, Run computes nothing.
//
// Run resumes what an earlier coordinator of the same job left. An earlier
// coordinator with the same Place that is still alive then ends with bus.ErrFenced. If a
// living coordinator has another Place, Run waits for its end, and then copies its scores or
// runs the job. If ctx or this
// process ends early, the next coordinator continues from the last checkpoint and
// the results that came since. If the server loses a stream, the job begins again
// from what is left. If a merger dies, the job continues from the last checkpoint.
func Run(ctx context.Context, b *bus.Bus, c Config) (*Outcome, error) {
	var started sync.Once
	onStart := func(j *prepare.Job, merged int64) {
		if c.OnStart != nil {
			started.Do(func() { c.OnStart(j.Spec, j.Plan, merged) })
		}
	}
	for {
		outcome, err := runOnce(ctx, b, &c, onStart)
		if errors.Is(err, errElsewhere) {
			c.Log.Warn("another coordinator took this job over", zap.Error(err))
			continue
		}
		switch wrong, found := errors.AsType[*wrongWorker](err); {
		case found:
			c.wrong = append(c.wrong, wrong.name)
			c.Log.Warn("the job begins again, because results of a worker that has computed wrong are merged", zap.String("worker", wrong.name))
			continue
		case errors.Is(err, merger.ErrLost):
			c.Log.Warn("the job continues from its last checkpoint with other mergers", zap.Error(err))
		case bus.IsGone(err):
			c.Log.Error("the server lost its streams: setting them up again", zap.Error(err))
		default:
			return outcome, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// runOnce runs the job until it ends or the server loses a stream. If another
// coordinator took over the job, runOnce deletes what this one stored after the job's
// end.
func runOnce(ctx context.Context, b *bus.Bus, c *Config, onStart func(j *prepare.Job, merged int64)) (*Outcome, error) {
	p, err := prepare.New(c.Request, c.Log)
	if err != nil {
		return nil, err
	}
	j, log := p.Job, c.Log.With(zap.String("job", p.ID))
	outcome, err := attempt(ctx, b, c, p, log, onStart) // p holds the model, so it must not be used afterwards
	if errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) {
		if err := b.Leave(ctx, &j.Spec); err != nil {
			log.Warn("cannot delete what was stored after the job's end", zap.Error(err))
		}
	}
	if errors.Is(err, bus.ErrFenced) {
		if lead, seen := b.Leader(ctx, j.ID); seen == nil && lead != nil && lead.Elsewhere(c.Where()) {
			return nil, fmt.Errorf("%w: %w", errElsewhere, err)
		}
	}
	return outcome, err
}

// attempt takes the prepared job through all its steps. It does not use p after
// the models are stored, so that their memory is free for the sums. Only a path needs its model.
func attempt(ctx context.Context, b *bus.Bus, c *Config, p *prepare.Prepared, log *zap.Logger, onStart func(j *prepare.Job, merged int64)) (*Outcome, error) {
	if err := b.Setup(ctx, c.Queue, p.Spec.Kernel); err != nil {
		return nil, err
	}
	if err := b.Sweep(ctx); err != nil {
		return nil, err
	}
	if c.Sink == nil {
		if outcome, err := existingScores(ctx, b, c, p.ID, log); outcome != nil || err != nil {
			return outcome, err
		}
	}
	j, claim, outcome, err := lead(ctx, b, c, p, log)
	if outcome != nil || err != nil {
		return outcome, err
	}
	former, _ := b.JobStatus(ctx, j.ID) // only people read the progress
	progress := bus.Progress{Job: j.ID, Epoch: claim.Lead.Epoch, RowsTotal: j.Plan.Rows, ShardsTotal: j.Plan.Shards(),
		Started: time.Now().UTC(), Workers: []bus.Worker{}, Rounds: former.Progress.Rounds}
	stop := stayAlive(ctx, b, progress, "its model and its checkpoint to be stored and loaded")
	defer stop()
	if claim.Lead.Epoch == 1 && c.Sink == nil && !j.Spec.OfFields() {
		g, err := p.Gap(ctx, p.Model)
		if err != nil { // the job says so if its rows are damaged
			log.Debug("cannot measure what the model memorises", zap.Error(err))
		} else if text := g.Warning(&p.Spec); text != "" {
			log.Warn(text)
		} else if g.Memorises() {
			log.Info(g.Text())
		}
	}
	// The models are stored here, and p is not used afterwards.
	inputs, err := newInputs(ctx, b, &c.Request, p)
	if err != nil {
		return nil, err
	}
	if err := inputs.store(ctx, p); err != nil {
		return nil, err
	}
	var of *model.Model // nil unless the job is a path
	if j.Spec.Traits().Ranks {
		of = p.Model
	}
	s, err := resumeSums(ctx, b, j, of, claim, log)
	if err != nil {
		return nil, err
	}
	stop()
	if j.Plan.Ranges > 0 {
		var found atomic.Int64
		begun := time.Now()
		stop := stayAliveAs(ctx, b, progress, func() (state, waiting string) { return awaitingMergers(j.Plan.Ranges, found.Load(), time.Since(begun)) })
		s, err = acquire(ctx, b, j, of, claim, s, func(mergers int) { found.Store(int64(mergers)) }, log)
		stop()
		defer s.closeRanges()
		if errors.Is(err, bus.ErrCancelled) {
			return nil, errors.Join(cleanUp(ctx, b, j.ID, claim, log), err)
		}
		if err != nil {
			return nil, err
		}
	}
	rounder := newRounder(of, j, s)
	if rounder != nil && !rounder.over() {
		stop := stayAlive(ctx, b, progress, "the first round")
		err := rounder.begin(ctx, inputs, log)
		stop()
		if err != nil {
			return nil, err
		}
	}
	l := newLeader(b, c, j, claim, inputs, s, log)
	l.rounder = rounder
	if j.Spec.Until != nil && rounder == nil {
		l.rounds.trend = former.Progress.Rounds[:min(len(former.Progress.Rounds), j.Plan.RoundOf(s.shards))]
	}
	if err := l.deleteCovered(ctx); err != nil {
		return nil, err
	}
	l.reportProgress(ctx, bus.Running, "")
	onStart(j, s.mergedRows())
	end, err := l.lead(ctx)
	if err == nil {
		outcome, err = l.end(ctx, end)
	}
	if _, found := errors.AsType[*wrongWorker](err); found {
		err = cmp.Or(claim.Check(ctx), errors.Join(err, cleanUp(ctx, b, j.ID, claim, log)))
	}
	if errors.Is(err, merger.ErrLost) { // perhaps a newer coordinator has the mergers
		err = cmp.Or(claim.Check(ctx), err)
	}
	if err != nil {
		return nil, err
	}
	return outcome, nil
}

// lead submits and claims the job. It waits while another coordinator leads the job, and
// returns the outcome if that one computes what this one wants.
func lead(ctx context.Context, b *bus.Bus, c *Config, p *prepare.Prepared, log *zap.Logger) (*prepare.Job, *bus.Claim, *Outcome, error) {
	for {
		var over string
		if !b.Local() {
			dead, outcome, err := awaitOther(ctx, b, c, p.ID, log)
			if outcome != nil || err != nil {
				return nil, nil, outcome, err
			}
			over = dead
			if err := endIfCancelled(ctx, b, c, p.ID, over, log); errors.Is(err, bus.ErrLed) {
				continue
			} else if err != nil {
				return nil, nil, nil, err
			}
		}
		plan, err := choosePlan(ctx, b, c, p, log)
		if err != nil {
			return nil, nil, nil, err
		}
		j, claim, err := submit(ctx, b, c, p.Job.WithPlan(plan), over, log)
		if !errors.Is(err, bus.ErrLed) {
			return j, claim, nil, err
		}
	}
}

// chooseWithin bounds the time spent on choosing the size of a job's shards.
const chooseWithin = 500 * time.Millisecond

// choosePlan returns the job's plan. If the rows of a shard are not given, it measures
// this machine and assumes that workers are as fast. It does not measure for a small
// job, nor for a job that is stored, which keeps its plan.
func choosePlan(ctx context.Context, b *bus.Bus, c *Config, p *prepare.Prepared, log *zap.Logger) (job.Plan, error) {
	plan := p.Plan
	size := job.Sizing{Rows: p.Sample.Keep, Columns: p.Architecture.Columns()}
	if c.RowsPerShard > 0 || size.Sized() {
		return plan, nil
	}
	if open, err := b.IsOpen(ctx, p.ID); err != nil || open {
		return plan, err
	}
	m, err := forecast.Measure(ctx, p, runtime.GOMAXPROCS(0), chooseWithin)
	if ctx.Err() != nil {
		return plan, ctx.Err()
	}
	if fault.IsInput(err) && !c.AllowQuarantined { // the job would fail after all other rows are computed
		return plan, err
	}
	if err != nil {
		log.Warn("cannot measure how fast rows are computed", zap.Error(err))
		plan.RowsPerShard = min(plan.RowsPerShard, 4096)
		return plan, nil
	}
	plan.RowsPerShard = m.RowsPerShard()
	if m.Result != nil {
		if text := scores.Early(&p.Spec.Options, m.Result); text != "" {
			log.Warn(text)
		}
	}
	log.Debug("measured", zap.Float64("rows/s", m.PerSecond()), zap.Int64("rows a shard", plan.RowsPerShard))
	if err := plan.Check(p.Architecture.Columns()); err != nil {
		return plan, fault.Inputf("the job is too large: %w", err)
	}
	return plan, nil
}

// existingScores returns the scores at c.Out if they belong to the job, are not damaged, and
// are complete or need not be. Otherwise it returns nil. If it returns scores, it also deletes
// what an earlier coordinator left of the job.
func existingScores(ctx context.Context, b *bus.Bus, c *Config, id string, log *zap.Logger) (*Outcome, error) {
	path := c.Out
	file, err := scores.ReadHead(path)
	if err != nil || file.Spec.ID() != id || file.QuarantinedRows > 0 && !c.AllowQuarantined {
		return nil, nil
	}
	if err := scores.Verify(path); err != nil {
		log.Warn("computing the scores of this job again", zap.Error(err))
		return nil, nil
	}
	log.Info("the scores of this job exist already", zap.String("file", path), zap.Int64("rows missing", file.QuarantinedRows))
	return &Outcome{Scores: *file, Existing: true, Workers: map[string]int{}}, cleanUpLeftover(ctx, b, id, log)
}

// cleanUpLeftover deletes what is left of a job whose scores are written, unless
// another coordinator leads the job, perhaps to write the scores to another file.
func cleanUpLeftover(ctx context.Context, b *bus.Bus, id string, log *zap.Logger) error {
	var first bus.Status
	for look := 0; ; look++ {
		s, err := b.JobStatus(ctx, id)
		led := s.Progress.State == bus.Running || s.Progress.State == bus.Stalled
		switch {
		case errors.Is(err, bus.ErrNoJob):
			return b.Settle(ctx, id)
		case err != nil:
			return err
		case !led:
			claim, err := b.Claim(ctx, id)
			if err != nil {
				return err
			}
			return cleanUp(ctx, b, id, claim, log)
		case look == 0:
			first = s
		case !s.Progress.Updated.Equal(first.Progress.Updated):
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cleanUp deletes everything that is stored for the job, unless another coordinator leads
// the job now. If the job has finished or was cancelled, a record of its end stays.
func cleanUp(ctx context.Context, b *bus.Bus, id string, claim *bus.Claim, log *zap.Logger) error {
	end := b.Ending(ctx, id, claim.Lead.Out)
	err := claim.End(ctx)
	if errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) {
		log.Warn("a newer coordinator leads this job: nothing is deleted")
		return nil
	}
	if err == nil {
		err = b.Cleanup(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("job %s: clean up: %w", id, err)
	}
	if end != nil {
		b.KeepEnd(ctx, end)
	}
	return nil
}

// quarantineError returns the error of a job that lacks the given shards, at least
// one. It names the first shard with bad input, or else the first shard.
func quarantineError(id string, quarantined []job.Quarantine, plan *job.Plan) error {
	first := &quarantined[0]
	for i := range quarantined {
		if quarantined[i].Input && !first.Input {
			first = &quarantined[i]
		}
	}
	err := fmt.Errorf("job %s: %d of %d %w (%d rows); all others are merged; shard %d: %s", id, len(quarantined), plan.Shards(), ErrQuarantined, rowsOf(quarantined, plan), first.Shard, first.Reason)
	if first.Input {
		return fault.Inputf("%w", err)
	}
	return err
}

// rowsOf returns the number of rows in the shards.
func rowsOf(shards []job.Quarantine, plan *job.Plan) (rows int64) {
	for _, q := range shards {
		rows += plan.ShardRows(q.Shard)
	}
	return rows
}
