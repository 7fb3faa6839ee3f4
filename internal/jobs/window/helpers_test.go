package window

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/random"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// bench runs jobs on a server with one worker.
type bench struct {
	t      *testing.T
	bus    *bus.Bus
	states string               // folder for states
	jobs   []string             // ids of the jobs of the last night
	done   map[string]*recorded // results of all jobs so far, by id
}

const dayRows = 240

func newBench(t *testing.T) *bench {
	t.Helper()
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connect := func(name string) *bus.Bus {
		c, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	own, ctx := connect("worker"), t.Context()
	done := make(chan error)
	go func() {
		done <- worker.Run(ctx, nil, worker.Config{Bus: own, Name: "w", Threads: 2, Models: new(worker.Models), Log: zap.NewNop()})
	}()
	t.Cleanup(func() { // t.Context has ended
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &bench{t: t, bus: connect("coordinator"), states: t.TempDir(), done: map[string]*recorded{}}
}

// recorded is the result of a job.
type recorded struct {
	sums *tally.Accumulator // nil if the job was paired
	file scores.File
	all  tally.Values
}

// run is a Night.Run.
func (b *bench) run(ctx context.Context, r prepare.Request, sums func(*tally.Accumulator) error, sink func(*scores.File, func(int, tally.Values)) error) error {
	spec, err := prepare.Spec(r)
	if err != nil {
		return err
	}
	b.jobs = append(b.jobs, spec.ID())
	result := b.done[spec.ID()]
	if result == nil {
		if result, err = b.compute(ctx, r); err != nil {
			return err
		}
		b.done[spec.ID()] = result
	}
	if sums != nil {
		if err := sums(result.sums); err != nil {
			return err
		}
	}
	file := result.file
	return sink(&file, func(feature int, into tally.Values) {
		all := tally.Scores{Shape: file.Shape, Values: result.all}
		all.Feature(feature, into)
	})
}

// compute runs a job.
func (b *bench) compute(ctx context.Context, r prepare.Request) (*recorded, error) {
	result := &recorded{}
	_, err := coordinator.Run(ctx, b.bus, coordinator.Config{
		Request: r, Queue: bus.DefaultQueue, Log: zap.NewNop(),
		Sums: func(sums *tally.Accumulator) error { result.sums = sums.Clone(); return nil },
		Sink: func(f *scores.File, values func(int, tally.Values)) error {
			result.file, result.all = *f, tally.NewPairedValues(f.Shape.Entries())
			for feature := range f.Shape.Rows() {
				values(feature, result.all.Part(f.Shape.Row(feature)))
			}
			return nil
		},
	})
	return result, err
}

// plantedModel returns a model of three fields with 4 columns.
func plantedModel(t testing.TB, sizes ...int) *planted.Planted {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b", "c"}, FieldDims: sizes, Informative: 3, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// importDay imports a day of the rows of p and returns its folder. Each number gives another
// day.
func importDay(t testing.TB, p *planted.Planted, number int) string {
	t.Helper()
	var rows model.Rows
	p.Rows(&rows, int64(number)*dayRows, dayRows)
	csv := &strings.Builder{}
	csv.WriteString("label,a,b,c\n")
	for i := range rows.Len() {
		r := rows.Row(i)
		fmt.Fprintf(csv, "%v,%d,%d,%d\n", rows.Label[i], r[0], r[1], r[2])
	}
	file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), fmt.Sprintf("day%d", number))
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Split: "8:1:1", Seed: 1, Sizes: p.FieldDims, Global: true, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

// retrained returns ck with every entry of its table moved by noise of the given size.
func retrained(t testing.TB, ck *checkpoint.Checkpoint, size float64, seed uint64) *checkpoint.Checkpoint {
	t.Helper()
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	moved, stream := make([]float32, len(table)), random.At(seed, random.Quickstart, 9, 9)
	for i, v := range table {
		moved[i] = v + float32(size*stream.Normal())
	}
	return ck.WithEmbedding(moved)
}

// grown returns ck with larger fields. The entries of new features are drawn at random.
func grown(t testing.TB, ck *checkpoint.Checkpoint, sizes ...int) *checkpoint.Checkpoint {
	t.Helper()
	table, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	a := ck.Architecture
	var larger []byte
	stream, from := random.At(5, random.Quickstart, 9, 9), 0
	for j, size := range a.FieldDims {
		for i := range sizes[j] * a.Dim {
			v := float32(stream.Normal())
			if i < size*a.Dim {
				v = table[from+i]
			}
			bits := math.Float32bits(v)
			larger = append(larger, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
		}
		from += size * a.Dim
	}
	c := *ck
	c.Architecture.FieldDims, c.Tensors = sizes, maps.Clone(ck.Tensors)
	c.Tensors[c.EmbeddingKey] = checkpoint.Tensor{DType: checkpoint.F32, Shape: []int{len(larger) / 4 / a.Dim, a.Dim}, Data: larger}
	return &c
}

// request returns a full job for the model over the window of the given days.
func request(t testing.TB, ck *checkpoint.Checkpoint, o estimator.Options, baseline string, days ...string) prepare.Request {
	t.Helper()
	d, err := dataset.OpenDays(days)
	if err != nil {
		t.Fatal(err)
	}
	o.SetDefaults()
	return prepare.Request{
		Open: func() (modelfile.Source, error) { return ck, nil }, Dataset: d, Splits: []string{dataset.Train, dataset.Val},
		Sample: 1, Baseline: baseline, Options: o, Seed: 1, RowsPerShard: 40,
	}
}

// fullJob returns the scores file of a full job.
func (b *bench) fullJob(r prepare.Request) []byte {
	b.t.Helper()
	out := filepath.Join(b.t.TempDir(), "s.arrow")
	if _, err := coordinator.Run(b.t.Context(), b.bus, coordinator.Config{Request: r, Out: out, Queue: bus.DefaultQueue, Log: zap.NewNop()}); err != nil {
		b.t.Fatal(err)
	}
	return read(b.t, out)
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parse returns the scores in data.
func parse(t testing.TB, data []byte) *scores.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := scores.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// tryNight runs a night in the named state and returns the bytes of the window's scores and
// the steps.
func (b *bench) tryNight(state string, n Night) ([]byte, []Step, error) {
	b.t.Helper()
	s, err := Open(filepath.Join(b.states, state), zap.NewNop())
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	n.Run, n.Read = b.run, func(path string) (modelfile.Source, error) { return checkpoint.Read(path) }
	b.jobs = nil
	outcome, err := s.Night(b.t.Context(), &n)
	if err != nil {
		return nil, nil, err
	}
	out := filepath.Join(b.t.TempDir(), "s.arrow")
	if err := scores.WriteFrom(out, &outcome.Scores, outcome.Values); err != nil {
		return nil, nil, err
	}
	return read(b.t, out), outcome.Steps, nil
}

// night is tryNight for a night that must succeed. want has the first letter of what the
// night must do with each day.
func (b *bench) night(state string, n Night, want string) ([]byte, []Step) {
	b.t.Helper()
	data, steps, err := b.tryNight(state, n)
	if err != nil {
		b.t.Fatal(err)
	}
	got := ""
	for _, s := range steps {
		got += s.Action[:1]
	}
	if jobs := len(want) - strings.Count(want, "k"); got != want || len(b.jobs) != jobs {
		b.t.Errorf("the night did %s with %d jobs, expected %s: %+v", got, len(b.jobs), want, steps)
	}
	return data, steps
}
