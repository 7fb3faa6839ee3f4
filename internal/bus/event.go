package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/job"
)

// PublishResult stores the result unless the shard has one. won means that this
// very result is stored; otherwise another attempt's is, and the caller deletes
// its own partial. Either way the task may be acknowledged.
func (b *Bus) PublishResult(ctx context.Context, r job.Result) (won bool, err error) {
	body, err := encodeResult(r)
	if err != nil {
		return false, fmt.Errorf("result %s/%d: %w", r.Job, r.Shard, err)
	}
	on := subject(resultPrefix, r.Job, r.Shard)
	what := "publish result " + on
	err = b.again(ctx, what, func() error {
		stored, err := b.storeOnce(ctx, what, resultsStream, on, body)
		if errors.Is(err, jetstream.ErrMsgNotFound) { // deleted as we looked
			return errAgain{err}
		}
		// An earlier try of ours whose answer was lost may be what is stored.
		won = stored == nil || bytes.Equal(stored.Data, body)
		return err
	})
	return won && err == nil, err
}

// Event is what became of a shard. Exactly one of the pointers and Err is set.
type Event struct {
	Shard      int
	Result     *job.Result
	Quarantine *job.Quarantine
	// Err says that the stored message is malformed, so that the shard has
	// neither: delete it (DeleteResult) and publish the task again.
	Err error
}

// Events calls f with every result and quarantine of the job, those stored
// already and those to come, each kind in the order of its stream, one call at
// a time. A shard may come twice. It returns when ctx ends or f returns an
// error, with that error.
func (b *Bus) Events(ctx context.Context, jobID string, f func(Event) error) error {
	if err := checkJob(jobID); err != nil {
		return err
	}
	var one sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	follow := func(stream, prefix string, read func(on string, body []byte) Event) {
		group.Go(func() error {
			return b.follow(ctx, stream, prefix+jobID+".*", eventBatch, func(msg jetstream.Msg) error {
				_, shard, ok := parseSubject(prefix, msg.Subject())
				if !ok {
					b.log.Error("stray message", zap.String("subject", msg.Subject()))
					return nil
				}
				e := read(msg.Subject(), msg.Data())
				e.Shard = shard
				one.Lock()
				defer one.Unlock()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return f(e)
			})
		})
	}
	follow(resultsStream, resultPrefix, func(on string, body []byte) Event {
		r, err := decodeResult(on, body)
		if err != nil {
			return Event{Err: err}
		}
		return Event{Result: &r}
	})
	follow(quarantineStream, quarantinePrefix, func(on string, body []byte) Event {
		q, err := decodeQuarantine(on, body)
		if err != nil {
			return Event{Err: err}
		}
		return Event{Quarantine: &q}
	})
	return group.Wait()
}

const (
	eventBatch     = 256
	idleHeartbeat  = time.Second     // of the server to a reader; twice as long without one is a lost reader
	readerLifetime = time.Minute     // of a reader whose program is gone
	cleanupTimeout = 1 * time.Second // for what is only tidy and must not hold up the caller
)

// stopped carries the error of follow's callback past the retries.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// errGap says that the server sent a message that we did not get.
var errGap = errors.New("a message is missing")

// follow calls f with every message of the stream under filter, from the first
// on and without a gap, until ctx ends or f fails. The library's ordered
// consumer does the same, but tries without regard to a context, and without a
// word, when the stream is away.
func (b *Bus) follow(ctx context.Context, stream, filter string, batch int, f func(jetstream.Msg) error) error {
	next := uint64(1)
	what := "read " + filter
	p := b.pauser(what)
	for {
		err := b.followOnce(ctx, stream, filter, batch, &next, func(msg jetstream.Msg) error {
			p.worked()
			return f(msg)
		})
		if stop, ok := errors.AsType[stopped](err); ok {
			return stop.error
		}
		switch {
		case ctx.Err() != nil:
			return ended(ctx, what, err)
		case b.nc.IsClosed():
			return fmt.Errorf("%s: %w", what, ErrClosed)
		case !transient(err) && !missing(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

func (b *Bus) followOnce(ctx context.Context, stream, filter string, batch int, next *uint64, f func(jetstream.Msg) error) error {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	var consumer jetstream.Consumer
	err := b.request("read "+filter, func() (err error) {
		consumer, err = b.js.CreateConsumer(short, stream, jetstream.ConsumerConfig{
			Name: nuid.Next(), FilterSubject: filter, AckPolicy: jetstream.AckNonePolicy,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: readerLifetime,
		})
		return err
	})
	cancel()
	if err != nil {
		return err
	}
	defer b.drop(ctx, stream, consumer)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(batch), jetstream.PullHeartbeat(idleHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for delivery := uint64(1); ; delivery++ {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		about, err := msg.Metadata()
		if err != nil {
			return err
		}
		if about.Sequence.Consumer != delivery {
			return errAgain{errGap}
		}
		if err := f(msg); err != nil {
			return stopped{err}
		}
		*next = about.Sequence.Stream + 1
	}
}

// drop deletes a reader; the server does so itself a minute later.
func (b *Bus) drop(ctx context.Context, stream string, consumer jetstream.Consumer) {
	if !b.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}
