package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"shaver/chaos/clock"
	"shaver/chaos/lan"
	"shaver/internal/app/cli"
)

// uplink connects a client to the nodes.
type uplink interface {
	URL() string // addresses to which the client connects
	Set(lan.Weather)
	Close()
}

// slot is a place for a process that is started again after it ends. Hold mu while you
// act on the process.
type slot struct {
	name  string
	host  int        // number of its host, if there are hosts
	link  uplink     // nil for a node without hosts
	sky   sync.Mutex // held while a fault disturbs the link
	clock clock.Clock
	jump  sync.Mutex // held while a fault sets the clock

	mu   sync.Mutex
	life int
	now  atomic.Pointer[life] // nil before the first life
}

// life is one process of a slot.
type life struct {
	*process
	slot   *slot
	wanted atomic.Bool // set before this program ends the process on purpose
	faulty atomic.Bool // whether its memory was changed
}

// run is one job with its cluster and its faults.
type run struct {
	plan        plan
	fixture     *fixture
	dir         string // folder of the logs, stores and scores
	diary       *diary
	watch       *watcher
	store       *store
	hosts       *lan.Hosts        // nil if all processes are on this program's host
	dialer      nats.CustomDialer // connects to the nodes
	nodes       []*node
	servers     []*slot // a node's process is in the slot of the same index
	workers     []*slot
	mergers     []*slot
	leaders     []*slot    // the job's coordinator and its rival
	left        chan *life // coordinators that have ended
	quota       sync.Mutex
	resubmitted int          // how often the job was submitted again
	faulty      atomic.Bool  // whether the memory of a worker was changed
	wrong       bool         // whether its scores have other bytes, which were not verified
	damaged     atomic.Int32 // 1 + the index of the node whose files were changed; 0 = none yet

	stop context.CancelCauseFunc // ends the run with a reason

	mu   sync.Mutex
	all  []*process
	live int // coordinators that run or will be restarted
	over bool

	ending atomic.Bool // no node is started any more
}

// scores returns the path of the job's scores file.
func (r *run) scores() string { return filepath.Join(r.dir, "scores.arrow") }

// do runs the job with its faults, judges the outcome, and ends everything that it
// started.
func (r *run) do(ctx context.Context, limit time.Duration) (err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.stop = stop
	timer := time.AfterFunc(limit, func() { stop(fmt.Errorf("the run has not ended after %v", limit)) })
	defer timer.Stop()
	defer func() {
		if cause := context.Cause(ctx); cause != nil && err != nil {
			err = cause // the cause matters more than its consequences
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.lastWords())
		}
		err = errors.Join(err, r.end())
	}()
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.lead(ctx); err != nil {
		return err
	}
	return r.judge(ctx)
}

// build starts the nodes, waits for them, and starts the workers.
func (r *run) build(ctx context.Context) error {
	if err := r.settle(); err != nil {
		return err
	}
	for i := range r.servers {
		if err := r.startNode(i); err != nil {
			return err
		}
	}
	var err error
	if r.store, err = openStore(r.nodes, r.dialer); err != nil {
		return err
	}
	if err := r.store.ready(ctx, r.plan.Nodes); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	for _, s := range r.workers {
		if err := r.startWorker(s); err != nil {
			return err
		}
	}
	for _, s := range r.mergers {
		if err := r.startMerger(s); err != nil {
			return err
		}
	}
	return nil
}

// settle gives every process a slot, and every slot its place in the network and its
// clock.
func (r *run) settle() error {
	var clients, routes []string
	var names []string
	for i := range workers {
		names = append(names, fmt.Sprintf("worker-%d", i+1))
	}
	for i := range r.plan.Ranges {
		names = append(names, fmt.Sprintf("merger-%d", i+1))
	}
	names = append(names, "coordinator", "rival")
	if r.plan.Hosts {
		h, err := lan.NewHosts(r.plan.Nodes, len(names))
		if err != nil {
			return err
		}
		r.hosts, r.dialer = h, h
		clients, routes = h.Addresses(clientPort), h.Addresses(routePort)
	} else {
		addresses, err := freeAddresses(2 * r.plan.Nodes)
		if err != nil {
			return err
		}
		r.dialer = plain{}
		clients, routes = addresses[:r.plan.Nodes], addresses[r.plan.Nodes:]
	}
	var err error
	if r.nodes, err = newNodes(r.fixture.program("nats-server"), r.dir, clients, routes); err != nil {
		return err
	}
	for i, n := range r.nodes {
		s := &slot{name: n.name}
		r.servers = append(r.servers, s)
		if r.hosts != nil {
			s.link = r.hosts.Cable(i, clientPort)
		}
	}
	for i, name := range names {
		s := &slot{name: name}
		if r.hosts != nil {
			s.link = r.hosts.Cable(r.plan.Nodes+i, clientPort)
		} else if s.link, err = lan.NewLink(clients); err != nil {
			return err
		}
		switch {
		case i < workers:
			r.workers = append(r.workers, s)
		case i < workers+r.plan.Ranges:
			r.mergers = append(r.mergers, s)
		default:
			r.leaders = append(r.leaders, s)
		}
	}
	for i, s := range r.slots() {
		s.host = i
		if r.fixture.clocks {
			if s.clock, err = clock.New(filepath.Join(r.dir, s.name+".clock")); err != nil {
				return err
			}
		}
	}
	return nil
}

// slots returns all slots. With hosts, they are in the order of their hosts.
func (r *run) slots() []*slot { return slices.Concat(r.servers, r.workers, r.mergers, r.leaders) }

// birth returns how the next process of the slot is started.
func (r *run) birth(s *slot) birth {
	b := birth{name: fmt.Sprintf("%s.%d", s.name, s.life+1), dir: r.dir, line: r.watch.line, env: s.clock.Env()}
	if r.hosts != nil {
		b.within = func(f func() error) error { return r.hosts.Within(s.host, f) }
	}
	return b
}

// begin registers the next process of a slot.
func (r *run) begin(s *slot, p *process, err error) (*life, error) {
	if err != nil {
		return nil, err
	}
	l := &life{process: p, slot: s}
	s.life++
	s.now.Store(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, p)
	return l, nil
}

// mustStay ends the run if the process ends unexpectedly.
func (r *run) mustStay(l *life) {
	<-l.done
	if !l.wanted.Load() {
		r.stop(fmt.Errorf("%s ended unexpectedly: %v", l.name, l.cmd.ProcessState))
	}
}

// nodeMemory bounds the address space of a node, because a number in a damaged file may
// make it allocate any amount of memory.
const nodeMemory = 8 << 30

func (r *run) startNode(i int) error {
	s := r.servers[i]
	b := r.birth(s)
	b.name, b.line = s.name, nil // all lives of a node have the same log
	p, err := start(b, r.nodes[i].program, "--config", r.nodes[i].config)
	l, err := r.begin(s, p, err)
	if err != nil {
		return err
	}
	p.limitMemory(nodeMemory)
	go func() {
		<-l.done
		if int(r.damaged.Load()) == i+1 {
			r.replace(i, l)
		} else {
			r.mustStay(l)
		}
	}()
	return nil
}

func (r *run) startWorker(s *slot) error {
	b := r.birth(s)
	hold := []string{"1m", "0", "2s"}[s.life%3]
	p, err := start(b, r.fixture.program("worker"), "--nats", s.link.URL(), "--name", b.name, "--threads", "1", "--hold", hold, "--log", "json", "-v")
	l, err := r.begin(s, p, err)
	if err == nil {
		go r.mustWork(l)
	}
	return err
}

// mustWork ends the run if a worker ends unexpectedly. A worker whose memory was changed may be found out, and another one
// takes its place.
func (r *run) mustWork(l *life) {
	<-l.done
	l.slot.mu.Lock()
	defer l.slot.mu.Unlock()
	if l.wanted.Load() || !l.faulty.Load() || r.ending.Load() {
		r.mustStay(l)
		return
	}
	r.diary.note("%s has computed wrong and ends", l.name)
	if err := r.startWorker(l.slot); err != nil {
		r.stop(err)
	}
}

func (r *run) startMerger(s *slot) error {
	b := r.birth(s)
	p, err := start(b, r.fixture.program("coordinator"), "merge", "--nats", s.link.URL(), "--name", b.name, "--log", "json", "-v")
	l, err := r.begin(s, p, err)
	if err == nil {
		go r.mustStay(l)
	}
	return err
}

func (r *run) startCoordinator(s *slot) error {
	args := append([]string{"--nats", s.link.URL(), "--replicas", fmt.Sprint(r.plan.Nodes), "--out", r.scores(),
		"--ranges", fmt.Sprint(r.plan.Ranges), "--lease", lease.String(), "--checkpoint-every", "1s", "--log", "json", "-v"}, r.fixture.flags(r.plan.Job)...)
	if r.plan.Verify > 0 {
		args = append(args, "--verify", fmt.Sprint(r.plan.Verify))
	}
	p, err := start(r.birth(s), r.fixture.program("coordinator"), args...)
	l, err := r.begin(s, p, err)
	if err == nil {
		go func() {
			<-l.done
			r.left <- l
		}()
	}
	return err
}

// enter counts one more coordinator. It returns false if the job is already over.
func (r *run) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.live++
	}
	return !r.over
}

// leave counts one coordinator fewer, and reports whether it was the last one.
func (r *run) leave() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live--
	r.over = r.live == 0
	return r.over
}

// lead submits the job, starts the faults, and returns when the job is done and every
// coordinator has ended.
func (r *run) lead(ctx context.Context) error {
	r.watch.begin()
	r.diary.begin()
	r.enter()
	if err := r.startCoordinator(r.leaders[0]); err != nil {
		return err
	}
	faulting, calm := context.WithCancel(ctx)
	defer calm()
	faults := make(chan struct{})
	go func() {
		defer close(faults)
		r.inject(ctx, faulting)
	}()
	finished := false
	for over := false; !over; {
		var l *life
		select {
		case l = <-r.left:
		case <-ctx.Done():
			<-faults
			return context.Cause(ctx)
		}
		switch code := l.code(); {
		case code < 0 && l.wanted.Load(): // it was killed and will be restarted
			continue
		case code == cli.ExitDone:
			r.diary.note("%s is done", l.name)
			finished = true
			calm()
		case code == cli.ExitFenced:
			r.diary.note("%s was fenced by a newer coordinator", l.name)
			r.watch.fenced()
		default:
			r.stop(fmt.Errorf("%s ended with exit code %d", l.name, code))
		}
		if over = r.leave(); over && !finished && r.resubmit() {
			over = false
			s := r.leaders[0]
			s.mu.Lock()
			err := r.startCoordinator(s)
			s.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	<-faults
	if !finished {
		return errors.New("every coordinator has ended, but the job is not done")
	}
	return context.Cause(ctx)
}

// resubmit reports whether the job has to be submitted again, and then counts one more
// coordinator. A single node with damaged files may have lost the stream of the jobs, so
// that its coordinators have ended.
func (r *run) resubmit() bool {
	if len(r.nodes) > 1 || r.damaged.Load() == 0 || r.resubmitted == 3 {
		return false
	}
	r.resubmitted++
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = false
	r.live++
	r.diary.note("the job is submitted again")
	return true
}

// judge checks that the job left the right scores and nothing else.
func (r *run) judge(ctx context.Context) error {
	for _, s := range r.workers {
		l := s.now.Load()
		<-l.said
		l.wanted.Store(true)
		l.term()
	}
	for _, s := range r.workers {
		if err := r.drained(ctx, s.now.Load()); err != nil {
			return err
		}
	}
	got, err := os.ReadFile(r.scores())
	if err != nil {
		return err
	}
	if r.wrong = !bytes.Equal(got, r.fixture.reference[r.plan.Job]); r.wrong && (r.plan.Verify == 1 || !r.faulty.Load()) {
		return fmt.Errorf("%s differs from the scores of the run without faults", r.scores())
	}
	var left []string
	err = again(ctx, func(ctx context.Context) (err error) {
		left, err = r.store.leftovers(ctx)
		return err
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the job left something behind:\n%s", strings.Join(left, "\n"))
	}
	return err
}

// patience is how long a worker may take to end after SIGTERM.
const patience = 90 * time.Second

// drained waits until a worker has ended after SIGTERM, and checks its exit code.
func (r *run) drained(ctx context.Context, l *life) error {
	if err := l.await(ctx, patience); err != nil {
		return err
	}
	if code := l.code(); code != cli.ExitDrained && !l.faulty.Load() {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM, expected %d", l.name, code, cli.ExitDrained)
	}
	return nil
}

// end ends every process that still runs, and checks that none is left.
func (r *run) end() error {
	r.ending.Store(true)
	for _, s := range r.servers { // a node that is being replaced
		s.mu.Lock()
		s.mu.Unlock() //lint:ignore SA2001 The lock is free when the node is back.
	}
	for _, s := range r.slots() {
		if l := s.now.Load(); l != nil {
			l.wanted.Store(true)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		p.kill()
	}
	if r.store != nil {
		r.store.close()
	}
	var err error
	for _, p := range r.all {
		if groupLeft(p.cmd.Process.Pid) {
			err = errors.Join(err, fmt.Errorf("%s left processes behind", p.name))
		}
	}
	for _, n := range r.nodes {
		if r.listening(n.client) || r.listening(n.route) {
			err = errors.Join(err, fmt.Errorf("the address of %s still has a listener", n.name))
		}
	}
	for _, s := range r.slots() {
		if s.link != nil {
			s.link.Close()
		}
		s.clock.Close()
	}
	if r.hosts != nil {
		r.hosts.Close()
	}
	return err
}

// lastWords returns the last log lines of every process that was not killed.
func (r *run) lastWords() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, p := range r.all {
		if !p.alive() && p.code() < 0 {
			continue // killed
		}
		fmt.Fprintf(&b, "-- %s:\n", p.name)
		for _, line := range p.tail() {
			fmt.Fprintf(&b, "   %s\n", line[:min(len(line), 400)])
		}
	}
	return b.String()
}
