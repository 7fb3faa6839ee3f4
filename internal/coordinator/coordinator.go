// Package coordinator leads a job: it cuts the dataset into shards, publishes
// them, merges the partials that come back, and normalises. What to do next is
// decided by job.Machine; this package does it.
package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/scores"
	"shaver/internal/shard"
	"shaver/internal/tally"
)

// Config is a job and what it runs on.
type Config struct {
	// Open reads the model's checkpoint. What it returns is let go once it is stored
	// for the workers, and read again if the server loses it.
	Open    func() (*checkpoint.Checkpoint, error)
	Dataset *dataset.Dataset

	Splits   []string // to score; those that the dataset has
	Sample   float64  // portion of their rows, (0, 1]
	MaxRows  int64    // in place of Sample: so many rows, or all if there are fewer; 0 = by Sample
	Baseline string
	Options  estimator.Options
	Seed     uint64     // of everything random
	Until    *job.Until // when to end before all rows and passes are done; nil = never
	// Audit says on how many rows a multilinear job is held against full walks, when
	// its scores are there: as a portion of those it scored; 0 = it is not. They are
	// drawn anew from all rows of the splits, as every estimator of the audit, the
	// job's own too, computes them anyway: of a job that scores a sample, others.
	Audit        float64
	RowsPerShard int64  // 0 = about a minute's work of a worker like this machine; see job.Sizing
	InPlace      bool   // shards do not travel: workers have the dataset in their stores
	Out          string // the scores file

	// AllowQuarantined finishes a job without the shards that cannot be computed.
	AllowQuarantined bool
	// SaveEvery is the time between checkpoints, if there is something new; 0 = 30 s.
	// They take a twentieth of the time at most.
	SaveEvery time.Duration

	Queue bus.Queue
	Log   *zap.Logger
	// OnStart is called with what is about to run, and how many rows of it are merged
	// already: once, and once for each job of an audit. OnMerged is called after each shard with the rows merged so far;
	// nil = not.
	OnStart  func(spec job.Spec, plan job.Plan, merged int64)
	OnMerged func(rows int64)
	// OnLag is called after each merge with the time since its result was stored,
	// OnProgress every two seconds and at the end; nil = not.
	OnLag      func(time.Duration)
	OnProgress func(bus.Progress)

	collect func(*run) // takes the values in place of the scores file; nil = no
}

// Outcome is a finished job.
type Outcome struct {
	Scores   scores.File    // without Phi and SE, which are in the file
	Plan     job.Plan       // zero if the scores were there already
	Workers  map[string]int // shards by the worker that computed them
	CPU      float64        // core-seconds that workers of other processes report
	Existing bool           // the scores were there already, nothing was computed
	Resumed  bool           // an earlier coordinator had begun
	// Quarantined are the shards that are missing, which AllowQuarantined allows.
	Quarantined []job.Quarantine
}

// Sentinels of this package; bus.ErrFenced and bus.ErrEnded are other ways in
// which Run ends.
var (
	// ErrCancelled says that somebody cancelled the job: nothing of it is kept.
	ErrCancelled = errors.New("the job was cancelled")
	// ErrQuarantined says that shards cannot be computed. All others are merged
	// and in the checkpoint, which is kept. It is bad input if one of them is.
	ErrQuarantined = errors.New("shards are quarantined")
)

// Run runs the job to its end on b, and writes the scores file. It resumes what
// an earlier coordinator of the same job left, and fences one that is still
// alive: that ends with bus.ErrFenced. When ctx ends before, or this process, the
// next coordinator goes on from the last checkpoint and the results that came
// since. A job whose scores are at Out already is not run.
//
// When the server has lost a stream the job begins again from what is left.
//
// The audit comes when the scores are written, and is then written into them: a job
// that is cut off in between has scores without it, and does no more than that when
// it is run again.
func Run(ctx context.Context, b *bus.Bus, c Config) (*Outcome, error) {
	outcome, err := one(ctx, b, c)
	if err == nil && c.Audit > 0 && outcome.Scores.Audit == nil {
		err = audited(ctx, b, &c, outcome)
	}
	return outcome, err
}

// one is Run without the audit.
func one(ctx context.Context, b *bus.Bus, c Config) (*Outcome, error) {
	if start := c.OnStart; start != nil {
		var first sync.Once
		c.OnStart = func(spec job.Spec, plan job.Plan, merged int64) {
			first.Do(func() { start(spec, plan, merged) })
		}
	}
	for {
		outcome, err := once(ctx, b, c)
		if !bus.IsGone(err) {
			return outcome, err
		}
		c.Log.Error("the server has lost what it held: setting it up again", zap.Error(err))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func once(ctx context.Context, b *bus.Bus, c Config) (*Outcome, error) {
	r, err := newRun(b, &c)
	if err != nil {
		return nil, err
	}
	outcome, err := r.all(ctx)
	if errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) { // we may have been late with what we stored
		if err := b.Leave(ctx, r.id, r.spec.Model); err != nil {
			r.log.Warn("something of the job may stay though it is over", zap.Error(err))
		}
	}
	return outcome, err
}

// all goes through the whole job.
func (r *run) all(ctx context.Context) (*Outcome, error) {
	b := r.bus
	if err := b.Setup(ctx, r.Queue, r.spec.Kernel); err != nil {
		return nil, err
	}
	if err := b.Sweep(ctx); err != nil {
		return nil, err
	}
	if outcome, err := r.existing(ctx); outcome != nil || err != nil {
		return outcome, err
	}
	if err := r.choose(ctx); err != nil {
		return nil, err
	}
	if err := r.submit(ctx); err != nil {
		return nil, err
	}
	if err := r.resume(ctx); err != nil {
		return nil, err
	}
	r.tell(ctx, bus.Running, "")
	if r.OnStart != nil {
		r.OnStart(r.spec, r.plan, r.sums.Rows())
	}
	end, err := r.lead(ctx)
	if err != nil {
		return nil, err
	}
	return r.end(ctx, end)
}

// end does what is left when the machine has ended.
func (r *run) end(ctx context.Context, end job.Action) (*Outcome, error) {
	switch end := end.(type) {
	case job.Fail:
		err := quarantineError(r.id, end.Quarantined, &r.plan)
		r.tell(ctx, bus.Failed, err.Error())
		return nil, err
	case job.Stop:
		r.log.Info("cancelled")
		r.tell(ctx, bus.Cancelled, "")
		return nil, errors.Join(r.finish(ctx), fmt.Errorf("job %s: %w", r.id, ErrCancelled))
	case job.Finish:
		if err := r.claim.Check(ctx); err != nil {
			return nil, err
		}
		outcome, err := r.outcome(end.Quarantined)
		if err != nil {
			return nil, err
		}
		if r.collect != nil {
			r.collect(r)
		} else if err = scores.WriteFrom(r.Out, &outcome.Scores, r.values); err != nil {
			return nil, err
		}
		r.tell(ctx, bus.Finished, "")
		return outcome, r.finish(ctx)
	}
	panic(fmt.Sprintf("coordinator: the job ended by %T", end))
}

// finish deletes everything of the job, unless somebody else leads it now.
func (r *run) finish(ctx context.Context) error {
	err := r.claim.End(ctx)
	if errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) {
		r.log.Warn("a newer coordinator leads this job: what is stored of it is left to that")
		return nil
	}
	if err == nil {
		err = r.bus.Cleanup(ctx, r.id)
	}
	if err != nil {
		return fmt.Errorf("job %s: clean up: %w", r.id, err)
	}
	return nil
}

// existing returns the job's scores if they are at Out, all of them, and deletes
// what is left of a job that could not do so itself.
func (r *run) existing(ctx context.Context) (*Outcome, error) {
	if r.collect != nil {
		return nil, nil
	}
	file, err := scores.ReadHead(r.Out)
	if err != nil || file.Spec.ID() != r.id || file.QuarantinedRows > 0 {
		return nil, nil
	}
	r.log.Info("the scores of this job are there already", zap.String("file", r.Out))
	return &Outcome{Scores: *file, Existing: true, Workers: map[string]int{}}, r.leftover(ctx)
}

// leftover deletes what is left of the job, whose scores are there, unless
// somebody else runs it, perhaps to write them elsewhere.
func (r *run) leftover(ctx context.Context) error {
	var first bus.Status
	for look := 0; ; look++ {
		s, err := r.bus.JobStatus(ctx, r.id)
		led := s.Progress.State == bus.Running || s.Progress.State == bus.Stalled
		switch {
		case errors.Is(err, bus.ErrNoJob):
			return r.bus.Settle(ctx, r.id)
		case err != nil:
			return err
		case !led:
			if r.claim, err = r.bus.Claim(ctx, r.id); err != nil {
				return err
			}
			return r.finish(ctx)
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

// quarantineError says what is missing, by the first shard of bad input.
func quarantineError(id string, aside []job.Quarantine, plan *job.Plan) error {
	first := &aside[0]
	for i := range aside {
		if aside[i].Input && !first.Input {
			first = &aside[i]
		}
	}
	err := fmt.Errorf("job %s: %d of %d %w (%d rows), all others are merged: shard %d: %s", id, len(aside), plan.Shards(), ErrQuarantined, missing(aside, plan), first.Shard, first.Reason)
	if first.Input {
		return fault.Inputf("%w", err)
	}
	return err
}

// missing returns the rows of shards.
func missing(aside []job.Quarantine, plan *job.Plan) (rows int64) {
	for _, q := range aside {
		rows += plan.ShardRows(q.Shard)
	}
	return rows
}

// run is one job in work.
type run struct {
	*Config
	bus      *bus.Bus
	log      *zap.Logger
	arch     *model.Architecture
	baseline []float32
	sample   shard.Sample
	spec     job.Spec
	plan     job.Plan
	id       string

	checkpoint              *checkpoint.Checkpoint // nil after submit
	model                   *model.Model           // its model; nil after submit
	modelBlob, baselineBlob job.Blob
	claim                   *bus.Claim
	machine                 *job.Machine
	*merged
	orders  *orders
	cleaner *cleaner
	renew   chan struct{} // asks for all events again
	pace    pace
	meter   meter
	stopped *scores.Stopped // by the last judgement, with Until
}

// submit stores the specification and claims the job. A plan that an earlier
// submission of the same job stored wins over ours.
func (r *run) submit(ctx context.Context) error {
	for {
		if err := r.bus.Settle(ctx, r.id); err != nil {
			return err
		}
		var err error
		if r.plan, err = r.register(ctx); err != nil {
			return err
		}
		if r.claim, err = r.bus.Claim(ctx, r.id); err != nil {
			return err
		}
		if !r.claim.Lead.Ending {
			break
		}
		if err := r.bus.Cleanup(ctx, r.id); err != nil { // its owner began to, and we fenced it
			return err
		}
	}
	r.log.Debug("claimed", zap.Int64("epoch", r.claim.Lead.Epoch))
	if err := r.claim.Check(ctx); err != nil { // it ended between the two
		return err
	}
	sum := sha256.Sum256(baseline.Encode(r.baseline))
	r.modelBlob = job.Blob{Name: bus.ModelName(r.spec.Model), Bytes: r.checkpoint.Size(), SHA256: r.spec.Model}
	r.baselineBlob = job.Blob{Name: bus.BaselineName(r.id), Bytes: int64(4 * len(r.baseline)), SHA256: hex.EncodeToString(sum[:])}
	if err := r.supply(ctx); err != nil {
		return err
	}
	r.checkpoint, r.model = nil, nil // before the sums take their room
	return nil
}

// register stores the specification and the plan, unless they are there, and
// returns the plan that is.
func (r *run) register(ctx context.Context) (job.Plan, error) {
	ours, err := json.Marshal(job.Submission{Spec: r.spec, Plan: r.plan})
	if err != nil {
		return job.Plan{}, err
	}
	stored, err := r.bus.CreateSpec(ctx, r.id, ours)
	if err != nil {
		return job.Plan{}, err
	}
	var s job.Submission
	if err := json.Unmarshal(stored, &s); err != nil || s.Spec.ID() != r.id || s.Plan.Rows != r.plan.Rows || s.Plan.RowsPerShard < 1 || !slices.Equal(s.Plan.Rounds, r.plan.Rounds) {
		return job.Plan{}, fmt.Errorf("job %s: what is stored as its specification is not one", r.id)
	}
	if r.RowsPerShard > 0 && s.Plan.RowsPerShard != r.RowsPerShard {
		r.log.Warn("the job keeps the shards that it was first cut into: cancel it for others", zap.Int64("rows a shard", s.Plan.RowsPerShard))
	}
	return s.Plan, nil
}

// supply stores what all tasks need, unless it is there: another job that ends as
// this one begins may delete the model.
func (r *run) supply(ctx context.Context) error {
	_, err := r.bus.PutFrom(ctx, r.modelBlob.Name, func(w io.Writer) error {
		ck := r.checkpoint
		if ck == nil {
			var err error
			if ck, err = r.Open(); err != nil {
				return err
			}
			if digest := ck.Digest(); digest != r.spec.Model {
				return fault.Inputf("the model was changed while its job runs: its digest was %s and is %s", r.spec.Model, digest)
			}
		}
		_, err := ck.WriteTo(w)
		return err
	}, &r.modelBlob)
	if err != nil {
		return err
	}
	_, err = r.bus.PutFrom(ctx, r.baselineBlob.Name, func(w io.Writer) error {
		_, err := w.Write(baseline.Encode(r.baseline))
		return err
	}, &r.baselineBlob)
	return err
}

// outcome normalises the sums.
func (r *run) outcome(aside []job.Quarantine) (*Outcome, error) {
	if r.sums.Rows() == 0 {
		return nil, quarantineError(r.id, aside, &r.plan)
	}
	result, err := r.sums.Check(r.estimate())
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", r.id, err)
	}
	outcome := &Outcome{
		Scores: scores.File{Fields: r.Dataset.Fields(), FieldDims: r.arch.FieldDims, Spec: r.spec, Baseline: r.baseline, DatasetRows: r.sample.Rows,
			QuarantinedRows: missing(aside, &r.plan), Stopped: r.stopped, Result: *result},
		Plan:        r.plan,
		Workers:     r.workers,
		CPU:         r.cpu,
		Resumed:     r.claim.Lead.Epoch > 1,
		Quarantined: aside,
	}
	r.perPass(&outcome.Scores)
	return outcome, nil
}

// estimate says what the sums are.
func (r *run) estimate() tally.Sampling { return tally.NewSampling(r.Options, r.sample.Rows) }
