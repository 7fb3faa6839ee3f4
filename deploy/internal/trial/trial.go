// Package trial runs the steps of a trial of a whole system, for example of a cluster. A
// step runs commands and states what it expects of them. The package records what was run,
// expected and seen, and writes it as a page of Markdown. A failed expectation fails the
// step, and a failed step fails the run.
package trial

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Run is a sequence of steps. Steps may run at the same time.
type Run struct {
	Out  io.Writer         // receives the transcript while the steps run
	Only []string          // names of the steps to run; empty runs all
	Hide map[string]string // texts that the transcript must not contain, with their replacements

	mu    sync.Mutex
	steps []*Step
	begun time.Time
}

// New returns a run that prints to out.
func New(out io.Writer) *Run {
	return &Run{Out: out, Hide: map[string]string{}, begun: time.Now()}
}

// Step is one step while it runs. Its methods may be used by one goroutine at a time.
type Step struct {
	Name string
	Ctx  context.Context // ends when the step must stop

	run     *Run
	entries []entry
	points  []point
	failed  bool
	took    time.Duration
}

// entry is a paragraph of the transcript: a command with its output, an expectation or a
// remark.
type entry struct {
	kind kind
	text string // the command, or the whole paragraph
	out  string // of the command
	ok   bool
}

type kind int

const (
	command kind = iota
	expectation
	remark
)

// point is what a step saw of a numbered point of a list, for example of a defect.
type point struct{ number, seen string }

// stopped ends a step from within its function.
type stopped struct{}

// Step runs f as the step with this name and reports whether all its expectations held. A
// step whose name is not in Only is left out and counts as held.
func (r *Run) Step(ctx context.Context, name string, f func(*Step)) bool {
	if len(r.Only) > 0 && !slices.Contains(r.Only, name) {
		return true
	}
	s := &Step{Name: name, Ctx: ctx, run: r}
	r.mu.Lock()
	r.steps = append(r.steps, s)
	r.mu.Unlock()
	begun := time.Now()
	s.print("step")
	func() {
		defer func() {
			if p := recover(); p != nil {
				if _, ok := p.(stopped); !ok {
					panic(p)
				}
			}
		}()
		f(s)
	}()
	r.mu.Lock()
	s.took = time.Since(begun)
	r.mu.Unlock()
	end := "passed"
	if s.failed {
		end = "FAILED"
	}
	s.print("%s after %.1f s", end, s.took.Seconds())
	return !s.failed
}

// Err returns an error that names the failed steps, or nil.
func (r *Run) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failed []string
	for _, s := range r.steps {
		if s.failed {
			failed = append(failed, s.Name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed steps: %s", strings.Join(failed, ", "))
	}
	return nil
}

// Expect records what was expected and seen, and fails the step if ok is false.
func (s *Step) Expect(ok bool, expected, seen string) bool {
	if seen == "" {
		seen = "(nothing)"
	}
	s.add(entry{kind: expectation, text: expected, out: seen, ok: ok})
	s.failed = s.failed || !ok
	verdict := "as expected"
	if !ok {
		verdict = "NOT AS EXPECTED"
	}
	s.print("%s: %s; seen: %s", verdict, expected, seen)
	return ok
}

// Equal expects got to be want.
func (s *Step) Equal(what, got, want string) bool {
	return s.Expect(got == want, what+": "+want, got)
}

// Contains expects text to contain each of the words.
func (s *Step) Contains(what, text string, words ...string) bool {
	ok := true
	for _, w := range words {
		ok = ok && strings.Contains(text, w)
	}
	return s.Expect(ok, what+" has "+strings.Join(words, ", "), Short(text, 300))
}

// Need is Expect that stops the step if ok is false.
func (s *Step) Need(ok bool, expected, seen string) {
	if !s.Expect(ok, expected, seen) {
		s.Stop()
	}
}

// Fail records what went wrong, and stops the step.
func (s *Step) Fail(format string, args ...any) {
	s.Need(false, "no error", fmt.Sprintf(format, args...))
}

// Check fails and stops the step if err is not nil.
func (s *Step) Check(err error) {
	if err != nil {
		s.Fail("%v", err)
	}
}

// Stop ends the step without a further word.
func (s *Step) Stop() { panic(stopped{}) }

// Say adds a remark to the transcript.
func (s *Step) Say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.add(entry{kind: remark, text: text, ok: true})
	s.print("%s", text)
}

// Point records what the step saw of point number of a list that the page has a table of,
// for example of the defects of an earlier run.
func (s *Step) Point(number, format string, args ...any) {
	p := point{number, fmt.Sprintf(format, args...)}
	s.run.mu.Lock()
	s.points = append(s.points, p)
	s.run.mu.Unlock()
	s.print("point %s: %s", number, p.seen)
}

// Wait calls done every half second until it returns true or the time is up. It reports
// whether done returned true. If the step's context ends, Wait stops the step.
func (s *Step) Wait(limit time.Duration, done func() bool) bool {
	end := time.Now().Add(limit)
	for {
		if done() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		select {
		case <-s.Ctx.Done():
			s.Fail("%v", context.Cause(s.Ctx))
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (s *Step) add(e entry) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	e.text, e.out = s.run.hide(e.text), s.run.hide(e.out)
	s.entries = append(s.entries, e)
}

func (s *Step) print(format string, args ...any) {
	s.run.mu.Lock()
	defer s.run.mu.Unlock()
	text := s.run.hide(fmt.Sprintf(format, args...))
	fmt.Fprintf(s.run.Out, "%4.0fs %s: %s\n", time.Since(s.run.begun).Seconds(), s.Name, strings.ReplaceAll(text, "\n", "\n      "))
}

// hide replaces the texts of Hide, the longest first.
func (r *Run) hide(text string) string {
	var keys []string
	for k := range r.Hide {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return len(b) - len(a) })
	for _, k := range keys {
		text = strings.ReplaceAll(text, k, r.Hide[k])
	}
	return text
}

// Short returns at most n bytes of text, on one line.
func Short(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + " ..."
	}
	return text
}
