// Package bus carries a job's tasks, results, quarantines and blobs over NATS JetStream.
// It is the only importer of NATS, the embedded server included.
//
// Messages are small and refer to write-once blobs. A shard's result is stored once, by a
// conditional publish, before its task is acknowledged. Everything else
// (acknowledgements, leases, the limit on stored tasks) only saves work.
//
// Every request to the server has its own short deadline. If a request fails for a
// temporary reason (no leader, no answer, too many stored tasks, a lost connection), the
// bus repeats it for as long as the caller's context and Config.Wait allow. A log line says
// what the bus is waiting for.
package bus

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
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
	// ErrFull means that the server has no room.
	ErrFull = errors.New("the server has no room")
	// ErrLeaseLost means that the task may have gone to another worker.
	ErrLeaseLost = errors.New("lease lost")
	// ErrClosed means that the Bus was closed.
	ErrClosed = errors.New("bus closed")
)

// Config says where the server is. Exactly one of URL and Server is set.
type Config struct {
	URL    string                     // nats:// or tls:// addresses, separated by commas
	Server nats.InProcessConnProvider // a server in this process, connected without a socket
	// Desk hands out the tasks if all users of Server are in this process. They share it. nil = the
	// server hands them out.
	Desk   *Desk
	Access Access // credentials for URL
	// Role is coordinator, worker, operator or monitor. It prefixes the inbox that receives
	// replies, so that a server can keep one role from reading another's replies.
	Role string
	Name string      // this client's name, shown in server logs and in quarantines
	Log  *zap.Logger // nil = silent
	// OnBlob is called with the size of each chunk of a blob that was sent or received.
	// It may be called from any goroutine. Nil = no calls.
	OnBlob func(sent bool, bytes int)
	// Wait is how long Connect waits for a server that can be used; 0 = no limit. Connect
	// may fail earlier, because some failures do not end by waiting (see judge).
	Wait time.Duration
	// Interactive means that a person or a script waits for an answer. Wait then also limits
	// every later request. An unknown host, or a server without JetStream, is then an error at
	// once. Without Interactive, Connect waits for it, because a cluster may still be
	// starting.
	Interactive bool
	// Around wraps every request to the server after Connect, so that tests can make a request fail or
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

	address string        // of the server, without secrets; "" = embedded
	limit   time.Duration // how long a request may wait for the server; 0 = no limit

	around func(what string, request func() error) error
	onBlob func(sent bool, bytes int)
	denied *atomic.Pointer[denial]

	leaving atomic.Bool // see SetLeaving
	desk    *Desk       // hands out the tasks if the server is local; nil = the server does

	lease    atomic.Int64 // of the tasks that are published, in ns; 0 = that of the consumer
	patience patience
	dialer   dialer
	servers  int          // number of servers in the configuration
	unheard  atomic.Int64 // since when JetStream has not answered, on the clock of uptime; 0 = the last request succeeded

	mu            sync.Mutex
	streams       map[string]jetstream.Stream   // handles by name
	taskConsumers map[string]jetstream.Consumer // of tasks by kernel, as last looked up
	values        map[string]int                // number of values that were stored under the key of each subject
	strays        []string                      // tokens of chunks to delete again, because some may have been stored late
}

// patience is how long a client waits before it gives up a request or a connection.
type patience struct {
	call      time.Duration // for the answer to one request
	ping      time.Duration // between two checks that the connection works
	heartbeat time.Duration // between two signs of life to a reader; after two missing ones the reader is lost
	silence   time.Duration // without any answer from JetStream, until the client tries another server
}

// patience returns the times for the server. There is no network between a local server and
// its clients. If the server is slow, the machine is busy, and a repeated request makes it
// busier. If the server fails, it reports this (embedded.Server.Failed).
func (c *Config) patience() patience {
	if c.Desk != nil {
		return patience{call: time.Minute, ping: time.Hour, heartbeat: 15 * time.Second}
	}
	return patience{call: callTimeout, ping: 10 * time.Second, heartbeat: time.Second, silence: 4 * callTimeout}
}

func (c *Config) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(c.patience().call),
		nats.DontRandomize(), // open chooses the order
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond), // an attempt with TLS ends before its wait is logged (quiet)
		nats.PingInterval(c.patience().ping),
		// Publish nothing late. A heartbeat or release that was buffered while
		// disconnected could arrive after its lease ended and affect another worker's
		// task.
		nats.ReconnectBufSize(-1),
		// The server and the files may get new credentials at different times.
		nats.IgnoreAuthErrorAbort(),
	}
	switch {
	case c.Desk != nil && c.Server == nil:
		return nil, errors.New("bus: the configuration has a desk, but no server in this process")
	case c.Server != nil && (c.URL != "" || c.Access != Access{}):
		return nil, errors.New("bus: the configuration has an embedded server and also an address or credentials")
	case c.Server != nil:
		options = append(options, nats.InProcessServer(c.Server))
	case c.URL == "":
		return nil, errors.New("bus: the address of the NATS server is empty")
	}
	if c.Role != "" {
		options = append(options, nats.CustomInboxPrefix(inboxes+c.Role))
	}
	servers, err := addresses(c.URL)
	if err != nil {
		return nil, err
	}
	inAddress := slices.ContainsFunc(servers, func(u *url.URL) bool { return u.User != nil })
	if err := c.Access.validate(inAddress); err != nil {
		return nil, err
	}
	access, err := c.Access.options()
	return append(options, access...), err
}

// denial is the server's last refusal for lack of permission. The server sends it
// separately, and the refused request itself just gets no answer.
type denial struct {
	at    time.Time
	cause error
}

// watch writes one log line for each change of the connection's state.
func watch(embedded bool, log *zap.Logger, denied *atomic.Pointer[denial]) []nats.Option {
	server := func(nc *nats.Conn) zap.Field {
		if embedded {
			return zap.String("server", "embedded")
		}
		return zap.String("server", nc.ConnectedUrlRedacted())
	}
	up := func(text string) nats.ConnHandler {
		return func(nc *nats.Conn) { log.Info(text, server(nc)) }
	}
	var refused time.Time // when a failed attempt to reconnect was last logged; the handlers run one after the other
	return []nats.Option{
		nats.ConnectHandler(up("connected to NATS")),
		nats.ReconnectHandler(up("reconnected to NATS")),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil if this program asked for another connection
				log.Warn("disconnected from NATS", zap.Error(err))
			}
		}),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			log.Info("NATS server is shutting down", server(nc))
		}),
		nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
			if !nc.IsConnected() { // each attempt fails until somebody corrects the credentials
				if time.Since(refused) >= logEvery {
					refused = time.Now()
					log.Warn("cannot reconnect to NATS", zap.Error(explained(err)))
				}
				return
			}
			if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+whoSubject+`"`) {
				log.Warn("the server does not let workers and coordinators see each other: its permissions are those of an earlier build", zap.Error(err))
				return
			}
			if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+endSubject+`"`) {
				log.Warn("the server does not let this program see how jobs end: its permissions are those of an earlier build", zap.Error(err))
				return
			}
			if errors.Is(err, nats.ErrPermissionViolation) {
				denied.Store(&denial{time.Now(), err})
			}
			log.Warn("NATS connection error", zap.Error(err))
		}),
		nats.NoCallbacksAfterClientClose(), // Close logs itself, before it returns
		nats.ClosedHandler(func(nc *nats.Conn) {
			log.Warn("the connection to NATS was closed", zap.Error(nc.LastError()))
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
	b.log.Debug("closed the connection to NATS")
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
