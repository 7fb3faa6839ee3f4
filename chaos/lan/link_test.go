package lan

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// echo starts a server that sends back what it receives.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
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
	return l.Addr().String()
}

func dial(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(strings.Split(l.URL(), ",")[0], "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends text and checks that the same text comes back within the time.
func ask(c net.Conn, text string, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	back := make([]byte, len(text))
	if _, err := io.ReadFull(c, back); err != nil {
		return err
	}
	if !bytes.Equal(back, []byte(text)) {
		return errors.New("different bytes came back")
	}
	return nil
}

func TestLink(t *testing.T) {
	l, err := NewLink([]string{echo(t), echo(t)})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(l.URL(), "nats://127.0.0.1:"); n != 2 {
		t.Fatalf("url %s", l.URL())
	}
	const enough = 10 * time.Second
	c := dial(t, l)
	if err := ask(c, strings.Repeat("fine ", 100_000), enough); err != nil {
		t.Fatalf("without disturbance: %v", err)
	}
	l.Set(Weather{Delay: 20 * time.Millisecond, Rate: 100_000})
	begun := time.Now()
	if err := ask(c, strings.Repeat("s", 10_000), enough); err != nil { // 100 ms of delay and 20 ms of transfer, in both directions
		t.Fatalf("slow: %v", err)
	}
	if took := time.Since(begun); took < 240*time.Millisecond {
		t.Errorf("slow: 10,000 bytes both ways took %v", took)
	}
	l.Set(Weather{Hole: true})
	if err := ask(c, "hole", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("hole: %v", err)
	}
	l.Set(Weather{})
	c.SetDeadline(time.Now().Add(enough))
	if back := make([]byte, 4); true {
		if _, err := io.ReadFull(c, back); err != nil || string(back) != "hole" {
			t.Errorf("after the hole came %q, %v", back, err)
		}
	}
	l.Set(Weather{Cut: true})
	if err := ask(c, "cut", enough); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("cut: %v", err)
	}
	if err := ask(dial(t, l), "cut", enough); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection through a cut link: %v", err)
	}
	l.Set(Weather{Hole: true})
	open := dial(t, l)
	if err := ask(open, "hole", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("hole: %v", err)
	}
	l.Close() // returns although a connection hangs in it
	if _, err := net.Dial("tcp", strings.TrimPrefix(strings.Split(l.URL(), ",")[0], "nats://")); err == nil {
		t.Error("a closed link still listens")
	}
}
