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
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/arrowio"
	"shaver/internal/bus"
	"shaver/internal/checkpoint"
	"shaver/internal/dataset"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/kernel"
	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/scores"
	"shaver/internal/shapley"
	"shaver/internal/shard"
	"shaver/internal/tally"
)

// Config is a job and what it runs on.
type Config struct {
	Checkpoint *checkpoint.Checkpoint
	Dataset    *dataset.Dataset

	Splits       []string // to score; those that the dataset has
	Sample       float64  // portion of their rows, (0, 1]
	Baseline     string
	Options      shapley.Options
	RowsPerShard int64  // 0 = a sixteenth of the rows, at most 4096
	Out          string // the scores file

	Queue bus.Queue
	Log   *zap.Logger
	// OnStart is called once with what is about to run, OnMerged after each
	// shard with the rows merged so far; nil = not.
	OnStart  func(spec job.Spec, plan job.Plan)
	OnMerged func(rows int64)
}

// Outcome is a finished job.
type Outcome struct {
	Scores  scores.File
	Plan    job.Plan
	Workers map[string]int // shards by the worker that computed them
	CPU     float64        // core-seconds that workers of other processes report
}

// Run runs the job to its end on b, and writes the scores file. It resumes what an earlier run of the same
// job left: results that are stored are merged, not computed again. When ctx
// ends before, that is what is left.
func Run(ctx context.Context, b *bus.Bus, c Config) (*Outcome, error) {
	r, err := newRun(b, &c)
	if err != nil {
		return nil, err
	}
	if err := r.submit(ctx); err != nil {
		return nil, err
	}
	if c.OnStart != nil {
		c.OnStart(r.spec, r.plan)
	}
	failed := r.lead(ctx)
	if failed != nil && !errors.Is(failed, errFailed) {
		return nil, failed
	}
	var outcome *Outcome
	if failed == nil {
		if outcome, err = r.outcome(); err != nil {
			return nil, err
		}
		if err := scores.Write(c.Out, &outcome.Scores); err != nil {
			return nil, err
		}
	}
	if err := b.Cleanup(ctx, r.id); err != nil {
		return nil, fmt.Errorf("job %s: clean up: %w", r.id, err)
	}
	return outcome, failed
}

// errFailed marks a job whose tasks cannot be computed: running it again with
// the same input ends the same way.
var errFailed = errors.New("the job failed")

// run is one job in work.
type run struct {
	*Config
	bus      *bus.Bus
	log      *zap.Logger
	model    *model.Model
	baseline []float32
	sample   shard.Sample
	spec     job.Spec
	plan     job.Plan
	id       string

	modelBlob, baselineBlob job.Blob
	machine                 *job.Machine
	sums                    *tally.Accumulator
	workers                 map[string]int
	cpu                     float64
}

// newRun checks that everything fits together, before anything is sent.
func newRun(b *bus.Bus, c *Config) (*run, error) {
	r := &run{Config: c, bus: b, workers: map[string]int{}}
	var err error
	if r.model, err = c.Checkpoint.Model(); err != nil {
		return nil, err
	}
	if err := c.Dataset.CheckModel(&r.model.Architecture); err != nil {
		return nil, err
	}
	if err := c.Options.Validate(1); err != nil { // wrong for any model
		return nil, fault.Usagef("%w", err)
	}
	if err := c.Options.Validate(r.model.Players()); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if !(c.Sample > 0 && c.Sample <= 1) {
		return nil, fault.Usagef("sample %v is outside (0, 1]", c.Sample)
	}
	if r.baseline, err = r.codebook(); err != nil {
		return nil, err
	}
	if r.Splits, err = c.splits(); err != nil {
		return nil, err
	}
	rows := int64(0)
	for _, split := range r.Splits {
		rows += c.Dataset.Rows(split)
	}
	r.spec = job.Spec{
		Version: job.SpecVersion, Model: c.Checkpoint.Digest(), Dataset: c.Dataset.Digest(), Splits: r.Splits, Sample: c.Sample, Baseline: c.Baseline,
		Estimator: c.Options.Estimator, Passes: c.Options.Passes, Seed: c.Options.Seed, Kernel: kernel.Name(),
	}
	r.id = r.spec.ID()
	r.log = c.Log.With(zap.String("job", r.id))
	r.sample = shard.NewSample(rows, c.Sample, c.Options.Seed)
	r.plan = job.Plan{Rows: r.sample.Keep, RowsPerShard: c.RowsPerShard}
	if r.plan.RowsPerShard == 0 {
		r.plan.RowsPerShard = min(4096, (r.plan.Rows+15)/16)
	}
	return r, nil
}

// having returns those of the named splits that the dataset has, in its order.
func having(d *dataset.Dataset, names ...string) []string {
	return slices.DeleteFunc(d.SplitNames(), func(name string) bool { return !slices.Contains(names, name) })
}

// splits returns the splits to score. One that the dataset lacks is left out,
// and said.
func (c *Config) splits() ([]string, error) {
	known := []string{dataset.Train, dataset.Val, dataset.Test}
	for _, name := range c.Splits {
		if !slices.Contains(known, name) {
			return nil, fault.Usagef("split %q: the splits are %s", name, strings.Join(known, ", "))
		}
	}
	splits := having(c.Dataset, c.Splits...)
	if len(splits) == 0 {
		return nil, fault.Inputf("the dataset has none of the splits %s, only %s", strings.Join(c.Splits, ", "), strings.Join(c.Dataset.SplitNames(), ", "))
	}
	for _, name := range c.Splits {
		if !slices.Contains(splits, name) {
			c.Log.Warn("the dataset has no such split: it is left out", zap.String("split", name))
		}
	}
	return splits, nil
}

// codebook returns the job's baseline; frequencies are those of train and val.
func (r *run) codebook() ([]float32, error) {
	var counts []int64
	if r.Baseline == prune.Codebook {
		var err error
		if counts, err = r.Dataset.Frequencies(having(r.Dataset, dataset.Train, dataset.Val)...); err != nil {
			return nil, err
		}
	}
	baseline, unseen, err := prune.Baseline(r.Baseline, &r.model.Architecture, r.model.Weights.Embedding, counts)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	for _, j := range unseen {
		r.Log.Warn("no row has a value of this field: its codebook entry is the plain mean", zap.String("field", r.Dataset.Fields()[j]))
	}
	return baseline, nil
}

// submit stores the specification, the model and the baseline. A plan that an
// earlier submission of the same job stored wins over ours.
func (r *run) submit(ctx context.Context) error {
	if err := r.bus.Setup(ctx, r.Queue); err != nil {
		return err
	}
	type submission struct {
		Spec job.Spec `json:"spec"`
		Plan job.Plan `json:"plan"`
	}
	ours, err := json.Marshal(submission{r.spec, r.plan})
	if err != nil {
		return err
	}
	stored, err := r.bus.CreateSpec(ctx, r.id, ours)
	if err != nil {
		return err
	}
	var s submission
	if err := json.Unmarshal(stored, &s); err != nil || s.Spec.ID() != r.id || s.Plan.Rows != r.plan.Rows || s.Plan.RowsPerShard < 1 {
		return fmt.Errorf("job %s: what is stored as its specification is not one", r.id)
	}
	r.plan = s.Plan
	if r.modelBlob, err = r.put(ctx, bus.ModelName, r.Checkpoint.Canonical()); err != nil {
		return err
	}
	r.baselineBlob, err = r.put(ctx, bus.BaselineName, shapley.EncodeBaseline(r.baseline))
	return err
}

func (r *run) put(ctx context.Context, name func(sha256 string) string, data []byte) (job.Blob, error) {
	sum := sha256.Sum256(data)
	return r.bus.Put(ctx, name(hex.EncodeToString(sum[:])), data)
}

// shardsAhead is how many shards are published and not merged at a time: enough
// for a large cluster, and a bound on what the blob store holds.
const shardsAhead = 1024

// lead feeds the machine until the job ends. An error that wraps errFailed ends
// the job for good.
func (r *run) lead(ctx context.Context) error {
	r.machine = job.NewMachine(&r.spec, r.plan, shardsAhead)
	r.sums = tally.NewAccumulator(r.model.Features(), r.model.Dim)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	events := make(chan bus.Event)
	wanted := make(chan int, r.plan.Shards()) // all of them fit: it never blocks the loop
	group.Go(func() error {
		return r.bus.Events(ctx, r.id, func(e bus.Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	group.Go(func() error { return r.cut(ctx, wanted) })
	ended := errors.New("ended")
	group.Go(func() error {
		if err := r.loop(ctx, events, wanted); err != nil {
			return err
		}
		return ended
	})
	if err := group.Wait(); !errors.Is(err, ended) {
		return err
	}
	return nil
}

// loop takes events and does what the machine says. What an earlier coordinator
// of the job left comes first, so that it is not published again.
func (r *run) loop(ctx context.Context, events <-chan bus.Event, wanted chan int) error {
	queued, err := r.bus.Queued(ctx, r.id) // before the results, so that no task is in neither
	if err != nil {
		return err
	}
	for _, index := range queued {
		r.machine.Step(job.Queued{Shard: index})
	}
	stored, err := r.bus.Stored(ctx, r.id)
	if err != nil {
		return err
	}
	watch := time.NewTicker(stallEvery)
	defer watch.Stop()
	var stall stallWatch
	for told := 0; ; {
		var actions []job.Action
		if told == stored {
			actions = r.machine.Start()
			told++ // once
		} else {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-watch.C:
				if err := stall.look(ctx, r); err != nil {
					return err
				}
				continue
			case e := <-events:
				told++
				stall = stallWatch{}
				watch.Reset(stallEvery)
				if e.Err != nil {
					return fmt.Errorf("shard %d: what is stored as its result is not one: %w", e.Shard, e.Err)
				}
				actions = r.machine.Step(eventOf(e))
			}
		}
		finished, err := r.do(ctx, actions, wanted)
		if finished || err != nil {
			return err
		}
	}
}

func eventOf(e bus.Event) job.Event {
	if e.Result != nil {
		return *e.Result
	}
	return *e.Quarantine
}

// do carries out actions; finished says that the job is complete.
func (r *run) do(ctx context.Context, actions []job.Action, wanted chan int) (finished bool, err error) {
	for _, action := range actions {
		switch a := action.(type) {
		case job.Publish:
			wanted <- a.Shard
		case job.Merge:
			if err := r.merge(ctx, &a.Result); err != nil {
				return false, fmt.Errorf("shard %d: %w", a.Result.Shard, err)
			}
		case job.Ignore:
			r.log.Debug("ignored", zap.Int("shard", a.Shard), zap.String("why", a.Why))
		case job.Fail:
			return false, fault.Inputf("%w: %s", errFailed, a.Reason)
		case job.Finish:
			return true, nil
		}
	}
	return false, nil
}

// maxPartialBytes is the most that a partial's reference may claim.
const maxPartialBytes = 8 << 30

// merge adds the partial of a result.
func (r *run) merge(ctx context.Context, result *job.Result) error {
	data, err := r.bus.Get(ctx, result.Partial, maxPartialBytes)
	if err != nil {
		return err
	}
	partial, err := arrowio.DecodePartial(data, r.model.Features(), r.model.Dim)
	if err != nil {
		return fmt.Errorf("partial %s: %w", result.Partial.Name, err)
	}
	if partial.Rows != result.Rows {
		return fmt.Errorf("partial %s has %d rows, its result says %d", result.Partial.Name, partial.Rows, result.Rows)
	}
	if err := r.sums.Merge(partial); err != nil {
		return fmt.Errorf("partial %s: %w", result.Partial.Name, err)
	}
	r.workers[result.Worker]++
	r.cpu += result.CPU
	if r.OnMerged != nil {
		r.OnMerged(r.sums.Rows())
	}
	return nil
}

// cut reads the dataset and publishes the wanted shards.
func (r *run) cut(ctx context.Context, wanted chan int) error {
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return r.Dataset.Scan(ctx, r.Splits, 4096, each)
	}
	next := func(ctx context.Context) (int, error) {
		select {
		case index := <-wanted:
			return index, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return shard.Cut(ctx, source, r.Dataset.Fields(), r.model.FieldDims, r.sample, r.plan, next,
		func(ctx context.Context, index int, data []byte) error {
			blob, err := r.bus.Put(ctx, bus.ShardName(r.id, index), data)
			if err != nil {
				return err
			}
			return r.bus.PublishTask(ctx, job.Task{
				Job: r.id, Shard: index, Spec: r.spec, Rows: r.plan.ShardRows(index), Data: blob, Model: r.modelBlob, Baseline: r.baselineBlob,
			})
		})
}

// outcome normalises the sums.
func (r *run) outcome() (*Outcome, error) {
	spread := r.Options.Spread(r.Sample < 1)
	result, err := r.sums.Result(r.Options.Passes, spread)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", r.id, err)
	}
	return &Outcome{
		Scores:  scores.File{Fields: r.Dataset.Fields(), FieldDims: r.model.FieldDims, Spec: r.spec, Baseline: r.baseline, Spread: spread, Result: *result},
		Plan:    r.plan,
		Workers: r.workers,
		CPU:     r.cpu,
	}, nil
}
