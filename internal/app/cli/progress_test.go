package cli

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// clock is a time that a test sets.
type clock struct{ time.Time }

func newClock() *clock {
	return &clock{time.Date(2013, 7, 1, 14, 3, 5, 0, time.FixedZone("", -4*3600))}
}

func (c *clock) now() time.Time          { return c.Time }
func (c *clock) advance(d time.Duration) { c.Time = c.Add(d) }

// In a log, progress is at most one line in ten seconds, with date, time and zone. The
// rate and the time left are those of the last half minute.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	c := newClock()
	p := newProgress(&out, nil, c.now, "score", "rows", 72_000)
	for range 100 { // 10 rows a second for 100 seconds
		c.advance(time.Second)
		p.Add(10)
	}
	want := "2013-07-01T14:03:15-04:00 score: 100 of 72000 rows, 10/s, 2h0m left\n"
	if text := out.String(); !strings.HasPrefix(text, want) || strings.Count(text, "\n") != 10 {
		t.Errorf("printed %q, expected 10 lines, first %q", text, want)
	}
	for range 40 { // the machine is idle now: 1000 rows a second
		c.advance(time.Second)
		p.Add(1000)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != "2013-07-01T14:05:25-04:00 score: 41000 of 72000 rows, 1000/s, 31s left" {
		t.Errorf("after the machine became faster: %q", last)
	}
	p.Set(500) // a job begins again without its progress
	for range 10 {
		c.advance(time.Second)
		p.Add(20)
	}
	if text := out.String(); !strings.HasSuffix(text, "score: 700 of 72000 rows, 20/s, 59m25s left\n") {
		t.Errorf("after the work began again, printed %q", text)
	}
	// After a crash some rows are computed twice. The time left is still not negative.
	c.advance(lineEvery)
	p.SetOf(108_000, 36_000)
	p.End()
	if text := out.String(); !strings.HasSuffix(text, "/s, 0s left\n") {
		t.Errorf("printed %q", text)
	}
}

// With a logger, progress is at most one record in half a minute.
func TestLogProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		p := LogProgress(zap.New(core), "score", "rows", 1200)
		p.Note("hot")
		for range 60 {
			time.Sleep(time.Second)
			p.Add(10)
		}
		p.End()
		all := logged.All()
		want := map[string]any{"of": "score", "unit": "rows", "rows": int64(300), "total": int64(1200), "per_second": 10.0, "seconds_left": 90.0, "note": "hot"}
		if len(all) != 2 || all[0].Message != "progress" || !maps.Equal(all[0].ContextMap(), want) {
			t.Errorf("logged %v", all)
		}
	})
}

// SHAVER_PROGRESS sets the time between two records.
func TestProgressEvery(t *testing.T) {
	t.Setenv("SHAVER_PROGRESS", "2s")
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.InfoLevel)
		p := LogProgress(zap.New(core), "score", "rows", 1200)
		for range 60 {
			time.Sleep(time.Second)
			p.Add(10)
		}
		if n := logged.Len(); n != 30 {
			t.Errorf("%d records in a minute, expected 30", n)
		}
	})
	var out bytes.Buffer
	c := newClock()
	p := newProgress(&out, nil, c.now, "score", "rows", 1200)
	for range 4 {
		c.advance(time.Second)
		p.Add(10)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 {
		t.Errorf("%d lines in four seconds, expected 2: %q", lines, &out)
	}
}

// A count that changes once in a minute has a rate too.
func TestProgressOfShards(t *testing.T) {
	var out bytes.Buffer
	c := newClock()
	p := newProgress(&out, nil, c.now, "score", "rows", 10_000)
	for range 20 {
		c.advance(time.Minute)
		p.Add(30)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		if !strings.Contains(line, " rows, 0.5/s, ") {
			t.Errorf("printed %q, expected 0.5 rows/s", line)
		}
	}
}

// A bar never wraps, leaves nothing on the terminal at its end, and has no escape
// sequences, so that NO_COLOR has nothing to turn off.
func TestProgressBar(t *testing.T) {
	for _, width := range []int{1, 2, 10, 40, 60, 80, 81, 132, 400} {
		var out bytes.Buffer
		c := newClock()
		p := newProgress(&out, func() int { return width }, c.now, "score", "rows", 72_000_000)
		c.advance(time.Hour)
		p.Note("1234567 rows/s")
		for _, done := range []int64{1, 71_000_000, 72_000_000, 90_000_000} {
			c.advance(barEvery)
			p.Set(done)
		}
		p.Add(1) // too soon to print
		last := out.String()
		last = last[strings.LastIndex(last, "\r")+1:]
		if width >= 132 && !strings.HasPrefix(last, "score ["+strings.Repeat("=", 40)+"] 90000000 of 72000000 rows, 24994/s, 1234567 rows/s, 0s left") {
			t.Errorf("width %d: printed %q", width, last)
		}
		if width == 60 && !strings.HasPrefix(last, "score: 90000000 of 72000000") {
			t.Errorf("width %d: printed %q", width, last)
		}
		p.End()
		screen := make([]byte, 0, width)
		for _, line := range strings.Split(out.String(), "\r") {
			if len(line) >= width {
				t.Errorf("width %d: %d characters in %q", width, len(line), line)
			}
			screen = append([]byte(line), screen[min(len(line), len(screen)):]...)
		}
		if left := strings.TrimSpace(string(screen)); left != "" {
			t.Errorf("width %d: %q stays on the terminal", width, left)
		}
		if strings.ContainsAny(out.String(), "\n\x1b") {
			t.Errorf("width %d: a new line or an escape sequence in %q", width, &out)
		}
	}
}

// A bar whose text is known fills the line of a terminal of 80 columns at most, and disappears without a text.
func TestShow(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, func() int { return 80 }, time.Now, "rows", "", 0)
	p.Show(25, 100, "25 of 100")
	bar := out.String()
	if len(strings.Split(bar, "\r")[1]) > 79 || !strings.Contains(bar, "rows [==========                              ] 25 of 100") {
		t.Errorf("the bar is %q", bar)
	}
	out.Reset()
	p.Show(0, 0, "")
	if strings.TrimLeft(out.String(), "\r ") != "" {
		t.Errorf("after an empty text, %q is drawn", out.String())
	}
}
