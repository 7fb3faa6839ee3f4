package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"shaver/deploy/internal/trial"
)

// background is a command that runs while a step goes on.
type background struct {
	args  []string
	cmd   *exec.Cmd
	stop  context.CancelFunc
	ended chan struct{} // closed when the command has ended

	mu   sync.Mutex
	said bytes.Buffer
}

// start starts a command. The last step ends it if no other step has.
func (t *try) start(s *trial.Step, c trial.Command) *background {
	s.Say("In the background:\n\n    $ %s", strings.Join(c.Args, " "))
	ctx, stop := context.WithCancel(context.WithoutCancel(s.Ctx))
	b := &background{args: c.Args, stop: stop, ended: make(chan struct{})}
	b.cmd = exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	b.cmd.Dir, b.cmd.Env, b.cmd.WaitDelay = c.Dir, append(os.Environ(), c.Env...), 2*time.Second
	b.cmd.Cancel = func() error { terminate(b.cmd.Process); return nil }
	b.cmd.Stdout, b.cmd.Stderr = b, b
	s.Check(b.cmd.Start())
	go func() { _ = b.cmd.Wait(); close(b.ended) }() // its state has the exit code
	t.running = append(t.running, b)
	return b
}

// Write keeps what the command prints.
func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *background) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// over reports whether the command has ended.
func (b *background) over() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// end waits for the end of the command, adds the last lines of its output to the
// transcript, and returns its exit code.
func (b *background) end(s *trial.Step) int {
	const limit = 20 * time.Minute
	if !s.Wait(limit, b.over) {
		s.Fail("%s still runs after %v", strings.Join(b.args, " "), limit)
	}
	lines := strings.Split(strings.TrimSpace(b.text()), "\n")
	s.Say("The end of what it printed:\n\n    %s", strings.Join(lines[max(0, len(lines)-4):], "\n    "))
	return b.cmd.ProcessState.ExitCode()
}
