package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/jobs/job"
)

// PublishResult stores the result unless the shard has one. won reports whether this very
// result is stored. If it is not, the result of another attempt is stored, and the caller
// must delete its own partial. In both cases the task may be acknowledged.
func (b *Bus) PublishResult(ctx context.Context, r job.Result) (won bool, err error) {
	body, err := encodeResult(r)
	if err != nil {
		return false, fmt.Errorf("result %s/%d: %w", r.Job, r.Shard, err)
	}
	on := subject(resultPrefix, r.Job, r.Shard)
	what := "publish result " + on
	err = b.again(ctx, what, func(ctx context.Context) error {
		stored, err := b.storeOnce(ctx, what, resultsStream, &nats.Msg{Subject: on, Data: body})
		if errors.Is(err, jetstream.ErrMsgNotFound) { // it was deleted before we could read it
			return errAgain{err}
		}
		// The stored result may come from our earlier request, whose answer was lost.
		won = stored == nil || bytes.Equal(stored.Data, body)
		return err
	})
	return won && err == nil, err
}

// Event is the fate of a shard. Exactly one of Result, Quarantine, Foreign and Err is set.
type Event struct {
	Shard      int
	Stored     time.Time // time of storing, by the server's clock
	Result     *job.Result
	Quarantine *job.Quarantine
	// Foreign is a message of a build with another protocol. Its shard is not set.
	Foreign *job.Foreign
	// Err means that the stored message is malformed, so that the shard has neither
	// result nor quarantine. The message has to be deleted (DeleteResult) and the task
	// published again.
	Err error
}

// Events calls f with every result and quarantine of the job, including those stored
// later. The calls do not overlap. Results come in the order of their stream, and so do
// quarantines. A shard may come twice. Events returns when ctx ends or f returns an
// error, with that error.
func (b *Bus) Events(ctx context.Context, jobID string, f func(Event) error) error {
	if err := CheckJob(jobID); err != nil {
		return err
	}
	var calls sync.Mutex // held while f runs
	group, ctx := errgroup.WithContext(ctx)
	follow := func(stream, prefix string, read func(on string, body []byte) Event) {
		group.Go(func() error {
			return b.follow(ctx, &reading{stream: stream, filter: prefix + jobID + ".*", next: 1, batch: eventBatch, heartbeat: b.patience.heartbeat}, func(msg jetstream.Msg) error {
				_, shard, ok := parseSubject(prefix, msg.Subject())
				if !ok {
					b.log.Error("stray message", zap.String("subject", msg.Subject()))
					return nil
				}
				e := read(msg.Subject(), msg.Data())
				e.Shard = shard
				if about, err := msg.Metadata(); err == nil {
					e.Stored = about.Timestamp
				}
				calls.Lock()
				defer calls.Unlock()
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return f(e)
			})
		})
	}
	follow(resultsStream, resultPrefix, func(on string, body []byte) Event {
		r, err := decodeResult(on, body)
		if errors.Is(err, ErrProtocol) {
			return Event{Foreign: &job.Foreign{Partial: partialIn(on, body), Why: err.Error()}}
		}
		if err != nil {
			return Event{Err: err}
		}
		return Event{Result: &r}
	})
	follow(quarantineStream, quarantinePrefix, func(on string, body []byte) Event {
		q, err := decodeQuarantine(on, body)
		if err != nil { // the coordinator deletes it, and the shard is computed again
			return Event{Foreign: &job.Foreign{Aside: true, Why: err.Error()}}
		}
		return Event{Quarantine: &q}
	})
	return group.Wait()
}

// partialIn returns the name of the partial in a result of another protocol, or "" if the
// result names none of its own shard.
func partialIn(on string, body []byte) string {
	var r struct {
		Partial struct {
			Name string `json:"name"`
		} `json:"partial"`
	}
	jobID, shard, ok := parseSubject(resultPrefix, on)
	if ok && json.Unmarshal(body, &r) == nil && isName(r.Partial.Name) && strings.HasPrefix(r.Partial.Name, PartialName(jobID, shard, "")) {
		return r.Partial.Name
	}
	return ""
}

const (
	eventBatch     = 256
	readerLifetime = time.Minute     // after this time without use the server deletes a reader
	cleanupTimeout = 1 * time.Second // for deletes that are only tidiness and must not delay the caller
)

// stopped marks an error of follow's callback, which must not be retried.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// errGap means that the server sent a message that did not arrive.
var errGap = errors.New("a message is missing")

// reading is how far follow has read the messages of a stream, and how it asks for more.
type reading struct {
	stream, filter string
	next           uint64        // sequence number of the first message that is not read
	batch          int           // most messages on their way at once
	heartbeat      time.Duration // after twice this time without a message or a sign, the request is repeated
	large          bool          // messages are large, so a batch may take long on a slow link
}

// slower adapts to a link on which an attempt has failed after received messages. What did
// not arrive is sent again, so too large a batch would fill a slow link with the same
// messages again and again.
func (r *reading) slower(received int) {
	if r.large {
		r.batch = min(r.batch, max(1, received/2))
	}
}

// follow calls f with every message of the stream that matches r.filter, from r.next
// on and without gaps, until ctx ends or f fails. If it fails, r says where to go on. The library's
// ordered consumer does the same, but if the stream is unavailable it retries without a log line and
// ignores the context.
func (b *Bus) follow(ctx context.Context, r *reading, f func(jetstream.Msg) error) error {
	what := "read " + r.filter
	p := b.pauser(what)
	for {
		received := 0
		err := b.followOnce(ctx, r, func(msg jetstream.Msg) error {
			received++
			p.worked()
			return f(msg)
		})
		if stop, ok := errors.AsType[stopped](err); ok {
			return stop.error
		}
		r.slower(received)
		switch {
		case ctx.Err() != nil:
			return p.ended(ctx, err)
		case b.nc.IsClosed():
			return b.closed(what)
		case !transient(err) && !missing(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

func (b *Bus) followOnce(ctx context.Context, r *reading, f func(jetstream.Msg) error) error {
	short, cancel := context.WithTimeout(ctx, b.patience.call)
	var consumer jetstream.Consumer
	err := b.request("read "+r.filter, func() (err error) {
		consumer, err = b.js.CreateConsumer(short, r.stream, jetstream.ConsumerConfig{
			Name: nuid.Next(), FilterSubject: r.filter, AckPolicy: jetstream.AckNonePolicy,
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.next,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: readerLifetime,
		})
		return err
	})
	cancel()
	if err != nil {
		return err
	}
	defer b.drop(ctx, r.stream, consumer)
	messages, err := consumer.Messages(jetstream.PullMaxMessages(r.batch), jetstream.PullHeartbeat(r.heartbeat))
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
		r.next = about.Sequence.Stream + 1
	}
}

// drop deletes a reader. If that fails, the server deletes it a minute later.
func (b *Bus) drop(ctx context.Context, stream string, consumer jetstream.Consumer) {
	if !b.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = b.js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name)
}
