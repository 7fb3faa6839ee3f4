package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"shaver/chaos/lan"
)

// split partitions the hosts for the fault's length.
func (r *run) split(faulting context.Context, p lan.Partition, f fault) (bool, error) {
	if faulting.Err() != nil {
		return false, nil
	}
	var sides []string
	for _, side := range p {
		sides = append(sides, r.names(side))
	}
	r.diary.note("%s: %s for %v", f.Kind, strings.Join(sides, " | "), f.Length)
	undo := r.hosts.Split(p)
	wait(faulting, f.Length)
	undo()
	r.diary.note("%s: over", f.Kind)
	return true, nil
}

// oneWay loses the packets of one direction for the fault's length.
func (r *run) oneWay(faulting context.Context, f fault) (bool, error) {
	if faulting.Err() != nil {
		return false, nil
	}
	d := r.hosts.OneWay(f.Pick)
	r.diary.note("%s: nothing passes from %s to %s for %v", f.Kind, r.names(d.From), r.names(d.To), f.Length)
	undo := r.hosts.Disturb(d)
	wait(faulting, f.Length)
	undo()
	r.diary.note("%s: over", f.Kind)
	return true, nil
}

// names returns the hosts of a set as text for people.
func (r *run) names(s lan.Set) string {
	var names []string
	for i, slot := range r.slots() {
		if s.Has(i) {
			names = append(names, slot.name)
		}
	}
	return strings.Join(names, " ")
}

// jumps are the sizes of the jumps of clocks. Some are shorter than a lease, and some are
// longer than any time that a program waits for.
var jumps = []time.Duration{lease / 2, 3 * lease, time.Minute, time.Hour, 100 * 24 * time.Hour}

// setClock sets the clock of a process. In three of four cases it sets it right after the
// fault's length. The processes that replace it in the meantime have the wrong time too.
func (r *run) setClock(faulting context.Context, f fault) (bool, error) {
	draw := rand.New(rand.NewPCG(uint64(f.Pick), 0))
	slots := r.slots()
	if draw.IntN(2) == 0 {
		slots = r.servers // the nodes' clocks decide about the leases
	}
	s, offset, stays := slots[draw.IntN(len(slots))], jumps[draw.IntN(len(jumps))], draw.IntN(4) == 0
	s.jump.Lock()
	defer s.jump.Unlock()
	if faulting.Err() != nil {
		return false, nil
	}
	if f.Kind == clockBack {
		offset = -offset
	}
	until := fmt.Sprintf("for %v", f.Length)
	if stays {
		until = "from now on"
	}
	r.diary.note("%s: %s by %v %s", f.Kind, s.name, offset, until)
	if err := s.clock.Set(offset); err != nil {
		return false, fmt.Errorf("clock of %s: %w", s.name, err)
	}
	wait(faulting, f.Length)
	if stays {
		return true, nil
	}
	r.diary.note("%s: the clock of %s is right again", f.Kind, s.name)
	return true, s.clock.Set(0)
}
