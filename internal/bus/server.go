package bus

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

// ServerConfig configures an embedded server.
type ServerConfig struct {
	StoreDir string // folder of the streams, used by one server at a time
	Listen   string // host:port, port 0 = any free port; "" = only connections inside the process
	// SyncAlways makes every acknowledged write survive a power failure. Without it, a
	// power failure may lose the writes of the last two minutes. A folder for a single job
	// does not need it, because the job computes again what is missing.
	SyncAlways bool
	Log        *zap.Logger // the server's warnings and errors; nil = silent
}

// Server is an embedded NATS server with JetStream.
type Server struct {
	server *server.Server
	listen bool
}

// StartServer returns once the server accepts connections.
func StartServer(c ServerConfig) (*Server, error) {
	if c.StoreDir == "" {
		return nil, errors.New("bus: an embedded server needs a folder for its streams (StoreDir is empty)")
	}
	options := &server.Options{
		ServerName: "shaver", JetStream: true, StoreDir: c.StoreDir, SyncAlways: c.SyncAlways,
		DisableJetStreamBanner: true, NoSigs: true, DontListen: c.Listen == "",
	}
	if c.Listen != "" {
		host, port, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return nil, fmt.Errorf("bus: address to listen on: %w", err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("bus: address to listen on: invalid port %q", port)
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
	log := &serverLog{keep: zap.NewNop()}
	if c.Log != nil {
		log.keep = c.Log.Named("nats-server")
	}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start()
	s := &Server{server: ns, listen: c.Listen != ""}
	if !ready(ns, log) {
		s.Shutdown()
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
