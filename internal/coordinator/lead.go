package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/arrowio"
	"shaver/internal/bus"
	"shaver/internal/fault"
	"shaver/internal/job"
)

// limits bound what a job has under way: enough for a large cluster, and what
// the blob store holds.
var limits = job.Limits{Window: 1024, Held: 16 << 30, SaveEvery: 256, SaveBytes: 4 << 30, Tries: 5}

const (
	tickEvery  = 2 * time.Second  // looks at the claim, progress
	quietAfter = 10 * time.Second // without an event the coordinator looks what is stored
	logEvery   = 30 * time.Second // while no result comes
	saveEvery  = 30 * time.Second
	tellEvery  = 5 * time.Second // while a checkpoint is stored
	briefly    = 4 * time.Second // for what can wait until the next tick
)

// pace says when what is due.
type pace struct {
	saved  time.Time     // the last checkpoint
	took   time.Duration // it took
	heard  time.Time     // the last event
	looked time.Time     // the last inventory
	logged time.Time     // that nothing was heard
}

// resume loads the checkpoint, and deletes what it covers. One that is missing
// or is none means that nothing is merged.
func (r *run) resume(ctx context.Context) error {
	features, dim := r.arch.Features(), r.arch.Dim
	r.merged = nil       // one copy at a time
	debug.FreeOSMemory() // nor beside what the model took, which is not needed any more
	if stored := r.claim.Lead.Checkpoint; stored != nil {
		begun := time.Now()
		var err error
		r.merged, err = r.load(ctx, *stored, features, dim)
		switch {
		case errors.Is(err, bus.ErrNotFound) || fault.IsInput(err):
			r.log.Warn("the checkpoint is lost: the job begins again", zap.Error(err))
			r.merged = nil
		case err != nil:
			return fmt.Errorf("job %s: %w", r.id, err)
		default:
			r.log.Info("resumed", zap.Int("shards", r.shards.Len()), zap.Int64("rows", r.sums.Rows()), zap.Int64("epoch", r.claim.Lead.Epoch), zap.Duration("took", time.Since(begun)))
		}
	}
	if r.merged == nil {
		r.merged = newMerged(features, dim, r.within(), r.plan.Shards())
	}
	r.machine = job.NewMachine(&r.spec, r.plan, r.limits(), r.shards)
	r.orders, r.cleaner, r.renew = newOrders(r.plan.Shards()), newCleaner(r.bus, r.id), make(chan struct{}, 1)
	now := time.Now()
	r.pace = pace{saved: now, heard: now, looked: now}
	r.meter = newMeter(now, r.sums.Rows())
	return r.superfluous(ctx)
}

// superfluous has deleted what the checkpoint covers and what older ones were,
// if their coordinator died before it did so.
func (r *run) superfluous(ctx context.Context) error {
	names, err := r.bus.Blobs(ctx, r.id, "checkpoint", "shard")
	if err != nil {
		return err
	}
	for _, name := range names {
		var shard int
		_, err := fmt.Sscanf(strings.TrimPrefix(name, "shard/"+r.id), "/%d", &shard)
		covered := err == nil && r.shards.Has(shard)
		if strings.HasPrefix(name, "checkpoint/") {
			covered = r.claim.Lead.Checkpoint == nil || name != r.claim.Lead.Checkpoint.Name
		}
		if covered {
			r.cleaner.add(nil, name)
		}
	}
	return nil
}

func (r *run) limits() job.Limits {
	l := limits
	l.AllowQuarantined = r.AllowQuarantined
	return l
}

// lead feeds the machine until it ends, and returns how.
func (r *run) lead(ctx context.Context) (end job.Action, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	events, published := make(chan bus.Event), make(chan int)
	group.Go(func() error { return r.events(ctx, events) })
	group.Go(func() error { return r.cut(ctx, published) })
	group.Go(func() error { return r.cleaner.run(ctx) })
	ended := errors.New("ended")
	group.Go(func() error {
		if end, err = r.loop(ctx, events, published); err != nil {
			return err
		}
		return ended
	})
	if err := group.Wait(); !errors.Is(err, ended) {
		return nil, err
	}
	return end, nil
}

// events passes on what is stored and what comes, from the beginning whenever
// renew asks for it.
func (r *run) events(ctx context.Context, events chan<- bus.Event) error {
	for {
		reading, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-r.renew:
				stop()
			case <-reading.Done():
			}
		}()
		err := r.bus.Events(reading, r.id, func(e bus.Event) error {
			select {
			case events <- e:
				return nil
			case <-reading.Done():
				return reading.Err()
			}
		})
		renewed := reading.Err() != nil
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !renewed:
			return err
		}
	}
}

// loop takes events and does what the machine says, until the job ends.
func (r *run) loop(ctx context.Context, events <-chan bus.Event, published <-chan int) (end job.Action, err error) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	end, err = r.look(ctx)
	for end == nil && err == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case index := <-published:
			end, err = r.step(ctx, job.Published{Shard: index})
		case e := <-events:
			r.pace.heard = time.Now()
			if e.Quarantine != nil && e.Quarantine.Lost { // whoever saw that has deleted it
				if err := r.supply(ctx); err != nil {
					return nil, err
				}
				r.send(e.Quarantine)
			}
			merged := r.shards.Len()
			end, err = r.step(ctx, r.eventOf(e))
			if r.OnLag != nil && r.shards.Len() > merged {
				r.OnLag(time.Since(e.Stored))
			}
			if end == nil && err == nil {
				end, err = r.due(ctx)
			}
		case <-tick.C:
			end, err = r.tick(ctx)
		}
	}
	return end, err
}

// send has the shard travel that some worker could not read in place.
func (r *run) send(q *job.Quarantine) {
	if r.plan.InPlace && q.Shard >= 0 && q.Shard < r.plan.Shards() {
		r.log.Warn("a shard has to travel", zap.Int("shard", q.Shard), zap.String("to", q.Worker), zap.String("why", q.Reason))
		r.orders.send(q.Shard)
	}
}

func (r *run) eventOf(e bus.Event) job.Event {
	switch {
	case e.Result != nil:
		return *e.Result
	case e.Quarantine != nil:
		return *e.Quarantine
	}
	return job.Unusable{Shard: e.Shard, Why: e.Err.Error()}
}

// tick does what time asks for.
func (r *run) tick(ctx context.Context) (end job.Action, err error) {
	short, cancel := context.WithTimeout(ctx, briefly)
	defer cancel()
	if err := r.claim.Check(short); errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) {
		return nil, err
	}
	if cancelled, err := r.bus.IsCancelled(short, r.id); err == nil && cancelled {
		return r.step(ctx, job.Cancelled{})
	}
	if end, err = r.due(ctx); end != nil || err != nil {
		return end, err
	}
	now := time.Now()
	quiet := now.Sub(r.pace.heard) >= quietAfter && now.Sub(r.pace.looked) >= quietAfter
	if quiet || len(r.machine.Quarantined()) > 0 { // which may be put back
		if end, err = r.look(ctx); end != nil || err != nil {
			return end, err
		}
	}
	c, silent := r.machine.Counts(), now.Sub(r.pace.heard)
	if c.Open > 0 && silent >= logEvery && now.Sub(r.pace.logged) >= logEvery {
		r.pace.logged = now
		r.log.Info("waiting for results of workers with this kernel", zap.String("kernel", r.spec.Kernel), zap.Duration("since", silent.Round(time.Second)),
			zap.Int("tasks", c.Open), zap.Int("merged", c.Merged), zap.Int("of", c.Shards), zap.Int("quarantined", c.Quarantined))
	}
	state := bus.Running
	if silent >= 2*r.Queue.Lease {
		state = bus.Stalled
	}
	r.tell(ctx, state, fmt.Sprintf("results of %d tasks, from workers with kernel %s", c.Open, r.spec.Kernel))
	return nil, nil
}

// due has a checkpoint made when it is time.
func (r *run) due(ctx context.Context) (end job.Action, err error) {
	every := r.SaveEvery
	if every == 0 {
		every = saveEvery
	}
	if time.Since(r.pace.saved) < max(every, 20*r.pace.took) {
		return nil, nil
	}
	return r.step(ctx, job.Due{})
}

// look tells the machine what is stored.
func (r *run) look(ctx context.Context) (job.Action, error) {
	if err := r.supply(ctx); err != nil {
		return nil, err
	}
	inventory, err := r.bus.Inventory(ctx, r.id, r.spec.Kernel)
	if err != nil {
		return nil, err
	}
	r.pace.looked = time.Now()
	return r.step(ctx, inventory)
}

// step feeds an event and does what follows; end is how the job ended, if it did.
func (r *run) step(ctx context.Context, e job.Event) (end job.Action, err error) {
	for _, action := range r.machine.Step(e) {
		if end, err := r.do(ctx, action); end != nil || err != nil {
			return end, err
		}
	}
	return nil, nil
}

func (r *run) do(ctx context.Context, action job.Action) (end job.Action, err error) {
	switch a := action.(type) {
	case job.Publish:
		r.orders.add(a.Shard)
	case job.Merge:
		return r.merge(ctx, a.Result)
	case job.Save:
		return r.save(ctx)
	case job.Clear:
		r.cleaner.add(a.Results)
	case job.Discard:
		r.log.Warn("result thrown away", zap.Int("shard", a.Shard), zap.String("why", a.Why))
		if err := r.bus.DeleteResult(ctx, r.id, a.Shard); err != nil || a.Partial == "" {
			return nil, err
		}
		return nil, r.bus.Delete(ctx, a.Partial)
	case job.Withdraw:
		return nil, r.bus.DeleteTask(ctx, r.id, a.Shard)
	case job.SetAside:
		r.log.Error("shard set aside", zap.Int("shard", a.Quarantine.Shard), zap.String("why", a.Quarantine.Reason))
		a.Quarantine.Job = r.id
		if err := r.bus.SetAside(ctx, a.Quarantine); err != nil {
			return nil, err
		}
		return nil, r.bus.DeleteTask(ctx, r.id, a.Quarantine.Shard)
	case job.Readmit:
		return nil, r.bus.DeleteQuarantine(ctx, r.id, a.Shard)
	case job.Note:
		r.log.Error("shard set aside", zap.Int("shard", a.Quarantine.Shard), zap.String("by", a.Quarantine.Worker), zap.String("why", a.Quarantine.Reason))
	case job.Reread:
		select {
		case r.renew <- struct{}{}:
		default:
		}
	case job.Look:
		return r.look(ctx)
	case job.Judge:
		return r.judge(ctx, a.Round)
	case job.Ignore:
		r.log.Debug("ignored", zap.Int("shard", a.Shard), zap.String("why", a.Why))
	case job.Fail:
		r.cleaner.wait()
		return a, nil
	case job.Finish, job.Stop:
		return a, nil
	default:
		panic(fmt.Sprintf("coordinator: unknown action %T", action))
	}
	return nil, nil
}

// The most that references may claim.
const (
	maxPartialBytes = 8 << 30
	maxSumsBytes    = 1 << 40
)

// merge adds the partial of a result, or says that it cannot be used.
func (r *run) merge(ctx context.Context, result job.Result) (end job.Action, err error) {
	err = r.add(ctx, &result)
	if errors.Is(err, bus.ErrNotFound) || fault.IsInput(err) {
		return r.step(ctx, job.Unusable{Shard: result.Shard, Partial: result.Partial.Name, Why: err.Error()})
	}
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", result.Shard, err)
	}
	r.workers[result.Worker]++
	r.cpu += result.CPU
	r.shards.Add(result.Shard)
	r.meter.add(&result, time.Now())
	r.log.Debug("merged", zap.Int("shard", result.Shard))
	if r.OnMerged != nil {
		r.OnMerged(r.sums.Rows())
	}
	return r.step(ctx, job.Merged{Result: result})
}

func (r *run) add(ctx context.Context, result *job.Result) error {
	data, err := r.bus.Get(ctx, result.Partial, maxPartialBytes)
	if err != nil {
		return err
	}
	partial, err := arrowio.DecodePartial(data, r.arch.Features(), r.arch.Dim, r.within())
	if err != nil {
		return fmt.Errorf("partial %s: %w", result.Partial.Name, err)
	}
	if partial.Rows != result.Rows {
		return fault.Inputf("partial %s has %d rows, its result says %d", result.Partial.Name, partial.Rows, result.Rows)
	}
	r.turn(result.Shard)
	if err := r.sums.Merge(partial); err != nil {
		return fault.Inputf("partial %s: %w", result.Partial.Name, err)
	}
	return nil
}

// save stores a checkpoint and makes it the job's: the blob first, then what
// points to it.
func (r *run) save(ctx context.Context) (end job.Action, err error) {
	begun, old := time.Now(), r.claim.Lead.Checkpoint
	r.seconds = r.elapsed()
	number := r.claim.Lead.Number
	var blob job.Blob
	for {
		number++
		blob, err = r.store(ctx, r.claim.Lead.Epoch, number)
		if !errors.Is(err, bus.ErrConflict) { // else of a life before this one
			break
		}
	}
	if err == nil {
		err = r.claim.Point(ctx, number, blob)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: checkpoint: %w", r.id, err)
	}
	if old != nil {
		r.cleaner.add(nil, old.Name)
	}
	now := time.Now()
	r.pace.saved, r.pace.took = now, now.Sub(begun)
	r.seconds += r.pace.took.Seconds()
	r.meter.saved = now
	r.log.Debug("checkpoint", zap.Int("shards", r.shards.Len()), zap.Int64("bytes", blob.Bytes), zap.Duration("took", r.pace.took))
	return r.step(ctx, job.Saved{})
}

// store stores the sums under a checkpoint's name.
func (r *run) store(ctx context.Context, epoch, number int64) (job.Blob, error) {
	told := time.Now()
	return r.bus.PutFrom(ctx, bus.CheckpointName(r.id, epoch, number), func(w io.Writer) error {
		return r.write(writerFunc(func(p []byte) (int, error) {
			if time.Since(told) >= tellEvery { // it is large: somebody may take us for dead
				told = time.Now()
				r.tell(ctx, bus.Running, "its checkpoint")
			}
			return w.Write(p)
		}), r.id, &r.plan)
	}, nil)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// load reads a checkpoint.
func (r *run) load(ctx context.Context, blob job.Blob, features, dim int) (m *merged, err error) {
	err = r.bus.GetInto(ctx, blob, maxSumsBytes, func(in io.Reader) (err error) {
		m = nil
		m, err = readMerged(in, r.id, features, dim, r.within(), &r.plan)
		return err
	})
	return m, err
}

// tell stores the job's progress, if that can be done at once.
func (r *run) tell(ctx context.Context, state, waiting string) {
	short, cancel := context.WithTimeout(ctx, briefly)
	defer cancel()
	c := r.machine.Counts()
	p := r.meter.progress(time.Now(), r.sums.Rows(), r.plan.Rows)
	p.Job, p.State, p.Epoch, p.Waiting = r.id, state, r.claim.Lead.Epoch, waiting
	p.RowsTotal, p.Shards, p.ShardsTotal, p.Open, p.Quarantined = r.plan.Rows, c.Merged, c.Shards, c.Open, c.Quarantined
	if slices.Contains([]string{bus.Finished, bus.Failed, bus.Cancelled}, state) {
		p.Left = 0
	}
	if r.OnProgress != nil {
		r.OnProgress(p)
	}
	if err := r.bus.SetProgress(short, p); err != nil {
		r.log.Debug("progress not stored", zap.Error(err))
	}
}
