package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/term"
)

// Progress shows how far a count has got, with its recent rate and the time left at that
// rate: a bar on a terminal, a line every few seconds elsewhere, or a log record every half
// minute. SHAVER_PROGRESS changes the time between lines and records. Progress is safe for
// concurrent use.
type Progress struct {
	mu    sync.Mutex
	log   *zap.Logger // nil = print to out
	out   io.Writer
	width func() int // columns of the terminal; nil if out is not a terminal
	now   func() time.Time
	what  string
	unit  string
	total int64
	done  int64
	past  []mark    // what the rate is measured from, oldest first
	next  time.Time // when to print again
	note  string
	shown int // characters of the bar that is on the terminal
	ended bool
}

// mark is a count at a time.
type mark struct {
	at   time.Time
	done int64
}

const (
	// The time between two prints, on a terminal and elsewhere, and between two log records.
	barEvery    = 200 * time.Millisecond
	lineEvery   = 10 * time.Second
	recordEvery = 30 * time.Second

	// The rate is that of the last rateWindow, in which a mark is made every markEvery. If a
	// count changes rarely, as that of a cluster's merged shards does, at least fewestMarks
	// marks are kept.
	rateWindow  = 30 * time.Second
	markEvery   = time.Second
	fewestMarks = 6
)

// NewProgress starts counting what in units up to total, on stderr. If the arguments of the
// process or SHAVER_LOG ask for a log in JSON, the progress is a part of that log.
func NewProgress(what, unit string, total int64) *Progress {
	if logsJSON(os.Args[1:]) {
		return LogProgress(jsonLogger(zap.InfoLevel), what, unit, total)
	}
	var width func() int
	if terminal(os.Stderr) {
		width = func() int {
			width, _, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				return 80
			}
			return width
		}
	}
	return newProgress(os.Stderr, width, time.Now, what, unit, total)
}

func newProgress(out io.Writer, width func() int, now func() time.Time, what, unit string, total int64) *Progress {
	p := &Progress{out: out, width: width, now: now, what: what, unit: unit, total: total, past: []mark{{now(), 0}}}
	p.next = p.past[0].at.Add(p.every())
	return p
}

// LogProgress is NewProgress, except that the progress goes to the log.
func LogProgress(log *zap.Logger, what, unit string, total int64) *Progress {
	p := newProgress(nil, nil, time.Now, what, unit, total)
	p.log = log
	p.next = p.past[0].at.Add(p.every())
	return p
}

// NewBar returns a bar on stderr for Show. It returns nil if stdout or stderr is no terminal.
func NewBar(what string) *Progress {
	if logsJSON(os.Args[1:]) || !terminal(os.Stdout) || !terminal(os.Stderr) {
		return nil
	}
	return NewProgress(what, "", 0)
}

// Show draws the bar at once, with a text in place of the count. It removes the bar if the text is empty.
func (p *Progress) Show(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done, p.total = done, total; text != "" {
		text = p.bar(text, p.width()-1)
	}
	p.draw(text)
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

// every returns the time between two prints or records. SHAVER_PROGRESS does not change how
// often a bar is drawn.
func (p *Progress) every() time.Duration {
	if p.width != nil {
		return barEvery
	}
	if every, err := progressEvery(); err == nil && every > 0 {
		return every
	}
	if p.log != nil {
		return recordEvery
	}
	return lineEvery
}

func (p *Progress) set(done int64) {
	p.done = done
	now := p.now()
	rate := p.rate(now)
	if now.Before(p.next) || done == 0 {
		return
	}
	p.next = now.Add(p.every())
	if p.log != nil {
		p.record(rate)
		return
	}
	text := fmt.Sprintf("%d of %d %s, %s/s%s", done, p.total, p.unit, rateText(rate), p.note)
	if rate > 0 {
		left := max(float64(p.total-done)/rate, 0)
		text += ", " + leftText(left) + " left"
	}
	if p.width == nil {
		fmt.Fprintf(p.out, "%s %s: %s\n", now.Format(timeLayout), p.what, text)
		return
	}
	p.draw(p.bar(text, p.width()-1)) // many terminals wrap after the last column
}

// record logs the count.
func (p *Progress) record(rate float64) {
	fields := []zap.Field{zap.String("of", p.what), zap.String("unit", p.unit), zap.Int64(p.unit, p.done), zap.Int64("total", p.total), zap.Float64("per_second", rate)}
	if rate > 0 {
		fields = append(fields, zap.Float64("seconds_left", max(float64(p.total-p.done)/rate, 0)))
	}
	if p.note != "" {
		fields = append(fields, zap.String("note", strings.TrimPrefix(p.note, ", ")))
	}
	p.log.Info("progress", fields...)
}

// rate notes the count at now and returns how much it grows in a second. If the count falls, because work begins again, so does the measurement.
func (p *Progress) rate(now time.Time) float64 {
	if p.done < p.past[len(p.past)-1].done {
		p.past = []mark{{now, p.done}}
	}
	if last := p.past[len(p.past)-1]; now.Sub(last.at) >= markEvery && p.done != last.done {
		p.past = append(p.past, mark{now, p.done})
	}
	for len(p.past) > fewestMarks && now.Sub(p.past[1].at) >= rateWindow {
		p.past = p.past[1:]
	}
	first := p.past[0]
	return float64(p.done-first.done) / max(now.Sub(first.at).Seconds(), 1e-3)
}

// rateText returns a rate with two digits at least.
func rateText(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'g', 2, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

// leftText returns a duration given in seconds, as exactly as an estimate deserves.
func leftText(seconds float64) string {
	const most = 100 * 365 * 24 * time.Hour
	d := time.Duration(min(seconds, most.Seconds()) * float64(time.Second))
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
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
