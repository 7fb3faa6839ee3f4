package trial

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A failed expectation fails its step and the run, and the page shows it.
func TestFailedExpectation(t *testing.T) {
	var out bytes.Buffer
	r := New(&out)
	r.Hide["/secret/place"] = "DIR"
	after := false
	if r.Step(t.Context(), "one", func(s *Step) {
		s.Do(Command{Args: []string{"echo", "at /secret/place now"}})
		s.Expect(true, "a first thing", "the first thing \n")
		s.Point("7", "seen | here")
		s.Need(false, "a second thing", "")
		after = true
	}) {
		t.Error("the step passed")
	}
	if !r.Step(t.Context(), "two", func(s *Step) { s.Equal("number", "1", "1") }) {
		t.Error("the second step failed")
	}
	if after {
		t.Error("Need did not stop the step")
	}
	if err := r.Err(); err == nil || err.Error() != "failed steps: one" {
		t.Errorf("Err: %v", err)
	}
	page := r.Markdown(3)
	for _, want := range []string{
		"### one\n\nFAILED after", "    $ echo 'at DIR now'\n    at DIR now\n", "- expected: a first thing; seen: the first thing\n",
		"- expected: a second thing; **not as expected**, seen: (nothing)\n", "### two\n\npassed after",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "/secret/place", "DIR"), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page+out.String(), "/secret/place") {
		t.Errorf("the transcript shows a hidden text:\n%s", page)
	}
	points := r.Points([]string{"7", "8"})
	if !strings.Contains(points, `| 7 | **step failed**: seen \| here | one |`) || !strings.Contains(points, "| 8 | not seen in this run | none |") {
		t.Errorf("points:\n%s", points)
	}
}

// A command's exit code and both outputs are returned, and a command that takes too long
// is ended.
func TestCommand(t *testing.T) {
	r := New(&bytes.Buffer{})
	r.Step(t.Context(), "one", func(s *Step) {
		got := s.Try(Command{Args: []string{"sh", "-c", "cat; echo error >&2; exit 7"}, Stdin: "input"})
		if got.Code != 7 || got.Out != "input" || got.Err != "error" {
			t.Errorf("got %+v", got)
		}
		if got := s.Try(Command{Args: []string{"sleep", "60"}, Limit: 50 * time.Millisecond}); got.Code == 0 {
			t.Errorf("a command that was ended: %+v", got)
		}
		if got := s.Try(Command{Args: []string{filepath.Join(t.TempDir(), "none")}}); got.Code != -1 {
			t.Errorf("a program that does not exist: %+v", got)
		}
	})
	if r.Step(t.Context(), "two", func(s *Step) { s.Do(Command{Args: []string{"false"}}) }) {
		t.Error("Do of a command that fails did not fail the step")
	}
}

// Only selects steps, Wait ends with its context, and Lines bounds the output.
func TestOnlyWaitLines(t *testing.T) {
	r := New(&bytes.Buffer{})
	r.Only = []string{"b"}
	ran := ""
	ctx, stop := context.WithCancel(t.Context())
	stop()
	r.Step(ctx, "a", func(*Step) { ran += "a" })
	if r.Step(ctx, "b", func(s *Step) { ran += "b"; s.Wait(time.Hour, func() bool { return false }); ran += "c" }) {
		t.Error("the step passed though its context had ended")
	}
	if ran != "b" {
		t.Errorf("ran %q", ran)
	}
	if got := firstLast("1\n2\n3\n4\n5\n6", 3); got != "1\n2\n... (3 more lines)\n6" {
		t.Errorf("firstLast: %q", got)
	}
}

// Replace changes only what is between the markers, and refuses a file without them.
func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("a\n<!-- begin x -->\nold\n<!-- end x -->\nz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file, "x", "new\n\n"); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	if string(got) != "a\n<!-- begin x -->\nnew\n<!-- end x -->\nz\n" {
		t.Errorf("got %q", got)
	}
	if err := Replace(file, "y", "new"); err == nil {
		t.Error("no error for a file without the markers")
	}
}
