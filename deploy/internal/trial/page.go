package trial

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Markdown returns the transcript. Each step is a section of the given level, for example 3
// for "###".
func (r *Run) Markdown(level int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, s := range r.steps {
		verdict := "passed"
		if s.failed {
			verdict = "FAILED"
		}
		fmt.Fprintf(&b, "%s %s\n\n%s after %.0f s\n\n", strings.Repeat("#", level), s.Name, verdict, s.took.Seconds())
		for i, e := range s.entries {
			switch e.kind {
			case command:
				b.WriteString(block("$ " + e.text + "\n" + e.out))
			case expectation:
				mark := "seen"
				if !e.ok {
					mark = "**not as expected**, seen"
				}
				fmt.Fprintf(&b, "- expected: %s; %s: %s\n", inline(e.text), mark, inline(e.out))
				if i == len(s.entries)-1 || s.entries[i+1].kind != expectation {
					b.WriteByte('\n')
				}
			case remark:
				b.WriteString(e.text + "\n\n")
			}
		}
	}
	return b.String()
}

// Points returns what the steps saw of numbered points, as a table. Each number has one
// line. The order is that of numbers.
func (r *Run) Points(numbers []string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	b.WriteString("| # | what is seen now | step |\n|---|---|---|\n")
	for _, n := range numbers {
		var seen, steps []string
		for _, s := range r.steps {
			for _, p := range s.points {
				if p.number != n {
					continue
				}
				text := inline(r.hide(p.seen))
				if s.failed {
					text = "**step failed**: " + text
				}
				seen = append(seen, text)
				if !slices.Contains(steps, s.Name) {
					steps = append(steps, s.Name)
				}
			}
		}
		if seen == nil {
			seen, steps = []string{"not seen in this run"}, []string{"none"}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", n, strings.ReplaceAll(strings.Join(seen, "; "), "|", "\\|"), strings.Join(steps, ", "))
	}
	return b.String()
}

// Replace writes text between the lines "<!-- begin NAME -->" and "<!-- end NAME -->" of
// the file.
func Replace(file, name, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := []byte("<!-- begin "+name+" -->\n"), []byte("<!-- end "+name+" -->")
	i := bytes.Index(old, begin)
	if i < 0 {
		return fmt.Errorf("%s: no line %q", file, bytes.TrimSpace(begin))
	}
	i += len(begin)
	j := bytes.Index(old[i:], end)
	if j < 0 {
		return fmt.Errorf("%s: no line %q after %q", file, end, bytes.TrimSpace(begin))
	}
	page := slices.Concat(old[:i], []byte(strings.TrimRight(text, "\n")+"\n"), old[i+j:])
	return os.WriteFile(file, page, 0o644)
}

// block is text as an indented code block.
func block(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if line == "" {
			b.WriteByte('\n')
			continue
		}
		b.WriteString("    " + strings.ReplaceAll(line, "\t", "    ") + "\n")
	}
	return b.String() + "\n"
}

// inline is text on one line without space at its ends, with nothing that Markdown would
// read as a tag.
func inline(text string) string {
	return strings.NewReplacer("<", "&lt;", "\n", " ", "*", "\\*").Replace(strings.TrimSpace(text))
}

// Summary returns a line for each step: its name, how it ended and how long it took.
func (r *Run) Summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, s := range r.steps {
		verdict := "passed"
		if s.failed {
			verdict = "FAILED"
		}
		fmt.Fprintf(&b, "%-16s %s %6.1f s\n", s.Name, verdict, s.took.Seconds())
	}
	return b.String()
}
