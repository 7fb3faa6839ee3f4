package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"shaver/chaos/lan"
)

// inject carries out the faults of the plan, each at its time, until faulting ends. It
// returns when their effects are undone: killed processes run again, stopped ones
// continue, and full storage has room again. ctx belongs to the whole run.
func (r *run) inject(ctx, faulting context.Context) {
	var under sync.WaitGroup
	begun := time.Now()
	for _, f := range r.plan.Faults {
		wait(faulting, f.At-time.Since(begun))
		if faulting.Err() != nil {
			r.diary.count(f.Kind, false)
			continue
		}
		under.Go(func() {
			happened, err := r.fault(ctx, faulting, f)
			if err != nil {
				r.stop(fmt.Errorf("%s: %w", f.Kind, err))
			}
			r.diary.count(f.Kind, happened)
		})
	}
	under.Wait()
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fault carries out one fault. It reports whether there was anything to apply it to.
func (r *run) fault(ctx, faulting context.Context, f fault) (happened bool, err error) {
	worker, server := r.workers[int(f.Pick)%len(r.workers)], int(f.Pick)%len(r.servers)
	switch f.Kind {
	case killWorker:
		return r.kill(faulting, worker, f, func() error { return r.startWorker(worker) })
	case killNode:
		return r.kill(faulting, r.servers[server], f, func() error { return r.startNode(server) })
	case killCoordinator:
		s := r.leader(0)
		return r.kill(faulting, s, f, func() error { return r.startCoordinator(s) })
	case killMerger:
		s := r.mergers[int(f.Pick)%len(r.mergers)]
		return r.kill(faulting, s, f, func() error { return r.startMerger(s) })
	case stopMerger:
		return r.pause(faulting, r.mergers[int(f.Pick)%len(r.mergers)], f)
	case termWorker:
		return r.term(ctx, faulting, worker, f)
	case stopWorker:
		return r.pause(faulting, worker, f)
	case stopNode:
		return r.pause(faulting, r.servers[server], f)
	case stopCoordinator:
		return r.pause(faulting, r.leader(f.Pick), f)
	case fillStream:
		return r.fillStream(ctx, faulting, f)
	case fillNode:
		return r.fillNode(ctx, faulting, server, f)
	case slowLink, cutLink, holeLink, lossyLink:
		linked := slices.Concat(r.workers, r.leaders[:1], r.mergers)
		if r.hosts != nil {
			linked = append(linked, r.servers...)
		}
		return r.spoil(faulting, linked[int(f.Pick)%len(linked)], f)
	case corruptPartial, corruptShard, corruptCheckpoint, corruptModel:
		return r.corrupt(faulting, f)
	case loseStream:
		return r.loseStream(ctx, faulting, f)
	case rival:
		return r.rival(faulting)
	case splitMinority:
		return r.split(faulting, r.hosts.SplitMinority(f.Pick), f)
	case splitMajority:
		return r.split(faulting, r.hosts.SplitMajority(), f)
	case oneWay:
		return r.oneWay(faulting, f)
	case clockForward, clockBack:
		return r.setClock(faulting, f)
	case flipFile:
		return r.flipFile(ctx, faulting, server, f)
	case flipMemory:
		return r.flipMemory(faulting, worker, f)
	}
	panic("chaos: no such fault: " + string(f.Kind))
}

// leader returns the slot of a running coordinator. For pick 0 it is the one that started
// last.
func (r *run) leader(pick uint32) *slot {
	var there []*life
	for _, s := range r.leaders {
		if l := s.now.Load(); l != nil && l.alive() {
			there = append(there, l)
		}
	}
	if len(there) == 0 {
		return r.leaders[0]
	}
	slices.SortFunc(there, func(a, b *life) int { return b.born.Compare(a.born) })
	return there[int(pick)%len(there)].slot
}

// kill kills the process of the slot and starts the next one after the fault's length.
func (r *run) kill(faulting context.Context, s *slot, f fault, again func() error) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.now.Load()
	if faulting.Err() != nil || l == nil || !l.alive() {
		return false, nil
	}
	l.wanted.Store(true)
	l.kill()
	if l.code() >= 0 { // it ended by itself before the signal
		return false, nil
	}
	r.diary.note("%s: %s, back after %v", f.Kind, l.name, f.Length)
	wait(faulting, f.Length)
	return true, again()
}

// term sends SIGTERM to a worker, and starts another one when the worker has ended.
func (r *run) term(ctx, faulting context.Context, s *slot, f fault) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.now.Load()
	if faulting.Err() != nil {
		return false, nil
	}
	r.diary.note("%s: %s", f.Kind, l.name)
	<-l.said // before its first line it does not handle signals yet
	l.wanted.Store(true)
	l.term()
	if err := r.drained(ctx, l); err != nil {
		return true, err
	}
	r.diary.note("%s has ended", l.name)
	wait(faulting, f.Length)
	return true, r.startWorker(s)
}

// pause stops the process of the slot for the fault's length.
func (r *run) pause(faulting context.Context, s *slot, f fault) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.now.Load()
	if faulting.Err() != nil || l == nil || !l.alive() {
		return false, nil
	}
	r.diary.note("%s: %s for %v", f.Kind, l.name, f.Length)
	l.stop()
	wait(faulting, f.Length)
	l.goOn()
	r.diary.note("%s continues", l.name)
	return true, nil
}

// fillStream limits the blobs to slightly more than their present size.
func (r *run) fillStream(ctx, faulting context.Context, f fault) (bool, error) {
	r.quota.Lock()
	defer r.quota.Unlock()
	set := func(room int64) (there bool, err error) {
		err = again(ctx, func(ctx context.Context) error {
			err := r.store.quota(ctx, room)
			if there = !errors.Is(err, errNothing); there {
				return err
			}
			return nil
		})
		return there, err
	}
	if faulting.Err() != nil {
		return false, nil
	}
	if there, err := set(1 + int64(f.Pick%(64<<10))); err != nil || !there {
		return false, err
	}
	r.diary.note("%s: for %v", f.Kind, f.Length)
	wait(faulting, f.Length)
	r.diary.note("%s: there is room again", f.Kind)
	_, err := set(0)
	return true, err
}

// fillNode restarts a node with almost no room on its disk. After the fault's length it
// lets the node reload a configuration with enough room.
func (r *run) fillNode(ctx, faulting context.Context, i int, f fault) (bool, error) {
	s, n := r.servers[i], r.nodes[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	var used int64
	err := again(faulting, func(ctx context.Context) (err error) {
		used, err = r.store.bytes(ctx)
		return err
	})
	if err != nil {
		return false, nil
	}
	l := s.now.Load()
	l.wanted.Store(true)
	l.kill()
	room := used + 1 + int64(f.Pick%(128<<10))
	if err := errors.Join(n.configure(room), r.startNode(i)); err != nil {
		return false, err
	}
	r.diary.note("%s: %s has room for %d bytes in all for %v", f.Kind, n.name, room, f.Length)
	wait(faulting, f.Length)
	for !r.listening(n.client) { // before the node listens, the signal would kill it
		if wait(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
	}
	if err := n.configure(plenty); err != nil {
		return true, err
	}
	s.now.Load().reload()
	r.diary.note("%s: %s has room again", f.Kind, n.name)
	return true, nil
}

// spoil changes the weather of a slot's link for the fault's length.
func (r *run) spoil(faulting context.Context, s *slot, f fault) (bool, error) {
	s.sky.Lock()
	defer s.sky.Unlock()
	if faulting.Err() != nil {
		return false, nil
	}
	delay := time.Duration(10+f.Pick%100) * time.Millisecond
	bad := map[kind]lan.Weather{
		slowLink:  {Delay: delay, Jitter: delay, Rate: 100<<10 + int64(f.Pick%(1<<20))},
		cutLink:   {Cut: true},
		holeLink:  {Hole: true},
		lossyLink: {Loss: 0.01 + 0.2*float64(f.Pick%100)/100},
	}[f.Kind]
	r.diary.note("%s: %s for %v", f.Kind, s.name, f.Length)
	s.link.Set(bad)
	wait(faulting, f.Length)
	s.link.Set(lan.Weather{})
	return true, nil
}

// corrupt flips a bit of a blob of the fault's kind, as soon as one is stored.
func (r *run) corrupt(faulting context.Context, f fault) (bool, error) {
	prefix := strings.TrimPrefix(string(f.Kind), "corrupt-") + "/"
	for end := time.Now().Add(5 * time.Second); ; {
		short, cancel := context.WithTimeout(faulting, 2*time.Second)
		name, err := r.store.corrupt(short, prefix, f.Pick)
		cancel()
		if err == nil {
			r.diary.note("%s: %s", f.Kind, name)
			return true, nil
		}
		if faulting.Err() != nil || time.Now().After(end) {
			return false, nil
		}
		wait(faulting, 20*time.Millisecond)
	}
}

// loseStream deletes a stream, which is what a node does when it cannot read its own
// files.
func (r *run) loseStream(ctx, faulting context.Context, f fault) (bool, error) {
	var name string
	err := again(faulting, func(ctx context.Context) (err error) {
		name, err = r.store.pick(ctx, f.Pick)
		return err
	})
	if err != nil || name == "" {
		return false, nil
	}
	r.diary.note("%s: %s", f.Kind, name)
	return true, again(ctx, func(ctx context.Context) error { return r.store.lose(ctx, name) })
}

// rival starts a second coordinator.
func (r *run) rival(faulting context.Context) (bool, error) {
	for _, s := range r.leaders {
		if !s.mu.TryLock() {
			continue // another fault is acting on it
		}
		l := s.now.Load()
		if l != nil && l.alive() || faulting.Err() != nil || !r.enter() {
			s.mu.Unlock()
			continue
		}
		defer s.mu.Unlock()
		r.diary.note("rival: in the slot of %s", s.name)
		return true, r.startCoordinator(s)
	}
	return false, nil
}
