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
	workersPrefix    = "workers-" // followed by the name of a queue (QueueName): the consumer that its workers share
	blobBucket       = "SHAVER_BLOBS"
	blobStream       = "OBJ_" + blobBucket
	jobBucket        = "SHAVER_JOBS"
	jobStream        = "KV_" + jobBucket
)

// maxTries is how many workers may die or fail while they hold a task. The next worker
// that receives the task quarantines it. The server itself has no such limit, because a
// task that reached it would stay stored without anybody noticing.
const maxTries = 8

// Queue says how tasks are handed out. Window and Replicas apply to the tasks of all jobs.
type Queue struct {
	// Lease is how long a worker may be silent before its task goes to another worker. It
	// is at least 100 ms. Workers renew it four times as often. It belongs to the tasks that
	// the Bus publishes after Setup, and other tasks keep theirs. A local server has no leases.
	Lease time.Duration
	// Window is how many tasks are stored at once, including those that workers hold.
	// PublishTask waits for room. Fewer than two tasks per worker leave workers idle.
	Window int
	// Replicas is the least number of servers that hold each message: 1, or 3 or 5 in a
	// cluster. A stream that has more replicas keeps them.
	Replicas int
}

// DefaultQueue suits tasks of about a minute.
var DefaultQueue = Queue{Lease: time.Minute, Window: 1 << 16, Replicas: 1}

const leastLease = 100 * time.Millisecond

func (q *Queue) validate() error {
	switch {
	case q.Lease < leastLease:
		return fmt.Errorf("bus: lease %v: expected at least 100 ms", q.Lease)
	case q.Window < 1:
		return fmt.Errorf("bus: window of %d tasks: expected at least 1", q.Window)
	case q.Replicas < 1 || q.Replicas > 5 || q.Replicas%2 == 0:
		return fmt.Errorf("bus: %d replicas: expected 1, 3 or 5", q.Replicas)
	}
	return nil
}

// streams returns the configurations of all streams. Only the stream of blobs allows direct
// reads, which only fetchChunks uses. Any replica answers a direct read, even one that lags
// behind, so a result that was just stored could seem to be missing.
func (q *Queue) streams() []jetstream.StreamConfig {
	streams := []jetstream.StreamConfig{
		{Name: tasksStream, Subjects: []string{taskPrefix + "*.*.*"}, Retention: jetstream.WorkQueuePolicy,
			DiscardNewPerSubject: true, MaxMsgsPerSubject: 1, MaxMsgs: int64(q.Window)},
		{Name: resultsStream, Subjects: []string{resultPrefix + "*.*"}},
		{Name: quarantineStream, Subjects: []string{quarantinePrefix + "*.*"}},
		// The settings of these two streams are those of an object store and of a
		// key-value bucket, so that the nats command can read them.
		{Name: blobStream, Subjects: []string{chunkPrefix + ">", metaPrefix + ">"}, AllowRollup: true, AllowDirect: true},
		// Clients delete old records (forget). The limit is not reached, because a server that must delete a
		// damaged message to keep within it tries to without end.
		{Name: jobStream, Subjects: []string{jobPrefix + ">"}, MaxMsgsPerSubject: 64, AllowRollup: true, DenyDelete: true},
	}
	for i := range streams {
		streams[i].Storage, streams[i].Replicas, streams[i].Discard = jetstream.FileStorage, q.Replicas, jetstream.DiscardNew
	}
	return streams
}

// Setup creates the streams and one consumer of tasks per kernel. If they exist, it
// changes them to this window and these replicas, but keeps their limits in bytes. A local
// server has neither consumers nor leases.
// It is safe to call Setup repeatedly and concurrently. Tasks beyond a smaller window stay
// stored. Coordinators call it, and workers wait until it has been called for their
// kernel. If a stream is deleted at the same time, Setup returns an error (see IsGone).
func (b *Bus) Setup(ctx context.Context, q Queue, kernels ...string) error {
	if err := q.validate(); err != nil {
		return err
	}
	b.lease.Store(int64(q.Lease))
	for _, config := range q.streams() {
		err := b.call(ctx, "set up "+config.Name, func(ctx context.Context) error {
			if s, err := b.js.Stream(ctx, config.Name); err == nil {
				stored := &s.CachedInfo().Config
				config.Replicas, config.MaxBytes = max(config.Replicas, stored.Replicas), stored.MaxBytes
			}
			_, err := b.js.CreateOrUpdateStream(ctx, config)
			if isCode(err, codeBytesRequired) {
				if config.MaxBytes, err = b.share(ctx, &config); err != nil {
					return err
				}
				_, err = b.js.CreateOrUpdateStream(ctx, config)
			}
			return raced(err)
		})
		if err != nil {
			return err
		}
	}
	if b.Local() { // the desk hands out the tasks
		return nil
	}
	for _, kernel := range kernels {
		if !isKernel(kernel) {
			return fmt.Errorf("bus: invalid kernel name %q", kernel)
		}
		err := b.call(ctx, "set up consumer "+consumerOf(kernel), func(ctx context.Context) error {
			config := consumerConfig(&q, ownQueue(kernel))
			if c, err := b.js.Consumer(ctx, tasksStream, config.Durable); err == nil {
				config.MaxWaiting = c.CachedInfo().Config.MaxWaiting // which a server does not change
			}
			_, err := b.js.CreateOrUpdateConsumer(ctx, tasksStream, config)
			if isCode(err, codeAckPending) { // only the text of the error has the limit, which may be the server's or the account's
				if n, _ := fmt.Sscanf(apiError(err).Description, "consumer max ack pending exceeds system limit of %d", &config.MaxAckPending); n == 1 {
					_, err = b.js.CreateOrUpdateConsumer(ctx, tasksStream, config)
				}
			}
			if errors.Is(err, jetstream.ErrStreamNotFound) { // the stream existed a moment ago, and waiting does not restore it
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

// share returns the limit in bytes of a stream that is created next, in an account that requires one. The
// streams share the storage that the account has not reserved, and most of it is for the blobs.
func (b *Bus) share(ctx context.Context, config *jetstream.StreamConfig) (int64, error) {
	account, err := b.js.AccountInfo(ctx)
	if err != nil {
		return 0, err
	}
	tier, tiered := account.Tiers[fmt.Sprintf("R%d", config.Replicas)]
	if !tiered {
		tier = account.Tier
	}
	free, most := tier.Limits.MaxStore-int64(tier.ReservedStore), tier.Limits.StoreMaxStreamBytes
	switch {
	case tier.Limits.MaxStore <= 0 && most <= 0:
		return 0, errors.New("the account requires a limit in bytes of every stream, but has no storage limit to derive it from: set one, or create the stream with a limit")
	case tier.Limits.MaxStore <= 0:
		return most, nil
	case free < 16*int64(config.Replicas):
		return 0, errors.New("the account requires a limit in bytes of every stream, but has no storage left to reserve")
	case !tiered:
		free /= int64(config.Replicas)
	}
	switch config.Name { // in the order of Queue.streams
	case blobStream:
		free -= free / 8
	case jobStream:
	default:
		free /= 16
	}
	if most > 0 {
		free = min(free, most)
	}
	return free, nil
}

// consumerOf names the consumer of the kernel's workers.
func consumerOf(kernel string) string { return workersPrefix + ownQueue(kernel) }

// consumerConfig returns the configuration of the consumer of a queue's workers.
func consumerConfig(q *Queue, queue string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: workersPrefix + queue, FilterSubject: taskPrefix + queue + ".>", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: firstLease, MaxDeliver: -1,
		// At this limit the server stops delivery to all workers without notice, so it is
		// set too high to be reached.
		MaxAckPending: max(q.Window, 1<<16),
		// The server refuses requests for tasks beyond this limit, which is 512 by default.
		MaxWaiting: 1 << 16,
		// Consumers of kernels and protocols that nobody uses any more disappear.
		InactiveThreshold: unusedAfter,
	}
}

// firstLease is how long the server waits for the first answer of a worker that it sent a task to. Afterwards
// the lease of the task holds, which travels with it, because all jobs share the consumer. A worker may end while
// a task is on its way, so firstLease is short. It is longer than a cluster takes to elect a leader.
const firstLease = 5 * time.Second

// unusedAfter is the time after which the server deletes a consumer that no worker asks
// for tasks. Tasks stay stored, and a coordinator that misses the consumer creates it again.
const unusedAfter = 7 * 24 * time.Hour

// raced marks an error as worth another attempt if a concurrent setup may have caused it.
func raced(err error) error {
	if isCode(err, codeNameInUse) || errors.Is(err, jetstream.ErrConsumerExists) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return errAgain{err}
	}
	return err
}
