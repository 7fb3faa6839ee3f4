package worker

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/arrowio"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// modelOf returns the bytes of a model whose second field has the given size, and its
// number of players.
func modelOf(t *testing.T, size int) (weights []byte, players int) {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{3, size}, Informative: 1, Silent: 1, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	return contentOf(t, p), p.Model.Players()
}

// contentOf returns the content of the blob of a model.
func contentOf(t *testing.T, p *planted.Planted) []byte {
	t.Helper()
	var out bytes.Buffer
	f, err := modelfile.New(p.Model, p.Checkpoint.Digest())
	if err == nil {
		_, err = f.WriteTo(&out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// newPairedTask is newTask for a paired job. The second field of the previous model has the
// given size, at most 4.
func newPairedTask(t *testing.T, size int) (*fakeBus, *bus.Delivery) {
	t.Helper()
	f, d := newTask(t)
	weights, players := modelOf(t, size)
	values := make([]float32, players)
	values[0] = .5
	f.blobs["previous model"], f.blobs["previous baseline"] = weights, baseline.EncodeValues(values)
	d.Task.PreviousModel, d.Task.PreviousBaseline = f.reference("previous model"), f.reference("previous baseline")
	d.Task.Spec.Previous = &job.Previous{Generation: 1}
	return f, d
}

// runTask runs a task and returns its outcome.
func runTask(t *testing.T, models *Models, f *fakeBus, d *bus.Delivery) (outcome Outcome) {
	t.Helper()
	config := &Config{Name: "w", Threads: 1, Models: models, Log: zap.NewNop(), OnTask: func(_ *job.Task, o Outcome, _ int, _ time.Duration) { outcome = o }}
	if err := alone(t.Context(), fakeAttempt(config, f, d)); err != nil {
		t.Fatal(err)
	}
	return outcome
}

// game returns the game whose model and baseline are stored under the given names.
func game(t *testing.T, f *fakeBus, weights, values string) shapley.Game {
	t.Helper()
	m, _, err := modelfile.Parse(weights, f.blobs[weights])
	if err != nil {
		t.Fatal(err)
	}
	entries, err := baseline.Decode(f.blobs[values], &m.Architecture)
	if err != nil {
		t.Fatal(err)
	}
	return shapley.Game{Model: m, Baseline: entries}
}

// The task of a paired job gives the sums of both models, each with its own baseline.
func TestPairedTask(t *testing.T) {
	f, d := newPairedTask(t, 4)
	if outcome := runTask(t, new(Models), f, d); outcome != Done {
		t.Fatalf("outcome %q: %s", outcome, f.aside)
	}
	current, previous := game(t, f, "model", "baseline"), game(t, f, "previous model", "previous baseline")
	got, err := arrowio.DecodePartial(f.blobs[f.result], current.Model.Shape(), tally.Form{Paired: true, Fields: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := shard.Open(f.blobs["shard"], &current.Model.Architecture, 4)
	if err != nil {
		t.Fatal(err)
	}
	want, err := shapley.EstimatePair(t.Context(), current, previous, shapley.Options{Options: d.Task.Spec.TaskOptions()}, rows, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) || reflect.DeepEqual(got.Sum, got.PreviousSum) {
		t.Errorf("the task gave %+v, expected %+v", got, want)
	}
}

// The worker asks for a lost previous model, and sets a task aside whose models do not fit
// together or whose rows the previous model does not know.
func TestEndingsOfPairedTasks(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		arrange func(f *fakeBus, task *job.Task)
		want    Outcome
		aside   string
	}{
		"no previous model":        {4, func(f *fakeBus, _ *job.Task) { delete(f.blobs, "previous model") }, Lost, "not found"},
		"no previous baseline":     {4, func(f *fakeBus, _ *job.Task) { delete(f.blobs, "previous baseline") }, Lost, "not found"},
		"malformed previous model": {4, func(f *fakeBus, task *job.Task) { f.malformed("previous model", &task.PreviousModel) }, Quarantined, "previous model"},
		"malformed baseline":       {4, func(f *fakeBus, task *job.Task) { f.malformed("previous baseline", &task.PreviousBaseline) }, Quarantined, "baseline previous baseline"},
		"unknown value":            {1, nil, Quarantined, "of the field: the previous model knows only 1 values"},
		"other layout": {4, func(f *fakeBus, task *job.Task) {
			f.blobs["larger model"], _ = modelOf(t, 5)
			task.PreviousModel = f.reference("larger model")
		}, Quarantined, "field 1 has 5 features in the previous model, expected at most 4"},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := newPairedTask(t, c.size)
			if c.arrange != nil {
				c.arrange(f, &d.Task)
			}
			if outcome := runTask(t, new(Models), f, d); outcome != c.want || !strings.Contains(f.aside, c.aside) {
				t.Errorf("outcome %q because of %q, expected %q because of %q", outcome, f.aside, c.want, c.aside)
			}
		})
	}
}

// Tasks of a paired job keep both models. Other models are freed by the next task.
func TestModelsOfPairs(t *testing.T) {
	f, d := newPairedTask(t, 4)
	fetched := map[string]int{}
	for _, name := range []string{"model", "previous model"} {
		f.hooks["get "+name] = func(context.Context) error { fetched[name]++; return nil }
	}
	var models Models
	for range 3 {
		f.result = ""
		if outcome := runTask(t, &models, f, d); outcome != Done {
			t.Fatalf("outcome %q: %s", outcome, f.aside)
		}
	}
	if fetched["model"] != 1 || fetched["previous model"] != 1 || len(models.kept) != 2 {
		t.Errorf("three tasks fetched %v and kept %d models", fetched, len(models.kept))
	}
	var steps atomic.Int64
	if _, err := models.get(t.Context(), f, d.Task.Model, job.Blob{}, &steps); err != nil {
		t.Fatal(err)
	}
	if fetched["model"] != 1 || len(models.kept) != 1 {
		t.Errorf("an ordinary task of the same model fetched %v and left %d models", fetched, len(models.kept))
	}
}
