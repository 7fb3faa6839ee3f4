package bus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"shaver/internal/jobs/job"
)

const jobPrefix = "$KV." + jobBucket + "."

// CreateSpec stores the job's specification unless one is stored already. It returns the
// stored one, which is spec itself or comes from an earlier submission.
func (b *Bus) CreateSpec(ctx context.Context, jobID string, spec []byte) (stored []byte, err error) {
	if err := CheckJob(jobID); err != nil {
		return nil, err
	}
	on := jobPrefix + jobID + ".spec"
	what := "store the spec of job " + jobID
	misses := 0
	err = b.again(ctx, what, func(ctx context.Context) error {
		msg, err := b.storeOnce(ctx, what, jobStream, &nats.Msg{Subject: on, Data: spec})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it was deleted before we could read it
			return b.missed(ctx, what, on, &misses)
		case err != nil:
			return err
		case msg == nil:
			stored = spec
		case msg.Header.Get("KV-Operation") != "": // the nats command deleted it and left a marker
			if err := b.purge(ctx, what, jobStream, on); err != nil {
				return err
			}
			return errAgain{jetstream.ErrKeyDeleted}
		default:
			stored = msg.Data
		}
		return nil
	})
	return stored, err
}

func (b *Bus) deleteOne(ctx context.Context, stream, prefix, jobID string, shard int) error {
	if err := CheckJob(jobID); err != nil {
		return err
	}
	if !isShard(shard) {
		return fmt.Errorf("delete %s%s: shard %d", prefix, jobID, shard)
	}
	on := subject(prefix, jobID, shard)
	return b.purge(ctx, "delete "+on, stream, on)
}

// DeleteTask removes the shard's task, if there is one, even if a worker holds it.
func (b *Bus) DeleteTask(ctx context.Context, jobID string, shard int) error {
	if err := CheckJob(jobID); err != nil {
		return err
	}
	return b.purgeAll(ctx, "delete a task of job "+jobID, tasksStream, subject(taskPrefix+"*.", jobID, shard))
}

// DeleteResult removes the shard's result, if there is one, so that another can be
// stored. It is for a result that is malformed or whose partial is missing.
func (b *Bus) DeleteResult(ctx context.Context, jobID string, shard int) error {
	return b.deleteOne(ctx, resultsStream, resultPrefix, jobID, shard)
}

// DeleteQuarantine removes the shard's quarantine, if there is one.
func (b *Bus) DeleteQuarantine(ctx context.Context, jobID string, shard int) error {
	return b.deleteOne(ctx, quarantineStream, quarantinePrefix, jobID, shard)
}

// WithdrawForeign deletes the job's tasks for workers with another kernel or protocol, and
// returns their number. A coordinator of another build may have published them.
func (b *Bus) WithdrawForeign(ctx context.Context, jobID, kernel string) (n int, err error) {
	if err := CheckJob(jobID); err != nil {
		return 0, err
	}
	what := "withdraw the tasks of other builds"
	held, err := b.subjects(ctx, what, tasksStream, taskPrefix+"*."+jobID+".*")
	if err != nil {
		return 0, err
	}
	for on := range held {
		if strings.HasPrefix(on, tasksOf(kernel)) {
			continue
		}
		if err := b.purge(ctx, what, tasksStream, on); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Inventory lists what is stored for the job. The job's tasks are those for workers of
// this build with the given kernel. Slow are all tasks if some workers have none; the
// caller knows for how long.
func (b *Bus) Inventory(ctx context.Context, jobID, kernel string) (inv job.Inventory, err error) {
	if inv, err = b.inventory(ctx, jobID, kernel); err != nil || len(inv.Stuck) == 0 {
		return inv, err
	}
	// A consumer learns of a task a moment after it is stored.
	first := inv.Stuck
	select {
	case <-time.After(settled):
	case <-ctx.Done():
		return inv, ctx.Err()
	}
	inv, err = b.inventory(ctx, jobID, kernel)
	inv.Stuck = slices.DeleteFunc(inv.Stuck, func(shard int) bool { return !slices.Contains(first, shard) })
	return inv, err
}

// settled is the time after which a consumer knows of a stored task.
const settled = 200 * time.Millisecond

// inventory is one look of Inventory.
func (b *Bus) inventory(ctx context.Context, jobID, kernel string) (inv job.Inventory, err error) {
	what := "list what is stored of job " + jobID
	if inv.Tasks, err = b.shards(ctx, what, jobID, tasksStream, tasksOf(kernel)); err != nil {
		return inv, err
	}
	if inv.Results, err = b.shards(ctx, what, jobID, resultsStream, resultPrefix); err != nil {
		return inv, err
	}
	if inv.Quarantined, err = b.shards(ctx, what, jobID, quarantineStream, quarantinePrefix); err != nil {
		return inv, err
	}
	if len(inv.Tasks) == 0 || b.Local() {
		return inv, nil
	}
	var info *jetstream.ConsumerInfo
	err = b.call(ctx, what, func(ctx context.Context) error {
		consumer, err := b.js.Consumer(ctx, tasksStream, consumerOf(kernel))
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	switch {
	case err != nil || info.NumPending > 0:
	case info.NumAckPending == 0:
		// The consumer neither waits for a worker's answer nor has a task to hand out, yet
		// tasks are stored. It has lost them.
		inv.Stuck = slices.Clone(inv.Tasks)
	case info.NumWaiting > 0:
		// Workers ask for tasks, but others hold them all. The server measures leases by its
		// wall clock, so leases last too long after the clock was set back.
		inv.Slow = inv.Tasks
	}
	return inv, err
}

// shards returns the shards for which a stream holds a message, in ascending order.
func (b *Bus) shards(ctx context.Context, what, jobID, stream, prefix string) ([]int, error) {
	if err := CheckJob(jobID); err != nil {
		return nil, err
	}
	held, err := b.subjects(ctx, what, stream, prefix+jobID+".*")
	if err != nil {
		return nil, err
	}
	var shards []int
	for on := range held {
		if _, shard, ok := parseSubject(prefix, on); ok {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return shards, nil
}

// Blobs returns the names of the job's blobs of the given kinds, such as "partial", in
// ascending order.
func (b *Bus) Blobs(ctx context.Context, jobID string, kinds ...string) ([]string, error) {
	if err := CheckJob(jobID); err != nil {
		return nil, err
	}
	names, err := b.blobs(ctx, "list the blobs of job "+jobID)
	return slices.DeleteFunc(names, func(name string) bool {
		kind, _, _ := strings.Cut(name, "/")
		return ownerOf(name) != jobID || !slices.Contains(kinds, kind)
	}), err
}

// blobs returns the names of all blobs in ascending order, including those of tombstones.
func (b *Bus) blobs(ctx context.Context, what string) ([]string, error) {
	held, err := b.subjects(ctx, what, blobStream, metaPrefix+"*")
	if err != nil {
		return nil, err
	}
	var names []string
	for on := range held {
		if name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(on, metaPrefix)); err == nil && isName(string(name)) {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names, nil
}
