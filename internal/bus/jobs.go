package bus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const jobPrefix = "$KV." + jobBucket + "."

// CreateSpec stores the job's specification unless there is one, and returns
// what is stored: spec itself, or what an earlier submission wrote.
func (b *Bus) CreateSpec(ctx context.Context, jobID string, spec []byte) (stored []byte, err error) {
	if err := checkJob(jobID); err != nil {
		return nil, err
	}
	on := jobPrefix + jobID + ".spec"
	what := "store the spec of job " + jobID
	err = b.again(ctx, what, func() error {
		msg, err := b.storeOnce(ctx, what, jobStream, on, spec)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // deleted as we looked
			return errAgain{err}
		case err != nil:
			return err
		case msg == nil:
			stored = spec
		case msg.Header.Get("KV-Operation") != "": // deleted by the nats command: a marker is left
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
	if err := checkJob(jobID); err != nil {
		return err
	}
	if !isShard(shard) {
		return fmt.Errorf("delete %s%s: shard %d", prefix, jobID, shard)
	}
	on := subject(prefix, jobID, shard)
	return b.purge(ctx, "delete "+on, stream, on)
}

// DeleteTask removes the shard's task, if there is one, whoever holds it.
func (b *Bus) DeleteTask(ctx context.Context, jobID string, shard int) error {
	return b.deleteOne(ctx, tasksStream, taskPrefix, jobID, shard)
}

// DeleteResult removes the shard's result, if there is one, so that another can
// take its place: for a result that is malformed or whose partial is not there.
func (b *Bus) DeleteResult(ctx context.Context, jobID string, shard int) error {
	return b.deleteOne(ctx, resultsStream, resultPrefix, jobID, shard)
}

// DeleteQuarantine removes the shard's quarantine, if there is one.
func (b *Bus) DeleteQuarantine(ctx context.Context, jobID string, shard int) error {
	return b.deleteOne(ctx, quarantineStream, quarantinePrefix, jobID, shard)
}

// Queued returns the shards of the job's stored tasks, in work or not, ascending.
func (b *Bus) Queued(ctx context.Context, jobID string) ([]int, error) {
	return b.shards(ctx, "list the tasks of job "+jobID, jobID, tasksStream, taskPrefix)
}

// Stored returns how many results and quarantines of the job are stored: so many
// events Events has to tell at once.
func (b *Bus) Stored(ctx context.Context, jobID string) (int, error) {
	what := "count the results of job " + jobID
	results, err := b.shards(ctx, what, jobID, resultsStream, resultPrefix)
	if err != nil {
		return 0, err
	}
	quarantines, err := b.shards(ctx, what, jobID, quarantineStream, quarantinePrefix)
	return len(results) + len(quarantines), err
}

// shards returns the shards that a stream has a message of, ascending.
func (b *Bus) shards(ctx context.Context, what, jobID, stream, prefix string) ([]int, error) {
	if err := checkJob(jobID); err != nil {
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

// Cleanup deletes everything of the job: tasks, results, quarantines, shards,
// partials, and last the keys, so that one that did not finish is found again.
// Models and baselines may be other jobs' too and stay. A worker that is still
// computing may store a result afterwards.
func (b *Bus) Cleanup(ctx context.Context, jobID string) error {
	if err := checkJob(jobID); err != nil {
		return err
	}
	what := "clean up job " + jobID
	purge := func(stream, filter string) error {
		held, err := b.subjects(ctx, what, stream, filter)
		if err != nil {
			return err
		}
		for _, on := range slices.Sorted(maps.Keys(held)) {
			if err := b.purge(ctx, what, stream, on); err != nil {
				return err
			}
		}
		return nil
	}
	for _, of := range []struct{ stream, prefix string }{
		{tasksStream, taskPrefix}, {resultsStream, resultPrefix}, {quarantineStream, quarantinePrefix},
	} {
		if err := purge(of.stream, of.prefix+jobID+".*"); err != nil {
			return err
		}
	}
	names, err := b.blobs(ctx, what)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "shard/"+jobID+"/") || strings.HasPrefix(name, "partial/"+jobID+"/") {
			if err := b.delete(ctx, name); err != nil {
				return err
			}
		}
	}
	return purge(jobStream, jobPrefix+jobID+".*")
}

// blobs returns the names of all blobs, tombstones included, in order.
func (b *Bus) blobs(ctx context.Context, what string) ([]string, error) {
	held, err := b.subjects(ctx, what, blobStream, metaPrefix+"*")
	if err != nil {
		return nil, err
	}
	var names []string
	for on := range held {
		if name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(on, metaPrefix)); err == nil {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Stall is what the queue says of tasks that no worker will ever get.
type Stall struct {
	// Dead is how many tasks, of all jobs, were handed out as often as allowed
	// and neither finished nor set aside.
	Dead int
	// Shards are those of the asked job that may be among them: all that are
	// stored and were handed out before. With Sure they all are.
	Shards []int
	Sure   bool
}

// Stalled looks for tasks of the job that are stored but will not be delivered
// again. A task is counted once its last lease ran out and some worker asked for
// another task; with no worker there is none. The numbers are not of one
// moment: believe them when two looks, a few seconds apart, say the same.
func (b *Bus) Stalled(ctx context.Context, jobID string) (Stall, error) {
	if err := checkJob(jobID); err != nil {
		return Stall{}, err
	}
	what := "look for stalled tasks of job " + jobID
	filter := taskPrefix + jobID + ".*"
	var stream *jetstream.StreamInfo
	var consumer *jetstream.ConsumerInfo
	err := b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, tasksStream)
		if err != nil {
			return err
		}
		if stream, err = s.Info(ctx, jetstream.WithSubjectFilter(filter)); err != nil {
			return err
		}
		c, err := b.js.Consumer(ctx, tasksStream, workers)
		if err == nil {
			consumer = c.CachedInfo()
		}
		return err
	})
	if err != nil {
		return Stall{}, err
	}
	stall := Stall{Dead: int(stream.State.Msgs) - int(consumer.NumPending) - consumer.NumAckPending}
	if stall.Dead <= 0 {
		return Stall{}, nil
	}
	stall.Sure = consumer.NumAckPending == 0
	for on := range stream.State.Subjects {
		msg, err := b.last(ctx, what, tasksStream, on)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return Stall{}, err
		}
		if _, shard, ok := parseSubject(taskPrefix, on); ok && msg.Sequence <= consumer.Delivered.Stream {
			stall.Shards = append(stall.Shards, shard)
		}
	}
	slices.Sort(stall.Shards)
	return stall, nil
}
