package lan

import (
	"io"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Set is a set of hosts. Bit i stands for host i of a wire.
type Set uint32

// Has reports whether host i is in the set.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// Size returns the number of hosts in the set.
func (s Set) Size() int { return bits.OnesCount32(uint32(s)) }

// SetOf returns the set of the given hosts.
func SetOf(hosts ...int) (s Set) {
	for _, i := range hosts {
		s |= 1 << i
	}
	return s
}

// Disturbance changes the weather for the packets from some hosts to others.
type Disturbance struct {
	From, To Set
	Back     bool // also for the packets from to to from
	Weather

	free [2]time.Time // when the link has sent what it has accepted, for each direction
}

// queueBound is the longest time for which a link with a rate keeps packets. It drops
// packets that would have to wait longer.
const queueBound = 300 * time.Millisecond

// wire carries packets between hosts, as a switch does. It delays, loses and refuses
// packets by its disturbances. It is safe for concurrent use.
type wire struct {
	busy sync.WaitGroup

	mu     sync.Mutex
	ports  []io.ReadWriteCloser
	number map[netip.Addr]int // of a host
	bad    []*Disturbance
}

// maxPacket is the size of the largest packet.
const maxPacket = 1500

// attach connects a host. Each Read of its port returns a packet, and each Write sends
// one. The wire closes the port.
func (w *wire) attach(address netip.Addr, port io.ReadWriteCloser) (number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.number == nil {
		w.number = map[netip.Addr]int{}
	}
	number = len(w.ports)
	w.ports, w.number[address] = append(w.ports, port), number
	w.busy.Go(func() {
		for {
			p := make(packet, maxPacket)
			n, err := port.Read(p)
			if err != nil {
				return
			}
			w.send(number, p[:n], time.Now())
		}
	})
	return number
}

// close closes all ports.
func (w *wire) close() {
	for _, port := range w.ports {
		port.Close()
	}
	w.busy.Wait()
}

// disturb adds a disturbance. undo ends it.
func (w *wire) disturb(d Disturbance) (undo func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, &d)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.bad = slices.DeleteFunc(w.bad, func(other *Disturbance) bool { return other == &d })
	}
}

// send carries a packet that a host sent at now. The wire owns p.
func (w *wire) send(from int, p packet, now time.Time) {
	source, target, ok := p.addresses()
	w.mu.Lock()
	to, known := w.number[target]
	if !ok || !known || w.number[source] != from {
		w.mu.Unlock()
		return
	}
	pass, reset, delay := w.fate(from, to, len(p), now)
	a, b := w.ports[from], w.ports[to]
	w.mu.Unlock()
	switch {
	case reset:
		toSender, toReceiver := p.resets()
		write(a, toSender)
		write(b, toReceiver)
	case !pass:
	case delay > 0:
		time.AfterFunc(delay, func() { write(b, p) })
	default:
		write(b, p)
	}
}

// write sends a packet to a host. A packet that the host does not take is lost.
func write(port io.Writer, p packet) {
	if p != nil {
		_, _ = port.Write(p)
	}
}

// fate says what happens to a packet of size bytes. The caller holds mu.
func (w *wire) fate(from, to, size int, now time.Time) (pass, reset bool, delay time.Duration) {
	pass = true
	for _, d := range w.bad {
		direction := 0
		switch {
		case d.From.Has(from) && d.To.Has(to):
		case d.Back && d.To.Has(from) && d.From.Has(to):
			direction = 1
		default:
			continue
		}
		if d.Cut {
			reset = true
		}
		if d.Hole || rand.Float64() < d.Loss {
			pass = false
		}
		delay += d.Delay
		if d.Jitter > 0 {
			delay += rand.N(d.Jitter)
		}
		if d.Rate > 0 {
			if d.free[direction].Before(now) {
				d.free[direction] = now
			}
			queued := d.free[direction].Sub(now)
			if queued > queueBound {
				pass = false
				continue
			}
			took := time.Duration(int64(size) * int64(time.Second) / d.Rate)
			d.free[direction] = d.free[direction].Add(took)
			delay += queued + took
		}
	}
	return pass, reset, delay
}
