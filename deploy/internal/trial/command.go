package trial

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is a command that a step runs.
type Command struct {
	Args  []string // the program and its arguments, as the transcript shows them
	Show  string   // what the transcript shows instead; optional
	Under []string // what runs Args and is not shown, for example nsenter with its arguments
	Path  string   // the program to run instead of Args[0]; optional
	Dir   string
	Env   []string // added to the environment of this process
	Stdin string
	Lines int           // most lines of output in the transcript: 0 means 12, below 0 none
	Limit time.Duration // longest duration; 0 means two minutes
}

// Result is what a command printed and how it ended.
type Result struct {
	Out  string // standard output without the last line feed
	Err  string // standard error, likewise
	Code int    // -1 if the command did not start or was killed
}

// Text returns both outputs.
func (r Result) Text() string { return strings.TrimSpace(r.Out + "\n" + r.Err) }

// Do runs the command without a transcript.
func (c Command) Do(ctx context.Context) Result {
	limit := c.Limit
	if limit == 0 {
		limit = 2 * time.Minute
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	args := append([]string{}, c.Args...)
	if c.Path != "" {
		args[0] = c.Path
	}
	args = append(append([]string{}, c.Under...), args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, 2*time.Second
	err := cmd.Run()
	r := Result{strings.TrimRight(out.String(), "\n"), strings.TrimRight(errs.String(), "\n"), 0}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
		if ctx.Err() != nil {
			r.Err = strings.TrimSpace(r.Err + "\n" + context.Cause(ctx).Error())
		}
	case err != nil:
		r.Code, r.Err = -1, strings.TrimSpace(r.Err+"\n"+err.Error())
	}
	return r
}

// Try runs the command and adds it to the transcript. The command may fail.
func (s *Step) Try(c Command) Result {
	s.print("$ %s", c.text())
	r := c.Do(s.Ctx)
	lines := c.Lines
	if lines == 0 {
		lines = 12
	}
	text := ""
	if lines > 0 {
		text = firstLast(r.Text(), lines)
	}
	if r.Code != 0 {
		text = strings.TrimSpace(text + "\n(exit code " + itoa(r.Code) + ")")
	}
	s.add(entry{kind: command, text: c.text(), out: text, ok: true})
	if text != "" {
		s.print("%s", text)
	}
	return r
}

// Do runs the command, adds it to the transcript, and returns its standard output. If the
// command fails, the step fails and stops.
func (s *Step) Do(c Command) string {
	r := s.Try(c)
	if r.Code != 0 {
		s.Fail("%s: exit code %d: %s", Short(c.text(), 80), r.Code, Short(r.Text(), 600))
	}
	return r.Out
}

// text is the command as a shell takes it.
func (c Command) text() string {
	if c.Show != "" {
		return c.Show
	}
	var b strings.Builder
	for i, a := range c.Args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a == "" || strings.ContainsAny(a, " \t\n\"'$&|;<>(){}*?[]#~`\\") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
	}
	if c.Stdin != "" {
		b.WriteString(" <<< (input)")
	}
	return b.String()
}

// firstLast returns at most n lines of text: the first ones and the last ones.
func firstLast(text string, n int) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if len(l) > 240 {
			lines[i] = strings.ToValidUTF8(l[:240], "") + " ..."
		}
	}
	if len(lines) > n {
		head := (n + 1) / 2
		left := len(lines) - n
		lines = append(append(append([]string{}, lines[:head]...), "... ("+itoa(left)+" more lines)"), lines[len(lines)-(n-head):]...)
	}
	return strings.Join(lines, "\n")
}
