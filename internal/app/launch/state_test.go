package launch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/window"
)

// tinyNight returns a night over a window of one day, in a new state.
func tinyNight(t *testing.T) Night {
	t.Helper()
	j, folder := tiny(t)
	var err error
	if j.Dataset, err = dataset.OpenDays([]string{folder}); err != nil {
		t.Fatal(err)
	}
	return Night{Job: j, Read: func(path string) (modelfile.Source, error) { return checkpoint.Read(path) }, State: filepath.Join(t.TempDir(), "state")}
}

// runNight runs the night, which must succeed, and returns its report and its scores.
func runNight(t *testing.T, n Night) (*JobReport, []byte) {
	t.Helper()
	report, err := n.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(n.Out)
	if err != nil {
		t.Fatal(err)
	}
	return report, data
}

// A night has the same scores wherever its jobs run, and they are those of a job without a
// state. A night that is interrupted leaves no scores. The same night continues it, and then
// deletes the progress.
func TestNight(t *testing.T) {
	plain := tinyNight(t)
	_, want := run(t, &plain.Job)
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	for name, change := range map[string]func(*Night){
		"a worker":      func(n *Night) {},
		"three workers": func(n *Night) { n.Workers = 3 },
		"a server":      func(n *Night) { n.NATS, n.Workers = server.URL(), 2 },
		"with metrics":  func(n *Night) { n.Metrics = "127.0.0.1:0" },
	} {
		n := tinyNight(t)
		change(&n)
		report, got := runNight(t, n)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other scores", name)
		}
		if len(report.Days) != 1 || report.Days[0].Action != window.Full || report.Evaluations != tinyRows || report.Rows != tinyRows || len(report.Workers) == 0 {
			t.Errorf("%s: report %+v", name, report)
		}
		if report, _ = runNight(t, n); report.Days[0].Action != window.Kept || report.Evaluations != 0 || report.Rows != 0 {
			t.Errorf("%s: the second report is %+v", name, report)
		}
	}

	n := tinyNight(t)
	ctx, cancel := context.WithCancel(t.Context())
	var merged atomic.Int32
	onMessage(t, &n.Job, "merged", func() {
		if merged.Add(1) == tinyShards/2 {
			cancel()
		}
	})
	if _, err := n.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	if _, err := os.Stat(n.Out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the interrupted night left scores: %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.State, ".night.job")); err != nil {
		t.Errorf("the interrupted night left no progress: %v", err)
	}
	report, got := runNight(t, n)
	if !bytes.Equal(got, want) || !report.Resumed {
		t.Errorf("the continued night has other scores, or began with nothing: %+v", report)
	}
	if names, err := filepath.Glob(filepath.Join(n.State, ".night*")); err != nil || len(names) != 0 {
		t.Errorf("the finished night left %q: %v", names, err)
	}
}

// A night is refused while another process uses its state. It is also refused if it would
// replace scores of another model or window.
func TestNightRefusals(t *testing.T) {
	n := tinyNight(t)
	runNight(t, n)
	unlock, err := filelock.Lock(filepath.Join(n.State, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Run(t.Context()); err == nil || fault.IsUsage(err) {
		t.Errorf("while another process uses the state: %v", err)
	}
	unlock()
	other := tinyNight(t)
	other.Out, other.State = n.Out, n.State
	_, folder := tiny(t)
	if other.Dataset, err = dataset.Open(folder); err != nil { // not a window, so its digest differs
		t.Fatal(err)
	}
	if _, err := other.Run(t.Context()); !fault.IsUsage(err) {
		t.Errorf("scores of another window: %v", err)
	}
	other.Out = filepath.Join(t.TempDir(), "s.arrow")
	if _, err := other.Run(t.Context()); err == nil {
		t.Error("a dataset that is not a window is accepted")
	}
	n.Options.Passes = 2
	if _, err := n.Run(t.Context()); !fault.IsUsage(err) {
		t.Errorf("other options: %v", err)
	}
	if spec, err := prepare.Spec(n.Request); err != nil || len(spec.Days) != 1 {
		t.Errorf("%+v, %v", spec, err)
	}
}
