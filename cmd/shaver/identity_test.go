package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/long"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/num/kernel"
)

// plantedJob makes a model and a dataset, and returns their folder and the flags that
// name them.
func plantedJob(t *testing.T, rows int) (dir string, flags []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "planted")
	shaver(t, nil, "quickstart", "--rows", strconv.Itoa(rows), "--out", dir)
	return dir, []string{"--model", filepath.Join(dir, "model.safetensors"), "--dataset", filepath.Join(dir, "dataset")}
}

// jobs are flags of jobs that together use every source of randomness, both kinds of
// standard errors, and rounds.
var jobs = map[string][]string{
	"sample": {"--baseline", "codebook", "--sample", "0.7", "--seed", "3"},
	"passes": {"--passes", "3"},
	"path":   {"--baseline", "codebook", "--estimator", "path", "--sparsity", "0.8"},
	"frozen": {"--freeze", "item", "--freeze", "city", "--baseline", "codebook"},
	"pairs":  {"--players", "pairs", "--baseline", "marginal", "--splits", "train", "--estimator", "antithetic"},
	"rounds": {"--passes", "4", "--until", "overlap", "--bound", "0.999", "--sparsity", "0.5"}, // ends after two portions of the rows and a second pass
}

var shardSizes = []string{"37", "150", "5000"}

// A job gives the same scores file for any number of workers and any shard size, in one
// process or in several. SHAVER_LONG=1 runs each pair of workers, job and shard size, and SHAVER_LONG=2 all
// combinations. Otherwise each number of workers runs one of them, with the smallest shards.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	dir, common := plantedJob(t, 700)
	file := func(name string) string { return filepath.Join(dir, name) }
	reference := func(name string) string { return file(name + ".arrow") }
	for name, spec := range jobs {
		shaver(t, nil, slices.Concat([]string{"score", "--out", reference(name)}, common, spec)...)
	}
	if a, b := fileDigest(t, reference("sample")), fileDigest(t, reference("passes")); a == b {
		t.Fatal("two jobs have the same scores")
	}
	turn := 0
	run := func(t *testing.T, program string, more ...string) {
		turn++
		for i, name := range slices.Sorted(maps.Keys(jobs)) {
			spec, sizes := jobs[name], shardSizes
			if !long.All() {
				if sizes = sizes[:1]; i != turn%len(jobs) {
					continue
				}
			}
			for j, size := range sizes {
				if (i+j+turn)%len(sizes) != 0 && !long.Hours() {
					continue
				}
				out := filepath.Join(t.TempDir(), "s.arrow")
				command(t, program, slices.Concat(strings.Fields(more[0]), more[1:], []string{"--out", out, "--rows-per-shard", size}, common, spec)...)
				wantSameFile(t, out, reference(name))
				var report launch.JobReport
				readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
				if fmt.Sprint(report.RowsPerShard) != size {
					t.Errorf("%d rows a shard, expected %s", report.RowsPerShard, size)
				}
			}
		}
	}
	for _, workers := range []string{"1", "2", "4"} {
		t.Run("embedded "+workers, func(t *testing.T) { run(t, "shaver", "score", "--workers", workers) })
	}
	url := natsServer(t)
	t.Run("in process over TCP", func(t *testing.T) { run(t, "shaver", "score", "--nats", url, "--workers", "2") })
	var workers []*process
	for _, count := range []int{1, 2, 4} {
		for len(workers) < count {
			workers = append(workers, startWorker(t, url, fmt.Sprintf("w%d", len(workers))))
		}
		t.Run(fmt.Sprint("processes ", count), func(t *testing.T) { run(t, "coordinator", "--nats", url) })
	}
	for i, w := range workers {
		if long.All() && len(w.having("task done")) == 0 { // a single job may have ended before a worker asked
			t.Errorf("worker %d computed nothing", i)
		}
		w.signal(syscall.SIGTERM)
		w.wantExit(cli.ExitDrained)
	}
	holding := startWorker(t, url, "holding", "--hold", "1m")
	t.Run("a process that adds up tasks", func(t *testing.T) { run(t, "coordinator", "--nats", url) })
	if !slices.ContainsFunc(holding.having("partial stored"), func(e entry) bool { return e.Tasks > 1 }) {
		t.Errorf("the worker stored no partial of several tasks: %v", holding.having("partial stored"))
	}
}

func fileDigest(t *testing.T, path string) string {
	t.Helper()
	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(path, ".arrow")+".job.json", &report)
	return report.Digests.Scores
}

// A job of the values of fields and pairs that is killed goes on where it stopped, and has the bytes of one that was not.
func TestKilledFields(t *testing.T) {
	long.Test(t)
	t.Parallel()
	dir, flags := plantedJob(t, 500)
	flags = append(flags, "--players", "pairs", "--splits", "train", "--estimator", "antithetic", "--passes", "30", "--rows-per-shard", "20", "--log", "json", "-v")
	run := func(out string) *process {
		return start(t, nil, "shaver", slices.Concat([]string{"score", "--out", out}, flags)...)
	}
	whole, out := filepath.Join(dir, "whole.arrow"), filepath.Join(dir, "killed.arrow")
	run(whole).wantExit(cli.ExitDone)
	first := run(out)
	first.await("task done", 2)
	first.signal(syscall.SIGKILL)
	first.wantExit(-1)
	second := run(out)
	second.wantExit(cli.ExitDone)
	wantSameFile(t, out, whole)
	var report launch.JobReport
	if readJSON(t, launch.ReportPath(out), &report); !report.Resumed || len(second.having("task begun")) >= report.Shards {
		t.Errorf("resumed is %v, and %d tasks of %d shards were begun", report.Resumed, len(second.having("task begun")), report.Shards)
	}
}

// lasting is a job of a few seconds. It has 6 shards, each of which takes one core about a
// quarter of a second.
type lasting struct {
	flags     []string
	reference string
	report    launch.JobReport
}

const longShards = 6

func longJob(t *testing.T) *lasting {
	t.Helper()
	dir, flags := plantedJob(t, 1500)
	l := &lasting{reference: filepath.Join(dir, "reference.arrow")}
	l.flags = append(flags, "--passes", "80", "--rows-per-shard", "240")
	shaver(t, &l.report, slices.Concat([]string{"score", "--out", l.reference}, l.flags)...)
	if l.report.Shards != longShards {
		t.Fatalf("%d shards, expected %d", l.report.Shards, longShards)
	}
	return l
}

// coordinate starts a coordinator for the job. It writes to out.
func (l *lasting) coordinate(t *testing.T, url, out string) *process {
	t.Helper()
	return start(t, nil, "coordinator", slices.Concat([]string{"--nats", url, "--out", out, "--lease", "2s", "--log", "json", "-v"}, l.flags)...)
}

// The scores have the same bytes whatever is killed or asked to leave in the middle of a
// job.
func TestFaults(t *testing.T) {
	long.Test(t)
	l := longJob(t)
	t.Run("worker killed", func(t *testing.T) { testKilledWorker(t, l) })
	t.Run("worker drained", func(t *testing.T) { testDrainedWorker(t, l) })
	t.Run("coordinator killed", func(t *testing.T) { testKilledCoordinator(t, l) })
	t.Run("interrupted", func(t *testing.T) { testInterrupted(t, l) })
}

func testKilledWorker(t *testing.T, l *lasting) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	partials := follow(t, url, l.report.Job)
	victim, survivor := startWorker(t, url, "victim"), startWorker(t, url, "survivor")
	victim.await("worker ready", 1)
	survivor.await("worker ready", 1)
	coordinator := l.coordinate(t, url, out)
	lost := victim.await("task begun", 2)
	victim.signal(syscall.SIGKILL)
	victim.wantExit(-1)
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)

	if len(victim.having("task done")) != 1 {
		t.Errorf("the victim finished %v", victim.having("task done"))
	}
	again := survivor.having("task begun")
	if !slices.ContainsFunc(again, func(e entry) bool { return e.Shard == lost.Shard && e.Try > 1 }) {
		t.Errorf("shard %d was lost and not assigned again: the survivor started %v", lost.Shard, again)
	}
	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
	if report.Workers["victim"] != 1 || report.Workers["survivor"] != longShards-1 {
		t.Errorf("the victim computed %d shards and the survivor %d, expected 1 and %d", report.Workers["victim"], report.Workers["survivor"], longShards-1)
	}
	wantNothingLeft(t, url, l.report.Job, partials())
	wantFiles(t, filepath.Dir(out), "s.arrow", "s.job.json")
	survivor.signal(syscall.SIGTERM)
	survivor.wantExit(cli.ExitDrained)
}

// After SIGTERM a worker finishes its task, and no other worker computes it.
func testDrainedWorker(t *testing.T, l *lasting) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	leaving := startWorker(t, url, "leaving")
	coordinator := l.coordinate(t, url, out)
	last := leaving.await("task begun", 1)
	leaving.signal(syscall.SIGTERM)
	leaving.wantExit(cli.ExitDrained)
	if done := leaving.having("task done"); len(done) != 1 || done[0].Shard != last.Shard {
		t.Errorf("the worker had started shard %d and finished %v", last.Shard, done)
	}
	if len(leaving.having("ending after the current task; a second signal ends at once")) != 1 {
		t.Error("the worker does not log what it waits for")
	}
	if len(leaving.having("drained")) != 1 {
		t.Error("the worker does not log that it drained")
	}
	staying := startWorker(t, url, "staying")
	coordinator.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	for _, e := range staying.having("task begun") {
		if e.Try != 1 || e.Shard == last.Shard {
			t.Errorf("shard %d was assigned again (try %d)", e.Shard, e.Try)
		}
	}
}

// A job that is submitted again continues with its first shard size and the results that
// are stored.
func testKilledCoordinator(t *testing.T, l *lasting) {
	url, out := natsServer(t), filepath.Join(t.TempDir(), "s.arrow")
	worker := startWorker(t, url, "worker")
	first := l.coordinate(t, url, out)
	worker.await("task done", 2)
	first.signal(syscall.SIGKILL)
	first.wantExit(-1)
	wantFiles(t, filepath.Dir(out))

	second := start(t, nil, "coordinator", slices.Concat([]string{"--nats", url, "--out", out, "--lease", "2s"}, l.flags, []string{"--rows-per-shard", "111"})...)
	second.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	var report launch.JobReport
	readJSON(t, strings.TrimSuffix(out, ".arrow")+".job.json", &report)
	if report.Shards != longShards {
		t.Errorf("%d shards, expected the %d of the first submission", report.Shards, longShards)
	}
	if begun := worker.having("task begun"); len(begun) != longShards {
		t.Errorf("%d tasks were computed for %d shards: %v", len(begun), longShards, begun)
	}
	wantNothingLeft(t, url, l.report.Job, nil)
}

// Ctrl-C ends a local job at once, and so does a kill. The same command continues with
// the tasks that are done, does not wait for a lease of a minute, and leaves only the
// scores and their report. Another job with the same file starts from the beginning.
func testInterrupted(t *testing.T, l *lasting) {
	dir, temporary := t.TempDir(), t.TempDir()
	out := filepath.Join(dir, "s.arrow")
	run := func(more ...string) *process {
		return start(t, []string{"TMPDIR=" + temporary}, "shaver", slices.Concat([]string{"score", "--out", out, "--log", "json", "-v"}, l.flags, more)...)
	}
	first := run()
	first.await("task done", 2)
	second := run()
	second.wantExit(cli.ExitFailed)
	if last := second.log[len(second.log)-1]; !strings.Contains(last, "another job that writes "+out+" is running") {
		t.Errorf("the last line of a second run at the same time is %q", last)
	}
	first.signal(os.Interrupt)
	first.wantExit(cli.ExitInterrupted)
	if log, _ := first.entries(); log[len(log)-1].Message != "interrupted" || log[len(log)-1].Code != cli.ExitInterrupted {
		t.Errorf("the last line of the log is %+v", log[len(log)-1])
	}
	if len(first.having("the state of the job is kept, and the same command resumes it")) != 1 {
		t.Error("the log does not say how to continue")
	}
	wantFiles(t, dir, ".s.job")

	third := run()
	third.await("task done", 1)
	third.signal(syscall.SIGKILL)
	third.wantExit(-1)
	fourth := run()
	fourth.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	done := len(first.having("task done")) + len(third.having("task done"))
	if again := len(fourth.having("task begun")); again > longShards-done+1 {
		t.Errorf("%d tasks were done before, but %d of %d were started again", done, again, longShards)
	}
	wantFiles(t, dir, "s.arrow", "s.job.json")
	var report launch.JobReport
	if readJSON(t, filepath.Join(dir, "s.job.json"), &report); !report.Resumed || l.report.Resumed {
		t.Errorf("resumed is %v for the run that continued and %v for the reference, expected true and false", report.Resumed, l.report.Resumed)
	}

	fifth := run("--seed", "77", "--force")
	fifth.await("task done", 1)
	fifth.signal(os.Interrupt)
	fifth.wantExit(cli.ExitInterrupted)
	os.Remove(out)
	sixth := run("--force")
	sixth.wantExit(cli.ExitDone)
	wantSameFile(t, out, l.reference)
	if len(sixth.having("discarding the progress of another job with the same --out")) != 1 {
		t.Error("the log does not say what is lost")
	}
	if begun := len(sixth.having("task begun")); begun != longShards {
		t.Errorf("%d tasks were started, expected all %d", begun, longShards)
	}
	wantFiles(t, dir, "s.arrow", "s.job.json")
	wantFiles(t, temporary)
}

// follow starts to collect the partials of a job's results. The returned function stops
// collecting and returns the partials.
func follow(t *testing.T, url, id string) (partials func() []job.Blob) {
	t.Helper()
	b := connect(t, url)
	ctx, stop := context.WithCancel(t.Context())
	found, ended := map[int]job.Blob{}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = b.Events(ctx, id, func(e bus.Event) error { // it ends with ctx
			if e.Result != nil {
				found[e.Shard] = e.Result.Partial
			}
			return nil
		})
	}()
	t.Cleanup(stop)
	return func() []job.Blob {
		stop()
		<-ended
		return slices.Collect(maps.Values(found))
	}
}

func connect(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// wantNothingLeft checks that the server has no blobs, tasks or specification of a
// finished job.
func wantNothingLeft(t *testing.T, url, id string, partials []job.Blob) {
	t.Helper()
	b := connect(t, url)
	blobs := slices.Clone(partials)
	for i := range longShards {
		blobs = append(blobs, job.Blob{Name: bus.ShardName(id, i), SHA256: strings.Repeat("0", 64)})
	}
	for _, blob := range blobs {
		if _, err := b.Get(t.Context(), blob, 1<<30); !errors.Is(err, bus.ErrNotFound) {
			t.Errorf("blob %s: %v, expected %v", blob.Name, err, bus.ErrNotFound)
		}
	}
	if left, err := b.Inventory(t.Context(), id, kernel.Name()); err != nil || len(left.Tasks)+len(left.Results)+len(left.Quarantined) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
	mine := []byte(`{"a job that was":"not there"}`)
	if stored, err := b.CreateSpec(t.Context(), id, mine); err != nil || string(stored) != string(mine) {
		t.Errorf("the specification is still there: %s (%v)", stored, err)
	}
}
