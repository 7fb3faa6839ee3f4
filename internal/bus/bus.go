// Package bus carries a job's tasks, results, quarantines and blobs over NATS JetStream.
// It is the only importer of NATS, the embedded server included.
//
// Messages are small and refer to write-once blobs. A shard's result is stored once, by a
// conditional publish, before its task is acknowledged. Everything else
// (acknowledgements, leases, the limit on stored tasks) only saves work.
//
// Every request to the server has its own short deadline. If a request fails for a
// temporary reason (no leader, no answer, too many stored tasks, a lost connection), the
// bus repeats it for as long as the caller's context lives. A log line says what the bus
// is waiting for.
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

// The errors that callers may test for.
var (
	// ErrNotFound means that no blob of that name is stored.
	ErrNotFound = errors.New("blob not found")
	// ErrCorrupt means that the stored bytes do not match the reference. An error that
	// wraps it is bad input and names the blob.
	ErrCorrupt = errors.New("blob is corrupt")
	// ErrConflict means that something else is stored under the same name.
	ErrConflict = errors.New("something else is stored under this name")
	// ErrLeaseLost means that the task may have gone to another worker.
	ErrLeaseLost = errors.New("lease lost")
	// ErrClosed means that the Bus was closed.
	ErrClosed = errors.New("bus closed")
)

// Config says where the server is. Exactly one of URL and Server is set.
type Config struct {
	URL    string  // nats:// or tls:// addresses, separated by commas
	Server *Server // the embedded server, connected inside the process without a socket
	Access Access  // credentials for URL
	// Role is coordinator, worker or operator. It prefixes the inbox that receives
	// replies, so that a server can keep one role from reading another's replies.
	Role string
	Name string      // this client's name, shown in server logs and in quarantines
	Log  *zap.Logger // nil = silent
	// OnBlob is called with the size of each chunk of a blob that was sent or received.
	// It may be called from any goroutine. Nil = no calls.
	OnBlob func(sent bool, bytes int)
	// Around wraps every request to the server, so that tests can make a request fail or
	// lose its answer. Nil = requests are made directly.
	Around func(what string, request func() error) error
}

// Bus is a connection to NATS. It reconnects without limit and is safe for concurrent
// use.
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
	strays  []string                    // tokens of chunks to delete again, because some may have been stored late
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
		// Publish nothing late. A heartbeat or release that was buffered while
		// disconnected could arrive after its lease ended and affect another worker's
		// task.
		nats.ReconnectBufSize(-1),
	}
	switch {
	case c.Server != nil && (c.URL != "" || c.Access != Access{}):
		return nil, errors.New("bus: the configuration has an embedded server and also an address or credentials")
	case c.Server != nil:
		options = append(options, nats.InProcessServer(c.Server.server))
	case c.URL == "":
		return nil, errors.New("bus: the address of the NATS server is empty")
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

// Connect returns once the connection is established. If the server is not up yet, Connect
// waits for it until ctx ends. If the server refuses the credentials, Connect returns an
// error.
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
	refused := new(atomic.Pointer[error]) // why the last connection attempt failed
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

// denial is the server's last refusal for lack of permission. The server sends it
// separately, and the refused request itself just gets no answer.
type denial struct {
	at    time.Time
	cause error
}

// watch writes one log line for each change of the connection's state.
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
			log.Info("NATS server is shutting down", server(nc))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				denied.Store(&denial{time.Now(), err})
			}
			log.Warn("NATS connection error", zap.Error(err))
		}),
		nats.ClosedHandler(func(nc *nats.Conn) {
			log.Debug("closed the connection to NATS", zap.Error(nc.LastError()))
			close(closed)
		}),
	}
}

// Ready returns nil while the bus is connected, and an error otherwise.
func (b *Bus) Ready() error {
	if !b.nc.IsConnected() {
		return errors.New("not connected to NATS")
	}
	return nil
}

// Close ends the connection. Calls in progress return ErrClosed.
func (b *Bus) Close() {
	if b.nc.IsConnected() {
		b.sweepStrays(context.Background())
	}
	b.nc.Close()
}

// stream returns a handle of the stream. It asks the server only the first time.
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
