package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// weather is the present state of a link.
type weather struct {
	delay time.Duration // delay of each piece, in both directions
	rate  int64         // bytes per second in each direction; 0 = unlimited
	hole  bool          // connections stay open, but nothing passes
	cut   bool          // connections end, and new ones are refused
}

// link connects one client to the nodes through proxies that can disturb the traffic. It
// is safe for concurrent use.
type link struct {
	listeners []net.Listener
	ctx       context.Context
	end       context.CancelFunc
	busy      sync.WaitGroup

	mu      sync.Mutex
	now     weather
	changed chan struct{} // closed and replaced when the weather changes
	open    map[net.Conn]bool
}

// newLink opens listeners for one client of the nodes at the given addresses.
func newLink(nodes []string) (*link, error) {
	l := &link{changed: make(chan struct{}), open: map[net.Conn]bool{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	for _, node := range nodes {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			l.close()
			return nil, err
		}
		l.listeners = append(l.listeners, listener)
		l.busy.Go(func() { l.accept(listener, node) })
	}
	return l, nil
}

// url returns the addresses to which the client connects.
func (l *link) url() string {
	var urls []string
	for _, listener := range l.listeners {
		urls = append(urls, fmt.Sprintf("nats://%v", listener.Addr()))
	}
	return strings.Join(urls, ",")
}

// set changes the weather.
func (l *link) set(w weather) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = w
	close(l.changed)
	l.changed = make(chan struct{})
	if w.cut {
		l.drop()
	}
}

// drop closes all connections. The caller holds mu.
func (l *link) drop() {
	for c := range l.open {
		c.Close()
	}
}

// close closes the link and waits until all its goroutines have ended.
func (l *link) close() {
	l.end()
	for _, listener := range l.listeners {
		listener.Close()
	}
	l.mu.Lock()
	l.drop()
	l.mu.Unlock()
	l.busy.Wait()
}

func (l *link) accept(listener net.Listener, node string) {
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
func (l *link) carry(client net.Conn, node string) {
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

func (l *link) enter(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.cut || l.ctx.Err() != nil {
		return false
	}
	for _, c := range conns {
		l.open[c] = true
	}
	return true
}

func (l *link) leave(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.open, c)
	}
}

// pass copies from one connection to another, subject to the weather, until one of them
// closes.
func (l *link) pass(to, from net.Conn) {
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
func (l *link) weather(n int) bool {
	for {
		l.mu.Lock()
		now, changed := l.now, l.changed
		l.mu.Unlock()
		wait := now.delay
		if now.rate > 0 {
			wait += time.Duration(int64(n) * int64(time.Second) / now.rate)
		}
		switch {
		case now.cut || l.ctx.Err() != nil:
			return false
		case !now.hole && wait == 0:
			return true
		}
		var over <-chan time.Time
		if !now.hole {
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
