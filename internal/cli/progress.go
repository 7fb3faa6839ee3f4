package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress shows how far a count has got, with its rate and the time left: a bar on a
// terminal, and a line every few seconds elsewhere. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	width func() int // columns of the terminal; nil if out is not a terminal
	what  string
	unit  string
	total int64
	done  int64
	start time.Time
	next  time.Time // when to print again
	note  string
	shown int // characters of the bar that is on the terminal
	ended bool
}

// The time between two prints, on a terminal and elsewhere.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
)

// NewProgress starts counting what in units up to total, on stderr.
func NewProgress(what, unit string, total int64) *Progress {
	p := &Progress{out: os.Stderr, what: what, unit: unit, total: total, start: time.Now()}
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) {
		p.width = func() int {
			width, _, err := term.GetSize(fd)
			if err != nil {
				return 80
			}
			return width
		}
	}
	p.next = p.start.Add(p.every())
	return p
}

// Add adds n to the count.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(p.done + n)
}

// Set sets the count to done.
func (p *Progress) Set(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(done)
}

// SetOf sets the count to done, and sets the total, which was not known before.
func (p *Progress) SetOf(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
	p.set(done)
}

// Note shows a short text next to the count from now on.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = ", " + text
}

// End removes the bar. A bar is not drawn again after that.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw("")
	p.ended = true
}

func (p *Progress) every() time.Duration {
	if p.width != nil {
		return barEvery
	}
	return lineEvery
}

func (p *Progress) set(done int64) {
	p.done = done
	now := time.Now()
	if now.Before(p.next) || done == 0 {
		return
	}
	p.next = now.Add(p.every())
	rate := float64(done) / now.Sub(p.start).Seconds()
	left := time.Duration(float64(p.total-done) / rate * float64(time.Second)).Round(time.Second)
	text := fmt.Sprintf("%d of %d %s, %.0f/s%s, %s left", done, p.total, p.unit, rate, p.note, max(left, 0))
	if p.width == nil {
		fmt.Fprintf(p.out, "%s: %s\n", p.what, text)
		return
	}
	p.draw(p.bar(text, p.width()-1)) // many terminals wrap after the last column
}

// bar returns the text with a bar in front of it, or less if width is small. It has at
// most width characters.
func (p *Progress) bar(text string, width int) string {
	const narrowest, widest = 10, 40
	size := min(width-len(p.what)-len(text)-len(" [] "), widest)
	if size >= narrowest {
		full := int(float64(size) * min(float64(p.done)/float64(max(p.total, 1)), 1))
		return p.what + " [" + strings.Repeat("=", full) + strings.Repeat(" ", size-full) + "] " + text
	}
	text = p.what + ": " + text
	return text[:max(min(len(text), width), 0)]
}

// draw replaces the bar on the terminal by line. It uses neither colors nor other
// escape sequences.
func (p *Progress) draw(line string) {
	if p.ended || p.width == nil || line == "" && p.shown == 0 {
		return
	}
	fmt.Fprintf(p.out, "\r%s%s\r%s", line, strings.Repeat(" ", max(p.shown-len(line), 0)), line)
	p.shown = len(line)
}
