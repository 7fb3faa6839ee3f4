package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// bench is a server, and a job with a small model and its rows.
type bench struct {
	t      *testing.T
	server nats.InProcessConnProvider
	folder string // folder of the dataset
	config coordinator.Config
	rows   atomic.Int64  // rows computed by all workers so far
	hold   time.Duration // worker.Config.Hold
}

func newBench(t *testing.T) *bench { return newBenchOn(t, "") }

// The parallel tests wait most of the time, so that many run at once on few cores.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// newBenchOn is newBench with a server that listens.
func newBenchOn(t *testing.T, listen string) *bench {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	request, folder := preparetest.Request(t)
	return &bench{t: t, server: server, folder: folder, config: coordinator.Config{
		Request: request,
		Out:     filepath.Join(t.TempDir(), "scores.arrow"), Log: zaptest.NewLogger(t),
		Queue: bus.Queue{Lease: 2 * time.Second, Window: 4096, Replicas: 1},
	}}
}

func (b *bench) connect(ctx context.Context, name string) *bus.Bus {
	c, err := bus.Connect(ctx, bus.Config{Server: b.server, Name: name})
	if err != nil {
		b.t.Error(err)
	}
	return c
}

// jetStream returns a client of the server that is not of shaver, until the test ends.
func (b *bench) jetStream() jetstream.JetStream {
	b.t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(b.server))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	return js
}

// shape returns the shape of the tables of the job's model.
func (b *bench) shape() layout.Shape {
	b.t.Helper()
	source, err := b.config.Open()
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := source.Model()
	if err != nil {
		b.t.Fatal(err)
	}
	return m.Architecture.Shape()
}

// work runs a worker until ctx ends.
func (b *bench) work(ctx context.Context) {
	own, err := bus.Connect(ctx, bus.Config{Server: b.server, Name: "worker"})
	if ctx.Err() != nil { // the job ended before this worker began
		return
	}
	if err != nil {
		b.t.Error(err)
		return
	}
	defer own.Close()
	err = worker.Run(ctx, nil, worker.Config{
		Bus: own, Name: "w", Threads: 1, Models: new(worker.Models), Log: b.config.Log, Hold: b.hold,
		OnRows: func(n int) { b.rows.Add(int64(n)) },
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		b.t.Error(err)
	}
}

// patience bounds the time of a job. If all workers or mergers of a test end, its job would wait without an end, and the test would not say why.
const patience = 5 * time.Minute

// run runs the job with the given number of workers and returns its scores file.
func (b *bench) run(ctx context.Context, workers int) ([]byte, error) {
	b.t.Helper()
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	working, stop := context.WithCancel(ctx)
	var group errgroup.Group
	for range workers {
		group.Go(func() error { b.work(working); return nil })
	}
	own := b.connect(ctx, "coordinator")
	defer own.Close()
	_, err := coordinator.Run(ctx, own, b.config)
	stop()
	_ = group.Wait()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(b.config.Out)
}

// cutOff deletes the scores, and runs the job until at least the given number of rows is merged.
func (b *bench) cutOff(at int64) {
	b.t.Helper()
	if err := os.Remove(b.config.Out); err != nil {
		b.t.Fatal(err)
	}
	cut, cancel := context.WithCancel(b.t.Context())
	b.config.OnMerged = func(rows int64) {
		if rows >= at {
			cancel()
		}
	}
	if _, err := b.run(cut, 2); !errors.Is(err, context.Canceled) {
		b.t.Fatalf("cut off after %d rows: %v", at, err)
	}
	b.config.OnMerged = nil
}

// A coordinator resumes a job after another coordinator was interrupted. The bytes are
// the same, and no merged shard is computed again.
func TestResume(t *testing.T) {
	b := newBench(t)
	want, err := b.run(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if n := b.rows.Swap(0); n != 300 {
		t.Fatalf("the plain run computed %d rows", n)
	}
	if err := os.Remove(b.config.Out); err != nil {
		t.Fatal(err)
	}
	cut, cancel := context.WithCancel(t.Context())
	b.config.OnMerged = func(rows int64) {
		if rows >= 150 {
			cancel()
		}
	}
	if _, err := b.run(cut, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("cut off: %v", err)
	}
	if _, err := os.Stat(b.config.Out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the interrupted job left a scores file: %v", err)
	}
	b.rows.Store(0)
	b.config.OnMerged = nil
	b.config.RowsPerShard = 7 // has no effect, because the stored plan is used
	core, logged := observer.New(zap.WarnLevel)
	b.config.Log = zap.New(core)
	got, err := b.run(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if logged.FilterMessageSnippet("first cut into").FilterField(zap.Int64("rows a shard", 25)).Len() != 1 {
		t.Errorf("expected one warning about the shards, got %v", logged.All())
	}
	if !bytes.Equal(got, want) {
		t.Error("the resumed job has other bytes")
	}
	// Half of the rows were merged. Each of the two workers may also have been
	// interrupted before it published a result.
	if n := b.rows.Load(); n > 150+2*25 {
		t.Errorf("the second run computed %d rows of 300, but half were merged", n)
	}
}

// A job in rounds ends after the same round wherever it was interrupted, be it in a
// round, at its end or at the beginning of the next. The rule is met after two portions
// of the rows and four passes. The checkpoint contains the sums of the first half.
func TestResumeInRounds(t *testing.T) {
	long.Test(t)
	b := newBench(t)
	b.config.Until = &job.Until{Rule: job.Overlap, Bound: .9, Sparsity: .5}
	b.config.Options.Passes = 9
	b.config.SaveEvery = time.Nanosecond
	want, err := b.run(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	head, err := scores.ReadHead(b.config.Out)
	if err != nil || head.Stopped.Reason != scores.RuleMet || head.Stopped.Passes < 2 || head.Stopped.Passes == 9 || head.Rows != 300 {
		t.Fatalf("%+v of %d rows, %v: the rule must be met after several passes", head.Stopped, head.Rows, err)
	}
	total := b.rows.Load()
	for at := int64(1); at < total; at += total/cuts(6) + 1 {
		b.cutOff(at)
		if got, err := b.run(t.Context(), 1); err != nil || !bytes.Equal(got, want) {
			t.Errorf("cut off after %d rows of %d: the same bytes: %v, %v", at, total, bytes.Equal(got, want), err)
		}
	}
}

// cuts returns how often a test cuts a job off: n times, or twice with -short.
func cuts(n int64) int64 {
	if !long.All() {
		return 2
	}
	return n
}

// If its time is over, a job ends after a round, and its scores say so.
func TestTimeIsOver(t *testing.T) {
	b := newBench(t)
	b.config.Until = &job.Until{Seconds: 1e-6}
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	want := scores.Stopped{Rounds: 1, Passes: 1, Reason: scores.TimeOver}
	if *f.Stopped != want || f.Rows < 100 || f.Rows > 200 {
		t.Errorf("%+v after %d rows of 300", f.Stopped, f.Rows)
	}
}

// A job of one row scores that row, although its first portion may be empty.
func TestTimeIsOverBeforeTheFirstRow(t *testing.T) {
	b := newBench(t)
	b.config.Until, b.config.MaxRows = &job.Until{Seconds: 1e-6}, 1
	rounds := map[int]bool{}
	for seed := uint64(1); len(rounds) < 2; seed++ {
		b.config.Seed = seed
		if _, err := b.run(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		f, err := scores.ReadHead(b.config.Out)
		if err != nil || f.Rows != 1 || seed > 20 {
			t.Fatalf("seed %d: %d rows, %v", seed, f.Rows, err)
		}
		rounds[f.Stopped.Rounds] = true
	}
}

// A row counts once, whatever the number of passes over it. The standard errors of a
// sample are those of its rows.
func TestPassesInRounds(t *testing.T) {
	b := newBench(t)
	counts := map[int][]int64{}
	errors := map[int]*scores.File{}
	b.config.Sample = .9
	for _, passes := range []int{1, 4} {
		b.config.Until = &job.Until{Rule: job.Paper, Bound: 1e-6}
		b.config.Options.Passes = passes
		b.config.Out = filepath.Join(t.TempDir(), "s.arrow")
		if _, err := b.run(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		f, err := scores.Read(b.config.Out)
		if err != nil {
			t.Fatal(err)
		}
		if f.Rows != 270 || f.Stopped.Passes != passes || f.Stopped.Converged || f.Stopped.Figure == nil {
			t.Errorf("%d rows, %+v", f.Rows, f.Stopped)
		}
		counts[passes], errors[passes] = f.Count, f
	}
	if !slices.Equal(counts[1], counts[4]) {
		t.Errorf("counts %v, after four passes %v", counts[1], counts[4])
	}
	mean := func(errors []float32) (mean float64) {
		for _, e := range errors {
			mean += float64(e) / float64(len(errors))
		}
		return mean
	}
	// If each pass counted as another sample, four passes would halve the errors.
	for what, of := range map[string]func(*scores.File) []float32{
		"dataset": func(f *scores.File) []float32 { return f.SE }, "population": func(f *scores.File) []float32 { return f.PopulationSE },
	} {
		if one, four := mean(of(errors[1])), mean(of(errors[4])); four < .8*one || four > 1.25*one {
			t.Errorf("%s: mean standard error %g after one pass, %g after four passes over the same sample", what, one, four)
		}
	}
}

// A job whose tasks cannot be computed fails as bad input and gives the reason. Nothing
// is left that would stop another try.
func TestFailedTaskEndsTheJob(t *testing.T) {
	b := newBench(t)
	source, err := b.config.Open()
	if err != nil {
		t.Fatal(err)
	}
	good := source.(*checkpoint.Checkpoint)
	bias := good.Tensors["_last_fc.bias"]
	bias.Data = []byte{0, 0, 0, 0x7e} // 4e37
	broken := *good
	broken.Tensors = map[string]checkpoint.Tensor{}
	for key, tensor := range good.Tensors {
		broken.Tensors[key] = tensor
	}
	broken.Tensors["_last_fc.bias"] = bias
	b.config.Open = func() (modelfile.Source, error) { return &broken, nil }
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := b.run(ctx, 2)
		cancel()
		if !fault.IsInput(err) || !strings.Contains(err.Error(), "row ") || !strings.Contains(err.Error(), "the logit is 4.2") {
			t.Fatalf("error %v", err)
		}
	}
	b.config.Open = func() (modelfile.Source, error) { return good, nil }
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Errorf("the next job: %v", err)
	}
}

// A request that cannot be prepared ends the job before anything is sent.
func TestRefusedRequest(t *testing.T) {
	b := newBench(t)
	b.config.Baseline = "mean"
	if _, err := coordinator.Run(t.Context(), nil, b.config); !fault.IsUsage(err) || !strings.Contains(err.Error(), `baseline "mean"`) {
		t.Errorf("error %v", err)
	}
}

// The model's memory is freed before the sums are allocated. When the job starts,
// nothing refers to the checkpoint that Run opened.
func TestModelIsFreed(t *testing.T) {
	b := newBench(t)
	open, freed := b.config.Open, make(chan struct{})
	opened := 0
	b.config.Open = func() (modelfile.Source, error) {
		ck, err := open()
		if err != nil {
			return nil, err
		}
		own := *ck.(*checkpoint.Checkpoint)
		if opened++; opened == 1 {
			runtime.AddCleanup(&own, func(freed chan struct{}) { close(freed) }, freed)
		}
		return &own, nil
	}
	b.config.OnStart = func(job.Spec, job.Plan, int64) {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(10 * time.Second):
			t.Error("the checkpoint is still in memory")
		}
	}
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if opened != 1 {
		t.Errorf("the checkpoint was opened %d times", opened)
	}
}

// With a Sink, the scores go to it and not into a file. The job runs again although its
// scores file exists.
func TestSink(t *testing.T) {
	b := newBench(t)
	if _, err := b.run(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	want, err := scores.Read(b.config.Out)
	if err != nil {
		t.Fatal(err)
	}
	b.rows.Store(0)
	var got *scores.File
	var phi []float64
	b.config.Sink = func(f *scores.File, values func(feature int, into tally.Values)) error {
		got, phi = f, make([]float64, f.Shape.Entries())
		for feature := range f.Count {
			from, to := f.Shape.Row(feature)
			values(feature, tally.Values{Phi: phi[from:to]})
		}
		return nil
	}
	b.config.Out = filepath.Join(t.TempDir(), "none.arrow")
	if _, err := b.run(t.Context(), 1); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("expected no scores file, got error %v", err)
	}
	if b.rows.Load() != 300 || got.Rows != 300 || got.Phi != nil || !slices.Equal(phi, want.Phi) {
		t.Errorf("%d rows computed, %d in the scores; the same values: %v", b.rows.Load(), got.Rows, slices.Equal(phi, want.Phi))
	}
	b.wantNothing()
}
