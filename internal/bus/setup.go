package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	tasksStream      = "SHAVER_TASKS"
	resultsStream    = "SHAVER_RESULTS"
	quarantineStream = "SHAVER_QUARANTINE"
	workersPrefix    = "workers-" // and a kernel: the consumer that all its workers share
	blobBucket       = "SHAVER_BLOBS"
	blobStream       = "OBJ_" + blobBucket
	jobBucket        = "SHAVER_JOBS"
	jobStream        = "KV_" + jobBucket
)

// maxTries is how many workers may die or fail over a task. The next one that
// gets it sets it aside. The server itself hands a task out without a bound: a
// task at such a bound stays stored, and nobody hears of it.
const maxTries = 8

// Queue says how tasks are handed out, to the workers of all jobs alike.
type Queue struct {
	// Lease is how long a worker may be silent before its task goes to
	// another; at least 100 ms. Workers renew it four times as often.
	Lease time.Duration
	// Window is how many tasks are stored at once, those in work included;
	// PublishTask waits for room. Less than two a worker leaves workers idle.
	Window int
	// Replicas is how many servers hold each message at least: 1, or 3 in a
	// cluster. Streams that have more keep them.
	Replicas int
}

// DefaultQueue suits tasks of about a minute.
var DefaultQueue = Queue{Lease: time.Minute, Window: 4096, Replicas: 1}

func (q *Queue) validate() error {
	switch {
	case q.Lease < 100*time.Millisecond:
		return fmt.Errorf("bus: lease of %v", q.Lease)
	case q.Window < 1:
		return fmt.Errorf("bus: window of %d tasks", q.Window)
	case q.Replicas < 1 || q.Replicas > 5 || q.Replicas%2 == 0:
		return fmt.Errorf("bus: %d replicas: expected 1, 3 or 5", q.Replicas)
	}
	return nil
}

// Direct reads stay off in all these streams: any replica answers them, also
// one that lags behind, and a blob or result that was just stored would seem
// to be missing.
func (q *Queue) streams() []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{
		{Name: tasksStream, Subjects: []string{taskPrefix + "*.*.*"}, Retention: jetstream.WorkQueuePolicy,
			Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxMsgs: int64(q.Window)},
		{Name: resultsStream, Subjects: []string{resultPrefix + "*.*"}},
		{Name: quarantineStream, Subjects: []string{quarantinePrefix + "*.*"}},
		// What an object store and a key-value bucket of these names are, so
		// that the nats command reads them.
		{Name: blobStream, Subjects: []string{chunkPrefix + ">", metaPrefix + ">"}, Discard: jetstream.DiscardNew, AllowRollup: true},
		{Name: jobStream, Subjects: []string{jobPrefix + ">"}, MaxMsgsPerSubject: 2, Discard: jetstream.DiscardNew,
			AllowRollup: true, DenyDelete: true},
	}
	for i := range streams {
		streams[i].Storage, streams[i].Replicas = jetstream.FileStorage, q.Replicas
	}
	return streams
}

// Setup makes the streams, or brings them to this window and lease, and a
// consumer for the tasks of each of the kernels. Doing it twice, or two at once,
// is harmless; tasks beyond a narrower window stay. Coordinators call it; workers
// wait until it was done for their kernel. A stream that is deleted meanwhile is
// an error (IsGone).
func (b *Bus) Setup(ctx context.Context, q Queue, kernels ...string) error {
	if err := q.validate(); err != nil {
		return err
	}
	for _, config := range q.streams() {
		err := b.call(ctx, "set up "+config.Name, func(ctx context.Context) error {
			if s, err := b.js.Stream(ctx, config.Name); err == nil {
				config.Replicas = max(config.Replicas, s.CachedInfo().Config.Replicas)
			}
			_, err := b.js.CreateOrUpdateStream(ctx, config)
			return raced(err)
		})
		if err != nil {
			return err
		}
	}
	for _, kernel := range kernels {
		if !isKernel(kernel) {
			return fmt.Errorf("bus: kernel %q", kernel)
		}
		err := b.call(ctx, "set up consumer "+workersPrefix+kernel, func(ctx context.Context) error {
			_, err := b.js.CreateOrUpdateConsumer(ctx, tasksStream, jetstream.ConsumerConfig{
				Durable: workersPrefix + kernel, FilterSubject: taskPrefix + kernel + ".>", AckPolicy: jetstream.AckExplicitPolicy,
				AckWait: q.Lease, MaxDeliver: -1,
				// At this bound delivery to all workers stops in silence: keep it
				// out of reach.
				MaxAckPending: max(q.Window, 1<<16),
			})
			if errors.Is(err, jetstream.ErrStreamNotFound) { // it was there: no waiting brings it back
				return err
			}
			return raced(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Recall makes every task that is with a worker, or set aside, one to be handed out
// again. It is for a server whose former workers are known to be gone, before Setup:
// nobody need then wait until their leases end.
func (b *Bus) Recall(ctx context.Context) error {
	err := b.call(ctx, "put back what is set aside", func(ctx context.Context) error {
		stream, err := b.js.Stream(ctx, quarantineStream)
		if err == nil {
			err = stream.Purge(ctx)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.call(ctx, "recall tasks", func(ctx context.Context) error {
		stream, err := b.js.Stream(ctx, tasksStream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		names := stream.ConsumerNames(ctx)
		for name := range names.Name() {
			if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return err
			}
		}
		return names.Err()
	})
}

// raced makes another's setup at the same moment a reason to look again.
func raced(err error) error {
	if isCode(err, codeNameInUse) || errors.Is(err, jetstream.ErrConsumerExists) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return errAgain{err}
	}
	return err
}
