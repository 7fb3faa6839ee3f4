package coordinator

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

const testJob = "0123456789abcdef0123"

var testPlan = job.Plan{Rows: 10, RowsPerShard: 3}

// exampleOf returns the sums of two shards. Some of the sums have left int64.
func exampleOf(t testing.TB) *sums {
	m := newSums(layout.Of(7, 2), tally.Form{Within: true}, testPlan.Shards())
	p := &tally.Partial{Shape: layout.Of(7, 2), Rows: 3, LossFull: math.MaxInt64, LossEmpty: 5, ResidualSquare: math.MaxInt64, Features: []int32{1, 6}, Count: []int64{3, 1},
		Sum: []int64{math.MaxInt64, -4, math.MinInt64, 8}, Abs: []int64{1, math.MaxInt64, 2, 8}, Square: []int64{math.MaxInt64, 2, 3, 4}, Within: []int64{1, 2, 3, math.MaxInt64}}
	for range 2 {
		if err := m.accumulator.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	m.shards.Add(1)
	m.shards.Add(2)
	m.workers["w"], m.cpu, m.seconds = 2, 1.5, 2.5
	m.firstHalf = &firstHalf{3, make([]float64, 14)}
	m.firstHalf.totals[1], m.firstHalf.totals[13] = -2.5, 1e-9
	return m
}

// readSums reads a checkpoint of values.
func readSums(r io.Reader, id string, shape layout.Shape, form tally.Form, plan *job.Plan) (*sums, error) {
	m := newSums(shape, form, plan.Shards())
	return m, m.read(r, id, shape, form, plan)
}

func encoded(t testing.TB, m *sums) []byte {
	var out bytes.Buffer
	if err := m.write(&out, testJob, &testPlan); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCheckpointRoundTrip(t *testing.T) {
	m := exampleOf(t)
	data := encoded(t, m)
	back, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
	if err != nil || !reflect.DeepEqual(back, m) {
		t.Fatalf("%+v, %v", back, err)
	}
	if len(m.accumulator.State().Carries) == 0 {
		t.Error("no sum has left int64, so no carry is tested")
	}
	for n := range data {
		if _, err := readSums(bytes.NewReader(data[:n]), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan); !fault.IsInput(err) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	other := job.Plan{Rows: 10, RowsPerShard: 4}
	for name, read := range map[string]func() error{
		"more bytes": func() error {
			_, err := readSums(bytes.NewReader(append(bytes.Clone(data), 0)), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
			return err
		},
		"other job": func() error {
			_, err := readSums(bytes.NewReader(data), "x", layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
			return err
		},
		"other table": func() error {
			_, err := readSums(bytes.NewReader(data), testJob, layout.Of(8, 2), tally.Form{Within: true}, &testPlan)
			return err
		},
		"other lists": func() error {
			_, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), tally.Form{}, &testPlan)
			return err
		},
		"other plan": func() error {
			_, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), tally.Form{Within: true}, &other)
			return err
		},
		"other shards": func() error {
			_, err := readSums(bytes.NewReader(bytes.Replace(data, []byte(`"rows":6`), []byte(`"rows":9`), 1)), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
			return err
		},
	} {
		if err := read(); !fault.IsInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A checkpoint in the form of another build is not lost, and its error says which form it
// has. Other bytes are malformed.
func TestCheckpointOfOtherBuild(t *testing.T) {
	data := encoded(t, exampleOf(t))
	for text, other := range map[string]bool{
		"shaver.checkpoint/2\n": true, "shaver.checkpoint/4\n": true, "shaver.checkpoint/12\n": true,
		"shaver.checkpoint/x\n": false, "shaver.checkpoint/3 ": false, "shaver.sums/1\n": false, "shaver.checkpoint/": false,
	} {
		changed := append([]byte(text), data[len(sumsMagic):]...)
		_, err := readSums(bytes.NewReader(changed), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
		if !fault.IsInput(err) || errors.Is(err, errOtherForm) != other || other && !strings.Contains(err.Error(), strings.TrimSpace(text)+", and this build reads shaver.checkpoint/3") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// If the checkpoint has another form, the job does not begin again. If bits of it changed so
// that it only looks like another form, the checkpoint is lost and the job begins again.
func TestResumeFromOtherForm(t *testing.T) {
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.Setup(t.Context(), bus.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	j := &prepare.Job{ID: testJob, Spec: job.Spec{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}}, Plan: testPlan, Architecture: model.Architecture{FieldDims: []int{7}, Dim: 2}}
	data := append([]byte("shaver.checkpoint/4\n"), encoded(t, exampleOf(t))[len(sumsMagic):]...)
	blob, err := b.Put(t.Context(), bus.CheckpointName(testJob, 1, 1), data)
	if err != nil {
		t.Fatal(err)
	}
	claim := &bus.Claim{Lead: job.Lead{Job: testJob, Epoch: 2, Checkpoint: &blob}}
	if _, err := resumeSums(t.Context(), b, j, nil, claim, zap.NewNop()); !errors.Is(err, errOtherForm) || !fault.IsInput(err) || !strings.Contains(err.Error(), `"shaver job cancel `+testJob+`"`) {
		t.Errorf("got %v", err)
	}
	blob.SHA256 = strings.Repeat("0", 64)
	if s, err := resumeSums(t.Context(), b, j, nil, claim, zap.NewNop()); err != nil || s.shards.Len() > 0 {
		t.Errorf("with another digest: %v", err)
	}
}

// A checkpoint of a paired job has the sums of both models, of all rows and of the first
// half.
func TestCheckpointOfPairedJob(t *testing.T) {
	form := tally.Form{Paired: true, Fields: 2}
	m := newSums(layout.Of(7, 2), form, testPlan.Shards())
	p := &tally.Partial{Shape: layout.Of(7, 2), Rows: 3, LossFull: 4, PreviousLossFull: math.MaxInt64, PreviousResidualSquare: 9, Features: []int32{1, 6}, Count: []int64{3, 1},
		Fourths: []tally.Powers{{New: tally.Uint192{High: 1, Low: 2}}, {Difference: tally.Uint192{Low: math.MaxUint64}}}}
	for i, list := range p.AllLists() {
		*list = []int64{int64(i), math.MaxInt64, 2, 3}
	}
	for range 2 {
		if err := m.accumulator.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	m.shards.Add(1)
	m.shards.Add(2)
	m.half = tally.NewAccumulator(layout.Of(7, 2), form)
	if err := m.half.Merge(p); err != nil {
		t.Fatal(err)
	}
	data := encoded(t, m)
	back, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), form, &testPlan)
	if err != nil || !reflect.DeepEqual(back, m) || back.accumulator.Fourths(1).Difference == 0 || back.half.Rows() != 3 {
		t.Fatalf("%+v, %v", back, err)
	}
	for n := range data {
		if _, err := readSums(bytes.NewReader(data[:n]), testJob, layout.Of(7, 2), form, &testPlan); !fault.IsInput(err) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	for _, other := range []tally.Form{{}, {Within: true}, {Paired: true, Fields: 3}} {
		if _, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), other, &testPlan); !fault.IsInput(err) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

// A checkpoint of tables with different numbers of columns is the same after it is written
// and read.
func TestCheckpointOfTables(t *testing.T) {
	shape := layout.Of(2, 3).And(3, 1).And(2, 2)
	m := newSums(shape, tally.Form{}, testPlan.Shards())
	p := &tally.Partial{Shape: shape, Rows: 3, LossFull: 4, LossEmpty: 5, Features: []int32{1, 3, 6}, Count: []int64{3, 1, 2},
		Sum: []int64{1, 2, 3, math.MaxInt64, 5, 6}, Abs: []int64{1, 2, 3, math.MaxInt64, 5, 6}, Square: []int64{7, 8, 9, 10, 11, 12}}
	for range 2 {
		if err := m.accumulator.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	m.shards.Add(1)
	m.shards.Add(2)
	m.firstHalf = &firstHalf{3, make([]float64, shape.Entries())}
	data := encoded(t, m)
	back, err := readSums(bytes.NewReader(data), testJob, shape, tally.Form{}, &testPlan)
	if err != nil || !reflect.DeepEqual(back, m) || len(m.accumulator.State().Carries) == 0 {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, other := range []layout.Shape{layout.Of(7, 2), layout.Of(2, 3).And(3, 1), layout.Of(2, 3).And(2, 1).And(3, 2)} {
		if _, err := readSums(bytes.NewReader(data), testJob, other, tally.Form{}, &testPlan); !fault.IsInput(err) {
			t.Errorf("a checkpoint of tables of another shape: %v", err)
		}
	}
}

// The checkpoint of a path can be read before its first round is over. One of ranges has no terms.
func TestCheckpointOfFirstRound(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{4, 3}, Dim: 2}
	for _, plan := range []job.Plan{testPlan, {Rows: 10, RowsPerShard: 3, Ranges: 1}} {
		j := &prepare.Job{ID: testJob, Spec: job.Spec{Options: estimator.Options{Estimator: estimator.Path, Sparsity: .999}}, Plan: plan, Architecture: a}
		m := newSumsOf(j, &model.Model{Architecture: a, Weights: model.Weights{Embedding: make([]float32, 14)}})
		if plan.Ranges > 0 {
			m.parts = make([]job.Blob, 1)
		}
		var out bytes.Buffer
		if err := m.write(&out, testJob, &plan); err != nil {
			t.Fatal(err)
		}
		back := newSumsOf(j, &model.Model{Architecture: a, Weights: model.Weights{Embedding: make([]float32, 14)}})
		if err := back.read(&out, testJob, a.Shape(), formOf(j), &plan); err != nil || !bytes.Equal(back.path.Mask(), m.path.Mask()) || len(back.path.Rounds) > 0 || (back.terms == nil) != (plan.Ranges > 0) {
			t.Errorf("%+v, %v", back, err)
		}
	}
}

// The checkpoint of a path can be read after the end of a round, before the next one begins. The rows of the round count once.
func TestCheckpointBetweenRounds(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{4, 3}, Dim: 2}
	plan := job.Plan{Rows: 20, RowsPerShard: 3, Rounds: []job.Round{{Rows: 10}, {Rows: 10}}}
	j := &prepare.Job{ID: testJob, Spec: job.Spec{Options: estimator.Options{Estimator: estimator.Path, Sparsity: .999}}, Plan: plan, Architecture: a, Sample: shard.Sample{Keep: 10}}
	m := &model.Model{Architecture: a, Weights: model.Weights{Embedding: make([]float32, 14)}}
	s := newSumsOf(j, m)
	s.terms.Begin(0, s.path.Unmeasured(), s.path.Fade())
	b := tally.NewTermsBuilder(a.Shape(), s.path.Unmeasured())
	for range plan.ShardRows(0) {
		if err := b.AddTerms([]int32{1, 5}, &tally.Terms{LossFull: 1 << 30, Change: []float64{1, -1, .5, 0}, First: .5, Second: .25}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.accumulator.Merge(b.Partial()); err != nil {
		t.Fatal(err)
	}
	s.shards.Add(0)
	rows, summary := s.mergedRows(), s.accumulator.Summary()
	s.terms.End(s.path.Passes(summary))
	if err := s.path.End(summary, loss.Uncalibrated, func(r path.Rank) path.Next { return s.terms.Order(r) }); err != nil {
		t.Fatal(err)
	}
	if s.mergedRows() != rows {
		t.Errorf("%d rows are merged, expected %d", s.mergedRows(), rows)
	}
	var out bytes.Buffer
	if err := s.write(&out, testJob, &plan); err != nil {
		t.Fatal(err)
	}
	back := newSumsOf(j, m)
	if err := back.read(&out, testJob, a.Shape(), formOf(j), &plan); err != nil || back.mergedRows() != rows || len(back.path.Rounds) != 1 {
		t.Errorf("%d rows, %v", back.mergedRows(), err)
	}
}

// A checkpoint that readSums accepts is the same after it is written and read again.
func FuzzCheckpoint(f *testing.F) {
	f.Add(encoded(f, exampleOf(f)))
	f.Add(encoded(f, newSums(layout.Of(7, 2), tally.Form{Within: true}, testPlan.Shards())))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readSums(bytes.NewReader(data), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatal(err)
			}
			return
		}
		back, err := readSums(bytes.NewReader(encoded(t, m)), testJob, layout.Of(7, 2), tally.Form{Within: true}, &testPlan)
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("%+v and %+v, %v", back, m, err)
		}
	})
}

// BenchmarkSizeOfKDD measures how long it takes to store and load a checkpoint over the bus, at
// the size of KDD, which has 6,019,761 features of 16 columns. It needs a few seconds and 5
// GB of disk.
func BenchmarkSizeOfKDD(tb *testing.B) {
	const features, dim = 6_019_761, 16
	server, err := embedded.Start(embedded.Config{StoreDir: tb.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		tb.Fatal(err)
	}
	defer server.Shutdown()
	b, err := bus.Connect(tb.Context(), bus.Config{URL: server.URL(), Name: "test"})
	if err != nil {
		tb.Fatal(err)
	}
	defer b.Close()
	if err := b.Setup(tb.Context(), bus.DefaultQueue); err != nil {
		tb.Fatal(err)
	}
	j := &prepare.Job{ID: testJob, Spec: job.Spec{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}}, Plan: testPlan, Architecture: model.Architecture{FieldDims: []int{features}, Dim: dim}}
	s := newSumsOf(j, nil)
	for seed := range uint64(3) {
		p := partialOf(features, dim, 40, seed)
		p.Rows = 3
		for i := range p.Count {
			p.Count[i] = 1
		}
		if err := s.accumulator.Merge(p); err != nil {
			tb.Fatal(err)
		}
		s.shards.Add(int(seed))
	}
	begun := time.Now()
	blob, err := b.PutFrom(tb.Context(), bus.CheckpointName(testJob, 1, 1), func(w io.Writer) error { return s.write(w, testJob, &testPlan) }, nil)
	if err != nil {
		tb.Fatal(err)
	}
	stored := time.Since(begun)
	want := s.accumulator.State().Cells
	begun = time.Now()
	loaded, err := loadSums(tb.Context(), b, j, nil, blob)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("checkpoint of %.2f GB: stored in %v, loaded in %v; the sums are %.2f GB", float64(blob.Bytes)/1e9, stored, time.Since(begun), float64(24*features*dim)/1e9)
	if !reflect.DeepEqual(loaded.accumulator.State().Cells, want) {
		tb.Error("the loaded sums differ")
	}
}
