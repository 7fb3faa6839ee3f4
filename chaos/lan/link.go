package lan

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Weather is the present state of a link or of a wire. A link, which knows no packets,
// ignores jitter and loss.
type Weather struct {
	Delay  time.Duration // delay of each piece or packet, in both directions
	Jitter time.Duration // largest additional random delay of a packet
	Rate   int64         // bytes per second in each direction; 0 = unlimited
	Loss   float64       // portion of the packets that is lost
	Hole   bool          // connections stay open, but nothing passes
	Cut    bool          // connections end, and new ones are refused
}

// Link connects one client to the nodes through proxies that can disturb the traffic. It
// is safe for concurrent use.
type Link struct {
	listeners []net.Listener
	ctx       context.Context
	end       context.CancelFunc
	busy      sync.WaitGroup

	mu      sync.Mutex
	now     Weather
	changed chan struct{} // closed and replaced when the weather changes
	open    map[net.Conn]bool
}

// NewLink opens listeners for one client of the nodes at the given addresses.
func NewLink(nodes []string) (*Link, error) {
	l := &Link{changed: make(chan struct{}), open: map[net.Conn]bool{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	for _, node := range nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			l.Close()
			return nil, err
		}
		l.listeners = append(l.listeners, listener)
		l.busy.Go(func() { l.accept(listener, node) })
	}
	return l, nil
}

// URL returns the addresses to which the client connects.
func (l *Link) URL() string {
	var addresses []string
	for _, listener := range l.listeners {
		addresses = append(addresses, listener.Addr().String())
	}
	return URLs(addresses)
}

// Set changes the weather.
func (l *Link) Set(w Weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = w
	close(l.changed)
	l.changed = make(chan struct{})
	if w.Cut {
		l.drop()
	}
}

// drop closes all connections. The caller holds mu.
func (l *Link) drop() {
	for c := range l.open {
		c.Close()
	}
}

// Close closes the link and waits until all its goroutines have ended.
func (l *Link) Close() {
	l.end()
	for _, listener := range l.listeners {
		listener.Close()
	}
	l.mu.Lock()
	l.drop()
	l.mu.Unlock()
	l.busy.Wait()
}

func (l *Link) accept(listener net.Listener, node string) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			l.busy.Go(func() { l.carry(client, node) })
		}
	}
}

// carry connects a client to the node until one of them closes the connection.
func (l *Link) carry(client net.Conn, node string) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", node, time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.enter(client, server) {
		return
	}
	defer l.leave(client, server)
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		l.pass(to, from)
		to.Close()
		from.Close()
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
}

func (l *Link) enter(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Cut || l.ctx.Err() != nil {
		return false
	}
	for _, c := range conns {
		l.open[c] = true
	}
	return true
}

func (l *Link) leave(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.open, c)
	}
}

// pass copies from one connection to another, subject to the weather, until one of them
// closes.
func (l *Link) pass(to, from net.Conn) {
	piece := make([]byte, 16<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !l.weather(n) {
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// weather delays a piece of n bytes. It returns false if the link was closed or cut in
// the meantime.
func (l *Link) weather(n int) bool {
	for {
		l.mu.Lock()
		now, changed := l.now, l.changed
		l.mu.Unlock()
		wait := now.Delay
		if now.Rate > 0 {
			wait += time.Duration(int64(n) * int64(time.Second) / now.Rate)
		}
		switch {
		case now.Cut || l.ctx.Err() != nil:
			return false
		case !now.Hole && wait == 0:
			return true
		}
		var over <-chan time.Time
		if !now.Hole {
			over = time.After(wait)
		}
		select {
		case <-over:
			return true
		case <-changed: // the weather has changed
		case <-l.ctx.Done():
			return false
		}
	}
}
