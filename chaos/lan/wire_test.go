package lan

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// port is a port of a wire without a network.
type port struct{ sent, got chan packet }

func newPort() *port { return &port{make(chan packet), make(chan packet, 100)} }

func (p *port) Read(b []byte) (int, error) {
	if packet, ok := <-p.sent; ok {
		return copy(b, packet), nil
	}
	return 0, io.EOF
}

func (p *port) Write(b []byte) (int, error) {
	p.got <- bytes.Clone(b)
	return len(b), nil
}

func (p *port) Close() error {
	close(p.sent)
	return nil
}

// received returns the packets that have arrived.
func (p *port) received() (n int) {
	synctest.Wait()
	n = len(p.got)
	for range n {
		<-p.got
	}
	return n
}

// A wire carries packets to their receivers, and disturbances apply to their hosts only
// and end when they are undone.
func TestWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		a, b := newPort(), newPort()
		first, second := SetOf(w.attach(alice, a)), SetOf(w.attach(bob, b))
		defer w.close()
		there := segment(flagACK)
		back, _ := there.resets() // a packet from bob to alice
		pass := func(name string, toBob, toAlice int) {
			t.Helper()
			a.sent <- there
			b.sent <- back
			if n := b.received(); n != toBob {
				t.Errorf("%s: bob got %d packets, expected %d", name, n, toBob)
			}
			if n := a.received(); n != toAlice {
				t.Errorf("%s: alice got %d packets, expected %d", name, n, toAlice)
			}
		}
		pass("fine", 1, 1)
		undo := w.disturb(Disturbance{From: first, To: second, Weather: Weather{Hole: true}})
		pass("one way", 0, 1)
		both := w.disturb(Disturbance{From: second, To: first, Back: true, Weather: Weather{Loss: 1}})
		pass("both ways", 0, 0)
		undo()
		pass("the other one", 0, 0)
		both()
		pass("over", 1, 1)
		other := w.disturb(Disturbance{From: SetOf(7), To: first, Back: true, Weather: Weather{Hole: true}})
		pass("a third host", 1, 1)
		other()
		undo = w.disturb(Disturbance{From: first, To: second, Weather: Weather{Cut: true}})
		a.sent <- there
		if x, y := a.received(), b.received(); x != 1 || y != 1 {
			t.Errorf("cut: %d and %d resets", x, y)
		}
		undo()
		a.sent <- back // with the address of another host
		a.sent <- packet{0x60, 0, 0}
		if x, y := a.received(), b.received(); x != 0 || y != 0 {
			t.Errorf("foreign packets arrived: %d and %d", x, y)
		}
	})
}

// A slow link delays packets, sends them at its rate, and drops those that would wait too
// long.
func TestWireSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wire
		a, b := newPort(), newPort()
		first, second := SetOf(w.attach(alice, a)), SetOf(w.attach(bob, b))
		defer w.close()
		const delay = 100 * time.Millisecond
		undo := w.disturb(Disturbance{From: first, To: second, Back: true, Weather: Weather{Delay: delay, Jitter: delay}})
		a.sent <- segment(flagACK)
		if time.Sleep(delay - 1); b.received() != 0 {
			t.Error("the packet came too early")
		}
		if time.Sleep(delay + 1); b.received() != 1 {
			t.Error("the packet did not come")
		}
		undo()
		size := int64(len(segment(0)))
		undo = w.disturb(Disturbance{From: first, To: second, Weather: Weather{Rate: 10 * size}}) // ten packets per second
		for range 10 {
			a.sent <- segment(flagACK)
		}
		if time.Sleep(time.Second / 10); b.received() != 1 {
			t.Error("the rate is not kept")
		}
		if time.Sleep(time.Minute); b.received() != 3 { // the fifth would have to wait for 400 ms
			t.Error("the queue is not bounded")
		}
		undo()
	})
}
