package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

const (
	// callTimeout bounds one request. Without it, a request to a stream without a leader
	// would hang for as long as its context lives.
	callTimeout = 5 * time.Second
	firstPause  = 50 * time.Millisecond
	longPause   = 2 * time.Second
	windowPause = 250 * time.Millisecond // between attempts while the window is full; short, so that workers do not idle
	quiet       = time.Second            // shorter trouble is not logged
	logEvery    = 15 * time.Second
)

// Error codes of the server that nats.go has no names for.
const (
	codeNotEnabledForAccount jetstream.ErrorCode = 10039
	codeClusterRequired      jetstream.ErrorCode = 10010
	codeNoAccount            jetstream.ErrorCode = 10035
	codeUnsupported          jetstream.ErrorCode = 10036
	codeNameInUse            jetstream.ErrorCode = 10058 // two programs ran Setup at once
	codeWrongLast            jetstream.ErrorCode = 10071 // the subject already holds a message
	codeStoreFailed          jetstream.ErrorCode = 10077 // the window is full
	codeNoPeers              jetstream.ErrorCode = 10005 // the leader sees too few nodes
	codeWrongLastInFlight    jetstream.ErrorCode = 10164 // another write is in flight, and nothing is stored yet
)

func apiError(err error) *jetstream.APIError {
	if e, ok := errors.AsType[jetstream.JetStreamError](err); ok {
		return e.APIError()
	}
	return nil
}

func isCode(err error, code jetstream.ErrorCode) bool {
	e := apiError(err)
	return e != nil && e.ErrorCode == code
}

// errAgain marks an error of our own that another attempt may cure.
type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// passing are the temporary errors of the client library.
var passing = []error{
	context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
	nats.ErrStaleConnection, jetstream.ErrNoStreamResponse, jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted,
	jetstream.ErrConsumerLeadershipChanged, jetstream.ErrServerShutdown, jetstream.ErrAsyncPublishTimeout,
	jetstream.ErrTooManyStalledMsgs, jetstream.ErrMsgIteratorClosed,
}

// transient reports whether the same call may succeed later. If a write fails with such an
// error, the server may or may not have stored the message.
func transient(err error) bool {
	if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrConnectionClosed) {
		return false
	}
	if _, ok := errors.AsType[errAgain](err); ok {
		return true
	}
	if e := apiError(err); e != nil {
		switch e.ErrorCode {
		case codeNotEnabledForAccount, codeClusterRequired, codeNoAccount, codeUnsupported:
			return false
		case codeWrongLastInFlight, codeNoPeers:
			return true
		}
		return e.Code == 503 || e.Code == 429 || e.Code == 408
	}
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// missing reports whether err says that the streams are not set up yet.
func missing(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound)
}

// IsGone reports whether err says that a stream or consumer of Setup no longer exists. A
// server that is killed at the wrong moment may lose them.
func IsGone(err error) bool { return missing(err) }

// pauser spaces the attempts of one call.
type pauser struct {
	log    *zap.Logger
	what   string
	next   time.Duration
	since  time.Time // time of the first failure in the present series
	logged time.Time
}

func (b *Bus) pauser(what string) *pauser { return &pauser{log: b.log, what: what} }

// worked ends the series of failures.
func (p *pauser) worked() {
	if !p.logged.IsZero() {
		p.log.Info("working again", zap.String("what", p.what), zap.Duration("after", time.Since(p.since)))
	}
	*p = pauser{log: p.log, what: p.what}
}

// pause waits before the next attempt, longer after each failure and with jitter. It logs
// trouble that lasts. If ctx ends first, pause returns its error.
func (p *pauser) pause(ctx context.Context, cause error) error {
	now := time.Now()
	if p.since.IsZero() {
		p.since, p.next = now, firstPause
	}
	if now.Sub(p.since) >= quiet && now.Sub(p.logged) >= logEvery {
		p.logged = now
		p.log.Warn("waiting", zap.String("what", p.what), zap.NamedError("for", explain(cause)), zap.Duration("since", now.Sub(p.since)))
	}
	wait := time.Duration((0.5 + rand.Float64()) * float64(p.next))
	p.next = min(2*p.next, longPause)
	if isCode(cause, codeStoreFailed) {
		p.next = min(p.next, windowPause)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, p.what, cause)
	}
}

// explain adds the likely reasons to an error, for people.
func explain(cause error) error {
	switch {
	case errors.Is(cause, nats.ErrNoResponders), errors.Is(cause, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w (JetStream is off, starting or without a leader, or the stream does not exist)", cause)
	case missing(cause):
		return fmt.Errorf("%w (no coordinator has set it up yet)", cause)
	case errors.Is(cause, nats.ErrReconnectBufExceeded):
		return errors.New("no connection to NATS")
	}
	return cause
}

// ended returns the error of a call whose context ended, with the cause of its last
// failure.
func ended(ctx context.Context, what string, cause error) error {
	if cause == nil || errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	return fmt.Errorf("%s: %w (last: %v)", what, ctx.Err(), cause)
}

// again runs f until it succeeds, fails permanently, or ctx ends.
func (b *Bus) again(ctx context.Context, what string, f func() error) error {
	p, begun := b.pauser(what), time.Now()
	for {
		err := f()
		switch denied := b.denied.Load(); {
		case err == nil:
			p.worked()
			return nil
		case ctx.Err() != nil:
			return ended(ctx, what, err)
		case b.nc.IsClosed():
			return fmt.Errorf("%s: %w", what, ErrClosed)
		case denied != nil && denied.at.After(begun): // waiting does not cure a missing permission
			return fmt.Errorf("%s: %w", what, denied.cause)
		case !transient(err):
			return fmt.Errorf("%s: %w", what, err)
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

// call is again for one request. f gets a context with its own short deadline.
func (b *Bus) call(ctx context.Context, what string, f func(context.Context) error) error {
	return b.again(ctx, what, func() error {
		short, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return b.request(what, func() error { return f(short) })
	})
}

// request runs one request to the server, through the wrapper of a test if there is one.
func (b *Bus) request(what string, f func() error) error {
	if b.around == nil {
		return f()
	}
	return b.around(what, f)
}

// storeOnce stores body under subject if the subject holds no message, and returns nil.
// If the subject holds a message, storeOnce returns that message. If the message is
// deleted before it can be read, the error is jetstream.ErrMsgNotFound.
func (b *Bus) storeOnce(ctx context.Context, what, stream, subject string, body []byte) (*jetstream.RawStreamMsg, error) {
	err := b.call(ctx, what, func(ctx context.Context) error {
		_, err := b.js.Publish(ctx, subject, body, jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithRetryAttempts(0))
		return err
	})
	if !isCode(err, codeWrongLast) {
		return nil, err
	}
	return b.last(ctx, what, stream, subject)
}

// last returns the subject's last message as the stream's leader holds it, or
// jetstream.ErrMsgNotFound.
func (b *Bus) last(ctx context.Context, what, stream, subject string) (msg *jetstream.RawStreamMsg, err error) {
	err = b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, stream)
		if err != nil {
			return err
		}
		msg, err = s.GetLastMsgForSubject(ctx, subject)
		return err
	})
	return msg, err
}

// subjects returns the stream's subjects that match filter, and the number of messages
// that each holds.
func (b *Bus) subjects(ctx context.Context, what, stream, filter string) (held map[string]uint64, err error) {
	err = b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err == nil {
			held = info.State.Subjects
		}
		return err
	})
	return held, err
}

// purge deletes all messages of exactly this subject.
func (b *Bus) purge(ctx context.Context, what, stream, subject string) error {
	return b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, stream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSubject(subject))
	})
}
