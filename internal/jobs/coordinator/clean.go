package coordinator

import (
	"context"
	"slices"
	"sync"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// cleaner deletes what checkpoints cover, in a goroutine of its own.
type cleaner struct {
	bus  *bus.Bus
	id   string
	plan *job.Plan
	more chan struct{} // holds a signal when there may be work

	mu      sync.Mutex
	results []covered
	blobs   []string
	idle    *sync.Cond // uses mu; broadcast when no work is left
	busy    bool
	ended   bool // run has returned
}

// covered is a result in the checkpoint, and those of its shards whose own results are not to be
// deleted yet.
type covered struct {
	job.Result
	coming []int
}

func newCleaner(b *bus.Bus, id string, plan *job.Plan) *cleaner {
	c := &cleaner{bus: b, id: id, plan: plan, more: make(chan struct{}, 1)}
	c.idle = sync.NewCond(&c.mu)
	return c
}

// add queues results, with their partials and shards, and blobs for deletion. It never
// blocks.
func (c *cleaner) add(results []covered, blobs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results, c.blobs = append(c.results, results...), append(c.blobs, blobs...)
	c.busy = true
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// run deletes what add queues, until ctx ends.
func (c *cleaner) run(ctx context.Context) error {
	defer func() { // wait must not block when nothing more will be deleted
		c.mu.Lock()
		c.ended = true
		c.idle.Broadcast()
		c.mu.Unlock()
	}()
	for {
		c.mu.Lock()
		results, blobs := c.results, c.blobs
		c.results, c.blobs = nil, nil
		if len(results)+len(blobs) == 0 {
			c.busy = false
			c.idle.Broadcast()
		}
		c.mu.Unlock()
		for i := range results {
			if err := c.delete(ctx, &results[i]); err != nil {
				return err
			}
		}
		for _, name := range blobs {
			if err := c.bus.Delete(ctx, name); err != nil {
				return err
			}
		}
		if len(results)+len(blobs) > 0 {
			continue
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// delete deletes a result, its partial and its shards, and the results of the other shards
// that have come.
func (c *cleaner) delete(ctx context.Context, r *covered) error {
	for _, shard := range r.Covers() {
		if !slices.Contains(r.coming, shard) {
			if err := c.bus.DeleteResult(ctx, c.id, shard); err != nil {
				return err
			}
		}
		if err := c.bus.Delete(ctx, bus.ShardName(c.id, shard)); err != nil {
			return err
		}
	}
	return deletePartial(ctx, c.bus, r.Partial.Name, c.plan)
}

// wait returns when everything that add queued is deleted, or run has ended.
func (c *cleaner) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy && !c.ended {
		c.idle.Wait()
	}
}
