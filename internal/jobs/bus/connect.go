package bus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// leastServer is the oldest version of a NATS server that works. TestOldServers of
// cmd/shaver runs jobs on it. Version 2.9 refuses the consumers of Setup.
var leastServer = [3]int{2, 10, 0}

// Connect returns once a server is connected and answers JetStream requests. Until then
// it tries again, for as long as Config.Wait and ctx allow. A log line says what it waits
// for. If waiting cannot help, Connect returns an error at once.
func Connect(ctx context.Context, c Config) (*Bus, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	b := &Bus{
		name: c.Name, log: c.Log, onBlob: c.OnBlob, denied: new(atomic.Pointer[denial]),
		streams: map[string]jetstream.Stream{}, taskConsumers: map[string]jetstream.Consumer{}, values: map[string]int{}, patience: c.patience(), desk: c.Desk,
	}
	if c.Server == nil {
		if b.address, err = Redacted(c.URL); err != nil {
			return nil, err
		}
	}
	b.servers = strings.Count(c.URL, ",") + 1
	if b.log == nil {
		b.log = zap.NewNop()
	}
	options = append(options, watch(c.Server != nil, b.log, b.denied)...)
	if c.Server == nil {
		options = append(options, nats.SetCustomDialer(&b.dialer))
	}
	ctx, cancel := limited(ctx, c.Wait)
	defer cancel()
	if b.nc, err = b.open(ctx, &c, options); err != nil {
		return nil, err
	}
	if file := c.Access.NKey; file != "" {
		again := func() { // the library keeps the public key of the first seed; it holds its lock while it dials
			if option, err := nats.NkeyOptionFromSeed(file); err == nil {
				_ = option(&b.nc.Opts)
			}
		}
		b.dialer.before.Store(&again)
	}
	b.js, err = jetstream.New(b.nc, jetstream.WithPublishAsyncTimeout(b.patience.call), jetstream.WithDefaultTimeout(b.patience.call))
	if err == nil {
		err = b.awaitJetStream(ctx, c.Interactive)
	}
	if err != nil {
		b.nc.Close()
		return nil, err
	}
	b.around = c.Around
	if c.Interactive {
		b.limit = c.Wait
	}
	return b, nil
}

// open makes the first connection. Later the client library reconnects by itself.
func (b *Bus) open(ctx context.Context, c *Config, options []nats.Option) (*nats.Conn, error) {
	servers := strings.Split(c.URL, ",")
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	p := b.pauser("connect")
	p.message, p.longest = "waiting for the NATS server", time.Second
	defer p.begin()()
	useless := 0 // number of servers in a row for which waiting does not help
	for {
		nc, err := b.dial(ctx, strings.Join(servers, ","), options)
		if err == nil {
			p.worked()
			return nc, nil
		}
		if ctx.Err() != nil {
			return nil, p.ended(ctx, err)
		}
		// The error is that of the last server in the list. Each server is the last one once.
		outlook, err := judge(err)
		if outlook == hopeless || outlook == unlikely && c.Interactive {
			useless++
		} else {
			useless = 0
		}
		if useless == len(servers) {
			return nil, fmt.Errorf("%s: %w", p.what, b.at(err))
		}
		servers = append(servers[1:], servers[0])
		if err := p.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// dial tries each of the servers once. Its error is that of the last one.
func (b *Bus) dial(ctx context.Context, servers string, options []nats.Option) (*nats.Conn, error) {
	type outcome struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan outcome, 1)
	go func() { // the library does not look at ctx
		nc, err := nats.Connect(servers, options...)
		done <- outcome{nc, err}
	}()
	select {
	case o := <-done:
		if errors.Is(o.err, nats.ErrNoServers) { // what the library says instead of "connection refused"
			return nil, cmp.Or(b.dialer.last(), o.err)
		}
		if o.err == nil {
			if err := checkVersion(o.nc.ConnectedServerVersion()); err != nil {
				o.nc.Close()
				return nil, err
			}
		}
		return o.nc, o.err
	case <-ctx.Done():
		go func() {
			if o := <-done; o.err == nil {
				o.nc.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// awaitJetStream returns once the server answers requests about streams.
func (b *Bus) awaitJetStream(ctx context.Context, interactive bool) error {
	return b.call(ctx, "look for JetStream", func(ctx context.Context) error {
		_, err := b.stream(ctx, jobStream)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound): // no job was ever submitted to this server
			return nil
		case interactive && errors.Is(err, nats.ErrNoResponders):
			return b.at(errNoJetStream)
		}
		return err
	})
}

// silent reports whether err says that the server cannot reach the leader of a stream, or
// that the cluster has none.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || isCode(err, codeNotAvailable)
}

// began is where the clock of uptime begins.
var began = time.Now()

// uptime returns the time since the start of this process, which jumps of the clock do
// not affect.
func uptime() time.Duration { return time.Since(began) }

// leaveSilent connects to another server if JetStream has not answered any request for a
// while because of errors like err. The present server may be cut off from the others of
// its cluster, while another one can reach them.
func (b *Bus) leaveSilent(err error) {
	if b.servers < 2 || b.nc == nil || !silent(err) {
		return
	}
	now := int64(uptime())
	if b.unheard.CompareAndSwap(0, now) {
		return
	}
	since := b.unheard.Load()
	if !b.nc.IsConnected() || now-since < int64(b.patience.silence) || !b.unheard.CompareAndSwap(since, now) {
		return
	}
	b.log.Warn("the NATS server does not answer: trying another one", zap.String("server", b.nc.ConnectedUrlRedacted()), zap.Error(b.explain(err)))
	_ = b.nc.ForceReconnect() // an error means that the connection was closed
}

// errNoJetStream means that no server that we can reach has JetStream.
var errNoJetStream = errors.New("JetStream is off (nats-server -js turns it on)")

// dialer makes TCP connections, counts the bytes that arrive, and remembers why the last attempt failed, because the
// client library does not always report that. It is safe for concurrent use.
type dialer struct {
	before  atomic.Pointer[func()] // called before each attempt; nil = no call
	failure atomic.Pointer[error]
	arrived atomic.Int64 // bytes; a large message counts while it is on its way
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if before := d.before.Load(); before != nil {
		(*before)()
	}
	conn, err := (&net.Dialer{Timeout: callTimeout}).Dial(network, address)
	if err != nil {
		d.failure.Store(&err)
		return nil, err
	}
	d.failure.Store(nil)
	return counted{conn, &d.arrived}, nil
}

// counted is a connection whose bytes are counted when they arrive.
type counted struct {
	net.Conn
	arrived *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.arrived.Add(int64(n))
	return n, err
}

// last returns why the last attempt failed, or nil if it did not.
func (d *dialer) last() error {
	if err := d.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// outlook says whether a server that cannot be used now may be usable later.
type outlook int

const (
	likely   outlook = iota // the server is down, starting or overloaded
	unlikely                // only if a cluster is being set up
	hopeless                // somebody has to change the configuration of the client or the server
)

// refusals are the errors of a server that does not admit this user.
var refusals = []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported}

// judge returns the outlook after a failed attempt to connect, and the error with an
// explanation.
func judge(err error) (outlook, error) {
	if errors.Is(err, errOld) {
		return hopeless, err
	}
	if errors.Is(err, nats.ErrSecureConnWanted) {
		return hopeless, fmt.Errorf("the server does not offer TLS, but tls:// or a TLS file requires it: %w", err)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return hopeless, fmt.Errorf("%w: the server does not speak TLS", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return hopeless, fmt.Errorf("the server's certificate is not trusted: %w", err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // a TLS alert
		return hopeless, fmt.Errorf("the server refuses the client's certificate: %w", err)
	}
	if slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return hopeless, fmt.Errorf("the server refuses this user: %w", err)
	}
	if unknown, ok := errors.AsType[*net.DNSError](err); ok && unknown.IsNotFound {
		return unlikely, fmt.Errorf("unknown host: %w", err)
	}
	if errors.Is(err, nats.ErrNoInfoReceived) {
		return unlikely, fmt.Errorf("%w: expected a NATS server", err)
	}
	return likely, err
}

// explained is the error of judge.
func explained(err error) error {
	_, err = judge(err)
	return err
}

// errOld means that the server is too old.
var errOld = errors.New("the NATS server is too old")

// checkVersion returns an error if a server of this version is too old. It accepts
// versions that it cannot parse.
func checkVersion(version string) error {
	var found [3]int
	if n, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &found[0], &found[1], &found[2]); n < 3 || slices.Compare(found[:], leastServer[:]) >= 0 {
		return nil
	}
	return fmt.Errorf("%w: it has version %s, and shaver needs %d.%d.%d or later", errOld, version, leastServer[0], leastServer[1], leastServer[2])
}

// reached is the cause of a context whose wait has reached its limit.
type reached time.Duration

func (r reached) Error() string { return fmt.Sprintf("gave up after %v", time.Duration(r)) }

// limited returns a context that ends after limit with the cause reached. 0 = no limit.
func limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, reached(limit))
}
