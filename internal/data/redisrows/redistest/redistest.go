// Package redistest starts Redis for tests.
package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

// Start starts a Redis server that keeps nothing on disk, and returns its address. It ends with the test. The
// test is skipped if there is no redis-server, and fails if CI=true.
func Start(t testing.TB) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("redis-server is missing (Debian's package redis-server has it)")
		}
		t.Skip("redis-server is missing (Debian's package redis-server has it)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		c.Process.Kill()
		<-ended
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			return address
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("redis-server ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("redis-server does not listen after 20 s")
		}
	}
}

// Proxy passes connections on to a server until clients have sent a number of bytes, and then stops.
type Proxy struct {
	Address string
	Stopped chan struct{} // closed when the proxy has stopped passing bytes on
	left    atomic.Int64
}

// NewProxy returns a proxy for the server at an address that stops after the given number of bytes.
func NewProxy(t testing.TB, to string, bytes int64) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &Proxy{Address: l.Addr().String(), Stopped: make(chan struct{})}
	p.left.Store(bytes)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				io.Copy(client, server)
				client.Close()
			}()
			go func() {
				defer server.Close()
				defer client.Close()
				p.pass(server, client)
			}()
		}
	}()
	return p
}

// pass copies what the client sends, until the client ends or the bytes are used up. Then it waits for the client's
// end.
func (p *Proxy) pass(server io.Writer, client io.Reader) {
	buffer := make([]byte, 512)
	for {
		n, err := client.Read(buffer)
		before := p.left.Add(-int64(n)) + int64(n)
		if before > 0 {
			if _, err := server.Write(buffer[:min(int64(n), before)]); err != nil {
				return
			}
		}
		if before > 0 && before <= int64(n) {
			close(p.Stopped)
		}
		if err != nil {
			return
		}
	}
}
