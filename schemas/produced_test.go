package schemas_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/files"
	"shaver/internal/base/long"
	"shaver/internal/base/seal"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/bus"
	"shaver/internal/jobs/bus/embedded"
	"shaver/internal/jobs/coordinator"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/worker"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
)

// small returns a model of 3 fields and 2 columns, with rows.
func small(t *testing.T) *planted.Planted {
	t.Helper()
	p, err := planted.New(planted.Config{Fields: []string{"a", "b", "c"}, FieldDims: []int{6, 4, 5}, Informative: 1, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// imported imports n of p's rows, draws splits, and returns the folder of the dataset.
func imported(t *testing.T, p *planted.Planted, n int) string {
	t.Helper()
	text := bytes.NewBufferString("label,a,b,c\n")
	var rows model.Rows
	p.Rows(&rows, 0, n)
	offsets := model.Offsets(p.FieldDims)
	for i := range n {
		r := rows.Row(i)
		fmt.Fprintf(text, "%v,%d,%d,%d\n", rows.Label[i], r[0]-offsets[0], r[1]-offsets[1], r[2]-offsets[2])
	}
	file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	config := ingest.EncodedConfig{Train: []string{file}, Split: "8:1:1", Seed: 1, Sizes: p.FieldDims, Out: out}
	if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return out
}

// A night writes its state and its report in their forms.
func TestState(t *testing.T) {
	p := small(t)
	days, err := dataset.OpenDays([]string{imported(t, p, 200), imported(t, p, 240)})
	if err != nil {
		t.Fatal(err)
	}
	table, err := p.Checkpoint.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	moved := slices.Clone(table)
	for i := range moved {
		moved[i] += .01 * float32(i%3)
	}
	dir := t.TempDir()
	for _, ck := range []*checkpoint.Checkpoint{p.Checkpoint, p.Checkpoint.WithEmbedding(moved)} {
		night := launch.Night{Read: func(path string) (modelfile.Source, error) { return checkpoint.Read(path) }, State: filepath.Join(dir, "state"), Job: launch.Job{Config: coordinator.Config{
			Request: prepare.Request{
				Open: func() (modelfile.Source, error) { return ck, nil }, Dataset: days, Splits: []string{dataset.Train}, Sample: .2, Baseline: baseline.Codebook,
				Options: estimator.Options{Estimator: estimator.Permutation, Passes: 2}, Seed: 1,
			},
			Out: filepath.Join(dir, "scores.arrow"), Queue: bus.DefaultQueue, Log: zap.NewNop(),
		}, Outputs: cli.Outputs{Force: true}}}
		if _, err := night.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, file := range map[string]string{"state.v1.json": "state/state.json", "report.v1.json": "scores.job.json"} {
			text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			accept(t, name, text)
		}
	}
	f, err := scores.ReadHead(filepath.Join(dir, "scores.arrow"))
	if err != nil || f.Lineage == nil {
		t.Fatalf("%+v, %v", f, err)
	}
	accept(t, "lineage.v1.json", marshal(t, f.Lineage))
	accept(t, "spec.v2.json", marshal(t, f.Spec))
}

// A path over fields and columns is written in its form.
func TestRemovals(t *testing.T) {
	p := small(t)
	dir := t.TempDir()
	file, path := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "path.json")
	if _, err := checkpoint.WriteDense(file, p.Checkpoint); err != nil {
		t.Fatal(err)
	}
	o := cut.Options{Model: file, Dataset: []string{imported(t, p, 200)}, Slicing: cut.Slicing{KeepFields: 2, KeepColumns: 1, Rows: 10, Path: path}}
	for range 2 {
		if _, err := o.Choose(t.Context()); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		accept(t, "removals.v1.json", text)
		o.KeepFields = 1
	}
}

func TestDatasets(t *testing.T) {
	manifest := func(dir string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, dataset.ManifestName))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	inspection := func(dir string) []byte {
		facts, err := dataset.Inspect(dir, 2)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(facts)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	t.Run("encoded, drawn", func(t *testing.T) {
		dir := imported(t, small(t), 200)
		accept(t, "dataset.v1.json", manifest(dir))
		accept(t, "inspection.v3.json", inspection(dir))
		blocks, err := os.ReadFile(filepath.Join(dir, dataset.BlocksName))
		if err != nil {
			t.Fatal(err)
		}
		accept(t, "blocks.v1.json", blocks)
	})
	t.Run("raw", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.tsv"), filepath.Join(t.TempDir(), "dataset")
		text := bytes.NewBufferString("label\ta\tb\n")
		for i := range 60 {
			fmt.Fprintf(text, "%d\tx%d\ty%d\n", i%2, i%5, i%7)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{file}, MinCount: 2, Seed: 1, Out: out}); err != nil {
			t.Fatal(err)
		}
		accept(t, "dataset.v1.json", manifest(out))
	})
	t.Run("dense", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
		text := bytes.NewBufferString("label,a,price,age\n")
		for i := range 60 {
			fmt.Fprintf(text, "%d,x%d,%d.5,%d\n", i%2, i%5, i, i%7)
		}
		if err := os.WriteFile(file, append(text.Bytes(), "1,x1,,3\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		numbers := ingest.Dense{Missing: "0", Columns: []ingest.DenseColumn{{Name: "price", Input: dense.Input{Rule: dense.ZScore}}, {Name: "age", Input: dense.Input{Rule: dense.Log1p}}}}
		if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Format: ingest.Format{Dense: numbers}, Files: []string{file}, MinCount: 2, Seed: 1, Out: out}); err != nil {
			t.Fatal(err)
		}
		accept(t, "dataset.v2.json", manifest(out))
		accept(t, "inspection.v3.json", inspection(out))
		if compile(t, "dataset.v1.json").Validate(parse(t, manifest(out))) == nil {
			t.Error("dataset.v1.json accepts dense inputs")
		}
	})
	t.Run("lists", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
		if err := os.WriteFile(file, []byte("label,a,items\n1,0,1|2\n0,1,\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		lists := ingest.Lists{Columns: []ingest.ListColumn{{Name: "items", Length: 3}}}
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Lists: lists, Out: out}); err != nil {
			t.Fatal(err)
		}
		accept(t, "dataset.v3.json", manifest(out))
		accept(t, "inspection.v4.json", inspection(out))
		if compile(t, "inspection.v3.json").Validate(parse(t, inspection(out))) == nil {
			t.Error("inspection.v3.json accepts lists")
		}
	})
	t.Run("labels that are numbers", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
		if err := os.WriteFile(file, []byte("rating,a,b\n3.5,0,1\n-1,1,0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Numbers: true, Out: out}); err != nil {
			t.Fatal(err)
		}
		accept(t, "dataset.v3.json", manifest(out))
		accept(t, "inspection.v4.json", inspection(out))
		for _, name := range []string{"dataset.v1.json", "dataset.v2.json"} {
			if compile(t, name).Validate(parse(t, manifest(out))) == nil {
				t.Errorf("%s accepts labels that are numbers", name)
			}
		}
	})
	t.Run("weights and several labels", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
		if err := os.WriteFile(file, []byte("click,buy,w,a\n1,1,1,0\n0,,0.25,1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, config := range []ingest.EncodedConfig{{Label: "click", Others: []string{"buy"}, Weight: "w"}, {Label: "click", Others: []string{"buy", "w"}, OnBadRow: ingest.Skip}, {Weight: "w", OnBadRow: ingest.Skip}} {
			config.Train, config.Out = []string{file}, out
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			if _, err := ingest.ImportEncoded(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			accept(t, "dataset.v4.json", manifest(out))
			accept(t, "inspection.v5.json", inspection(out))
		}
	})
	t.Run("encoded, one split", func(t *testing.T) {
		file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "dataset")
		if err := os.WriteFile(file, []byte("1,0,1\n0,1,0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Out: out}); err != nil {
			t.Fatal(err)
		}
		accept(t, "dataset.v1.json", manifest(out))
	})
}

// TestJob runs a job on a server and checks everything that the job writes. Messages are
// checked after the bus has decoded them, because the bus accepts only bytes that encode
// again to the same bytes.
func TestJob(t *testing.T) {
	long.Test(t)
	walks := estimator.Options{Estimator: estimator.Permutation, Passes: 2}
	multilinear := estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	multilinear.SetDefaults()
	t.Run("in one round", func(t *testing.T) { testJob(t, prepare.Request{Options: walks}) })
	t.Run("in rounds", func(t *testing.T) {
		testJob(t, prepare.Request{Options: walks, Until: &job.Until{Rule: job.Overlap, Bound: .999, Sparsity: .5, Seconds: 1000}})
	})
	t.Run("audited", func(t *testing.T) { testJob(t, prepare.Request{Options: multilinear, Audit: .5}) })
	t.Run("path", func(t *testing.T) {
		testJob(t, prepare.Request{Options: estimator.Options{Estimator: estimator.Path, Passes: 1, Parts: 3, Sparsity: .5}})
	})
	t.Run("paired", func(t *testing.T) {
		testJob(t, prepare.Request{Options: walks, Until: &job.Until{Rule: job.Error, Bound: .001}, Previous: &prepare.Previous{}})
	})
}

// correct runs the job and makes it correct the scores that it wrote. The embeddings of the
// new model are those of p, made larger by a tenth.
func correct(t *testing.T, config *launch.Job, p *planted.Planted) {
	t.Helper()
	full := *config
	full.NATS, full.Out, full.Until = "", filepath.Join(t.TempDir(), "earlier.arrow"), nil
	if _, err := full.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	earlier, err := scores.Read(full.Out)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := files.Digest(full.Out)
	if err != nil {
		t.Fatal(err)
	}
	table, err := p.Checkpoint.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	table = slices.Clone(table)
	for i := range table {
		table[i] *= 1.1
	}
	changed := p.Checkpoint.WithEmbedding(table)
	config.Previous, config.Sample = &prepare.Previous{Open: config.Open, Scores: earlier, Digest: digest}, .5
	config.Open = func() (modelfile.Source, error) { return changed, nil }
}

// testJob runs a job with the given options. If given has Previous, the job is paired.
func testJob(t *testing.T, given prepare.Request) {
	p := small(t)
	d, err := dataset.Open(imported(t, p, 300))
	if err != nil {
		t.Fatal(err)
	}
	server, err := embedded.Start(embedded.Config{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	connect := func(name string) *bus.Bus {
		b, err := bus.Connect(t.Context(), bus.Config{Server: server, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	out := filepath.Join(t.TempDir(), "scores.arrow")
	config := launch.Job{Connection: cli.Connection{NATS: server.URL()}, Config: coordinator.Config{
		Request: prepare.Request{
			Open: func() (modelfile.Source, error) { return p.Checkpoint, nil }, Dataset: d, Splits: []string{dataset.Train, dataset.Val}, Sample: 1, Baseline: baseline.Codebook,
			Options: given.Options, Seed: 1, Until: given.Until, Audit: given.Audit, RowsPerShard: 64,
		},
		Out: out, Queue: bus.DefaultQueue, Log: zap.NewNop(),
	}}
	if given.Previous != nil {
		correct(t, &config, p)
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error { _, err := config.Run(ctx); return err })

	// Hold one task back, so that the job cannot end before we have looked at it.
	tap := connect("tap")
	kept, err := tap.NextTask(ctx, kernel.Name())
	if err != nil {
		t.Fatal(errors.Join(err, group.Wait()))
	}
	accept(t, "task.v2.json", marshal(t, kept.Task))
	submission, err := tap.CreateSpec(ctx, kept.Task.Job, []byte(`{}`)) // returns the stored one
	if err != nil {
		t.Fatal(err)
	}
	accept(t, "submission.v2.json", submission)

	drain, drained := make(chan struct{}), make(chan error, 1)
	workers := connect("worker")
	go func() {
		drained <- worker.Run(t.Context(), drain, worker.Config{Bus: workers, Name: "worker", Threads: 1, Models: new(worker.Models), Log: zap.NewNop()})
	}()
	if e := first(t, ctx, tap, kept.Task.Job); e.Result != nil {
		accept(t, "result.v2.json", marshal(t, e.Result))
	} else {
		t.Fatalf("event %+v, expected a result", e)
	}
	if err := kept.Release(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	close(drain)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}

	if report, err := scores.ReadHead(out); err != nil || (report.Stopped != nil) != (given.Until != nil) || (report.Audit != nil) != (given.Audit > 0) {
		t.Errorf("stopped: %+v, audit: %+v, %v", report.Stopped, report.Audit, err)
	}
	report, err := os.ReadFile(filepath.Join(filepath.Dir(out), "scores.job.json"))
	if err != nil {
		t.Fatal(err)
	}
	accept(t, "report.v1.json", report)
	s, err := scores.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	early := s.Spec
	early.Revision = 0
	accept(t, "spec.v2.json", marshal(t, early))
	squared := s.Spec
	squared.Loss = loss.Squared
	accept(t, "spec.v3.json", marshal(t, s.Spec))
	accept(t, "spec.v3.json", marshal(t, squared))
	several := s.Spec
	several.Tasks = []model.Task{{Label: "click", Output: "ctr", Weight: 2}, {Label: "buy", Output: "buy", Weight: 1}}
	accept(t, "spec.v3.json", marshal(t, several))
	if compile(t, "spec.v2.json").Validate(parse(t, marshal(t, squared))) == nil {
		t.Error("spec.v2.json accepts the squared loss")
	}
	if revised := s.Spec.Revision > 0; revised == (compile(t, "spec.v2.json").Validate(parse(t, marshal(t, s.Spec))) == nil) {
		t.Errorf("spec.v2.json accepts a revision: %t", revised)
	}
	if given.Previous == nil {
		accept(t, "spec.v1.json", marshal(t, early))
	}
	switch {
	case given.Previous == nil && s.Ranks():
		accept(t, "path.v1.json", marshal(t, s.Path))
	case given.Previous == nil:
		swept(t, p, d, s, loss.Logistic)
		swept(t, p, d, s, loss.Squared)
	default:
		accept(t, "lineage.v1.json", marshal(t, s.Lineage))
		if compile(t, "spec.v1.json").Validate(parse(t, marshal(t, s.Spec))) == nil {
			t.Error("spec.v1.json accepts a paired job")
		}
	}
	quarantine(t, tap, kept.Task)
}

// swept runs a sweep of the loss with the scores and all methods that need no scores, and a
// check.
func swept(t *testing.T, p *planted.Planted, d *dataset.Dataset, s *scores.File, kind loss.Kind) {
	t.Helper()
	m := p.Model
	table := &sweep.Unpruned{Architecture: &m.Architecture, Names: s.Fields, Entries: m.Weights.Embedding, Values: compact.Float16,
		Counts:    func() ([]int64, error) { return d.Frequencies(dataset.Train, dataset.Val) },
		Footprint: func(dropped []bool, _ model.Baseline) (file, table, memory int64) { return 3, 2, 1 }}
	method, err := table.ByScores(s, 0, scores.RMS, mask.Abs)
	methods := []sweep.Method{method}
	for _, name := range sweep.Rivals() {
		if err == nil {
			method, err = table.Rival(name, s.Spec.Baseline, s.Baseline, 1)
			methods = append(methods, method)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	predict := func(split string) func(context.Context, *model.Model) (*evaluate.Predictions, error) {
		return func(ctx context.Context, m *model.Model) (*evaluate.Predictions, error) {
			return evaluate.Predict(ctx, m, kind, func(ctx context.Context, each func(*model.Rows) error) error {
				return d.Scan(ctx, []string{split}, 100, each)
			}, 1)
		}
	}
	found := &sweep.Document{Version: sweep.VersionOf(kind, false), Loss: kind, Model: s.Spec.Model, Dataset: s.Spec.Dataset, Kind: string(m.Kind), Split: dataset.Test, Rows: d.Rows(dataset.Test),
		Features: m.Features(), Entries: m.Parameters(), Sources: []sweep.ScoresFile{sweep.NewScoresFile(s, s.Spec.Model)},
		Settings: &sweep.Settings{Rank: mask.Abs, Protect: s.Fields[:1], FieldMinimum: .1, Seed: 1}}
	compared := sweep.Config{Model: m, Methods: methods, Budgets: []mask.Budget{{Unit: mask.Sparsity, Amount: .5}}, Calibrate: true, Predict: predict(dataset.Test), Validate: predict(dataset.Val)}
	if err := compared.Run(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	predicted, err := predict(dataset.Test)(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	check := gate.Decide(gate.Bounds{AUCDrop: .001, LogLossRise: .001}, found, predicted)
	check.Model, check.Pruned, check.Dataset, check.Split = s.Spec.Model, s.Spec.Model, s.Spec.Dataset, dataset.Test
	versions := map[loss.Kind]string{loss.Logistic: ".v1.json", loss.Squared: ".v2.json"}
	accept(t, "check"+versions[kind], marshal(t, check))
	p0, most := &found.Points[0], int64(9) // the split is too small for slices
	found.Slices = []sweep.Slice{{Field: s.Fields[0], Most: &most, Rows: 3, Positives: new(int64(1))}, {Least: 10, Rows: 4, Positives: new(int64(2))}}
	if kind == loss.Squared {
		found.Slices[0].Positives, found.Slices[1].Positives = nil, nil
	}
	found.Unpruned.Slices = slices.Repeat([]sweep.SliceMetrics{{Metrics: found.Unpruned.Metrics}}, 2)
	p0.Slices = slices.Repeat([]sweep.SliceMetrics{{Metrics: p0.Metrics, Difference: p0.Difference}}, 2)
	other := found.Sources[0] // scores of another model, by which SNIP ranks
	other.Model = s.Spec.Dataset
	snip := *p0
	snip.Method, snip.Source = sweep.SNIP, new(len(found.Sources))
	found.Sources, found.Points = append(found.Sources, other), append(found.Points, snip)
	accept(t, "sweep"+versions[kind], marshal(t, found))
	digest := s.Spec.Model
	config := sweep.Config{Model: m, Predict: predict(dataset.Test), Models: []sweep.Ready{{
		File:  sweep.ModelFile{File: "pep.safetensors", Model: digest, Training: digest, Seed: new(uint64(1)), Sparsity: .5},
		Point: sweep.Point{Method: "pep", Baseline: baseline.Zero, Values: string(compact.Float32), Bits: 32, Parameters: m.Parameters()},
		Open:  func() (*model.Model, error) { return m, nil },
	}}}
	if err := config.Run(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	found.Version = sweep.VersionOf(kind, true)
	accept(t, "sweep.v3.json", marshal(t, found))
}

// quarantine publishes a task and quarantines it.
func quarantine(t *testing.T, b *bus.Bus, task job.Task) {
	t.Helper()
	if err := b.PublishTask(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	d, err := b.NextTask(t.Context(), task.Spec.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Quarantine(t.Context(), "row 7: the loss is NaN", true); err != nil {
		t.Fatal(err)
	}
	if e := first(t, t.Context(), b, task.Job); e.Quarantine != nil {
		accept(t, "quarantine.v2.json", marshal(t, e.Quarantine))
	} else {
		t.Errorf("event %+v, expected a quarantine", e)
	}
}

// first waits for the first event of the job.
func first(t *testing.T, ctx context.Context, b *bus.Bus, id string) (event bus.Event) {
	t.Helper()
	enough := errors.New("enough")
	if err := b.Events(ctx, id, func(e bus.Event) error { event = e; return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	return event
}

// The manifests of a whole delta and of one between two models, with one word and with several, have the schema.
func TestDelta(t *testing.T) {
	nights, words := deltatest.Nights(t, 2, "float16"), deltatest.Nights(t, 2, "float16", 3)
	for name, o := range map[string]delta.Options{"whole": {}, "part": {From: nights[0], Generation: 2}, "words": {From: nights[0], Generation: 2}} {
		folder, in := filepath.Join(t.TempDir(), name), nights[1]
		if name == "words" {
			in = words[1]
		}
		if _, err := delta.Write(in, o, folder); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, delta.ManifestFile))
		if err != nil {
			t.Fatal(err)
		}
		accept(t, "delta.v1.json", text)
	}
}

// TestRefuse checks what the schemas refuse besides missing and unknown properties.
func TestRefuse(t *testing.T) {
	digest := fmt.Sprintf("%064x", 7)
	blob := func(name string) map[string]any {
		return map[string]any{"name": name, "bytes": 1, "sha256": digest}
	}
	spec := func() map[string]any {
		return map[string]any{"version": 2, "model": digest, "dataset": digest, "splits": []string{"train"}, "sample": 1,
			"baseline": "zero", "estimator": "permutation", "passes": 2, "seed": uint64(1<<64 - 1), "kernel": "portable-amd64"}
	}
	multilinear := func() map[string]any {
		s := spec()
		s["estimator"], s["passes"], s["draws"], s["endpoints"] = "multilinear", 1, 4, "balanced"
		return s
	}
	until := func(what map[string]any) map[string]any {
		s := spec()
		s["until"] = map[string]any{"rule": "overlap", "bound": .9, "sparsity": .5, "seconds": 60}
		return map[string]any{"spec": s, "plan": map[string]any{"rows": 20, "rows_per_shard": 5, "rounds": []any{what}}}
	}
	ruled := func(change map[string]any) map[string]any {
		s := spec()
		s["until"] = change
		return s
	}
	paired := func() map[string]any {
		s := spec()
		s["previous"] = map[string]any{"model": digest, "baseline": digest, "values": digest, "generation": 1}
		return s
	}
	previous := func(change map[string]any) map[string]any {
		p := paired()["previous"].(map[string]any)
		maps.Copy(p, change)
		return p
	}
	round := map[string]any{"rows": 10, "pass": 0}
	task := func() map[string]any {
		return map[string]any{"protocol": 9, "job": digest[:20], "shard": 0, "spec": spec(), "rows": 1,
			"data": blob("shard/" + digest[:20] + "/0"), "model": blob("model/" + digest), "baseline": blob("baseline/" + digest[:20])}
	}
	for _, c := range []struct {
		name   string
		value  map[string]any
		key    string
		change any
	}{
		{"spec.v1.json", spec(), "version", 1},
		{"spec.v1.json", spec(), "model", digest[:63]},
		{"spec.v1.json", spec(), "splits", []string{"val", "train"}},
		{"spec.v1.json", spec(), "splits", []string{}},
		{"spec.v1.json", spec(), "sample", 0},
		{"spec.v1.json", spec(), "passes", 0},
		{"spec.v1.json", spec(), "seed", -1},
		{"spec.v1.json", spec(), "estimator", "exact"}, // with two passes
		{"spec.v1.json", spec(), "draws", 2},           // for walks
		{"spec.v1.json", spec(), "endpoints", "plain"},
		{"spec.v1.json", spec(), "audit", .5},
		{"spec.v1.json", multilinear(), "audit", 0},
		{"spec.v1.json", multilinear(), "passes", 2},
		{"spec.v1.json", multilinear(), "draws", 3},
		{"spec.v1.json", multilinear(), "draws", 2}, // too few for balanced end points
		{"spec.v1.json", multilinear(), "endpoints", ""},
		{"spec.v1.json", spec(), "until", map[string]any{}},
		{"spec.v1.json", spec(), "until", map[string]any{"rule": "paper"}},
		{"spec.v1.json", spec(), "until", map[string]any{"bound": .1}},
		{"spec.v1.json", spec(), "until", map[string]any{"rule": "ranks", "bound": .1}},
		{"spec.v1.json", spec(), "until", map[string]any{"rule": "overlap", "bound": .9}},
		{"spec.v1.json", spec(), "until", map[string]any{"rule": "paper", "bound": .1, "sparsity": .5}},
		{"spec.v1.json", ruled(map[string]any{"rule": "paper", "bound": .1}), "until", map[string]any{"rule": "paper", "bound": 1}},
		{"spec.v1.json", spec(), "days", []string{digest}},
		{"spec.v1.json", spec(), "previous", previous(nil)},
		{"spec.v1.json", spec(), "until", map[string]any{"rule": "error", "bound": .1}},
		{"spec.v2.json", spec(), "days", []string{}},
		{"spec.v2.json", spec(), "days", []string{digest, digest}},
		{"spec.v2.json", spec(), "baseline_values", ""},
		{"spec.v2.json", paired(), "previous", previous(map[string]any{"generation": 0})},
		{"spec.v2.json", paired(), "previous", previous(map[string]any{"model": ""})},
		{"spec.v2.json", paired(), "previous", map[string]any{"model": digest, "generation": 1}},
		{"submission.v2.json", until(round), "plan", map[string]any{"rows": 20, "rows_per_shard": 5, "rounds": []any{}}},
		{"submission.v2.json", until(round), "plan", map[string]any{"rows": 20, "rows_per_shard": 5, "rounds": []any{map[string]any{"rows": 5, "pass": 256}}}},
		{"submission.v2.json", until(round), "protocol", 0},
		{"task.v2.json", task(), "protocol", 0},
		{"task.v2.json", task(), "pass", 0},
		{"task.v2.json", task(), "shard", 1.5},
		{"task.v2.json", task(), "rows", 0},
		{"task.v2.json", task(), "data", blob("model/" + digest)},
		{"task.v2.json", task(), "model", blob("../" + digest)},
		{"task.v2.json", task(), "previous_model", blob("model/" + digest)},                                                                                   // the job is not paired
		{"task.v2.json", task(), "path", map[string]any{"masks": blob("mask/" + digest[:20] + "/1"), "calibration": map[string]any{"scale": 1, "offset": 0}}}, // the job is not a path
		{"task.v2.json", task(), "spec", paired()},                                                                                                            // nothing names the previous model
	} {
		s := compile(t, c.name)
		if err := s.Validate(parse(t, marshal(t, c.value))); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.value[c.key] = c.change
		if s.Validate(parse(t, marshal(t, c.value))) == nil {
			t.Errorf("%s accepts %s = %v", c.name, c.key, c.change)
		}
	}
}

// nightSteps writes the names of the steps.
type nightSteps struct{}

func (nightSteps) Model(string) (string, error)         { return seal.Blank, nil }
func (nightSteps) ModelFiles(path string) []string      { return []string{path} }
func (nightSteps) Import(context.Context, string) error { return nil }
func (nightSteps) Day(string) (string, error)           { return seal.Blank, nil }
func (nightSteps) write(n *nightly.Night, files ...string) (err error) {
	for _, file := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.Folder, file), []byte(file), 0o644))
	}
	return err
}
func (nightSteps) Choose(_ context.Context, n *nightly.Night) (*nightly.Chosen, error) {
	low, high := 0., 1.
	return &nightly.Chosen{Kept: n.PreviousModel != "", Why: "A reason.", Rise: &nightly.Change{Value: .5, Low: &low, High: &high}, SE: .25, Nights: 1}, nil
}
func (s nightSteps) Score(_ context.Context, n *nightly.Night) (*nightly.Scored, error) {
	half := .5
	return &nightly.Scored{Generation: 1, Rows: 2, Evaluations: 3, FullEvaluations: 4, RelativeError: &half, Note: "a note", CoreSeconds: 1}, s.write(n, nightly.ScoresFile)
}
func (s nightSteps) Prune(_ context.Context, n *nightly.Night) (*nightly.Pruned, error) {
	return &nightly.Pruned{Sparsity: .5, Bytes: 1, DenseBytes: 2, Tables: []nightly.Table{{Name: "x", Rows: 1, Entries: 2, Kept: 1, Bytes: 4}}}, s.write(n, nightly.PrunedFile, nightly.PruneFile)
}
func (s nightSteps) Check(_ context.Context, n *nightly.Night) (*nightly.Checked, error) {
	half := .5
	return &nightly.Checked{Passed: n.Name != "one.2", Reasons: []string{"a reason"}, AUC: &half, AUCDrop: &nightly.Change{Value: .5, Low: &half}, LogLoss: &half, PrunedLogLoss: &half}, s.write(n, nightly.CheckFile)
}
func (s nightSteps) Report(_ context.Context, n *nightly.Night) error {
	return s.write(n, nightly.ReportFile)
}
func (nightSteps) History([]nightly.Line, map[string]bool) ([]byte, error) {
	return []byte("page"), nil
}

// TestNight checks what shaver nightly writes in a night that is published, in one that fails
// its check, and in one that is not finished.
func TestNight(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"days/one/file", "model"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c := &nightly.Config{Model: filepath.Join(dir, "model"), Days: filepath.Join(dir, "days"), Window: 1, Out: filepath.Join(dir, "out"), Keep: 3}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	o := nightly.Options{Now: func() time.Time { return now }, CPU: func() time.Duration { return 0 }}
	run := func(ctx context.Context) error {
		_, err := nightly.Run(ctx, c, nightly.Keys{}, nightSteps{}, o)
		return err
	}
	read := func(elements ...string) []byte {
		text, err := os.ReadFile(filepath.Join(append([]string{c.Out}, elements...)...))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.Again = true; run(t.Context()) != nil {
		t.Fatal("the second night failed")
	}
	over, cancel := context.WithCancel(t.Context())
	calls := 0
	o.Now = func() time.Time {
		if calls++; calls > 1 { // the third night ends after its first step
			cancel()
		}
		return now
	}
	if err := run(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	accept(t, "current.v1.json", read("current.json"))
	for i, want := range []string{`"outcome": "published"`, `"outcome": "failed"`, `"attempts": `} {
		text := read("nights", fmt.Sprintf("one.%d", i+1), nightly.RecordFile)
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("night %d lacks %s:\n%s", i+1, want, text)
		}
		accept(t, "night.v1.json", text)
	}
	lines := bytes.Split(bytes.TrimSpace(read("history.jsonl")), []byte("\n"))
	if len(lines) != 2 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		accept(t, "history.v1.json", line)
	}
	// Nights that may keep the mask of an earlier one. The settings of the first one are new.
	c.Reuse, o.Now = new(float64), func() time.Time { return now }
	for i, want := range []string{`"published"`, `"kept": true`} {
		if err := run(t.Context()); err != nil {
			t.Fatal(err)
		}
		current, err := nightly.ReadCurrent(c.Out)
		if err != nil {
			t.Fatal(err)
		}
		text := read(filepath.FromSlash(current.Folder), nightly.RecordFile)
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("night %d with reuse lacks %s:\n%s", i+1, want, text)
		}
		accept(t, "night.v1.json", text)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(read("history.jsonl")), []byte("\n")) {
		accept(t, "history.v1.json", line)
	}
}
