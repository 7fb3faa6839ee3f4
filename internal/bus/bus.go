// Package bus carries a job's tasks, results, quarantines and blobs over NATS
// JetStream. It is the only importer of NATS, the embedded server included.
//
// Messages are small and refer to write-once blobs. A result is stored once a
// shard, by a guarded publish, before its task is acknowledged; everything else
// (acknowledgements, leases, the queue's window) only saves work.
//
// Every call to the server has its own short deadline. What may pass (no
// leader, no answer, a full window, a lost connection) is tried again for as
// long as the caller's context lives, and a log line says what is waited for.
package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// Sentinels of this package.
var (
	// ErrNotFound says that no blob of that name is stored.
	ErrNotFound = errors.New("blob not found")
	// ErrCorrupt says that the stored bytes are not those of the reference.
	// An error that wraps it is bad input and names the blob.
	ErrCorrupt = errors.New("blob is corrupt")
	// ErrConflict says that something else is stored under the same name.
	ErrConflict = errors.New("something else is stored under this name")
	// ErrLeaseLost says that the task may be another worker's by now.
	ErrLeaseLost = errors.New("lease lost")
	// ErrClosed says that the Bus was closed.
	ErrClosed = errors.New("bus closed")
)

// Config says where the server is. Exactly one of URL and Server is set.
type Config struct {
	URL    string  // nats:// or tls://, several separated by commas
	Server *Server // embedded: connect inside the process, without a socket
	Access Access  // to URL
	// Role is coordinator, worker or operator. Answers come to an inbox of the
	// role, so that a server can keep one role from reading another's.
	Role string
	Name string      // of this client, for people: in server logs and in quarantines
	Log  *zap.Logger // nil = silent
	// OnBlob is called with the bytes of each chunk of a blob that was sent or
	// received, from any goroutine; nil = not.
	OnBlob func(sent bool, bytes int)
	// Around stands around every request to the server, to make it fail or its
	// answer be lost in tests; nil = not.
	Around func(what string, request func() error) error
}

// Bus is a connection. It reconnects for ever and is safe for concurrent use.
type Bus struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	name string
	log  *zap.Logger

	around func(what string, request func() error) error
	onBlob func(sent bool, bytes int)
	denied *atomic.Pointer[denial]

	mu      sync.Mutex
	streams map[string]jetstream.Stream // handles by name
	strays  []string                    // tokens of chunks that were swept, and may have come since
}

func (c *Config) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(callTimeout),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.PingInterval(10 * time.Second),
		// Nothing is kept for later while disconnected: a heartbeat or a
		// release sent after its lease ended would hit another worker's task.
		nats.ReconnectBufSize(-1),
	}
	switch {
	case c.Server != nil && (c.URL != "" || c.Access != Access{}):
		return nil, errors.New("bus: both an embedded server and an address or access to one are given")
	case c.Server != nil:
		options = append(options, nats.InProcessServer(c.Server.server))
	case c.URL == "":
		return nil, errors.New("bus: no address of a NATS server")
	}
	if c.Role != "" {
		options = append(options, nats.CustomInboxPrefix("_INBOX."+c.Role))
	}
	inAddress, err := addresses(c.URL)
	if err != nil {
		return nil, err
	}
	if err := c.Access.validate(inAddress); err != nil {
		return nil, err
	}
	access, err := c.Access.options()
	return append(options, access...), err
}

// Connect returns once the connection stands. A server that is not there yet is
// waited for while ctx lives; one that refuses the credentials is an error.
func Connect(ctx context.Context, c Config) (*Bus, error) {
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	connected, closed := make(chan struct{}, 1), make(chan struct{})
	denied := new(atomic.Pointer[denial])
	options = append(options, watch(c.Server != nil, log, connected, closed, denied)...)
	refused := new(atomic.Pointer[error]) // why the last try to connect failed
	options = append(options, nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { refused.Store(&err) }))
	reason := func(nc *nats.Conn) error {
		if last := refused.Load(); last != nil {
			return *last
		}
		return nc.LastError()
	}
	nc, err := nats.Connect(c.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	wait := time.NewTimer(2 * time.Second)
	defer wait.Stop()
	for !nc.IsConnected() {
		select {
		case <-connected:
		case <-wait.C:
			log.Warn("waiting for the NATS server", zap.Error(reason(nc)))
			wait.Reset(logEvery)
		case <-closed:
			return nil, fmt.Errorf("connect to NATS: %w", cmp.Or(nc.LastError(), nats.ErrConnectionClosed))
		case <-ctx.Done():
			last := reason(nc)
			nc.Close()
			return nil, fmt.Errorf("connect to NATS: %w (%v)", ctx.Err(), cmp.Or(last, nats.ErrNoServers))
		}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(callTimeout), jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return &Bus{nc: nc, js: js, name: c.Name, log: log, around: c.Around, onBlob: c.OnBlob, denied: denied, streams: map[string]jetstream.Stream{}}, nil
}

// denial is what the server last refused us for want of permission. It says so
// beside the request, which seems to get no answer.
type denial struct {
	at    time.Time
	cause error
}

// watch writes one log line a change of the connection's state.
func watch(embedded bool, log *zap.Logger, connected chan<- struct{}, closed chan<- struct{}, denied *atomic.Pointer[denial]) []nats.Option {
	server := func(nc *nats.Conn) zap.Field {
		if embedded {
			return zap.String("server", "embedded")
		}
		return zap.String("server", nc.ConnectedUrlRedacted())
	}
	up := func(text string) nats.ConnHandler {
		return func(nc *nats.Conn) {
			log.Info(text, server(nc))
			select {
			case connected <- struct{}{}:
			default:
			}
		}
	}
	return []nats.Option{
		nats.ConnectHandler(up("connected to NATS")),
		nats.ReconnectHandler(up("reconnected to NATS")),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we closed it
				log.Warn("disconnected from NATS", zap.Error(err))
			}
		}),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			log.Info("NATS server is leaving", server(nc))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				denied.Store(&denial{time.Now(), err})
			}
			log.Warn("NATS connection", zap.Error(err))
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			log.Debug("closed the connection to NATS", zap.Error(nc.LastError()))
			close(closed)
		}),
	}
}

// Ready returns nil while the connection stands.
func (b *Bus) Ready() error {
	if !b.nc.IsConnected() {
		return errors.New("not connected to NATS")
	}
	return nil
}

// Close ends the connection; calls in progress return ErrClosed.
func (b *Bus) Close() {
	if b.nc.IsConnected() {
		b.sweepStrays(context.Background())
	}
	b.nc.Close()
}

// stream returns a handle of the stream, asking the server once.
func (b *Bus) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	b.mu.Lock()
	s := b.streams[name]
	b.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.streams[name] = s
	b.mu.Unlock()
	return s, nil
}
