package prepare_test

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/modelfile"
	"shaver/internal/click/planted"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/prepare/preparetest"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

// paired returns a request for a paired job, and the specification of the job that computed
// the previous values.
func paired(t *testing.T) (r prepare.Request, was *job.Spec) {
	t.Helper()
	r = preparetest.Paired(t)
	return r, &r.Previous.Scores.Spec
}

// A paired job has the specification of an ordinary one and what it corrects. Its sample
// follows from its generation, and its two rounds are the halves of the sample. A task has
// all passes, also with a stop rule.
func TestPaired(t *testing.T) {
	r, was := paired(t)
	p, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s := p.Spec.Previous
	if s == nil || s.Model != was.Model || s.Values != r.Previous.Digest || s.Generation != 1 || len(s.Baseline) != 64 || p.Spec.Model == was.Model {
		t.Errorf("%+v of model %s", s, p.Spec.Model)
	}
	if p.Earlier.Source.Digest() != was.Model || p.Earlier.Model == p.Model || !p.Earlier.Baseline.Equal(&r.Previous.Scores.Baseline) {
		t.Errorf("the previous model is %s", p.Earlier.Source.Digest())
	}
	if p.Sample.Generation != 1 || p.Sample.Keep != 60 || len(p.Plan.Rounds) != 2 || p.Plan.Rows != 60 || p.Plan.Rounds[0].Rows+p.Plan.Rounds[1].Rows != 60 {
		t.Errorf("sample %+v, plan %+v", p.Sample, p.Plan)
	}
	if e := p.Sampling(); !e.Paired || e.Passes != 3 || e.Within() {
		t.Errorf("sampling %+v", e)
	}
	ordinary := *was
	ordinary.Model, ordinary.Sample = p.Spec.Model, p.Spec.Sample
	got := p.Spec
	got.Previous = nil
	if got.ID() != ordinary.ID() {
		t.Errorf("%+v, expected %+v and what it corrects", got, ordinary)
	}

	r.Previous.Scores.Spec.Previous = s // the previous values are those of a paired job
	later, err := prepare.New(r, zap.NewNop())
	if err != nil || later.Spec.Previous.Generation != 2 || later.Sample.Generation != 2 {
		t.Errorf("the next generation: %+v, %v", later, err)
	}

	r.Until = &job.Until{Rule: job.Error, Bound: .1}
	r.Sample = 1
	until, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range until.Plan.Rounds {
		if round.Pass != 0 {
			t.Errorf("a round of another pass: %+v", until.Plan)
		}
	}
	if o := until.Spec.TaskOptions(); o.Passes != 3 || until.Plan.Rows != 300 {
		t.Errorf("%+v, plan %+v", o, until.Plan)
	}
}

// The job of a model that did not change needs no previous checkpoint.
func TestPairedWithItself(t *testing.T) {
	r, was := paired(t)
	r.Open, r.Previous.Open = r.Previous.Open, nil
	p, err := prepare.New(r, zap.NewNop())
	if err != nil || p.Spec.Model != was.Model || p.Spec.Previous.Model != was.Model || p.Earlier.Model != p.Model {
		t.Errorf("%+v, %v", p, err)
	}
}

// Given values replace those of the baseline, and are part of the job's identity.
func TestBaselineValues(t *testing.T) {
	r, _ := preparetest.Request(t)
	plain, err := prepare.New(r, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	values := plain.Baseline.Scaled(1)
	r.BaselineValues = &values
	values.Values[0]++
	p, err := prepare.New(r, zap.NewNop())
	if err != nil || !p.Baseline.Equal(&values) || len(p.Spec.BaselineValues) != 64 || p.Spec.Baseline != r.Baseline || p.ID == plain.ID {
		t.Errorf("%+v, %v", p, err)
	}
	values.Values[0]++
	if other, err := prepare.New(r, zap.NewNop()); err != nil || other.ID == p.ID {
		t.Errorf("other values: the same id, %v", err)
	}
	values.Values = values.Values[1:]
	if _, err := prepare.New(r, zap.NewNop()); !fault.IsInput(err) || !strings.Contains(err.Error(), "baseline has ") {
		t.Errorf("too few values: %v", err)
	}
}

// Settings that contradict the previous scores are wrong usage. Inputs that do not fit them
// are bad input. Each error is one line that names what differs.
func TestPreviousRefusals(t *testing.T) {
	another := func(change func(*planted.Config)) func() (modelfile.Source, error) {
		c := planted.Config{Fields: []string{"a", "b"}, FieldDims: []int{9, 5}, Informative: 2, Silent: 1, Seed: 3}
		change(&c)
		p, err := planted.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return func() (modelfile.Source, error) { return p.Checkpoint, nil }
	}
	for want, c := range map[string]struct {
		change func(r *prepare.Request, f *scores.File)
		usage  bool
	}{
		"baseline zero: the previous scores have the baseline codebook":        {func(r *prepare.Request, f *scores.File) { r.Baseline = baseline.Zero }, true},
		"estimator antithetic: the previous scores have estimator permutation": {func(r *prepare.Request, f *scores.File) { r.Options.Estimator = estimator.Antithetic }, true},
		"passes 2: the previous scores have passes 3":                          {func(r *prepare.Request, f *scores.File) { r.Options.Passes = 2 }, true},
		"seed 2: the previous scores have the seed 1":                          {func(r *prepare.Request, f *scores.File) { r.Seed = 2 }, true},
		"splits train: the previous scores have the splits train,val": {func(r *prepare.Request, f *scores.File) {
			r.Splits, f.Spec.Splits = []string{"train"}, []string{"train", "val"}
		}, true},
		"the stop rule paper does not apply":            {func(r *prepare.Request, f *scores.File) { r.Until = &job.Until{Rule: job.Paper, Bound: .1} }, true},
		"computed from another dataset, with digest 00": {func(r *prepare.Request, f *scores.File) { f.Spec.Dataset = strings.Repeat("0", 64) }, false},
		"have the fields a, c, the dataset has a, b":    {func(r *prepare.Request, f *scores.File) { f.Fields = []string{"a", "c"} }, false},
		"are for 299 rows, the splits have 300":         {func(r *prepare.Request, f *scores.File) { f.DatasetRows = 299 }, false},
		"computed by the kernel abacus":                 {func(r *prepare.Request, f *scores.File) { f.Spec.Kernel = "abacus" }, false},
		"lack 7 rows":                                   {func(r *prepare.Request, f *scores.File) { f.QuarantinedRows = 7 }, false},
		"whose time was over":                           {func(r *prepare.Request, f *scores.File) { f.Stopped = &scores.Stopped{Reason: scores.TimeOver} }, false},
		"the previous scores are for ":                  {func(r *prepare.Request, f *scores.File) { f.Layout.Dim++ }, false},
		"is not the model of the previous scores: expected the digest": {func(r *prepare.Request, f *scores.File) {
			r.Previous.Open = another(func(c *planted.Config) { c.Seed = 9 })
		}, false},
		"the previous scores need the model with digest ": {func(r *prepare.Request, f *scores.File) {
			r.Previous.Open = func() (modelfile.Source, error) { return nil, fault.Inputf("missing") }
		}, false},
		"field 1 has 6 features in the previous model, expected at most 5": {func(r *prepare.Request, f *scores.File) {
			r.Previous.Open = another(func(c *planted.Config) { c.FieldDims = []int{9, 6} })
			ck, _ := r.Previous.Open()
			f.Spec.Model = ck.Digest()
		}, false},
	} {
		r, _ := paired(t)
		c.change(&r, r.Previous.Scores)
		_, err := prepare.New(r, zap.NewNop())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || fault.IsUsage(err) != c.usage || fault.IsInput(err) == c.usage {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

// The audit of a paired job scores ordinary samples.
func TestAuditOfPaired(t *testing.T) {
	r, _ := paired(t)
	multilinear(&r)
	r.Audit = .5
	for _, halves := range r.AuditRequests(.2) {
		for _, sub := range halves {
			if sub.Previous != nil {
				t.Error("the audit has a paired job")
			}
		}
	}
}
