package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Without a terminal, progress is a line every few seconds and not a line for each
// step.
func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress("score", "rows", 72_000)
	p.out, p.width = &out, nil
	p.next = p.start.Add(p.every())
	p.start = p.start.Add(-time.Hour)
	p.Add(50)
	if out.Len() > 0 {
		t.Errorf("printed %q before it is time", &out)
	}
	p.next = time.Now()
	p.Set(36_000)
	p.Add(1)
	p.End()
	if text := out.String(); !strings.HasPrefix(text, "score: 36000 of 72000 rows, 10/s, 1h0m") || strings.Count(text, "\n") != 1 {
		t.Errorf("printed %q", text)
	}
	// After a crash some rows are computed twice. The time left is still not negative.
	p.next = time.Now()
	p.SetOf(108_000, 36_000)
	if text := out.String(); !strings.HasSuffix(text, "\nscore: 108000 of 36000 rows, 30/s, 0s left\n") {
		t.Errorf("printed %q", text)
	}
}

// A bar never wraps, leaves nothing on the terminal at its end, and has no escape
// sequences, so that NO_COLOR has nothing to turn off.
func TestProgressBar(t *testing.T) {
	for _, width := range []int{1, 2, 10, 40, 60, 80, 81, 132, 400} {
		var out bytes.Buffer
		p := NewProgress("score", "rows", 72_000_000)
		p.out, p.width = &out, func() int { return width }
		p.start = p.start.Add(-time.Hour)
		p.Note("1234567 rows/s")
		for _, done := range []int64{1, 71_000_000, 72_000_000, 90_000_000} {
			p.next = time.Now()
			p.Set(done)
		}
		p.Add(1) // too soon to print
		last := out.String()
		last = last[strings.LastIndex(last, "\r")+1:]
		if width >= 132 && !strings.HasPrefix(last, "score ["+strings.Repeat("=", 40)+"] 90000000 of 72000000 rows, 25000/s, 1234567 rows/s, 0s left") {
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
