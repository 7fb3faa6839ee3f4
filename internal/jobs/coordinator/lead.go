package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/click/evaluate"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/value/tally"
)

// limits bound the work in progress of a job. They keep a large cluster busy, and the
// blob store has room for the partials.
var limits = job.Limits{Window: 1024, Largest: 32 << 10, Held: 16 << 30, SaveEvery: 256, SaveBytes: 4 << 30, Tries: 5}

// maxProbe bounds the bytes that are stored to see whether the server has room for results.
const maxProbe = 16 << 20

// maxPartialBytes bounds the size that a result may claim for its partial.
const maxPartialBytes = 8 << 30

// leader leads a claimed job until the job ends or another coordinator claims it. It
// performs the actions of its machine. The publisher, the cleaner and readEvents have
// goroutines of their own. Everything else is used only by the goroutine of loop.
type leader struct {
	config    *Config
	bus       *bus.Bus
	log       *zap.Logger
	job       *prepare.Job
	claim     *bus.Claim
	inputs    *inputs
	sums      *sums
	rounds    rounds
	rounder   *rounder                // nil = the job is not a path
	ranks     func(int, tally.Values) // writes the ranks of a finished path; otherwise nil
	machine   *job.Machine
	publisher publisher
	cleaner   *cleaner
	renew     chan struct{} // makes readEvents begin again
	schedule  schedule
	meter     meter
	retries   retries
	lost      lost
	crew      *bus.Connected // workers that are connected; nil = results come, or nobody asked yet
	warnings  []string       // of the scores that are written
}

// newLeader returns the leader of the claimed job j. The job's inputs are stored, and s
// holds what is merged.
func newLeader(b *bus.Bus, c *Config, j *prepare.Job, claim *bus.Claim, in *inputs, s *sums, log *zap.Logger) *leader {
	bounds := limits
	bounds.AllowQuarantined, bounds.Verify = c.AllowQuarantined, c.Verify
	wrong := claim.Lead.Wrong
	orders := newOrders(j.Plan.Shards())
	orders.wrong = wrong
	blocks := ""
	if j.Plan.InPlace {
		var err error
		if blocks, err = j.Dataset.Blocks(); err != nil {
			log.Warn("cannot use the list of blocks, so the coordinator reads all rows", zap.Error(err))
		}
	}
	return &leader{
		config: c, bus: b, log: log, job: j, claim: claim, inputs: in, sums: s,
		rounds:    rounds{job: j, sums: s},
		retries:   newRetries(j.Plan.Shards()),
		lost:      newLost(),
		machine:   job.NewMachine(&j.Spec, j.Plan, bounds, s.shards, s.judged(), wrong),
		publisher: publisher{bus: b, job: j, inputs: in, orders: orders, blocks: blocks},
		cleaner:   newCleaner(b, j.ID, &j.Plan), renew: make(chan struct{}, 1),
		schedule: newSchedule(c.SaveEvery, b.Local()), meter: newMeter(s.mergedRows()),
	}
}

// deleteCovered queues the shards that the checkpoint covers, and older checkpoints,
// for deletion. An earlier coordinator may have died before it deleted them.
func (l *leader) deleteCovered(ctx context.Context) error {
	names, err := l.bus.Blobs(ctx, l.job.ID, "checkpoint", "shard")
	if err != nil {
		return err
	}
	current := l.claim.Lead.Checkpoint
	for _, name := range names {
		var shard int
		_, err := fmt.Sscanf(strings.TrimPrefix(name, "shard/"+l.job.ID), "/%d", &shard)
		covered := err == nil && l.sums.shards.Has(shard)
		if strings.HasPrefix(name, "checkpoint/") {
			covered = current == nil || name != current.Name && !strings.HasPrefix(name, current.Name+"/")
		}
		if covered {
			l.cleaner.add(nil, name)
		}
	}
	return nil
}

// lead runs the machine until the job ends, and returns its last action, which is Fail,
// Finish or Stop.
func (l *leader) lead(ctx context.Context) (end job.Action, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	events, published := make(chan bus.Event), make(chan int)
	group.Go(func() error { return l.readEvents(ctx, events) })
	group.Go(func() error { return l.publisher.run(ctx, published) })
	group.Go(func() error { return l.cleaner.run(ctx) })
	if l.sums.ranges != nil {
		group.Go(func() error { return l.sums.ranges.Watch(ctx) })
	}
	ended := errors.New("ended")
	group.Go(func() error {
		if end, err = l.loop(ctx, events, published); err != nil {
			return err
		}
		return ended
	})
	if err := group.Wait(); !errors.Is(err, ended) {
		return nil, err
	}
	return end, nil
}

// readEvents sends the job's stored and future events to events. On a signal from renew
// it begins again with the stored events.
func (l *leader) readEvents(ctx context.Context, events chan<- bus.Event) error {
	for {
		reading, stop := context.WithCancel(ctx)
		go func() {
			select {
			case <-l.renew:
				stop()
			case <-reading.Done():
			}
		}()
		err := l.bus.Events(reading, l.job.ID, func(e bus.Event) error {
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

// loop feeds the machine with events until the job ends.
func (l *leader) loop(ctx context.Context, events <-chan bus.Event, published <-chan int) (end job.Action, err error) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	end, err = l.feedInventory(ctx)
	for end == nil && err == nil {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case index := <-published:
			end, err = l.feed(ctx, job.Published{Shard: index})
		case e := <-events:
			end, err = l.receive(ctx, e)
		case <-tick.C:
			end, err = l.tick(ctx)
		}
	}
	return end, err
}

// receive feeds the machine with an event from the bus.
func (l *leader) receive(ctx context.Context, e bus.Event) (end job.Action, err error) {
	l.schedule.hear()
	var event job.Event
	switch {
	case e.Result != nil:
		event = l.fits(e.Result)
	case e.Quarantine != nil:
		if e.Quarantine.Lost { // the worker has deleted what it could not use
			if err := l.inputs.store(ctx, nil); err != nil {
				return nil, err
			}
			l.sendOverWire(e.Quarantine)
			l.retries.expect(e.Quarantine.Shard, e.Quarantine.Reason)
		}
		event = *e.Quarantine
	case e.Foreign != nil:
		e.Foreign.Shard = e.Shard
		event = *e.Foreign
	default:
		event = job.Unusable{Shard: e.Shard, Why: e.Err.Error()}
	}
	merged := l.sums.shards.Len()
	end, err = l.feed(ctx, event)
	if l.config.OnLag != nil && l.sums.shards.Len() > merged {
		l.config.OnLag(time.Since(e.Stored))
	}
	if end != nil || err != nil {
		return end, err
	}
	return l.saveIfDue(ctx)
}

// sendOverWire makes the publisher send a shard that a worker could not read in place.
func (l *leader) sendOverWire(q *job.Quarantine) {
	if n := l.job.Plan.Shards(); l.job.Plan.InPlace && q.Shard >= 0 && q.Shard < 2*n { // from n on, of a task with Verify
		l.log.Warn("sending a shard that a worker cannot read in place", zap.Int("shard", q.Shard%n), zap.String("to", q.Worker), zap.String("why", q.Reason))
		l.publisher.orders.sendOverWire(q.Shard % n)
	}
}

// tick checks that this coordinator still leads and that the job is not cancelled. It
// then does what is due and reports progress.
func (l *leader) tick(ctx context.Context) (end job.Action, err error) {
	short, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	if err := l.claim.Check(short); errors.Is(err, bus.ErrFenced) || errors.Is(err, bus.ErrEnded) || bus.IsGone(err) {
		return nil, err
	}
	if cancelled, err := l.bus.IsCancelled(short, l.job.ID); err == nil && cancelled {
		return l.feed(ctx, job.Cancelled{})
	}
	if end, err = l.saveIfDue(ctx); end != nil || err != nil {
		return end, err
	}
	if l.schedule.inventoryDue() || len(l.machine.Quarantined()) > 0 { // somebody may have put a quarantined shard back
		if end, err = l.feedInventory(ctx); end != nil || err != nil {
			return end, err
		}
	}
	if end, err = l.countCrew(ctx); end != nil || err != nil {
		return end, err
	}
	if end, err = l.lookForRoom(ctx); end != nil || err != nil {
		return end, err
	}
	c := l.machine.Counts()
	l.lookForWorkers(short)
	if c.Open > 0 && l.schedule.logDue() {
		l.logSilence(&c)
	}
	state := bus.Running
	if silence := l.schedule.silence(); silence >= 2*l.config.Queue.Lease || l.unfit() && silence >= unfitAfter {
		state = bus.Stalled
	}
	l.reportProgress(ctx, state, l.waiting(c.Open))
	return nil, nil
}

// lookForRoom makes room for results if none comes and the server has none: the tasks that are stored, and those that wait to be,
// may take all of it, and workers cannot store what they have computed.
func (l *leader) lookForRoom(ctx context.Context) (end job.Action, err error) {
	if l.machine.Counts().Open == 0 || !l.schedule.roomDue() {
		return nil, nil
	}
	short, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	if room, err := l.bus.HasRoom(short, l.job.ID, min(max(l.machine.Largest(), l.publisher.largest.Load(), 1<<10), maxProbe)); err != nil || room {
		return nil, nil // the next look may say more
	}
	open := l.machine.Counts().Open
	l.log.Warn("the server has no room for results, so tasks make room, and fewer are published from now on", zap.Int("tasks", open))
	end, err = l.feed(ctx, job.NoRoom{})
	if l.machine.Counts().Open < open { // look again soon
		l.schedule.probes = 0
	}
	return end, err
}

// saveIfDue makes a checkpoint if it is time for one and the machine has something to
// save.
func (l *leader) saveIfDue(ctx context.Context) (end job.Action, err error) {
	if !l.schedule.saveDue() {
		return nil, nil
	}
	return l.feed(ctx, job.Due{})
}

// feedInventory takes an inventory and feeds it to the machine.
func (l *leader) feedInventory(ctx context.Context) (end job.Action, err error) {
	inventory, err := l.inventory(ctx)
	if err != nil {
		return nil, err
	}
	return l.feed(ctx, inventory)
}

// inventory stores the inputs again if they are lost, and lists what the server holds for
// the job.
func (l *leader) inventory(ctx context.Context) (job.Event, error) {
	if err := l.inputs.store(ctx, nil); err != nil {
		return nil, err
	}
	if n, err := l.bus.WithdrawForeign(ctx, l.job.ID, l.job.Spec.Kernel); err != nil {
		return nil, err
	} else if n > 0 {
		l.log.Info("withdrew the tasks of a coordinator with another protocol", zap.Int("tasks", n), zap.Int("protocol", job.Protocol))
	}
	inventory, err := l.bus.Inventory(ctx, l.job.ID, l.job.Spec.Kernel)
	if err != nil {
		return nil, err
	}
	l.schedule.inventory = time.Now()
	if len(inventory.Slow) > 0 && !l.schedule.backupDue(l.config.Queue.Lease) {
		inventory.Slow = nil
	}
	if len(inventory.Slow) > 0 {
		for _, shard := range inventory.Slow {
			l.retries.expect(shard, "the worker that holds it has been silent for long")
		}
		l.log.Warn("idle workers compute tasks that other workers hold", zap.Int("tasks", len(inventory.Slow)), zap.Duration("silence", l.schedule.silence()))
	}
	return inventory, nil
}

// feed gives the machine an event and performs the actions that the machine returns. It
// then feeds the outcomes of these actions, in order, until there are no more. The
// returned end is not nil if the job ended.
func (l *leader) feed(ctx context.Context, e job.Event) (end job.Action, err error) {
	for queue := []job.Event{e}; len(queue) > 0; queue = queue[1:] {
		for _, action := range l.machine.Step(queue[0]) {
			switch action.(type) {
			case job.Fail:
				l.cleaner.wait()
				return action, nil
			case job.Finish, job.Stop:
				return action, nil
			}
			outcome, err := l.perform(ctx, action)
			if err != nil {
				return nil, err
			}
			if outcome != nil {
				queue = append(queue, outcome)
			}
		}
	}
	return nil, nil
}

// perform performs an action, and returns its outcome if the machine waits for it.
func (l *leader) perform(ctx context.Context, action job.Action) (outcome job.Event, err error) {
	id := l.job.ID
	switch a := action.(type) {
	case job.Publish:
		if a.Workers != nil {
			l.publisher.orders.addAgain(a.Shard-l.job.Plan.Shards(), a.Workers)
			break
		}
		l.retries.publish(a.Shard)
		l.publisher.orders.add(a.Shard)
	case job.Merge:
		outcome, err := l.merge(ctx, a.Result)
		if _, ok := outcome.(job.Merged); ok {
			l.sums.verified += a.Verified
		}
		return outcome, err
	case job.Distrust:
		return nil, l.distrust(ctx, &a)
	case job.Save:
		l.cleaner.wait() // the checkpoint needs the room
		err := l.save(ctx, a.Wait)
		if errors.Is(err, bus.ErrFull) {
			l.log.Warn("the server has no room for a checkpoint, so the partials that are merged make room; a coordinator that continues from the checkpoint before computes them again",
				zap.Duration("took", l.schedule.saveTook))
			return job.Full{}, nil
		}
		return job.Saved{}, err
	case job.Clear:
		for _, r := range a.Results {
			l.cleaner.add([]covered{{r, a.Coming}})
		}
	case job.Forget:
		return nil, l.bus.DeleteResult(ctx, id, a.Shard)
	case job.Discard:
		level := zap.WarnLevel
		if a.Spare {
			level = zap.DebugLevel
		}
		if !l.sums.shards.Has(a.Shard) {
			l.retries.expect(a.Shard, "its result is unusable: "+a.Why)
		}
		l.log.Log(level, "result discarded", zap.Int("shard", a.Shard), zap.String("why", a.Why))
		if err := l.bus.DeleteResult(ctx, id, a.Shard); err != nil || a.Partial == "" {
			return nil, err
		}
		return nil, deletePartial(ctx, l.bus, a.Partial, &l.job.Plan)
	case job.Withdraw:
		return nil, l.bus.DeleteTask(ctx, id, a.Shard)
	case job.Recall:
		l.publisher.orders.recall()
		stop := stayAlive(ctx, l.bus, l.progress(bus.Running, ""), "room for results")
		defer stop()
		for _, shard := range a.Shards {
			err := l.bus.DeleteTask(ctx, id, shard)
			if err == nil && (!l.job.Plan.InPlace || l.publisher.orders.overWire(shard)) {
				err = l.bus.Delete(ctx, bus.ShardName(id, shard))
			}
			if err != nil {
				return nil, err
			}
		}
	case job.SetAside:
		l.log.Error("shard set aside", zap.Int("shard", a.Quarantine.Shard), zap.String("why", a.Quarantine.Reason))
		l.retries.expect(a.Quarantine.Shard, putBack)
		a.Quarantine.Job = id
		if err := l.bus.SetAside(ctx, a.Quarantine); err != nil {
			return nil, err
		}
		return nil, l.bus.DeleteTask(ctx, id, a.Quarantine.Shard)
	case job.Readmit:
		return nil, l.bus.DeleteQuarantine(ctx, id, a.Shard)
	case job.Note:
		l.log.Error("shard set aside", zap.Int("shard", a.Quarantine.Shard), zap.String("by", a.Quarantine.Worker), zap.String("why", a.Quarantine.Reason))
		l.retries.expect(a.Quarantine.Shard, putBack)
	case job.Reread:
		select {
		case l.renew <- struct{}{}:
		default:
		}
	case job.Look:
		return l.inventory(ctx)
	case job.Judge:
		elapsed := l.sums.seconds + time.Since(l.schedule.saved).Seconds()
		if l.rounder != nil {
			return l.endRound(ctx, a.Round, elapsed)
		}
		return job.Judged{More: l.rounds.judge(a.Round, elapsed, l.log)}, nil
	case job.Ignore:
		l.log.Debug("ignored", zap.Int("shard", a.Shard), zap.String("why", a.Why))
	default:
		panic(fmt.Sprintf("coordinator: unknown action %T", action))
	}
	return nil, nil
}

// endRound ends a round of a path.
func (l *leader) endRound(ctx context.Context, round int, elapsed float64) (job.Event, error) {
	stop := stayAlive(ctx, l.bus, l.progress(bus.Running, ""), "the next round")
	defer stop()
	if len(l.sums.path.Rounds) == round && l.sums.current() == 0 { // nothing says what to drop
		return nil, quarantineError(l.job.ID, l.machine.Quarantined(), &l.job.Plan)
	}
	last, err := l.rounder.end(ctx, round, l.inputs, l.log)
	if err != nil {
		return nil, err
	}
	over := !last && l.rounds.timeOver(round, elapsed)
	if l.job.Spec.Until != nil {
		l.rounds.stopped = &scores.Stopped{Rounds: len(l.sums.path.Rounds), Passes: 1, Reason: scores.AllDone, Converged: last}
		if over {
			l.rounds.stopped.Reason = scores.TimeOver
		}
	}
	if last || over {
		return job.Judged{}, nil
	}
	// What the next round measures depends on what this one lacks. A coordinator that continues must not
	// find that somebody put a shard back.
	if len(l.machine.Quarantined()) > 0 {
		if err := l.save(ctx, true); err != nil {
			return nil, err
		}
	}
	return job.Judged{More: true}, l.rounder.begin(ctx, l.inputs, l.log)
}

// end completes the job after the machine's last action.
func (l *leader) end(ctx context.Context, end job.Action) (*Outcome, error) {
	switch end := end.(type) {
	case job.Fail:
		err := quarantineError(l.job.ID, end.Quarantined, &l.job.Plan)
		l.reportProgress(ctx, bus.Failed, err.Error())
		return nil, err
	case job.Stop:
		l.log.Info("cancelled")
		l.reportProgress(ctx, bus.Cancelled, "")
		if !l.bus.Local() { // coordinators that wait for this one must see it
			select {
			case <-time.After(2 * lookEvery):
			case <-ctx.Done():
			}
		}
		return nil, errors.Join(cleanUp(ctx, l.bus, l.job.ID, l.claim, l.log), fmt.Errorf("job %s: %w", l.job.ID, bus.ErrCancelled))
	case job.Finish:
		if err := l.claim.Check(ctx); err != nil {
			return nil, err
		}
		outcome, err := l.outcome(ctx, end.Quarantined)
		if err != nil {
			return nil, err
		}
		if l.config.Sums != nil {
			if err := l.config.Sums(l.sums.accumulator); err != nil {
				return nil, err
			}
		}
		sink := l.config.Sink
		if sink == nil {
			sink = func(f *scores.File, values func(int, tally.Values)) error {
				return scores.WriteFrom(l.config.Out, f, values)
			}
		}
		stop := stayAlive(ctx, l.bus, l.progress(bus.Running, ""), "its scores to be written")
		values := l.rounds.values
		switch {
		case l.ranks != nil:
			values = l.ranks
		case l.sums.ranges != nil:
			values = l.sums.ranges.Values(ctx, l.job.Sampling())
		}
		err = sink(&outcome.Scores, values)
		if l.sums.ranges != nil && l.sums.ranges.Failed() != nil { // the reason for which err is not nil
			err = l.sums.ranges.Failed()
		}
		if err == nil && l.config.OnScores != nil {
			err = l.config.OnScores(ctx, outcome)
		}
		stop()
		if err != nil {
			return nil, err
		}
		l.warnings = warningsOf(&outcome.Scores)
		l.reportProgress(ctx, bus.Finished, "")
		return outcome, cleanUp(ctx, l.bus, l.job.ID, l.claim, l.log)
	}
	panic(fmt.Sprintf("coordinator: the job ended by %T", end))
}

// warningsOf returns what people should know before they use scores.
func warningsOf(f *scores.File) (all []string) {
	if f.QuarantinedRows > 0 {
		all = append(all, fmt.Sprintf("%d rows are missing, because their shards were in quarantine", f.QuarantinedRows))
	}
	if s := f.Stopped; s != nil && !s.Converged {
		all = append(all, "not converged: "+s.Text(f.Spec.Until))
	}
	for _, text := range []string{f.Warning(), f.Noise()} {
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

// outcome normalises the sums. The shards in quarantined are missing from them.
func (l *leader) outcome(ctx context.Context, quarantined []job.Quarantine) (*Outcome, error) {
	j, s := l.job, l.sums
	if s.mergedRows() == 0 {
		return nil, quarantineError(j.ID, quarantined, &j.Plan)
	}
	var values tally.Result
	var lineage *scores.Lineage
	var path *scores.Path
	if l.rounder != nil {
		var err error
		if values, path, l.ranks, err = l.rounder.result(ctx); err != nil {
			return nil, err
		}
	} else {
		result, err := s.check(ctx, j.Sampling())
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", j.ID, err)
		}
		values, lineage = l.rounds.result(result)
	}
	outcome := &Outcome{
		Scores: scores.File{Fields: j.Names(), Layout: scores.LayoutOf(j.Layout()), Spec: j.Spec, Baseline: j.Replacements(), DatasetRows: j.Sample.Rows,
			QuarantinedRows: missingRows(quarantined, j), Stopped: l.rounds.stopped, Lineage: lineage, Path: path, Result: values},
		Plan:        j.Plan,
		Workers:     s.workers,
		CPU:         s.cpu,
		Resumed:     l.claim.Lead.Epoch > 1,
		Verified:    s.verified,
		Wrong:       l.claim.Lead.Wrong,
		Quarantined: quarantined,
	}
	l.rounds.countRowsOnce(&outcome.Scores)
	if n := outcome.Scores.Walked; n > 0 {
		l.log.Warn("rows have values of walks, because those of the estimator are too large", zap.String("estimator", j.Spec.Estimator), zap.Int64("rows", n))
	}
	if text := doubt(j, &outcome.Scores); text != "" {
		l.log.Warn("the model " + text)
	}
	return outcome, nil
}

// doubt is evaluate.DoubtOf the model of j, whose scores are f. It is "" if j is a path, which says it when it begins, has the
// squared loss, or weighs its rows, because the labels are counted once each.
func doubt(j *prepare.Job, f *scores.File) string {
	positives, known := j.Dataset.Positives(j.Spec.Splits)
	if !known || f.Path != nil || j.Spec.Loss == loss.Squared || j.Spec.LargestWeight != 0 {
		return ""
	}
	rows := f.Rows
	if f.Lineage != nil {
		rows = f.Lineage.Rows
	}
	return evaluate.DoubtOf(f.LossFull, rows, positives, j.Sample.Rows)
}

// progress returns the job's progress.
func (l *leader) progress(state, waiting string) bus.Progress {
	c := l.machine.Counts()
	p := l.meter.progress(l.sums.mergedRows(), l.job.Plan.Rows)
	p.Job, p.State, p.Epoch, p.Waiting = l.job.ID, state, l.claim.Lead.Epoch, waiting
	p.RowsTotal, p.Shards, p.ShardsTotal, p.Open, p.Quarantined = l.job.Plan.Rows, c.Merged, c.Shards, c.Open, c.Quarantined
	p.CPU, p.Strip, p.Aside, p.Rounds = l.sums.cpu, strip(l.machine, c.Shards), aside(l.machine), l.rounds.trend
	if l.rounder != nil {
		p.Rounds = l.rounder.trend()
	}
	p.Retried, p.Retries = l.retries.count, slices.Clone(l.retries.last)
	p.Lost, p.Warnings = l.lost.last, l.warnings
	if p.Over() {
		p.Left, p.Soonest, p.Latest = 0, 0, 0
	}
	return p
}

// reportProgress stores the job's progress. It gives up after tickTimeout.
func (l *leader) reportProgress(ctx context.Context, state, waiting string) {
	short, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	p := l.progress(state, waiting)
	if l.config.OnProgress != nil {
		l.config.OnProgress(p)
	}
	if err := l.bus.SetProgress(short, p); err != nil {
		l.log.Debug("progress not stored", zap.Error(err))
	}
}
