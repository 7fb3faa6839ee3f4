package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"shaver/internal/job"
)

// PublishTask stores the task for the workers. It waits while the window is
// full. A task that is stored already is fine; another one in its place, such
// as a shard cut to another size, is ErrConflict.
func (b *Bus) PublishTask(ctx context.Context, t job.Task) error {
	body, err := encodeTask(t)
	if err != nil {
		return fmt.Errorf("task %s/%d: %w", t.Job, t.Shard, err)
	}
	on := taskSubject(t.Spec.Kernel, t.Job, t.Shard)
	stored, err := b.storeOnce(ctx, "publish task "+on, tasksStream, on, body)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // it was there and is done
		return nil
	case err != nil:
		return err
	case stored != nil && !bytes.Equal(stored.Data, body):
		return fmt.Errorf("publish task %s: %w", on, ErrConflict)
	}
	return nil
}

// Delivery is one attempt at a task. Its methods are safe for concurrent use.
type Delivery struct {
	Task    job.Task
	Attempt string        // random token of this attempt, for PartialName
	Try     int           // 1 = the first delivery of this task
	Lease   time.Duration // Heartbeat at least four times as often

	b     *Bus
	reply string // where acknowledgements go

	mu    sync.Mutex
	until time.Time // the lease is surely ours until then
}

// NextTask returns the next task of the kernel, as soon as there is one. While the
// streams are not set up for it, it waits. A malformed task is set aside, not returned, and so
// is one that was tried too often. A task that was on its way when ctx ended is delivered again after its lease.
func (b *Bus) NextTask(ctx context.Context, kernel string) (*Delivery, error) {
	p := b.pauser("next task")
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx, "next task", nil)
		}
		d, err := b.fetch(ctx, kernel)
		switch {
		case d != nil:
			return d, nil
		case err == nil:
			p.worked()
			continue
		case ctx.Err() != nil:
			return nil, ended(ctx, "next task", err)
		case b.nc.IsClosed():
			return nil, fmt.Errorf("next task: %w", ErrClosed)
		case !transient(err) && !missing(err):
			return nil, fmt.Errorf("next task: %w", err)
		}
		if err := p.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// fetch asks for one task and waits a few seconds. It returns neither task nor
// error if there was none.
func (b *Bus) fetch(ctx context.Context, kernel string) (*Delivery, error) {
	short, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var consumer jetstream.Consumer
	err := b.request("look up consumer", func() (err error) {
		consumer, err = b.js.Consumer(short, tasksStream, workersPrefix+kernel) // each time: the lease may change
		return err
	})
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	deadline, _ := wait.Deadline()
	// The server's heartbeats tell a request that was lost with a connection
	// from a queue that is empty.
	var batch jetstream.MessageBatch
	err = b.request("fetch", func() (err error) {
		batch, err = consumer.Fetch(1, jetstream.FetchContext(wait), jetstream.FetchHeartbeat(max(time.Until(deadline)/4, time.Millisecond)))
		return err
	})
	if err != nil {
		if errors.Is(err, jetstream.ErrInvalidOption) { // it refuses a deadline that is about to pass
			<-wait.Done()
			return nil, wait.Err()
		}
		return nil, err
	}
	msg, ok := <-batch.Messages()
	if !ok {
		if err := batch.Error(); !errors.Is(err, wait.Err()) {
			return nil, err
		}
		return nil, nil
	}
	return b.deliver(ctx, msg, consumer.CachedInfo().Config.AckWait)
}

// deliver makes a Delivery of the message, or sets a malformed one aside.
func (b *Bus) deliver(ctx context.Context, msg jetstream.Msg, lease time.Duration) (*Delivery, error) {
	d := &Delivery{Attempt: nuid.Next(), Lease: lease, b: b, reply: msg.Reply()}
	d.extend(time.Now())
	about, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	d.Try = int(about.NumDelivered)
	d.Task, err = decodeTask(msg.Subject(), msg.Data())
	if err == nil && d.Try <= maxTries {
		return d, nil
	}
	input := err != nil
	if !input {
		err = fmt.Errorf("given up after %d tries: workers died, lost their lease or gave up over it; their logs say why", maxTries)
	}
	b.log.Error("task set aside", zap.String("subject", msg.Subject()), zap.Error(err))
	// The body is not to be trusted, the subject says whose it is.
	_, jobID, shard, ok := parseTask(msg.Subject())
	if !ok {
		return nil, d.finish(ctx, "set aside "+msg.Subject(), term)
	}
	d.Task.Job, d.Task.Shard = jobID, shard
	return nil, d.Quarantine(ctx, err.Error(), input)
}

// What a worker says of its task.
const (
	ack        = "+ACK"
	term       = "+TERM"
	inProgress = "+WPI"
	nak        = "-NAK"
)

// extend notes that the server heard of us at or after sent. An eighth of the
// lease is kept for clocks and for messages under way.
func (d *Delivery) extend(sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until := sent.Add(d.Lease - d.Lease/8); until.After(d.until) {
		d.until = until
	}
}

// left returns how long the lease is surely ours. The monotonic clock stands
// still while a machine sleeps, the wall clock may be set back: the one that
// leaves less counts.
func (d *Delivery) left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(time.Until(d.until), d.until.Round(0).Sub(time.Now().Round(0)))
}

func (d *Delivery) say(ctx context.Context, what, word string) error {
	return d.b.call(ctx, what, func(ctx context.Context) error {
		sent := time.Now()
		_, err := d.b.nc.RequestWithContext(ctx, d.reply, []byte(word))
		if err == nil && word == inProgress {
			d.extend(sent)
		}
		return err
	})
}

// finish says word about a task whose fate is stored. Nothing is wrong if it
// does not arrive, so it does not wait longer than another lease.
func (d *Delivery) finish(ctx context.Context, what, word string) error {
	bounded, cancel := context.WithTimeout(ctx, max(d.Lease, callTimeout))
	defer cancel()
	return d.say(bounded, what, word)
}

// Heartbeat renews the lease. ErrLeaseLost means that the task may be another
// worker's by now; going on is harmless, but may be in vain. From then on
// nothing is sent, because it would speak for the other worker.
func (d *Delivery) Heartbeat(ctx context.Context) error {
	what := fmt.Sprintf("renew the lease of task %s/%d", d.Task.Job, d.Task.Shard)
	held, cancel := context.WithTimeout(ctx, max(d.left(), 0))
	defer cancel()
	if held.Err() == nil {
		if err := d.say(held, what, inProgress); err == nil || held.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ended(ctx, what, nil)
	}
	return fmt.Errorf("%s: %w", what, ErrLeaseLost)
}

// Release gives the task back, to be delivered again after delay. It counts as
// one of the tries of a task. With the lease lost it does nothing and
// returns ErrLeaseLost. It is tried once: a second try might hit the worker that
// the first one gave the task to, and without any the lease runs out.
func (d *Delivery) Release(ctx context.Context, delay time.Duration) error {
	what := fmt.Sprintf("release task %s/%d", d.Task.Job, d.Task.Shard)
	left := d.left()
	if left <= 0 {
		return fmt.Errorf("%s: %w", what, ErrLeaseLost)
	}
	word := nak
	if delay > 0 {
		word = fmt.Sprintf(`%s {"delay": %d}`, nak, delay.Nanoseconds())
	}
	ctx, cancel := context.WithTimeout(ctx, min(left, callTimeout))
	defer cancel()
	err := d.b.request(what, func() error {
		_, err := d.b.nc.RequestWithContext(ctx, d.reply, []byte(word))
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Done removes the task. Only call it after PublishResult returned without
// error: also the acknowledgement of a worker that lost its lease counts. An
// error means that the task may be delivered once more, which only costs work.
func (d *Delivery) Done(ctx context.Context) error {
	return d.finish(ctx, fmt.Sprintf("acknowledge task %s/%d", d.Task.Job, d.Task.Shard), ack)
}

// Last reports whether another failure of the task would be one too many.
func (d *Delivery) Last() bool { return d.Try >= maxTries }

// Quarantine sets the task aside: it stores that first, and removes the task
// then. input says that the bytes are to blame, so that trying again does not
// help.
func (d *Delivery) Quarantine(ctx context.Context, reason string, input bool) error {
	q := job.Quarantine{Job: d.Task.Job, Shard: d.Task.Shard, Reason: reason, Input: input, Worker: d.b.name}
	if err := d.b.SetAside(ctx, q); err != nil {
		return err
	}
	return d.finish(ctx, fmt.Sprintf("set aside task %s/%d", q.Job, q.Shard), term)
}

// SetAside stores the quarantine of a shard, unless it has one.
func (b *Bus) SetAside(ctx context.Context, q job.Quarantine) error {
	body, err := encodeQuarantine(q)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	on := subject(quarantinePrefix, q.Job, q.Shard)
	_, err = b.storeOnce(ctx, "publish quarantine "+on, quarantineStream, on, body)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}
