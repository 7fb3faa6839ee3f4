package prepare_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// A setting that is wrong for every model and dataset is wrong usage. A model or
// dataset that does not fit the request is bad input. Each message names the setting.
func TestRefusals(t *testing.T) {
	good, _ := preparetest.Request(t)
	another, err := planted.New(planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 6}, Informative: 2, Silent: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	other := func() (modelfile.Source, error) { return another.Checkpoint, nil }
	for name, c := range map[string]struct {
		change func(*prepare.Request)
		usage  bool
		want   string
	}{
		"split":                 {func(r *prepare.Request) { r.Splits = []string{"trian"} }, true, `split "trian"`},
		"no split":              {func(r *prepare.Request) { r.Splits = nil }, true, "no split: expected some of train, val, test"},
		"no rows":               {func(r *prepare.Request) { r.Splits = []string{"test"} }, false, "none of the splits test"},
		"baseline":              {func(r *prepare.Request) { r.Baseline = "mean" }, true, `baseline "mean": the baselines are zero, codebook, words`},
		"sample":                {func(r *prepare.Request) { r.Sample = math.NaN() }, true, "sample NaN"},
		"no sample":             {func(r *prepare.Request) { r.Sample = 0 }, true, "sample 0"},
		"estimator":             {func(r *prepare.Request) { r.Options.Estimator = "x" }, true, `estimator "x"`},
		"passes":                {func(r *prepare.Request) { r.Options.Passes = 0 }, true, "0 passes"},
		"until":                 {func(r *prepare.Request) { r.Until = &job.Until{Rule: "x"} }, true, `"x"`},
		"audit of walks":        {func(r *prepare.Request) { r.Audit = .5 }, true, "audit 0.5 with estimator permutation"},
		"too large":             {func(r *prepare.Request) { multilinear(r); r.Audit = 1.5 }, true, "audit 1.5"},
		"too large shards":      {func(r *prepare.Request) { r.RowsPerShard = math.MaxInt64 }, true, "rows per shard: "},
		"players":               {func(r *prepare.Request) { r.Players = "columns" }, true, `players "columns"`},
		"marginal entries":      {func(r *prepare.Request) { r.Baseline = "marginal" }, true, "baseline marginal needs --players fields"},
		"fields by derivatives": {func(r *prepare.Request) { multilinear(r); r.Players = "fields" }, true, "for fields use exact, antithetic or permutation"},
		"ranges of fields":      {func(r *prepare.Request) { r.Players = "fields"; r.Ranges = 2 }, true, "players fields: 2 ranges"},
		"values of fields":      {func(r *prepare.Request) { r.Players = "fields"; r.BaselineValues = new(model.Baseline) }, true, "players fields: previous scores"},
		"another model":         {func(r *prepare.Request) { r.Open = other }, false, "field"},
	} {
		r := good
		c.change(&r)
		_, err := prepare.New(r, zap.NewNop())
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.IsUsage(err) != c.usage || fault.IsInput(err) == c.usage {
			t.Errorf("%s: %v", name, err)
		}
		if _, again := prepare.Spec(r); again == nil || again.Error() != err.Error() {
			t.Errorf("%s: ID says %v, New %v", name, again, err)
		}
	}
	failed := errors.New("failed")
	good.Open = func() (modelfile.Source, error) { return nil, failed }
	if _, err := prepare.New(good, zap.NewNop()); !errors.Is(err, failed) {
		t.Errorf("Open fails: %v", err)
	}
}

func multilinear(r *prepare.Request) {
	r.Options = estimator.Options{Estimator: estimator.Multilinear, Passes: 1}
	r.Options.SetDefaults()
}

// New does not modify the request, and preparing it twice gives the same job.
func TestRequestIsNotChanged(t *testing.T) {
	r, _ := preparetest.Request(t)
	r.Splits, r.MaxRows = []string{"val", "train"}, 100
	r.Until = &job.Until{Rule: job.Overlap, Bound: .9, Sparsity: .5}
	before := r
	before.Splits = slices.Clone(r.Splits)
	until := *r.Until
	first, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.Splits, before.Splits) || r.Sample != 1 || r.Options != before.Options || *r.Until != until {
		t.Errorf("the request became %+v", r)
	}
	second, err := prepare.New(r, zap.NewNop())
	if err != nil || !reflect.DeepEqual(first.Job, second.Job) {
		t.Errorf("%+v and %+v, %v", first.Job, second.Job, err)
	}
}

// A job's id is that of its specification. It does not depend on how the job is cut.
// MaxRows gives the same id as the sample of the same size.
func TestID(t *testing.T) {
	r, _ := preparetest.Request(t)
	p, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	id := func(change func(*prepare.Request)) string {
		t.Helper()
		other := r
		change(&other)
		spec, err := prepare.Spec(other)
		if err != nil {
			t.Fatal(err)
		}
		return spec.ID()
	}
	if p.ID != p.Spec.ID() || id(func(*prepare.Request) {}) != p.ID {
		t.Errorf("ids %s, %s, %s", p.ID, p.Spec.ID(), id(func(*prepare.Request) {}))
	}
	for name, change := range map[string]func(*prepare.Request){
		"shards":   func(r *prepare.Request) { r.RowsPerShard = 0 },
		"in place": func(r *prepare.Request) { r.InPlace = true },
		"splits":   func(r *prepare.Request) { r.Splits = []string{"val", "test", "train"} },
		"all rows": func(r *prepare.Request) { r.MaxRows = 300 },
	} {
		if got := id(change); got != p.ID {
			t.Errorf("%s: another id", name)
		}
	}
	for name, change := range map[string]func(*prepare.Request){
		"seed":   func(r *prepare.Request) { r.Seed++ },
		"passes": func(r *prepare.Request) { r.Options.Passes++ },
		"rows":   func(r *prepare.Request) { r.MaxRows = 150 },
		"until":  func(r *prepare.Request) { r.Until = &job.Until{Seconds: 1} },
	} {
		if got := id(change); got == p.ID {
			t.Errorf("%s: the same id", name)
		}
	}
	if id(func(r *prepare.Request) { r.MaxRows = 150 }) != id(func(r *prepare.Request) { r.Sample = .5 }) {
		t.Error("150 of 300 rows and a sample of 0.5 have different ids")
	}
}

// With few rows that the model has not seen, a job with several words is that of the codebook.
func TestFewUnseenRows(t *testing.T) {
	r, _ := preparetest.Request(t)
	one, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	r.Baseline = baseline.Words
	several, err := prepare.New(r, zap.NewNop())
	if err != nil || several.ID != one.ID || !several.Baseline.Equal(&one.Baseline) {
		t.Errorf("another job than that of the codebook: %v", err)
	}
}

// The log says how many words were chosen, even when they were found before.
func TestWordsAreLogged(t *testing.T) {
	r, folder := preparetest.Request(t)
	rows := []string{filepath.Join(filepath.Dir(folder), "rows.csv")}
	_, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: rows, Val: rows, Sizes: []int{9, 5}, Global: true, Out: folder + "-val"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dataset, err = dataset.Open(folder + "-val"); err != nil {
		t.Fatal(err)
	}
	r.Baseline = baseline.Words
	for range 2 {
		core, logged := observer.New(zap.DebugLevel)
		if _, err := prepare.New(r, zap.New(core)); err != nil {
			t.Fatal(err)
		}
		if n := logged.FilterMessageSnippet("one word for each field: several are not better").Len(); n != 1 {
			t.Errorf("%d lines of %v, expected 1", n, logged.All())
		}
	}
}

// A split fresh of few rows leaves the choice of words to val.
func TestFewFreshRows(t *testing.T) {
	r, folder := preparetest.Request(t)
	file := filepath.Join(filepath.Dir(folder), "rows.csv")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	few := filepath.Join(filepath.Dir(folder), "few.csv")
	if err := os.WriteFile(few, []byte(strings.Join(strings.SplitAfter(string(text), "\n")[:21], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Val: []string{file}, Fresh: []string{few}, Sizes: []int{9, 5}, Global: true, Out: folder + "-fresh"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dataset, err = dataset.Open(folder + "-fresh"); err != nil {
		t.Fatal(err)
	}
	r.Baseline = baseline.Words
	core, logged := observer.New(zap.DebugLevel)
	if _, err := prepare.New(r, zap.New(core)); err != nil {
		t.Fatal(err)
	}
	if logged.FilterMessageSnippet("few rows are there").Len() > 0 || logged.FilterMessageSnippet("several are not better").Len() != 1 {
		t.Errorf("val did not choose: %v", logged.All())
	}
}

// With Until, a task has one pass and the plan contains all passes.
func TestPasses(t *testing.T) {
	r, _ := preparetest.Request(t)
	plain, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	r.Until = &job.Until{Seconds: 1}
	rounds, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if o := plain.Spec.TaskOptions(); o.Passes != 3 || plain.Spec.Passes != 3 || plain.Plan.Rows != 300 || plain.Plan.Rounds != nil || !plain.Sampling().Within() {
		t.Errorf("%+v, plan %+v", o, plain.Plan)
	}
	if o := rounds.Spec.TaskOptions(); o.Passes != 1 || rounds.Spec.Passes != 3 || rounds.Plan.Rows != 900 || len(rounds.Plan.Rounds) < 3 || rounds.Sampling().Within() {
		t.Errorf("%+v, plan %+v", o, rounds.Plan)
	}
}

// A split that the dataset lacks is left out, and the log says so.
func TestMissingSplit(t *testing.T) {
	r, _ := preparetest.Request(t)
	r.Splits = []string{"test", "train"}
	core, logged := observer.New(zap.WarnLevel)
	p, err := prepare.New(r, zap.New(core))
	if err != nil || !slices.Equal(p.Spec.Splits, []string{"train"}) {
		t.Fatalf("%+v, %v", p, err)
	}
	if logged.FilterField(zap.String("split", "test")).Len() != 1 {
		t.Errorf("logged %v", logged.All())
	}
}

// Each estimator of an audit scores the same two samples, each half of the audit's
// portion of the scored rows. The job's own estimator is one of them.
func TestAuditRequests(t *testing.T) {
	r, _ := preparetest.Request(t)
	multilinear(&r)
	r.Audit, r.MaxRows, r.Until = .5, 100, &job.Until{Seconds: 1}
	requests := r.AuditRequests(.4)
	want := map[int]estimator.Options{
		prepare.ByFlips:     {Estimator: estimator.Debiased, Passes: 1, Draws: r.Options.Draws, Endpoints: estimator.Plain, Flips: estimator.DefaultFlips},
		prepare.AsRequested: {Estimator: estimator.Multilinear, Passes: 1, Draws: r.Options.Draws, Endpoints: estimator.Plain},
	}
	for by, halves := range requests {
		for half, sub := range halves {
			if sub.Options != want[by] || sub.Seed != r.Seed+uint64(1+half) || sub.Sample != .1 || sub.MaxRows != 0 || sub.Until != nil || sub.Audit != 0 {
				t.Errorf("estimator %d, half %d: %+v", by, half, sub)
			}
		}
	}
}
