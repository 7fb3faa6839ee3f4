package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A local server hands out tasks without leases. Its workers are in its own process, so a
// worker that dies takes the server with it, and a worker that is slow, because the machine
// is busy or asleep, still works on its task. The stored tasks are the queue. Only the desk
// knows which worker holds which task. It keeps this in memory, so all tasks are free when
// the process starts again.

// Desk hands out the tasks of a local server. It is safe for concurrent use.
type Desk struct {
	turn chan struct{} // has room for the worker that looks for a task

	mu    sync.Mutex
	taken map[string]bool   // subjects of the tasks that workers hold or that wait for their next try
	tries map[string]int    // number of times that a stored task was handed out
	from  map[string]uint64 // by kernel; tasks with smaller sequence numbers are taken or gone
	freed uint64            // number of times that a task was freed
}

// NewDesk returns a desk on which no task is taken.
func NewDesk() *Desk {
	return &Desk{turn: make(chan struct{}, 1), taken: map[string]bool{}, tries: map[string]int{}, from: map[string]uint64{}}
}

// deskPoll is the time between two looks for a task.
const deskPoll = 50 * time.Millisecond

// nextLocal is NextTask for a local server.
func (b *Bus) nextLocal(ctx context.Context, kernels []string) (*Delivery, error) {
	for {
		for _, kernel := range kernels {
			if d, err := b.tryLocal(ctx, kernel); d != nil || err != nil {
				return d, err
			}
		}
		select {
		case <-time.After(deskPoll):
		case <-ctx.Done():
			return nil, b.pauser("next task").ended(ctx, nil)
		}
	}
}

// tryLocal is TryTask for a local server.
func (b *Bus) tryLocal(ctx context.Context, kernel string) (*Delivery, error) {
	for {
		msg, try, err := b.desk.take(ctx, b, kernel)
		if missing(err) { // the streams may not be set up yet
			return nil, nil
		}
		if err != nil || msg == nil {
			return nil, err
		}
		held := &taken{b: b, kernel: kernel, subject: msg.Subject, sequence: msg.Sequence}
		d := &Delivery{Try: try, b: b, hold: held}
		if d, err := d.open(ctx, msg.Subject, msg.Data); d != nil || err != nil {
			return d, err
		}
	}
}

// take takes the first free task of the kernel and returns it with the number of its try.
// Without a free task it returns nil.
func (d *Desk) take(ctx context.Context, b *Bus, kernel string) (*jetstream.RawStreamMsg, int, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, 0, b.pauser("next task").ended(ctx, nil)
	}
	d.mu.Lock()
	from, freed := max(d.from[kernel], 1), d.freed
	d.mu.Unlock()
	for {
		msg, err := b.after(ctx, "next task", tasksStream, tasksOf(kernel)+">", from)
		d.mu.Lock()
		switch {
		case err != nil && !errors.Is(err, jetstream.ErrMsgNotFound):
			d.mu.Unlock()
			return nil, 0, err
		case d.freed != freed: // msg may be a task that was removed after it was read
			from, freed = max(d.from[kernel], 1), d.freed
		case err != nil:
			d.from[kernel] = 0 // look at all tasks the next time, because a stream that was set up again counts from 1
			d.mu.Unlock()
			return nil, 0, nil
		case !d.taken[msg.Subject]:
			d.taken[msg.Subject] = true
			d.tries[msg.Subject]++
			d.from[kernel] = msg.Sequence + 1
			try := d.tries[msg.Subject]
			d.mu.Unlock()
			return msg, try, nil
		default:
			from = msg.Sequence + 1
		}
		d.mu.Unlock()
	}
}

// taken is a worker's hold on a task of a local server.
type taken struct {
	b               *Bus
	kernel, subject string
	sequence        uint64
}

func (t *taken) renew(context.Context, string) error { return nil }

// remove deletes the task, unless it was stored again in the meantime. The desk forgets the
// task only after that, so that no other worker gets it.
func (t *taken) remove(ctx context.Context, what, _ string) error {
	defer t.free(true)
	return t.b.call(ctx, what, func(ctx context.Context) error {
		s, err := t.b.stream(ctx, tasksStream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSubject(t.subject), jetstream.WithPurgeSequence(t.sequence+1))
	})
}

func (t *taken) release(_ context.Context, _ string, delay time.Duration) error {
	if delay == 0 {
		t.free(false)
	} else {
		time.AfterFunc(delay, func() { t.free(false) })
	}
	return nil
}

// free makes the task available if it is stored. over says that the task was removed.
func (t *taken) free(over bool) {
	d := t.b.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.freed++
	delete(d.taken, t.subject)
	if over {
		delete(d.tries, t.subject)
	}
	d.from[t.kernel] = min(d.from[t.kernel], t.sequence)
}

// after returns the first message of subject filter in the stream whose sequence number
// is at least from, or jetstream.ErrMsgNotFound.
func (b *Bus) after(ctx context.Context, what, stream, filter string, from uint64) (msg *jetstream.RawStreamMsg, err error) {
	err = b.call(ctx, what, func(ctx context.Context) error {
		s, err := b.stream(ctx, stream)
		if err != nil {
			return err
		}
		msg, err = s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(filter))
		return err
	})
	return msg, err
}

// Local reports whether all users of the server are in this process.
func (b *Bus) Local() bool { return b.desk != nil }

// Readmit deletes the quarantines of all jobs. It is meant for a local server that starts
// again, before Setup, because no other program can put the tasks back.
func (b *Bus) Readmit(ctx context.Context) error {
	return b.call(ctx, "put back quarantined tasks", func(ctx context.Context) error {
		stream, err := b.js.Stream(ctx, quarantineStream)
		if err == nil {
			err = stream.Purge(ctx)
		}
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}
