package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"shaver/internal/jobs/bus/embedded"
)

// patience is the time for which a test waits for an event.
const patience = 60 * time.Second

// process is a running program whose log the test follows.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and its log is complete
	err  error         // the result of Wait

	mu      sync.Mutex
	log     []string
	changed chan struct{} // closed and replaced at each line
}

// entry is a line of a JSON log.
type entry struct {
	Message string `json:"msg"`
	Shard   int    `json:"shard"`
	Try     int    `json:"try"`
	Why     string `json:"why"`
	Code    int    `json:"exit_code"`
	Tasks   int    `json:"tasks"`
	URL     string `json:"url"`
}

// start starts a program with additional environment variables. The program ends with the
// test.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go p.read(stderr)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if the process has ended
		<-p.done
		if t.Failed() {
			t.Logf("log of %s %q:\n%s", name, args, strings.Join(p.log, "\n"))
		}
	})
	return p
}

func (p *process) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.mu.Lock()
		p.log = append(p.log, lines.Text())
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// entries returns the JSON lines of the log so far, and a channel that is closed when
// there are more lines.
func (p *process) entries() (log []entry, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.log {
		var e entry
		if json.Unmarshal([]byte(line), &e) == nil {
			log = append(log, e)
		}
	}
	return log, p.changed
}

// having returns the entries with the message.
func (p *process) having(message string) (found []entry) {
	log, _ := p.entries()
	for _, e := range log {
		if e.Message == message {
			found = append(found, e)
		}
	}
	return found
}

// await waits until the log has n entries with the message, and returns the last of them.
func (p *process) await(message string, n int) entry {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		_, more := p.entries() // before looking, so that nothing is missed
		if found := p.having(message); len(found) >= n {
			return found[n-1]
		}
		select {
		case <-more:
		case <-p.done:
			if found := p.having(message); len(found) >= n {
				return found[n-1]
			}
			p.t.Fatalf("%v ended (%v) without %d entries %q", p.cmd.Args, p.err, n, message)
		case <-timeout:
			p.t.Fatalf("%v: no %d entries %q after %v", p.cmd.Args, n, message, patience)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", p.cmd.Args, err)
	}
}

// wantExit waits for the end of the process and checks its exit code, which is -1 if a
// signal killed it. If the process logs JSON, all of its log must be JSON.
func (p *process) wantExit(code int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%v still runs after %v", p.cmd.Args, patience)
	}
	if found, err := exitCode(p.err); err != nil || found != code {
		p.t.Fatalf("%v: exit code %d (%v), expected %d", p.cmd.Args, found, err, code)
	}
	if strings.Contains(strings.Join(p.cmd.Args, " "), " --log json") {
		for _, line := range p.log {
			if !json.Valid([]byte(line)) {
				p.t.Errorf("%v: the line %q is not JSON", p.cmd.Args, line)
			}
		}
	}
}

// natsServer starts a NATS server in this process, for other processes.
func natsServer(t *testing.T) (url string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.URL()
}

// startWorker starts a worker. It stores the partial of each task, unless more flags say otherwise.
func startWorker(t *testing.T, url, name string, more ...string) *process {
	t.Helper()
	return start(t, nil, "worker", append([]string{"--nats", url, "--name", name, "--threads", "1", "--hold", "0", "-v", "--log", "json"}, more...)...)
}
