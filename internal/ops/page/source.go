package page

import (
	"context"
	"slices"
	"sync"
	"time"

	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
)

// Source makes snapshots.
type Source interface {
	// Read returns the present snapshot. It is called by one goroutine at a time. The caller must
	// not change the snapshot.
	Read(ctx context.Context) (*Snapshot, error)
}

// Server is the Source for all jobs of a NATS server. It is safe for concurrent use.
type Server struct {
	address string
	keep    *keeper

	mu     sync.Mutex
	bus    *bus.Bus // nil = not connected yet
	nights []Night
	ask    time.Time // when workers are asked again
	last   Snapshot
	ended  uint64 // sequence number of the last record of an end that was read; only Read uses it
}

// NewServer returns the source for the server at address, which is for people and has no password.
func NewServer(address string) *Server { return &Server{address: address, keep: newKeeper()} }

// Connected makes s read from b from now on, and listen how jobs end.
func (s *Server) Connected(b *bus.Bus) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bus = b
	return b.Ends(func(p bus.Progress) { s.keep.end(time.Now(), p) })
}

// SetNights replaces the nights. The latest one is the first.
func (s *Server) SetNights(nights []Night) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nights = nights
}

// See takes notice of a reading that was made for another purpose, so that jobs that end while
// nobody looks are known.
func (s *Server) See(o *bus.Overview, now time.Time) { s.keep.see(now, jobsOf(o), true) }

// askEvery is the time between two questions to all workers who they are, and askRarely that after a
// question without an answer. Perhaps there are no workers, or this program may not ask.
const (
	askEvery  = 10 * time.Second
	askRarely = time.Minute
)

// askInto keeps the answers of all workers in k, and returns when to ask again.
func askInto(ctx context.Context, k *keeper, ask func(ctx context.Context) ([]job.Build, error)) time.Time {
	builds, err := ask(ctx)
	if err == nil {
		k.answer(time.Now(), builds)
	}
	if len(builds) == 0 {
		return time.Now().Add(askRarely)
	}
	return time.Now().Add(askEvery)
}

// Read reads what the server holds. If it cannot be read, the snapshot has the reason and the
// figures of the last reading.
func (s *Server) Read(ctx context.Context) (*Snapshot, error) {
	s.mu.Lock()
	b, nights, ask := s.bus, s.nights, s.ask
	s.mu.Unlock()
	next := s.last
	next.Server, next.Nights, next.Taken = s.address, nights, time.Now()
	if b == nil {
		next.Trouble = "not connected to NATS yet"
		return &next, nil
	}
	if time.Now().After(ask) {
		next := askInto(ctx, s.keep, b.Connected)
		s.mu.Lock()
		s.ask = next
		s.mu.Unlock()
	}
	records, ended, err := b.Ended(ctx, s.ended)
	s.keep.remember(next.Taken, records)
	s.ended = ended
	var o *bus.Overview
	if err == nil {
		o, err = b.Overview(ctx)
	}
	next.Taken = time.Now()
	if err != nil {
		next.Trouble = err.Error()
		return &next, nil
	}
	next.Jobs, next.Tasks, next.Trouble = s.keep.see(next.Taken, jobsOf(o), true), o.Kernels, ""
	s.last = next
	return &next, nil
}

// jobsOf returns the jobs of a reading, the latest one first.
func jobsOf(o *bus.Overview) []Job {
	jobs := make([]Job, 0, len(o.Jobs))
	for i := range o.Jobs {
		j := &o.Jobs[i]
		again := 0
		for _, t := range o.Kernels {
			if t.Kernel == j.Spec.Kernel && t.Protocol == job.Protocol {
				again = t.Again
			}
		}
		jobs = append(jobs, Job{Status: j.Status, Name: nameOf(j.ID, j.Out), Out: j.Out, Submitted: j.Submitted, Quarantined: j.Quarantined, Again: again})
	}
	slices.SortStableFunc(jobs, func(x, y Job) int { return y.Submitted.Compare(x.Submitted) })
	return jobs
}

// Local is the Source for the jobs of a coordinator in this process. It is safe for concurrent use.
type Local struct {
	server string
	cpu    func() time.Duration // of this process; nil = the workers are elsewhere and report it
	keep   *keeper

	mu    sync.Mutex
	ask   func(ctx context.Context) ([]job.Build, error) // nil = there is nobody to ask
	again time.Time                                      // when they are asked again
	now   *Job                                           // the current job; nil = none yet
	begun time.Duration
}

// NewLocal returns the source for a coordinator in this process. server is the NATS server without
// passwords, or "" if the server is in this process too. cpu returns the CPU time of this process; it is
// nil if the workers are elsewhere.
func NewLocal(server string, cpu func() time.Duration) *Local {
	l := &Local{server: server, cpu: cpu, keep: newKeeper()}
	if cpu != nil {
		l.begun = cpu()
	}
	return l
}

// Ask makes l ask workers who they are.
func (l *Local) Ask(ask func(ctx context.Context) ([]job.Build, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask = ask
}

// Start makes a job the current one. Its scores go to out.
func (l *Local) Start(spec job.Spec, plan job.Plan, out string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := spec.ID()
	if l.now != nil && l.now.ID == id {
		return
	}
	l.now = &Job{Status: bus.Status{ID: id, Spec: spec, Plan: plan, Progress: bus.Progress{Job: id, State: bus.Running, RowsTotal: plan.Rows, ShardsTotal: plan.Shards()}}, Name: nameOf(id, out), Out: out}
}

// Progress replaces the progress of the current job.
func (l *Local) Progress(p bus.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil || l.now.ID != p.Job {
		return
	}
	if l.cpu != nil {
		p.CPU = (l.cpu() - l.begun).Seconds()
	}
	l.now.Progress = p
	if p.Over() {
		l.keep.end(time.Now(), p)
	}
}

// Read returns the current job, and those that ended before it.
func (l *Local) Read(ctx context.Context) (*Snapshot, error) {
	l.mu.Lock()
	ask, again := l.ask, l.again
	l.mu.Unlock()
	if ask != nil && time.Now().After(again) {
		next := askInto(ctx, l.keep, ask)
		l.mu.Lock()
		l.again = next
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := &Snapshot{Taken: now, Server: l.server}
	if l.now == nil {
		s.Trouble = "the job has not begun: the model and the dataset are read"
		return s, nil
	}
	j := *l.now
	j.Quarantined = j.Progress.Quarantined
	s.Jobs = l.keep.see(now, []Job{j}, true)
	return s, nil
}
