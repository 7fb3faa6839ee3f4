//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The lines of a process go to the callback and to the log. Killing the process also
// kills the processes that it started.
func TestProcess(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	dir, lines := t.TempDir(), make(chan string, 10)
	p, err := start(birth{name: "p", dir: dir, line: func(text []byte) { lines <- string(text) }}, sh, "-c", "echo one; echo two >&2; sleep 600 & wait")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		if got := <-lines; got != want {
			t.Errorf("the callback got %q, expected %q", got, want)
		}
	}
	if !p.alive() {
		t.Error("the process has ended too early")
	}
	if err := p.await(t.Context(), time.Millisecond); err == nil || !strings.Contains(err.Error(), "p still runs") {
		t.Errorf("await: %v", err)
	}
	p.kill()
	pid := p.cmd.Process.Pid
	if p.alive() || p.code() != -1 {
		t.Errorf("after kill: alive %v, code %d", p.alive(), p.code())
	}
	for end := time.Now().Add(10 * time.Second); groupLeft(pid) && time.Now().Before(end); { // the child's parent is another process
		time.Sleep(time.Millisecond)
	}
	if groupLeft(pid) {
		t.Error("a child process is left")
	}
	log, err := os.ReadFile(filepath.Join(dir, "p.log"))
	if err != nil || string(log) != "one\ntwo\n-- signal: killed\n" {
		t.Errorf("log %q, %v", log, err)
	}
}

// A process receives signals, and its exit code is returned.
func TestProcessLeaves(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	lines := make(chan string, 1)
	p, err := start(birth{name: "p", dir: t.TempDir(), line: func(text []byte) { lines <- string(text) }}, sh, "-c", "trap 'exit 75' TERM; echo ready; while :; do sleep 0.01; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.kill()
	<-lines
	p.term()
	if code := p.code(); code != 75 {
		t.Errorf("exit code %d", code)
	}
	if err := syscall.Kill(p.cmd.Process.Pid, 0); err == nil {
		t.Error("the process still runs")
	}
}
