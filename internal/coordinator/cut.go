package coordinator

import (
	"context"
	"errors"
	"sync"

	"shaver/internal/bus"
	"shaver/internal/job"
	"shaver/internal/model"
	"shaver/internal/shard"
)

// orders are the shards that are to be cut and published.
type orders struct {
	mu     sync.Mutex
	shards job.Shards
	travel job.Shards // those that some worker could not read in place
	count  int
	more   chan struct{} // holds one when count is not 0
}

func newOrders(shards int) *orders {
	return &orders{shards: job.NewShards(shards), travel: job.NewShards(shards), more: make(chan struct{}, 1)}
}

// add orders a shard; it never blocks.
func (o *orders) add(index int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.shards.Has(index) {
		o.shards.Add(index)
		o.count++
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// send notes that a shard is to travel, whatever the plan says.
func (o *orders) send(index int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.travel.Add(index)
}

// travels reports whether it is.
func (o *orders) travels(index int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.travel.Has(index)
}

// next takes the first ordered shard of [from, to). It waits while nothing is
// ordered, and returns -1 if only others are: the dataset is to be read from its
// beginning then.
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

// cut reads the dataset, and publishes what is ordered, until ctx ends. It tells
// what is stored.
func (r *run) cut(ctx context.Context, published chan<- int) error {
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return r.Dataset.Scan(ctx, r.Splits, 4096, each)
	}
	emit := func(ctx context.Context, piece *shard.Piece) error {
		if err := r.publish(ctx, piece); err != nil {
			return err
		}
		select {
		case published <- piece.Index:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for ctx.Err() == nil {
		from, to := 0, r.plan.Shards()
		next := func(ctx context.Context) (int, error) {
			index, err := r.orders.next(ctx, from, to)
			if err == nil && index >= 0 {
				round, _, _ := r.plan.Locate(index)
				from, to = index+1, r.plan.End(round) // the next reading is for other rounds
			}
			return index, err
		}
		if err := shard.Cut(ctx, source, r.sample, r.plan, next, emit); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// publish stores a shard, unless workers read it in place, and then its task.
func (r *run) publish(ctx context.Context, piece *shard.Piece) error {
	round, _, _ := r.plan.Locate(piece.Index)
	task := job.Task{
		Job: r.id, Shard: piece.Index, Spec: r.spec, Pass: r.plan.Passes(round) - 1, Rows: r.plan.ShardRows(piece.Index), Model: r.modelBlob, Baseline: r.baselineBlob,
	}
	if r.plan.InPlace && !r.orders.travels(piece.Index) {
		task.Place = piece.Place
		task.Place.SHA256 = shard.Digest(piece.Rows)
	} else {
		data, err := shard.Encode(r.Dataset.Fields(), r.arch.FieldDims, piece.Rows)
		if err != nil {
			return err
		}
		if task.Data, err = r.bus.Put(ctx, bus.ShardName(r.id, piece.Index), data); err != nil {
			return err
		}
	}
	err := r.bus.PublishTask(ctx, task)
	if r.plan.InPlace && errors.Is(err, bus.ErrConflict) { // another coordinator's task, which names the same rows the other way
		return nil
	}
	return err
}
