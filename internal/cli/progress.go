package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far a count has got, with its rate and the time left: a bar
// on a terminal, a line every few seconds elsewhere. Safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	out   io.Writer
	what  string
	unit  string
	total int64
	done  int64
	start time.Time
	next  time.Time
	note  string
	bar   *progressbar.ProgressBar // nil when stderr is no terminal
}

// lineEvery is the time between two lines where there is no terminal.
const lineEvery = 5 * time.Second

// NewProgress starts counting what in units up to total, on stderr.
func NewProgress(what, unit string, total int64) *Progress {
	p := &Progress{out: os.Stderr, what: what, unit: unit, total: total, start: time.Now(), next: time.Now().Add(lineEvery)}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// Add counts n more.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(p.done + n)
}

// Set moves the count to done.
func (p *Progress) Set(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(done)
}

// SetOf moves the count to done of a total that was not known before.
func (p *Progress) SetOf(done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.total != total {
		p.total = total
		if p.bar != nil {
			p.bar.ChangeMax64(total)
		}
	}
	p.set(done)
}

// Note shows a short text beside the count from now on.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = ", " + text
	if p.bar != nil {
		p.bar.Describe(p.what + ": " + text)
	}
}

func (p *Progress) set(done int64) {
	p.done = done
	if p.bar != nil {
		_ = p.bar.Set64(min(done, p.total))
		return
	}
	now := time.Now()
	if now.Before(p.next) || done == 0 {
		return
	}
	p.next = now.Add(lineEvery)
	rate := float64(done) / now.Sub(p.start).Seconds()
	left := time.Duration(float64(p.total-done) / rate * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(p.out, "%s: %d of %d %s, %.0f/s%s, %s left\n", p.what, done, p.total, p.unit, rate, p.note, max(left, 0))
}

// End removes the bar.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
