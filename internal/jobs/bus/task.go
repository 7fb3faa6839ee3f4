package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"go.uber.org/zap"

	"shaver/internal/jobs/job"
)

// leaseHeader is the header of a task with its lease. It is not a property of the task, because coordinators
// with other leases agree on the task.
const leaseHeader = "Shaver-Lease"

// PublishTask stores the task, with the lease of the last Setup, for the workers. It waits
// while the window is full. If the same task is stored already, PublishTask returns nil. If
// a different task is stored for the shard, for example one of another size, it returns
// ErrConflict.
func (b *Bus) PublishTask(ctx context.Context, t job.Task) error {
	body, err := encodeTask(t)
	if err != nil {
		return fmt.Errorf("task %s/%d: %w", t.Job, t.Shard, err)
	}
	on := taskSubject(t.Spec.Kernel, t.Job, t.Shard)
	msg := nats.NewMsg(on)
	msg.Data = body
	if lease := time.Duration(b.lease.Load()); lease > 0 {
		msg.Header.Set(leaseHeader, lease.String())
	}
	stored, err := b.storeOnce(ctx, "publish task "+on, tasksStream, msg)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // the task was stored before and has been completed
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
	Attempt string // random token of this attempt, for PartialName
	Try     int    // 1 = the first delivery of this task
	// Lease is the time in which a worker calls Heartbeat at least four times; 0 = the
	// worker keeps the task for as long as it needs, because the server is local.
	Lease time.Duration

	b    *Bus
	hold hold
}

// hold is a worker's right to a task. what describes a request in errors.
type hold interface {
	// renew extends the lease, or returns ErrLeaseLost.
	renew(ctx context.Context, what string) error
	// remove deletes the task with the answer ack or term. The result or the quarantine of the
	// task is already stored.
	remove(ctx context.Context, what, answer string) error
	// release makes the task available to all workers after delay.
	release(ctx context.Context, what string, delay time.Duration) error
}

// NextTask returns the next task of one of the kernels, at least one, and of this build's
// protocol. If several kernels have tasks, it prefers the earlier one. It waits until there is a
// task, and until Setup has been called for a kernel. It sets tasks aside that
// are malformed or were tried too often, and does not return them. Tasks of coordinators with
// another protocol are not asked for. If ctx ends while a task is on its way, the task is
// delivered again after firstLease.
func (b *Bus) NextTask(ctx context.Context, kernels ...string) (*Delivery, error) {
	if b.Local() {
		return b.nextLocal(ctx, kernels)
	}
	kernels = slices.Clone(kernels)
	p := b.pauser("next task")
	for {
		if ctx.Err() != nil {
			return nil, p.ended(ctx, nil)
		}
		d, err := b.fetchAny(ctx, kernels)
		switch {
		case d != nil:
			return d, nil
		case err == nil:
			p.worked()
			continue
		case ctx.Err() != nil:
			return nil, p.ended(ctx, err)
		case b.nc.IsClosed():
			return nil, b.closed("next task")
		case !transient(err) && !missing(err):
			return nil, fmt.Errorf("next task: %w", err)
		}
		if err := p.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// waitOfSeveral is how long a worker with several kernels waits for a task of one of them
// before it looks at the others. If it is much shorter, a task may arrive too late and is
// then delivered again only after firstLease.
const waitOfSeveral = 500 * time.Millisecond

// fetchAny asks for a task of one of the kernels and waits a few seconds. If no task comes it
// returns nil and no error, and has moved this kernel to the end. A kernel whose consumer is
// missing has no tasks.
func (b *Bus) fetchAny(ctx context.Context, kernels []string) (*Delivery, error) {
	var found []jetstream.Consumer
	var names []string // of the kernels of found; those that have tasks, which workers may hold, come first
	busy := 0
	var absent error
	for _, name := range kernels {
		c, err := b.consumer(ctx, name)
		switch {
		case err != nil && missing(err):
			absent = err
		case err != nil:
			return nil, err
		case c.CachedInfo().NumPending > 0 || c.CachedInfo().NumAckPending > 0:
			found, names = slices.Insert(found, busy, c), slices.Insert(names, busy, name)
			busy++
		default:
			found, names = append(found, c), append(names, name)
		}
	}
	if len(found) == 0 {
		return nil, absent
	}
	within := callTimeout
	if len(kernels) > 1 {
		within = waitOfSeveral
	}
	d, err := b.fetch(ctx, found[0], within)
	if d == nil && err == nil {
		at := slices.Index(kernels, names[0])
		copy(kernels[at:], kernels[at+1:])
		kernels[len(kernels)-1] = names[0]
	}
	return d, err
}

// tryWait is how long TryTask waits for a task. It is short, because the end of a job waits for it.
const tryWait = 100 * time.Millisecond

// TryTask is like NextTask, but returns nil if no task comes within tryWait, or if NextTask has
// not asked for tasks of the kernel before.
func (b *Bus) TryTask(ctx context.Context, kernel string) (*Delivery, error) {
	if b.Local() {
		return b.tryLocal(ctx, kernel)
	}
	if ctx.Err() != nil {
		return nil, b.pauser("next task").ended(ctx, nil)
	}
	b.mu.Lock()
	consumer := b.taskConsumers[kernel]
	b.mu.Unlock()
	if consumer == nil {
		return nil, nil
	}
	// The library waits longer than the server, so a task that is sent at the last moment arrives.
	d, err := b.receive(ctx, consumer, jetstream.FetchMaxWait(tryWait))
	if err != nil && ctx.Err() == nil {
		return nil, nil // NextTask reports what lasts
	}
	return d, err
}

// consumer looks up the consumer of the kernel's tasks, whose lease may have changed, and keeps it
// for TryTask.
func (b *Bus) consumer(ctx context.Context, kernel string) (c jetstream.Consumer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = b.request("look up consumer", func() (err error) {
		c, err = b.js.Consumer(ctx, tasksStream, consumerOf(kernel))
		return err
	})
	if err == nil {
		b.mu.Lock()
		b.taskConsumers[kernel] = c
		b.mu.Unlock()
	}
	return c, err
}

// fetch asks for one task and waits for the given time. If no task comes it returns nil and no
// error.
func (b *Bus) fetch(ctx context.Context, consumer jetstream.Consumer, within time.Duration) (*Delivery, error) {
	wait, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// The server's heartbeats distinguish an empty queue from a request that was lost
	// with its connection.
	d, err := b.receive(ctx, consumer, jetstream.FetchContext(wait), jetstream.FetchHeartbeat(max(within/4, time.Millisecond)))
	switch {
	case errors.Is(err, jetstream.ErrInvalidOption): // the library refuses a deadline that is too close
		<-wait.Done()
		return nil, wait.Err()
	case err != nil && errors.Is(err, wait.Err()):
		return nil, nil
	}
	return d, err
}

// receive asks for one task, and waits for it as options say. If no task comes it returns nil, and
// the error with which the wait ended, if any.
func (b *Bus) receive(ctx context.Context, consumer jetstream.Consumer, options ...jetstream.FetchOpt) (*Delivery, error) {
	var batch jetstream.MessageBatch
	err := b.request("fetch", func() (err error) {
		batch, err = consumer.Fetch(1, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	msg, ok := <-batch.Messages()
	if !ok {
		return nil, batch.Error()
	}
	return b.deliver(ctx, msg, consumer.CachedInfo().Config.AckWait)
}

// deliver turns the message into a Delivery, or quarantines the task if it is malformed
// or was tried too often. If the task has no valid lease, it has that of the consumer.
func (b *Bus) deliver(ctx context.Context, msg jetstream.Msg, lease time.Duration) (*Delivery, error) {
	held := &leased{b: b, reply: msg.Reply(), lease: lease, renewal: inProgress}
	if own, err := time.ParseDuration(msg.Headers().Get(leaseHeader)); err == nil && own >= leastLease && own != lease {
		held.lease, held.renewal = own, nakAfter(own)
	}
	held.extend(time.Now(), min(lease, held.lease))
	about, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	if lease != held.lease {
		soon, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := held.renew(soon, "begin the lease of "+msg.Subject()); err != nil {
			return nil, errAgain{err}
		}
		lease = held.lease
	}
	d := &Delivery{Try: int(about.NumDelivered), Lease: lease, b: b, hold: held}
	return d.open(ctx, msg.Subject(), msg.Data())
}

// open decodes the task and returns d. If the task is malformed or was tried too often,
// open sets it aside and returns nil. A malformed task says nothing about its shard, so it
// is set aside as lost, and the coordinator publishes it again.
func (d *Delivery) open(ctx context.Context, subject string, body []byte) (_ *Delivery, err error) {
	d.Attempt = nuid.Next()
	d.Task, err = decodeTask(subject, body)
	if err == nil && d.Try <= maxTries {
		return d, nil
	}
	malformed := err != nil
	if !malformed {
		err = fmt.Errorf("given up after %d tries, in which workers died, failed or lost their lease; see their logs", maxTries)
		if d.Lease == 0 {
			err = fmt.Errorf("given up after %d tries, which all failed; see the log", maxTries)
		}
	}
	d.b.log.Error("task set aside", zap.String("subject", subject), zap.Error(err))
	// The body cannot be trusted. The subject names the job and the shard.
	_, jobID, shard, ok := parseTask(subject)
	if !ok {
		return nil, d.hold.remove(ctx, "set aside "+subject, term)
	}
	d.Task.Job, d.Task.Shard = jobID, shard
	if malformed {
		return nil, d.Lost(ctx, err.Error())
	}
	return nil, d.Quarantine(ctx, err.Error(), false)
}

// Heartbeat renews the lease. ErrLeaseLost means that the task may have gone to another
// worker. It is harmless to continue, but the work may be wasted. After ErrLeaseLost the
// hold sends nothing, because the server would count it for the other worker.
func (d *Delivery) Heartbeat(ctx context.Context) error {
	return d.hold.renew(ctx, fmt.Sprintf("renew the lease of task %s/%d", d.Task.Job, d.Task.Shard))
}

// Release gives the task back, to be delivered again after delay. It counts as one of the
// task's tries. If the lease is lost, Release does nothing and returns ErrLeaseLost. The
// request is sent only once, because a second one might hit the worker that received the
// task after the first. If the request fails, the lease runs out.
func (d *Delivery) Release(ctx context.Context, delay time.Duration) error {
	return d.hold.release(ctx, fmt.Sprintf("release task %s/%d", d.Task.Job, d.Task.Shard), delay)
}

// Done removes the task. Call it only after PublishResult returned without an error,
// because the server accepts an acknowledgement even from a worker that lost its lease.
// An error means that the task may be delivered once more, which only costs work.
func (d *Delivery) Done(ctx context.Context) error {
	return d.hold.remove(ctx, fmt.Sprintf("acknowledge task %s/%d", d.Task.Job, d.Task.Shard), ack)
}

// Last reports whether this is the task's last try.
func (d *Delivery) Last() bool { return d.Try >= maxTries }

// Quarantine stores a quarantine for the task and then removes the task. input says that
// the input is at fault, so that another try would not help.
func (d *Delivery) Quarantine(ctx context.Context, reason string, input bool) error {
	return d.setAside(ctx, job.Quarantine{Reason: reason, Input: input})
}

// Lost quarantines the task because stored data that it needs is missing. The coordinator
// publishes it again when it has restored the data.
func (d *Delivery) Lost(ctx context.Context, reason string) error {
	return d.setAside(ctx, job.Quarantine{Reason: reason, Lost: true})
}

// setAsideAgain is the time after which a task that could not be set aside is tried again.
const setAsideAgain = time.Second

func (d *Delivery) setAside(ctx context.Context, q job.Quarantine) error {
	q.Job, q.Shard, q.Worker = d.Task.Job, d.Task.Shard, d.b.name
	if err := d.b.SetAside(ctx, q); err != nil {
		_ = d.Release(ctx, setAsideAgain) // if this fails, the lease runs out; without a lease it does not fail
		return err
	}
	return d.hold.remove(ctx, fmt.Sprintf("set aside task %s/%d", q.Job, q.Shard), term)
}

// leased is a hold that ends if the worker does not renew it in time.
type leased struct {
	b     *Bus
	reply string // where answers go
	lease time.Duration
	// renewal is the answer that extends the lease: inProgress by the lease of the consumer, or a
	// nak that makes the server wait for another lease.
	renewal string

	mu    sync.Mutex
	until time.Time // until then no other worker can get the task
}

// The answers of a worker about its task.
const (
	ack        = "+ACK"
	term       = "+TERM"
	inProgress = "+WPI"
	nak        = "-NAK"
)

// nakAfter is the answer after which the server waits for d until it delivers the task again. The task remains
// with the worker until then, so the worker may still answer.
func nakAfter(d time.Duration) string { return fmt.Sprintf(`%s {"delay": %d}`, nak, d.Nanoseconds()) }

// extend records that the server renewed the lease at or after sent. An eighth of the
// lease is held back for differences between clocks and for the time that messages take.
func (l *leased) extend(sent time.Time, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := sent.Add(lease - lease/8); until.After(l.until) {
		l.until = until
	}
}

// left returns how much longer the lease is certain. The monotonic clock stops while a
// machine sleeps, and the wall clock may be set back. left uses the clock that leaves
// less.
func (l *leased) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(time.Until(l.until), l.until.Round(0).Sub(time.Now().Round(0)))
}

func (l *leased) say(ctx context.Context, what, word string) error {
	return l.b.call(ctx, what, func(ctx context.Context) error {
		sent := time.Now()
		_, err := l.b.nc.RequestWithContext(ctx, l.reply, []byte(word))
		if err == nil && word == l.renewal {
			l.extend(sent, l.lease)
		}
		return err
	})
}

// remove sends the answer. A lost answer does no harm, so remove waits at most one more
// lease.
func (l *leased) remove(ctx context.Context, what, answer string) error {
	bounded, cancel := context.WithTimeout(ctx, max(l.lease, callTimeout))
	defer cancel()
	return l.say(bounded, what, answer)
}

func (l *leased) renew(ctx context.Context, what string) error {
	held, cancel := context.WithTimeout(ctx, max(l.left(), 0))
	defer cancel()
	if held.Err() == nil {
		if err := l.say(held, what, l.renewal); err == nil || held.Err() == nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return l.b.pauser(what).ended(ctx, nil)
	}
	return fmt.Errorf("%s: %w", what, ErrLeaseLost)
}

func (l *leased) release(ctx context.Context, what string, delay time.Duration) error {
	left := l.left()
	if left <= 0 {
		return fmt.Errorf("%s: %w", what, ErrLeaseLost)
	}
	word := nak
	if delay > 0 {
		word = nakAfter(delay)
	}
	ctx, cancel := context.WithTimeout(ctx, min(left, callTimeout))
	defer cancel()
	err := l.b.request(what, func() error {
		_, err := l.b.nc.RequestWithContext(ctx, l.reply, []byte(word))
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// SetAside stores the quarantine of a shard unless the shard has one.
func (b *Bus) SetAside(ctx context.Context, q job.Quarantine) error {
	body, err := encodeQuarantine(q)
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	on := subject(quarantinePrefix, q.Job, q.Shard)
	_, err = b.storeOnce(ctx, "publish quarantine "+on, quarantineStream, &nats.Msg{Subject: on, Data: body})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}
