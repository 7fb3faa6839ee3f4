package launch

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/zap/zaptest"

	"shaver/internal/base/files"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/forecast"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/kernel"
)

// with runs do with the kernel in use, and then uses the former one again.
func with(t *testing.T, name string, do func()) {
	t.Helper()
	defer kernel.Use(kernel.Name())
	if !kernel.Use(name) {
		t.Fatalf("no kernel %s", name)
	}
	do()
}

// interrupt runs the job until some of its shards are merged or, with a server, until it is
// stored there. Workers of a server may store one partial for all shards.
func interrupt(t *testing.T, j *Job, run func(context.Context) (*JobReport, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var merged atomic.Int32
	message, last := "merged", int32(tinyShards/2)
	if j.NATS != "" {
		message, last = "scoring", 1
	}
	onMessage(t, j, message, func() {
		if merged.Add(1) == last {
			cancel()
		}
	})
	if _, err := run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run: %v", err)
	}
	j.Log = zaptest.NewLogger(t)
}

// A job without a given kernel continues the job that differs only in its kernel, whose
// progress is in a folder or on a server, or whose scores exist. Its scores have the bytes of
// a job with this kernel given.
func TestAnyKernelKeepsProgress(t *testing.T) {
	names := kernel.Names()
	given, was := names[len(names)-1], kernel.Name()
	plain, _ := tiny(t)
	var want []byte
	with(t, given, func() { _, want = run(t, &plain) })
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	for name, nats := range map[string]string{"folder": "", "server": server.URL()} {
		j := plain
		j.Out, j.NATS, j.Workers, j.Log = filepath.Join(t.TempDir(), "s.arrow"), nats, 1, zaptest.NewLogger(t)
		with(t, given, func() { interrupt(t, &j, j.Run) })
		j.AnyKernel = true
		report, got := run(t, &j)
		if !bytes.Equal(got, want) || nats == "" && !report.Resumed || report.Kernel != given {
			t.Errorf("%s: the same bytes %v, resumed %v, kernel %s, expected %s", name, bytes.Equal(got, want), report.Resumed, report.Kernel, given)
		}
		if kernel.Name() != was {
			t.Errorf("%s: the kernel in use is %s, expected %s", name, kernel.Name(), was)
		}
		if report, got = run(t, &j); !bytes.Equal(got, want) || report.Kernel != given {
			t.Errorf("%s: with scores: the same bytes %v, kernel %s", name, bytes.Equal(got, want), report.Kernel)
		}
	}

	n := tinyNight(t)
	with(t, given, func() { interrupt(t, &n.Job, n.Run) })
	n.AnyKernel = true
	for _, resumed := range []bool{true, false} { // the progress gives the kernel, then the settings of the state
		report, _ := runNight(t, n)
		if report.Kernel != given || report.Resumed != resumed {
			t.Errorf("night: kernel %s, expected %s; resumed %v", report.Kernel, given, report.Resumed)
		}
	}
	n = tinyNight(t)
	n.NATS, n.Workers = server.URL(), 1
	with(t, given, func() { interrupt(t, &n.Job, n.Run) })
	n.AnyKernel = true
	if report, _ := runNight(t, n); report.Kernel != given {
		t.Errorf("night on a server: kernel %s, expected %s", report.Kernel, given)
	}
}

// A job without a given kernel replaces neither the scores nor the progress of another job. If
// there is nothing to continue, a short job gets the first kernel that may be the fastest. A
// paired job gets the kernel of its previous scores.
func TestAnyKernel(t *testing.T) {
	names := kernel.Names()
	j, _ := tiny(t)
	j.AnyKernel = true
	if report, _ := run(t, &j); report.Kernel != kernel.Candidates()[0] {
		t.Errorf("kernel %s", report.Kernel)
	}
	j.Seed++
	if _, err := j.Run(t.Context()); err == nil {
		t.Error("the scores of another job were replaced")
	}
	j.Out = filepath.Join(t.TempDir(), "previous.arrow")
	with(t, names[len(names)-1], func() {
		fixed := j
		fixed.AnyKernel = false
		run(t, &fixed)
	})
	f, err := scores.Read(j.Out)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := files.Digest(j.Out)
	if err != nil {
		t.Fatal(err)
	}
	j.Previous, j.Sample = &prepare.Previous{Open: j.Open, Scores: f, Digest: digest}, .5
	j.Out = filepath.Join(t.TempDir(), "paired.arrow")
	if report, _ := run(t, &j); report.Kernel != f.Spec.Kernel {
		t.Errorf("the paired job has kernel %s, the previous scores %s", report.Kernel, f.Spec.Kernel)
	}
}

// The job gets the kernel with which the connected workers together are fastest. Kernels that
// no worker has do not count.
func TestServed(t *testing.T) {
	names := kernel.Names()
	last := names[len(names)-1]
	for _, c := range []struct {
		workers map[string]int
		want    []string
	}{
		{nil, kernel.Candidates()},
		{map[string]int{last: 3}, []string{last}},
		{map[string]int{names[0]: 1, last: 3}, []string{names[0]}},
		{map[string]int{"another": 1}, kernel.Candidates()},
	} {
		if got := served(c.workers); len(names) > 1 && !slices.Equal(got, c.want) {
			t.Errorf("workers %v: %v, expected %v", c.workers, got, c.want)
		}
	}
	rates := []forecast.Rate{{Kernel: "a", RowsPerCore: 10}, {Kernel: "b", RowsPerCore: 15}, {Kernel: "c", RowsPerCore: 15.1}}
	for _, c := range []struct {
		rates   []forecast.Rate
		workers map[string]int
		want    string
	}{
		{rates, nil, "b"},
		{rates, map[string]int{"a": 2, "b": 1, "c": 1}, "a"},
		{rates, map[string]int{"a": 3, "b": 2, "c": 4}, "c"},
		{nil, nil, "a"},
		{nil, map[string]int{"a": 1, "b": 2, "c": 2}, "b"},
	} {
		if got := fastest([]string{"a", "b", "c"}, c.rates, c.workers); got != c.want {
			t.Errorf("rates %v, workers %v: %s, expected %s", c.rates, maps.Clone(c.workers), got, c.want)
		}
	}
}

// A coordinator counts the workers of its protocol by all their kernels, and those of its own
// process.
func TestWorkersOf(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	j, _ := tiny(t)
	j.NATS, j.Workers = server.URL(), 2
	connect := func() *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL(), Name: "w", Log: j.Log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	names := kernel.Names()
	for _, build := range []job.Build{
		{Kernel: "another", Kernels: "another," + names[0], Protocol: job.Protocol},
		{Kernel: names[0], Protocol: job.Protocol}, {Kernel: names[0], Protocol: job.Protocol + 1},
	} {
		if err := connect().Announce(build); err != nil {
			t.Fatal(err)
		}
	}
	r := &running{Job: j, bus: connect()}
	want := map[string]int{}
	for _, name := range names {
		want[name] = 2
	}
	want[names[0]] = 4
	if got := r.workersOf(t.Context()); !maps.Equal(got, want) {
		t.Errorf("workers %v, expected %v", got, want)
	}
}

// Progress that cannot be read, or is not what its owner file says, gives no kernel.
func TestProgressSpec(t *testing.T) {
	j, _ := tiny(t)
	interrupt(t, &j, j.Run)
	if s := j.progressSpec(); s == nil || s.Kernel != kernel.Name() {
		t.Errorf("the specification of the progress is %+v", s)
	}
	for file, text := range map[string]string{specFile: "{", ownerFile: "0123456789abcdef0123"} {
		path := filepath.Join(j.folder(), file)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
		if s := j.progressSpec(); s != nil {
			t.Errorf("with %s %q: %+v", file, text, s)
		}
		write(t, path, string(was))
	}
}
