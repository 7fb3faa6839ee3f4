package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

const (
	tinyRows   = 120
	tinyShards = 12
)

// tiny returns a job of a small model, and the folder of its dataset. The folder for
// its scores is empty.
func tiny(t *testing.T) (j Job, folder string) {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	var rows model.Rows
	p.Rows(&rows, 0, tinyRows)
	csv := "label,a,b\n"
	for i := range rows.Len() {
		csv += fmt.Sprintf("%v,%d,%d\n", rows.Label[i], rows.Row(i)[0], rows.Row(i)[1])
	}
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "dataset")
	if err := os.WriteFile(file, []byte(csv), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Sizes: p.FieldDims, Global: true, Out: folder}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return Job{Config: coordinator.Config{
		Request: prepare.Request{
			Open: func() (modelfile.Source, error) { return p.Checkpoint, nil }, Dataset: d, Splits: []string{dataset.Train}, Sample: 1, Baseline: baseline.Codebook,
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1, RowsPerShard: tinyRows / tinyShards,
		},
		Out: filepath.Join(t.TempDir(), "s.arrow"), Queue: bus.DefaultQueue, Log: zaptest.NewLogger(t),
	}}, folder
}

// onMessage makes the job call do for each line of its log with the given message.
func onMessage(t *testing.T, j *Job, message string, do func()) {
	j.Log = zaptest.NewLogger(t, zaptest.WrapOptions(zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == message {
			do()
		}
		return nil
	})))
}

// run runs the job, which must succeed, and returns its report and its scores.
func run(t *testing.T, j *Job) (*JobReport, []byte) {
	t.Helper()
	report, err := j.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(j.Out)
	if err != nil {
		t.Fatal(err)
	}
	return report, data
}

// wantFiles fails the test unless the folder of the job's scores contains exactly the
// names.
func wantFiles(t *testing.T, j *Job, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(j.Out))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if !slices.Equal(found, names) {
		t.Errorf("files %v, expected %v", found, names)
	}
}

// A job has the same scores wherever it runs. It leaves no files except the scores and
// the report.
func TestRun(t *testing.T) {
	plain, folder := tiny(t)
	_, want := run(t, &plain)
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	for name, test := range map[string]struct {
		change  func(*Job)
		workers int // most workers that may have computed shards
	}{
		"a worker":      {func(j *Job) {}, 1},
		"three workers": {func(j *Job) { j.Workers = 3 }, 3},
		"in place":      {func(j *Job) { j.Store = "dir:" + folder }, 1},
		"once":          {func(j *Job) { j.Once = true }, 1},
		"with metrics":  {func(j *Job) { j.Metrics = "127.0.0.1:0" }, 1},
		"a server":      {func(j *Job) { j.NATS, j.Workers = server.URL(), 2 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			j := plain
			j.Out, j.Log = filepath.Join(t.TempDir(), "s.arrow"), zaptest.NewLogger(t)
			test.change(&j)
			report, got := run(t, &j)
			if !bytes.Equal(got, want) {
				t.Error("the scores have different bytes")
			}
			computed := 0
			for _, n := range report.Workers {
				computed += n
			}
			if computed != tinyShards || report.Shards != tinyShards || len(report.Workers) > test.workers || report.Rows != tinyRows || report.Resumed || report.Seconds <= 0 {
				t.Errorf("report %+v", report)
			}
			wantFiles(t, &j, "s.arrow", "s.job.json")
			written, err := os.ReadFile(ReportPath(j.Out))
			var back JobReport
			if err != nil || json.Unmarshal(written, &back) != nil || !reflect.DeepEqual(&back, report) {
				t.Errorf("the written report is %s (%v), expected %+v", written, err, report)
			}
			if j.InPlace || j.OnStart != nil {
				t.Error("the job was changed")
			}
		})
	}
}

// The next run of an interrupted job resumes it, unless Once says that there will be
// none.
func TestCutOff(t *testing.T) {
	plain, _ := tiny(t)
	_, want := run(t, &plain)
	const cutAfter = 3
	for name, test := range map[string]struct {
		once  bool
		other bool // the next run is of another job
		kept  bool
	}{
		"resumed":     {kept: true},
		"once":        {once: true},
		"another job": {other: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := plain
			j.Out, j.Once = filepath.Join(t.TempDir(), "s.arrow"), test.once
			ctx, cancel := context.WithCancel(t.Context())
			var done atomic.Int64
			onMessage(t, &j, "task done", func() {
				if done.Add(1) == cutAfter {
					cancel()
				}
			})
			if _, err := j.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("the interrupted run: %v", err)
			}
			if test.kept {
				wantFiles(t, &j, ".s.job")
			} else {
				wantFiles(t, &j)
			}
			if test.other {
				j.Seed++
				if _, err := j.Run(t.Context()); !fault.IsUsage(err) || !strings.Contains(err.Error(), ".s.job has the progress of another job, ") || !strings.Contains(err.Error(), "(seed 1, not 2), begun 20") {
					t.Errorf("without --force: %v", err)
				}
				wantFiles(t, &j, ".s.job")
				j.Outputs.Force = true
			}
			again := atomic.Int64{}
			onMessage(t, &j, "task done", func() { again.Add(1) })
			report, got := run(t, &j)
			wantFiles(t, &j, "s.arrow", "s.job.json")
			if bytes.Equal(got, want) == test.other {
				t.Errorf("the same bytes as without an interruption: %v", !test.other)
			}
			resumes := test.kept && !test.other
			if n := again.Load(); resumes && n > tinyShards-cutAfter || !resumes && n != tinyShards {
				t.Errorf("the next run computed %d shards, of %d", n, tinyShards)
			}
			if report.Resumed != resumes {
				t.Errorf("resumed: %v, expected %v", report.Resumed, resumes)
			}
		})
	}
}

// After bad input the state of a job is kept if shards are merged, because the input may be
// restored.
func TestBadInputKeepsProgress(t *testing.T) {
	for _, merged := range []int64{0, 10} {
		j, _ := tiny(t)
		r := &running{Job: j, started: make(chan struct{})}
		if err := r.local(t.Context(), func() {}); err != nil {
			t.Fatal(err)
		}
		spec, err := prepare.Spec(j.Request)
		if err != nil {
			t.Fatal(err)
		}
		r.start(*spec, job.Plan{Rows: tinyRows, RowsPerShard: tinyRows / tinyShards}, merged)
		r.end(fault.Inputf("train.arrow is damaged"))
		if merged > 0 {
			wantFiles(t, &j, ".s.job")
		} else {
			wantFiles(t, &j)
		}
	}
}

// If the scores exist already, the existing report is kept. A report that is missing or
// about other scores is written again. A file that is not a report needs --force.
func TestExisting(t *testing.T) {
	j, _ := tiny(t)
	first, _ := run(t, &j)
	path := ReportPath(j.Out)
	change := func(change func(*JobReport)) []byte {
		r := *first
		r.Seconds = 4711
		change(&r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for name, test := range map[string]struct {
		there []byte // nil = no report
		stays bool
	}{
		"of these scores": {change(func(*JobReport) {}), true},
		"missing":         {nil, false},
		"of other scores": {change(func(r *JobReport) { r.Digests.Scores = "ab" }), false},
		"malformed":       {[]byte("{"), false},
	} {
		t.Run(name, func(t *testing.T) {
			j.Log, j.Outputs.Force = zaptest.NewLogger(t), name == "malformed"
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if test.there != nil {
				if err := os.WriteFile(path, test.there, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			report, _ := run(t, &j)
			written, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if stays := bytes.Equal(written, test.there); stays != test.stays || (report.Seconds == 4711) != test.stays {
				t.Errorf("the report stays: %v, expected %v: %+v", stays, test.stays, report)
			}
			if !test.stays && (report.Shards != 0 || len(report.Workers) != 0) {
				t.Errorf("the report counts shards that another run computed: %+v", report)
			}
			if report.Rows != tinyRows || report.Digests != first.Digests {
				t.Errorf("report %+v", report)
			}
			wantFiles(t, &j, "s.arrow", "s.job.json")
		})
	}
}

// A process that was killed while it began to keep the progress of a job does not obstruct the job.
func TestLeftover(t *testing.T) {
	j, _ := tiny(t)
	write(t, filepath.Join(j.folder(), ".job.2114864524.tmp"), "")
	write(t, filepath.Join(j.folder(), ".spec.json.17.tmp"), "{")
	run(t, &j)
	wantFiles(t, &j, "s.arrow", "s.job.json")
}

// Scores of the job that are damaged are computed again.
func TestDamaged(t *testing.T) {
	j, _ := tiny(t)
	_, want := run(t, &j)
	damaged := bytes.Clone(want)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(j.Out, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	said := false
	onMessage(t, &j, "computing the scores of this job again", func() { said = true })
	if report, got := run(t, &j); !bytes.Equal(got, want) || report.Shards != tinyShards || !said {
		t.Errorf("the same bytes: %v, report %+v, said so: %v", bytes.Equal(got, want), report, said)
	}
}

// Another job with the same Out is refused before anything is computed, and so are files
// that are not shaver's. With --force they are replaced, but inputs are not.
func TestOutputs(t *testing.T) {
	plain, folder := tiny(t)
	for name, test := range map[string]struct {
		prepare func(j *Job) // makes what is in the way
		text    string
		always  bool // --force does not help
	}{
		"other scores": {func(j *Job) { other := *j; other.Seed = 7; run(t, &other) }, "it has the scores of another job, ", false},
		"a file":       {func(j *Job) { write(t, j.Out, "hello") }, "it is not a scores file that this program reads", false},
		"a report":     {func(j *Job) { write(t, ReportPath(j.Out), `{"job": 1}`) }, "s.job.json: it is not the report of a job", false},
		"a folder":     {func(j *Job) { write(t, filepath.Join(filepath.Dir(j.Out), ".s.job", "mine"), "x") }, "has other files, such as mine; name another file", false},
		"an input":     {func(j *Job) { write(t, j.Out, "x"); j.Outputs.Inputs(j.Out) }, "it is an input of this command", true},
		"a dataset":    {func(j *Job) { j.Out = filepath.Join(folder, "train.arrow"); j.Outputs.Inputs(dataset.Files(folder)...) }, "it is an input of this command", true},
	} {
		t.Run(name, func(t *testing.T) {
			j := plain
			j.Out, j.Log = filepath.Join(t.TempDir(), "s.arrow"), zaptest.NewLogger(t)
			test.prepare(&j)
			onMessage(t, &j, "scoring", func() { t.Error("the job began") })
			if _, err := j.Run(t.Context()); !fault.IsUsage(err) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("error %v, expected %q", err, test.text)
			}
			j.Outputs.Force = true
			if test.always {
				if _, err := j.Run(t.Context()); !fault.IsUsage(err) {
					t.Errorf("with --force: %v", err)
				}
				return
			}
			j.Log = zaptest.NewLogger(t)
			run(t, &j)
			wantFiles(t, &j, "s.arrow", "s.job.json")
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A job that cannot run is refused and leaves no files.
func TestRefused(t *testing.T) {
	plain, _ := tiny(t)
	for name, test := range map[string]struct {
		change func(*Job)
		text   string
		is     func(error) bool
	}{
		"no folder":         {func(j *Job) { j.Out = filepath.Join(filepath.Dir(j.Out), "none", "s.arrow") }, "there is no folder", fault.IsInput},
		"an empty store":    {func(j *Job) { j.Store = "dir:" + filepath.Dir(j.Out) }, "--store must contain --dataset", fault.IsUsage},
		"no store":          {func(j *Job) { j.Store = "s3:bucket" }, "expected dir:PATH", fault.IsUsage},
		"unknown estimator": {func(j *Job) { j.Options.Estimator = "magic" }, `estimator "magic"`, fault.IsUsage},
		"bad metrics":       {func(j *Job) { j.Metrics = "9090" }, `"9090"`, fault.IsUsage},
		"no server":         {func(j *Job) { j.NATS = "http://127.0.0.1" }, "invalid NATS address", fault.IsUsage},
	} {
		t.Run(name, func(t *testing.T) {
			j := plain
			j.Out, j.Log = filepath.Join(t.TempDir(), "s.arrow"), zaptest.NewLogger(t)
			dir := j
			test.change(&j)
			if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.text) || !test.is(err) {
				t.Errorf("error %v, expected %q", err, test.text)
			}
			wantFiles(t, &dir)
		})
	}
}

// In a job without a cluster a worker keeps its task however long it takes. On a busy
// machine that is far longer than a lease, and the task was computed again.
func TestSlowWorker(t *testing.T) {
	j, _ := tiny(t)
	j.Workers, j.Queue.Lease = 2, 100*time.Millisecond
	var begun atomic.Int64
	onMessage(t, &j, "task begun", func() {
		if begun.Add(1) == 1 {
			time.Sleep(5 * j.Queue.Lease)
		}
	})
	run(t, &j)
	if n := begun.Load(); n != tinyShards {
		t.Errorf("%d tasks were begun, of %d", n, tinyShards)
	}
}

// The log of a job in this process says so first, and speaks of nothing that only a
// cluster has, even if no result comes for a while.
func TestLocalLog(t *testing.T) {
	j, _ := tiny(t)
	core, lines := observer.New(zapcore.InfoLevel)
	j.Log = zap.New(core)
	run(t, &j)
	all := lines.All()
	if len(all) < 2 || all[0].Message != "the job runs in this process" {
		t.Errorf("the log begins with %v", all)
	}
	for _, line := range all {
		text := fmt.Sprint(line.Message, line.ContextMap())
		for _, word := range []string{"nats", "NATS", "queue", "quarantine", "lease", "shaver job", "workers with"} {
			if strings.Contains(text, word) {
				t.Errorf("the log of a job without a cluster has %q: %s", word, text)
			}
		}
	}
}

// If two jobs write the same file, the second is refused.
func TestLocked(t *testing.T) {
	j, _ := tiny(t)
	unlock, err := filelock.Lock(filepath.Join(filepath.Dir(j.Out), ".s.job.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Run(t.Context()); err == nil || fault.IsUsage(err) || !strings.Contains(err.Error(), "is running") {
		t.Errorf("while another job has the lock: %v", err)
	}
	unlock()
	run(t, &j)
}

// A job that somebody cancels ends with bus.ErrCancelled.
func TestCancelled(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	j, _ := tiny(t)
	j.NATS = server.URL() // without workers, so that the job does not end
	spec, err := prepare.Spec(j.Request)
	if err != nil {
		t.Fatal(err)
	}
	onMessage(t, &j, "scoring", func() {
		if err := b.Cancel(t.Context(), spec.ID()); err != nil {
			t.Error(err)
		}
	})
	if _, err := j.Run(t.Context()); !errors.Is(err, bus.ErrCancelled) {
		t.Errorf("ended with %v", err)
	}
	wantFiles(t, &j)
}
