package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shaver/internal/base/fault"
)

// Server answers three requests on a port. /healthz reports whether the process is alive,
// /readyz whether it can do its work now, and /metrics what it has done.
type Server struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
	ready    atomic.Pointer[func() error]
}

// Serve starts a server on address, which is HOST:PORT or :PORT. Without a host it
// listens on 127.0.0.1, so that only this machine can connect. The process is not ready
// before SetReady is called.
func Serve(address string, s *Set) (*Server, error) { return ServeWith(address, s, nil) }

// ServeWith is Serve for a server that gives all other requests to rest, unless that is nil.
func ServeWith(address string, s *Set, rest http.Handler) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return nil, fault.Usagef("address %q: expected HOST:PORT or :PORT", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	m := &Server{listener: listener, ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.isReady(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 2}))
	if rest != nil {
		mux.Handle("GET /", rest)
	}
	m.http = &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	go func() {
		defer close(m.ended)
		_ = m.http.Serve(listener) // Stop makes Serve return
	}()
	return m, nil
}

// SetReady makes /readyz call f, from any goroutine. An error of f means that the process
// is not ready.
func (m *Server) SetReady(f func() error) { m.ready.Store(&f) }

func (m *Server) isReady() error {
	if f := m.ready.Load(); f != nil {
		return (*f)()
	}
	return errors.New("starting")
}

// Addr returns the address on which the server listens.
func (m *Server) Addr() string { return m.listener.Addr().String() }

// Stop shuts the server down. It waits up to a second for running requests.
func (m *Server) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.http.Shutdown(ctx) != nil {
		_ = m.http.Close()
	}
	<-m.ended
}
