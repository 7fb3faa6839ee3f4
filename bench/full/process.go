//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// usage is what the processes of a program took in a stage.
type usage struct {
	Name      string  `json:"name"`
	Processor float64 `json:"processor"` // seconds, user and system
	Memory    int64   `json:"memory"`    // largest resident set of a process in bytes
}

// traffic is what the NATS server of a job reports. It counts the bytes of messages.
type traffic struct {
	Workers     passed `json:"workers"`
	Coordinator passed `json:"coordinator"`
	Stored      int64  `json:"stored"` // largest size of all streams
}

// passed are the bytes that some clients have sent to the server and received from it.
type passed struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

func (b passed) plus(o passed) passed { return passed{b.Sent + o.Sent, b.Received + o.Received} }

// patience is how long a process may take to end after a signal.
const patience = 30 * time.Second

// process is a running program.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // how it ended
}

// start starts a program. When ctx ends, it gets SIGINT. Its output goes to the log of the stage.
func (r *runner) start(ctx context.Context, s stage, program program) (*process, error) {
	p := &process{name: program.name, done: make(chan struct{})}
	for i, arg := range program.args {
		if arg == "--name" {
			p.name = program.args[i+1]
		}
	}
	log, err := os.OpenFile(filepath.Join(r.dir, "log", strings.ReplaceAll(s.name, " ", "-")+"-"+p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.CommandContext(ctx, filepath.Join(r.dir, "bin", program.name), program.args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = r.dir, log, log
	if program.stdout != "" {
		out, err := os.Create(filepath.Join(r.dir, program.stdout))
		if err != nil {
			return nil, err
		}
		defer out.Close()
		p.cmd.Stdout = out
	}
	// Ctrl-C reaches this program alone, which ends the others in order. They end with it, too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel, p.cmd.WaitDelay = func() error { return p.cmd.Process.Signal(os.Interrupt) }, patience
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// end waits for the end of the process and adds its usage to the record.
func (p *process) end(to *record) error {
	<-p.done
	used := usage{Name: p.name, Processor: (p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()).Seconds()}
	if system, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		used.Memory = system.Maxrss << 10
	}
	to.add(used)
	if p.err != nil {
		return fmt.Errorf("%s: %w; its log is in the folder log", p.name, p.err)
	}
	return nil
}

// add adds the usage of another process.
func (r *record) add(used usage) {
	for i := range r.Programs {
		if one := &r.Programs[i]; one.Name == used.Name {
			one.Processor, one.Memory = one.Processor+used.Processor, max(one.Memory, used.Memory)
			return
		}
	}
	r.Programs = append(r.Programs, used)
}

// cluster runs a job with a server and workers. They end after the coordinator, the server last.
func (r *runner) cluster(ctx context.Context, s stage, to *record) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// aside starts a program that must not end before the job. quit ends it.
	aside := func(program program) (quit func(), err error) {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		p, err := r.start(own, s, program)
		if err != nil {
			stop()
			return nil, err
		}
		go func() {
			<-p.done
			if own.Err() == nil {
				fail(fmt.Errorf("%s ended before the job: %v; its log is in the folder log", p.name, p.err))
			}
		}()
		return func() { stop(); _ = p.end(to) }, nil
	}
	ports := filepath.Join(r.dir, "ports")
	if err := errors.Join(os.RemoveAll(ports), os.Mkdir(ports, 0o755)); err != nil {
		return err
	}
	quit, err := aside(program{name: "nats-server", args: []string{"-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir", ports, "-js", "-sd", "jetstream"}})
	if err != nil {
		return err
	}
	defer quit()
	nats, monitor, err := addresses(ctx, ports)
	if err != nil {
		return err
	}
	if to.Bus == nil {
		to.Bus = &traffic{}
	}
	before := *to.Bus
	// observe reports whether the coordinator is listed. A connection that has just closed is missing for a moment.
	observe := func() (listed bool) {
		now, err := ask(monitor)
		if err != nil || now.Coordinator.Received == 0 {
			return false // which only makes the peak less exact
		}
		*to.Bus = traffic{before.Workers.plus(now.Workers), before.Coordinator.plus(now.Coordinator), max(to.Bus.Stored, now.Stored)}
		return true
	}
	for _, worker := range s.programs[1:] {
		worker.args = append(worker.args, "--nats", nats, "--store", "dir:.")
		quit, err := aside(worker)
		if err != nil {
			return err
		}
		defer quit()
	}
	first := s.programs[0]
	first.args = append(first.args, "--nats", nats, "--store", "dir:.")
	coordinator, err := r.start(ctx, s, first)
	if err != nil {
		return err
	}
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-tick.C:
			observe()
			continue
		case <-coordinator.done:
		}
		tick.Stop()
		for try := 0; !observe() && try < 20; try++ {
			time.Sleep(50 * time.Millisecond)
		}
		err := coordinator.end(to)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
}

// addresses waits until the server has written its addresses of clients and of its monitor.
func addresses(ctx context.Context, folder string) (nats, monitor string, err error) {
	for {
		files, err := filepath.Glob(filepath.Join(folder, "*.ports"))
		if err != nil {
			return "", "", err
		}
		for _, file := range files {
			var ports struct{ Nats, Monitoring []string }
			if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &ports) == nil && len(ports.Nats) > 0 && len(ports.Monitoring) > 0 {
				return ports.Nats[0], ports.Monitoring[0], nil
			}
		}
		select {
		case <-ctx.Done():
			return "", "", context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask returns what the clients of a server have sent and received since its start, and the present
// size of its streams.
func ask(monitor string) (now traffic, err error) {
	var server struct {
		JetStream struct {
			Stats struct {
				Store int64 `json:"storage"`
			} `json:"stats"`
		} `json:"jetstream"`
	}
	var clients struct {
		Connections []struct {
			Name string `json:"name"`
			In   int64  `json:"in_bytes"`
			Out  int64  `json:"out_bytes"`
		} `json:"connections"`
	}
	if err := errors.Join(get(monitor+"/varz", &server), get(monitor+"/connz?state=all&limit=1000", &clients)); err != nil {
		return now, err
	}
	now.Stored = server.JetStream.Stats.Store
	for _, c := range clients.Connections {
		of := &now.Coordinator
		if strings.Contains(c.Name, "worker") {
			of = &now.Workers
		}
		*of = of.plus(passed{c.In, c.Out})
	}
	return now, nil
}

func get(url string, into any) error {
	answer, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return json.NewDecoder(answer.Body).Decode(into)
}
