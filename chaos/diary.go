package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// diary records what was done in a run, and when. It is safe for concurrent use.
type diary struct {
	mu    sync.Mutex
	start time.Time
	text  strings.Builder
	done  map[kind]int // faults that happened, by kind
	none  int          // faults that found nothing to act on, or came too late
}

func newDiary(p *plan) *diary {
	d := &diary{start: time.Now(), done: map[kind]int{}}
	d.text.WriteString(p.text())
	return d
}

// begin starts the clock.
func (d *diary) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start = time.Now()
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(&d.text, "%7.2f %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

// count records whether a fault happened.
func (d *diary) count(k kind, happened bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if happened {
		d.done[k]++
	} else {
		d.none++
	}
}

func (d *diary) write(file string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return os.WriteFile(file, []byte(d.text.String()), 0o600)
}
