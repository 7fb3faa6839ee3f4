package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/shard"
)

// orders holds the shards that are to be cut and published. It is safe for concurrent
// use.
type orders struct {
	mu     sync.Mutex
	shards job.Shards
	wire   job.Shards       // shards that a worker could not read in place
	verify map[int][]string // shards that are to be computed again, and the workers that have computed them
	picked map[int][]string // those of them that next has taken
	wrong  []string         // workers that must not take tasks
	count  int              // number of shards
	more   chan struct{}    // signals that a shard was added
	called chan struct{}    // closed by recall
}

func newOrders(shards int) *orders {
	return &orders{shards: job.NewShards(shards), wire: job.NewShards(shards), verify: map[int][]string{}, picked: map[int][]string{}, more: make(chan struct{}, 1), called: make(chan struct{})}
}

// recall takes back all orders of add, also those that are being published.
func (o *orders) recall() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.shards)
	o.count = len(o.verify)
	close(o.called)
	o.called = make(chan struct{})
}

// recalled returns a channel that is closed if the orders that were taken so far are taken back.
func (o *orders) recalled() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.called
}

// add orders a shard. It never blocks.
func (o *orders) add(index int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.shards.Has(index) {
		o.shards.Add(index)
		o.count++
	}
	o.signal()
}

// signal says that there is something to take. The caller holds the lock.
func (o *orders) signal() {
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// addAgain orders a shard that workers have computed and another one is to compute again. It never blocks.
func (o *orders) addAgain(index int, workers []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, there := o.verify[index]; !there {
		o.count++
	}
	o.verify[index] = workers
	o.signal()
}

// again returns whose results the task of a shard that next has taken is to verify, and nil if it is an ordinary one.
func (o *orders) again(index int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	workers := o.picked[index]
	delete(o.picked, index)
	return workers
}

// distrust makes a worker take no task that is ordered from now on.
func (o *orders) distrust(worker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong = append(slices.Clip(o.wrong), worker)
}

// distrusted returns the workers that must not take tasks.
func (o *orders) distrusted() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrong
}

// sendOverWire makes overWire report true for the shard from now on.
func (o *orders) sendOverWire(index int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wire.Add(index)
}

// overWire reports whether sendOverWire was called for the shard.
func (o *orders) overWire(index int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wire.Has(index)
}

// next takes the first ordered shard in [from, to). It waits until a shard is ordered.
// It returns -1 if all ordered shards are outside [from, to). The caller must then read
// the dataset from its beginning.
func (o *orders) next(ctx context.Context, from, to int) (int, error) {
	for {
		o.mu.Lock()
		waiting := o.count == 0
		for index := from; !waiting && index < to; index++ {
			if o.shards.Has(index) {
				o.shards.Remove(index)
				o.count--
				o.mu.Unlock()
				return index, nil
			}
			if workers := o.verify[index]; workers != nil {
				o.picked[index] = workers
				delete(o.verify, index)
				o.count--
				o.mu.Unlock()
				return index, nil
			}
		}
		o.mu.Unlock()
		if !waiting {
			return -1, nil
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// publisher cuts ordered shards from the dataset and publishes their tasks.
type publisher struct {
	bus    *bus.Bus
	job    *prepare.Job
	inputs *inputs
	orders *orders
	// blocks is the digest of the dataset's lists of blocks, by which workers check the rows that they read in
	// place. It is "" if there are no lists or no worker reads in place. The publisher then reads all rows.
	blocks string
	// largest is the most bytes of a shard that was sent.
	largest atomic.Int64
}

// At most publishing tasks, with at most publishingBytes of shards, are on their way to the
// server at once. One at a time would leave workers idle if tasks are small. The tasks are stored
// in order.
const (
	publishing      = 128
	publishingBytes = 32 << 20
)

// run publishes what is ordered until ctx ends. When the task of
// a shard is stored, run sends the shard's number to published.
func (p *publisher) run(ctx context.Context, published chan<- int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(publishing + 1)
	group.Go(func() error { return p.scan(ctx, group, published) })
	return group.Wait()
}

// scan cuts shards, and starts a goroutine in group for each task that it publishes.
func (p *publisher) scan(ctx context.Context, group *errgroup.Group, published chan<- int) error {
	room := semaphore.NewWeighted(publishingBytes)
	before := make(chan struct{}) // closed when the task before the next one is stored
	close(before)
	emit := func(ctx context.Context, piece *shard.Piece) error {
		if p.stale(piece.Index) {
			return nil
		}
		task, data, err := p.task(piece)
		if err != nil {
			return err
		}
		size := min(int64(len(data)), publishingBytes)
		if err := room.Acquire(ctx, size); err != nil {
			return err
		}
		recalled := p.orders.recalled()
		turn, stored := before, make(chan struct{})
		before = stored
		group.Go(func() error {
			defer room.Release(size)
			done, err := p.publishUnless(ctx, recalled, task, data, turn)
			close(stored)
			if err != nil || !done {
				return err
			}
			select {
			case published <- task.Shard:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		return nil
	}
	if p.blocks != "" {
		return p.place(ctx, emit)
	}
	plan := &p.job.Plan
	for ctx.Err() == nil {
		from, to := 0, plan.Shards()
		next := func(ctx context.Context) (int, error) {
			index, err := p.orders.next(ctx, from, to)
			if err == nil && index >= 0 {
				round, _, _ := plan.Locate(index)
				from, to = index+1, plan.End(round) // each scan publishes shards of only one round
			}
			return index, err
		}
		if err := shard.Cut(ctx, p.job.Scan, p.job.Sample, *plan, next, emit); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// place emits the ordered shards without their rows. It reads only the rows of shards that must be sent.
func (p *publisher) place(ctx context.Context, emit func(context.Context, *shard.Piece) error) error {
	j := p.job
	places := j.Sample.Places(j.Plan)
	for from := 0; ctx.Err() == nil; {
		index, err := p.orders.next(ctx, from, j.Plan.Shards())
		if err != nil {
			return err
		}
		if from = index + 1; index < 0 {
			continue
		}
		piece := &shard.Piece{Index: index}
		if piece.Place, err = places.Of(ctx, index); err != nil {
			return err
		}
		if p.orders.overWire(index) && !p.stale(index) {
			source := func(ctx context.Context, visit func(*model.Rows) error) error {
				return j.Dataset.ScanBlocks(ctx, j.Spec.Splits, piece.Place.Seen, 4096, visit)
			}
			if piece.Rows, err = shard.Collect(ctx, source, j.Sample, piece.Place, j.Plan.ShardRows(index)); err != nil {
				return err
			}
		}
		if err := emit(ctx, piece); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// stale reports whether a shard belongs to a round of a path that was over when this coordinator began.
// Such a shard was ordered before its result came.
func (p *publisher) stale(index int) bool {
	round, _, _ := p.job.Plan.Locate(index)
	return p.job.Spec.Traits().Ranks && p.inputs.round(round) == nil
}

// task returns the task of a shard, and the encoded shard unless workers read it in place.
func (p *publisher) task(piece *shard.Piece) (task job.Task, data []byte, err error) {
	j, plan := p.job, &p.job.Plan
	round, _, _ := plan.Locate(piece.Index)
	task = job.Task{
		Job: j.ID, Shard: piece.Index, Spec: j.Spec, Pass: plan.Passes(round) - 1, Rows: plan.ShardRows(piece.Index), Combine: plan.Combines(), Ranges: plan.Ranges, Model: p.inputs.game.model, Baseline: p.inputs.game.baseline,
	}
	if previous := p.inputs.previous; previous != nil {
		task.PreviousModel, task.PreviousBaseline = previous.model, previous.baseline
	}
	task.Path, task.Wrong = p.inputs.round(round), p.orders.distrusted()
	if workers := p.orders.again(piece.Index); workers != nil {
		task.Shard, task.Verify, task.Combine, task.Ranges = plan.Shards()+piece.Index, &job.Verify{Shard: piece.Index, Workers: workers}, false, 0
	}
	switch {
	case piece.Rows == nil:
		task.Place = piece.Place
		task.Place.Blocks = p.blocks
		return task, nil, nil
	case p.blocks == "" && plan.InPlace && !p.orders.overWire(piece.Index):
		task.Place = piece.Place
		task.Place.SHA256 = shard.Digest(piece.Rows)
		return task, nil, nil
	}
	data, err = shard.Encode(j.Dataset.Form(), piece.Rows)
	p.largest.Store(max(p.largest.Load(), int64(len(data))))
	return task, data, err
}

// publishUnless is publish unless recalled is closed before the task is stored. The task of a shard that is computed again is stored in any case.
func (p *publisher) publishUnless(ctx context.Context, recalled <-chan struct{}, task job.Task, data []byte, turn <-chan struct{}) (done bool, err error) {
	if task.Verify != nil {
		return true, p.publish(ctx, task, data, turn)
	}
	attempt, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-recalled:
			end()
		case <-attempt.Done():
		}
	}()
	err = p.publish(attempt, task, data, turn)
	if err != nil && attempt.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// publish stores the shard, if there is one. When turn is closed, it publishes the task.
func (p *publisher) publish(ctx context.Context, task job.Task, data []byte, turn <-chan struct{}) (err error) {
	if data != nil {
		if task.Data, err = p.bus.Put(ctx, bus.ShardName(task.Job, task.Shard%p.job.Plan.Shards()), data); err != nil {
			return err
		}
	}
	select {
	case <-turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	err = p.bus.PublishTask(ctx, task)
	if (task.Path != nil || len(task.Wrong) > 0) && errors.Is(err, bus.ErrConflict) {
		// It may be for a worker that has computed wrong since. Of a path, a coordinator that began the job before,
		// and whose checkpoint is lost, may have gone on without other shards, and so have dropped other entries.
		if err = p.bus.DeleteTask(ctx, task.Job, task.Shard); err == nil {
			err = p.bus.PublishTask(ctx, task)
		}
	}
	// The stored task may differ from ours because another coordinator published it, and
	// only one of the two coordinators sends the shard.
	if (p.job.Plan.InPlace || task.Verify != nil) && errors.Is(err, bus.ErrConflict) {
		return nil
	}
	return err
}
