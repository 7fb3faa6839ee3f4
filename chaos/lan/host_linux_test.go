package lan

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// Hosts reach each other over the wire, and what disturbs the wire disturbs the system's
// TCP.
func TestHosts(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	h, err := NewHosts(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const port = 4222
	address := netip.AddrPortFrom(h.all[0].address, port).String()
	var l net.Listener
	err = h.Within(0, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	if c, err := h.Dial("tcp", address); err != nil {
		t.Fatalf("from the console: %v", err)
	} else {
		c.Close()
	}
	var c net.Conn
	err = h.Within(1, func() (err error) {
		c, err = net.DialTimeout("tcp", address, 10*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const enough = 30 * time.Second
	text := strings.Repeat("many packets ", 10_000)
	if err := ask(c, text, enough); err != nil {
		t.Fatal(err)
	}
	link := h.Cable(1, port)
	link.Set(Weather{Loss: 0.05, Delay: time.Millisecond, Jitter: 5 * time.Millisecond})
	if err := ask(c, text, enough); err != nil {
		t.Errorf("with losses: %v", err)
	}
	link.Set(Weather{Hole: true})
	if err := ask(c, "hole", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("hole: %v", err)
	}
	link.Set(Weather{Cut: true})
	c.SetDeadline(time.Now().Add(enough))
	if _, err := io.ReadAll(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) { // its retransmission is refused
		t.Errorf("cut: %v", err)
	}
	link.Set(Weather{})
}
