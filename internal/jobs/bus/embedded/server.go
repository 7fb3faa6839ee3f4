// Package embedded runs a NATS server with JetStream in this process. Programs that only connect to a
// server do not link it.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

// readyTimeout bounds the start of an embedded server, which has to read its folder.
const readyTimeout = 30 * time.Second

// Config configures an embedded server.
type Config struct {
	StoreDir string // folder of the streams, used by one server at a time
	Listen   string // host:port, port 0 = any free port; "" = only connections inside the process
	// SyncAlways makes every acknowledged write survive a power failure. Without it, a
	// power failure may lose the writes of the last two minutes. A folder for a single job
	// does not need it, because the job computes again what is missing.
	SyncAlways bool
	// Local says that all users of the server are in this process, and that a bus.Desk hands out
	// its tasks. The only limit of the folder's size is the space on the disk, and an error
	// of the folder makes the server fail (Failed). Listen must be empty.
	Local bool
	Log   *zap.Logger // the server's warnings and errors, which a local server logs for debugging only; nil = silent
}

// Server is an embedded NATS server with JetStream.
type Server struct {
	server *server.Server
	listen bool
	log    *serverLog
}

// Start returns once the server accepts connections.
func Start(c Config) (*Server, error) {
	if c.StoreDir == "" {
		return nil, errors.New("an embedded server needs a folder for its streams (StoreDir is empty)")
	}
	options := &server.Options{
		ServerName: "shaver", JetStream: true, StoreDir: c.StoreDir, SyncAlways: c.SyncAlways,
		DisableJetStreamBanner: true, NoSigs: true, DontListen: c.Listen == "",
	}
	if c.Local {
		if err := checkOpenFiles(); err != nil {
			return nil, err
		}
		// By default a server takes three quarters of the free space as its limit. Beyond the
		// limit it refuses every request, without an end. It also ends connections that are slow.
		options.JetStreamMaxStore, options.JetStreamMaxMemory, options.WriteDeadline = 1<<62, 1<<62, time.Hour
	}
	switch {
	case c.Listen != "" && c.Local:
		return nil, errors.New("a local server does not listen")
	case c.Listen != "":
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return nil, fmt.Errorf("address to listen on: %w", err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("address to listen on: invalid port %q", port)
		}
		options.Host, options.Port = host, int(number)
		if number == 0 {
			options.Port = server.RANDOM_PORT
		}
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("start the embedded NATS server: %w", err)
	}
	log := newServerLog(&c)
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	s := &Server{server: ns, listen: c.Listen != "", log: log}
	if !ready(ns, log) {
		s.Shutdown()
		if err := s.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("start the embedded NATS server in %s: %s", c.StoreDir, log.reason())
	}
	return s, nil
}

// URL returns the address for clients in other processes, or "" if the server does not
// listen.
func (s *Server) URL() string {
	if !s.listen {
		return ""
	}
	return s.server.ClientURL()
}

// InProcessConn returns a connection without a socket, for bus.Config.
func (s *Server) InProcessConn() (net.Conn, error) { return s.server.InProcessConn() }

// Failed is closed when a local server cannot use its folder any more. Requests to it may
// then have no answer.
func (s *Server) Failed() <-chan struct{} { return s.log.failed }

// Err returns why a local server failed, or nil.
func (s *Server) Err() error {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return s.log.cause
}

// Shutdown stops the server and waits until all its goroutines have ended. The stored
// messages stay in the folder.
func (s *Server) Shutdown() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// ready waits until the server accepts connections. It gives up early if the server
// failed.
func ready(ns *server.Server, log *serverLog) bool {
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); {
		if ns.ReadyForConnections(200 * time.Millisecond) {
			return ns.JetStreamEnabled()
		}
		if log.gaveUp() {
			return false
		}
	}
	return false
}
