package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
)

// openTerminal returns both ends of a new terminal. What a program writes to other is read from own.
func openTerminal(t *testing.T) (own, other *os.File) {
	t.Helper()
	own, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { own.Close() })
	n, err := unix.IoctlGetInt(int(own.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(own.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(own.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		other, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return own, other
}

// On a terminal, a watched job is a bar that is drawn again in place. Above it is a line for each state, for what the job waits
// for, and once for each worker that fell silent.
func TestWatchOnTerminal(t *testing.T) {
	long.Test(t)
	t.Parallel()
	url := natsServer(t)
	b := connect(t, url)
	id := submitted(t, b)
	p := bus.Progress{Job: id, State: bus.Running, Updated: time.Now(), Rows: 100, RowsTotal: 1000, Rate: 50, Left: 18, Workers: []bus.Worker{}}
	store := func() {
		p.Updated = p.Updated.Add(time.Second)
		if err := b.SetProgress(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	store()
	own, other := openTerminal(t)
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second) // its end ends the reading
	defer cancel()
	watch := exec.CommandContext(soon, "shaver", "job", "watch", id, "--nats", url)
	watch.Stdout, watch.Stderr = other, other
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	other.Close()
	seen, buffer := "", make([]byte, 1<<12)
	// await reads until the last bar has the text, and returns what was read since the last call.
	await := func(want string) string {
		t.Helper()
		from := len(seen)
		for !strings.HasSuffix(seen, want) {
			n, err := own.Read(buffer)
			if seen += string(buffer[:n]); err != nil {
				t.Fatalf("%v before %q: %q", err, want, seen)
			}
		}
		return seen[from:]
	}
	await("\rrows [==                          ] 10%, 100 of 1000, 50/s, 18s left, 0 workers")
	p.Rows, p.Left = 200, 16
	p.Lost = []bus.Lost{{Worker: "gone", Seen: p.Updated.Add(-time.Minute), At: p.Updated}}
	store()
	if text := await("] 20%, 200 of 1000, 50/s, 16s left, 0 workers"); strings.Count(text, "no word from worker gone for 60 s") != 1 {
		t.Errorf("a worker falls silent: %q", text)
	}
	p.Rows, p.Left = 300, 14
	store()
	if text := await("] 30%, 300 of 1000, 50/s, 14s left, 0 workers"); strings.Contains(text, "\n") {
		t.Errorf("only the count changes, and there is a line: %q", text)
	}
	p.State, p.Waiting, p.Rows, p.Left = bus.Stalled, "a worker", 400, 12
	store()
	if text := await("] 40%, 400 of 1000, 50/s, 12s left, 0 workers"); !strings.Contains(text, " stalled; waiting for a worker\r\n") {
		t.Errorf("the job stalls: %q", text)
	}
	p.State, p.Waiting = bus.Finished, ""
	store()
	rest, _ := io.ReadAll(own) // fails when the program is gone
	if err := watch.Wait(); err != nil || !strings.HasSuffix(string(rest), " finished\r\n") {
		t.Errorf("at the end: %v, %q", err, rest)
	}
}
