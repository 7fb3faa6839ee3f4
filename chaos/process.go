package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// process is a running program in its own process group. Its output goes, line by line,
// to a file and to a callback.
type process struct {
	name string
	cmd  *exec.Cmd
	born time.Time
	done chan struct{} // closed when the process has ended and all its output is stored
	said chan struct{} // closed when the process has written a line or ended

	mu   sync.Mutex
	last []string // its last lines
}

// lastLines is the number of log lines that are shown for each process after a failure.
const lastLines = 8

// birth says how a program is started.
type birth struct {
	name   string
	dir    string                   // folder of NAME.log, which receives each line of the output
	line   func(text []byte)        // receives the lines too, in order; nil = nobody does
	env    []string                 // additional variables of the environment
	within func(func() error) error // calls its argument on the host of the process; nil = this program's host
}

// start starts a program.
func start(b birth, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(b.dir, b.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: b.name, cmd: exec.Command(program, args...), born: time.Now(), done: make(chan struct{}), said: make(chan struct{})}
	p.cmd.SysProcAttr = ownGroup()
	output, input, err := os.Pipe()
	if err != nil {
		log.Close()
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = input, input
	if len(b.env) > 0 {
		p.cmd.Env = append(os.Environ(), b.env...)
	}
	if b.within == nil {
		err = p.cmd.Start()
	} else {
		err = b.within(p.cmd.Start)
	}
	input.Close()
	if err != nil {
		output.Close()
		log.Close()
		return nil, fmt.Errorf("%s: %w", b.name, err)
	}
	go p.follow(output, log, b.line)
	return p, nil
}

func (p *process) follow(output io.ReadCloser, log io.WriteCloser, line func([]byte)) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	var first sync.Once
	speak := func() { first.Do(func() { close(p.said) }) }
	defer speak()
	for lines.Scan() {
		speak()
		_, _ = log.Write(append(lines.Bytes(), '\n'))
		p.mu.Lock()
		p.last = append(p.last, lines.Text())
		p.last = p.last[max(0, len(p.last)-lastLines):]
		p.mu.Unlock()
		if line != nil {
			line(lines.Bytes())
		}
	}
	_, _ = io.Copy(log, output) // the rest of the output after a line that is too long
	output.Close()
	_ = p.cmd.Wait() // ProcessState says how it ended
	fmt.Fprintf(log, "-- %v\n", p.cmd.ProcessState)
	log.Close()
	close(p.done)
}

// tail returns the last lines of the process.
func (p *process) tail() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.last...)
}

// alive reports whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill kills the process's group and returns when the process has ended.
func (p *process) kill() {
	if p.alive() {
		killGroup(p.cmd.Process.Pid) // an error only means that the process has ended
	}
	<-p.done
}

// code waits for the end of the process and returns its exit code, -1 after a signal.
func (p *process) code() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// await waits until the process ends, but at most for bound.
func (p *process) await(ctx context.Context, bound time.Duration) error {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s still runs after %v", p.name, bound)
	case <-ctx.Done():
		return ctx.Err()
	}
}
