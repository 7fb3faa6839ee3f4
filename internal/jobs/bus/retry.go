package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
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
	idleEvery   = 10 * time.Minute // between log lines while nobody has submitted a job yet
)

// Error codes of the server that nats.go has no names for.
const (
	codeNotEnabledForAccount jetstream.ErrorCode = 10039
	codeClusterRequired      jetstream.ErrorCode = 10010
	codeNoAccount            jetstream.ErrorCode = 10035
	codeUnsupported          jetstream.ErrorCode = 10036
	codeNameInUse            jetstream.ErrorCode = 10058 // two programs ran Setup at once
	codeWrongLast            jetstream.ErrorCode = 10071 // the subject already holds a message
	codeStoreFailed          jetstream.ErrorCode = 10077 // the window of tasks is full, or another stream is
	codeServerFull           jetstream.ErrorCode = 10023
	codeAccountFull          jetstream.ErrorCode = 10002
	codeBytesRequired        jetstream.ErrorCode = 10113 // the account requires a limit in bytes of every stream
	codeAckPending           jetstream.ErrorCode = 10121 // the account or the server allows fewer unacknowledged tasks
	codeNoPeers              jetstream.ErrorCode = 10005 // the leader sees too few nodes
	codeNotAvailable         jetstream.ErrorCode = 10008 // the cluster has no leader, as far as the server knows
	codeStreamOffline        jetstream.ErrorCode = 10118
	codeConsumerOffline      jetstream.ErrorCode = 10119
	codeStreamOfflineFor     jetstream.ErrorCode = 10194 // with a reason
	codeConsumerOfflineFor   jetstream.ErrorCode = 10195 // with a reason
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

// isFull reports whether the server has no room for what should be stored.
func isFull(err error) bool {
	return isCode(err, codeServerFull) || isCode(err, codeAccountFull) || isCode(err, codeStoreFailed)
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
		case codeWrongLastInFlight, codeNoPeers, codeAccountFull:
			return true
		case codeStreamOffline, codeConsumerOffline, codeStreamOfflineFor, codeConsumerOfflineFor: // until somebody repairs or deletes it
			return true
		}
		return e.Code == 503 || e.Code == 429 || e.Code == 408
	}
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	_, broken := errors.AsType[*net.OpError](err) // a write to a connection that has just ended
	return broken
}

// missing reports whether err says that the streams are not set up yet.
func missing(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound)
}

// IsGone reports whether err says that a stream or consumer of Setup no longer exists. A
// server that is killed at the wrong moment may lose them.
func IsGone(err error) bool { return missing(err) }

// pauser spaces the attempts of one call, and logs what the call waits for.
type pauser struct {
	b             *Bus
	message, what string
	longest, next time.Duration // the longest pause, and the last one

	mu     sync.Mutex // guards the fields below, which a timer reads
	since  time.Time  // start of the wait; zero = nothing has failed
	logged time.Time
	cause  error       // why the last attempt failed
	timer  *time.Timer // logs the wait; nil = not begun, or over
}

func (b *Bus) pauser(what string) *pauser {
	return &pauser{b: b, message: "waiting", what: what, longest: longPause}
}

// begin starts the wait for a request. Until end is called, log lines say what the call
// waits for, even while no attempt ends. An embedded server can only be slow, so the wait
// for it is not logged.
func (p *pauser) begin() (end func()) {
	if p.b.address == "" {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	p.timer = time.AfterFunc(quiet, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer != nil {
			p.say()
			p.timer.Reset(logEvery)
		}
	})
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer.Stop()
		p.timer = nil
	}
}

// worked ends the series of failures.
func (p *pauser) worked() {
	p.b.unheard.Store(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.logged.IsZero() {
		p.b.log.Info("working again", zap.String("what", p.what), zap.Duration("after", time.Since(p.since)))
	}
	p.since, p.logged, p.cause, p.next = time.Time{}, time.Time{}, nil, 0
}

// say logs a wait that lasts. The caller holds the lock.
func (p *pauser) say() {
	now := time.Now()
	level, every := zapcore.WarnLevel, logEvery
	switch {
	case missing(p.cause): // usual before the first job
		level, every = zapcore.InfoLevel, idleEvery
	case p.cause == nil && now.Sub(p.since) < callTimeout && (p.b.nc == nil || p.b.nc.IsConnected()):
		level = zapcore.InfoLevel // the server may be busy, for example with the deletion of gigabytes
	}
	if now.Sub(p.since) < quiet || now.Sub(p.logged) < every {
		return
	}
	p.logged = now
	server := zap.Skip()
	if p.b.address != "" {
		server = zap.String("server", p.b.address)
	}
	p.b.log.Log(level, p.message, zap.String("what", p.what), server, zap.NamedError("for", cmp.Or(p.cause, p.b.silence())), zap.Duration("since", now.Sub(p.since)))
}

// pause waits before the next attempt, longer after each failure and with jitter. It logs
// trouble that lasts. If ctx ends first, pause returns its error.
func (p *pauser) pause(ctx context.Context, cause error) error {
	p.mu.Lock()
	if p.since.IsZero() {
		p.since = time.Now()
	}
	p.cause = p.b.explain(cause)
	p.say()
	p.mu.Unlock()
	p.b.leaveSilent(cause)
	p.next = min(max(2*p.next, firstPause), p.longest)
	if isCode(cause, codeStoreFailed) {
		p.next = min(p.next, windowPause)
	}
	timer := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(p.next)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return p.ended(ctx, nil)
	}
}

// errNoAnswer is the reason of a wait for the answer to a request.
var errNoAnswer = errors.New("no answer")

// silence returns why a request may have no answer yet.
func (b *Bus) silence() error {
	switch {
	case b.nc == nil:
		return errNoAnswer
	case !b.nc.IsConnected():
		return b.explain(nats.ErrReconnectBufExceeded)
	}
	return b.explain(context.DeadlineExceeded)
}

// explain adds the likely reasons to an error, for people.
func (b *Bus) explain(cause error) error {
	switch {
	case errors.Is(cause, nats.ErrNoResponders), errors.Is(cause, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w (JetStream is off, starting or without a leader, or the stream does not exist)", cause)
	case missing(cause):
		return fmt.Errorf("%w (no coordinator has set it up yet)", cause)
	case errors.Is(cause, nats.ErrReconnectBufExceeded), b.nc != nil && !b.nc.IsConnected() && transient(cause):
		// LastError is that of the last attempt until the next one dials.
		if why := cmp.Or(b.dialer.last(), b.nc.LastError()); why != nil {
			return fmt.Errorf("no connection to NATS: %w", explained(why))
		}
		return errors.New("no connection to NATS")
	case errors.Is(cause, context.DeadlineExceeded), errors.Is(cause, nats.ErrTimeout):
		return fmt.Errorf("%w (JetStream may be starting or without a leader)", errNoAnswer)
	}
	return cause
}

// ended returns the error of a call whose context ended. The error includes why the last
// attempt failed: cause or, if it only says that the context ended, an earlier one.
func (p *pauser) ended(ctx context.Context, cause error) error {
	if cause == nil || errors.Is(cause, ctx.Err()) {
		p.mu.Lock()
		cause = p.cause
		p.mu.Unlock()
	} else {
		cause = p.b.explain(cause)
	}
	limit, ok := errors.AsType[reached](context.Cause(ctx))
	switch {
	case ok:
		return fmt.Errorf("%s: %w: %w", p.what, limit, p.b.at(cmp.Or(cause, p.b.silence())))
	case cause == nil:
		return fmt.Errorf("%s: %w", p.what, ctx.Err())
	}
	return fmt.Errorf("%s: %w (last: %v)", p.what, ctx.Err(), cause)
}

// closed returns the error of a call after the connection was closed: by Close, or by the library
// after an error of the server that it does not know.
func (b *Bus) closed(what string) error {
	if why := b.nc.LastError(); why != nil {
		return fmt.Errorf("%s: %w: %w", what, ErrClosed, b.at(why))
	}
	return fmt.Errorf("%s: %w", what, ErrClosed)
}

// at adds the address of the server to an error.
func (b *Bus) at(err error) error {
	if b.address == "" {
		return err
	}
	return fmt.Errorf("NATS at %s: %w", b.address, err)
}

// again runs f until it succeeds, fails permanently, or ctx ends.
func (b *Bus) again(ctx context.Context, what string, f func(context.Context) error) error {
	return b.repeat(ctx, b.pauser(what), f)
}

// call is again for one request. f gets a context with its own short deadline.
func (b *Bus) call(ctx context.Context, what string, f func(context.Context) error) error {
	p := b.pauser(what)
	defer p.begin()()
	return b.repeat(ctx, p, func(ctx context.Context) error {
		short, cancel := context.WithTimeout(ctx, b.patience.call)
		defer cancel()
		return b.request(what, func() error { return f(short) })
	})
}

func (b *Bus) repeat(ctx context.Context, p *pauser, f func(context.Context) error) error {
	ctx, cancel := limited(ctx, b.limit)
	defer cancel()
	for begun := time.Now(); ; {
		err := f(ctx)
		switch denied := b.denied.Load(); {
		case err == nil:
			p.worked()
			return nil
		case ctx.Err() != nil:
			return p.ended(ctx, err)
		case b.nc.IsClosed():
			return b.closed(p.what)
		case denied != nil && denied.at.After(begun): // waiting does not cure a missing permission
			return fmt.Errorf("%s: %w", p.what, denied.cause)
		case !transient(err):
			return fmt.Errorf("%s: %w", p.what, err)
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

// request runs one request to the server, through the wrapper of a test if there is one.
func (b *Bus) request(what string, f func() error) error {
	if b.around == nil {
		return f()
	}
	return b.around(what, f)
}

// storeOnce stores msg if its subject holds no message, and returns nil.
// If the subject holds a message, storeOnce returns that message. If the message is
// deleted before it can be read, the error is jetstream.ErrMsgNotFound.
func (b *Bus) storeOnce(ctx context.Context, what, stream string, msg *nats.Msg) (*jetstream.RawStreamMsg, error) {
	err := b.call(ctx, what, func(ctx context.Context) error {
		_, err := b.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithRetryAttempts(0))
		if stream == jobStream { // others may lack for a while; a coordinator creates them again
			err = b.orGone(ctx, stream, err)
		}
		return err
	})
	if !isCode(err, codeWrongLast) {
		return nil, err
	}
	return b.last(ctx, what, stream, msg.Subject)
}

// last returns the subject's last message as the stream's leader holds it, or
// jetstream.ErrMsgNotFound.
func (b *Bus) last(ctx context.Context, what, stream, subject string) (msg *jetstream.RawStreamMsg, err error) {
	err = b.call(ctx, what, func(ctx context.Context) error {
		msg, err = b.get(ctx, stream, getRequest{Last: subject})
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
