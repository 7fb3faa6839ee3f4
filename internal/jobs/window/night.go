package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/prepare"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/baseline"
	"shaver/internal/value/tally"
)

// Night describes what a night does.
type Night struct {
	// Request describes the jobs. Dataset is a window. Sample is the portion of a day's rows
	// on which a paired job computes both models. A full job scores all rows. Until and Audit
	// are nil, and MaxRows is 0.
	prepare.Request
	// Read reads the copy of a model.
	Read func(path string) (modelfile.Source, error)
	// Previous reads the previous model; nil = the state's copy, if it has one.
	Previous func() (modelfile.Source, error)
	// FullEvery bounds the jobs of a day: of this many jobs in sequence at least one is full;
	// 0 = no bound.
	FullEvery int
	// MaxInheritedError is the largest Lineage.Error of a day that a paired job may inherit;
	// 0 = no bound.
	MaxInheritedError float64

	// Run runs a job to its end, as package coordinator does with the same callbacks.
	Run func(ctx context.Context, r prepare.Request, sums func(*tally.Accumulator) error, sink func(*scores.File, func(feature int, into tally.Values)) error) error
	// OnPlan is called once, before the first job; nil = no call.
	OnPlan func([]Step)
}

// What a night does with a day.
const (
	Full   = "full"   // a job over all rows
	Paired = "paired" // a paired job on a sample of the rows
	Kept   = "kept"   // nothing, because the sums are those of the model
)

// Step is what a night does with a day.
type Step struct {
	Dataset string `json:"dataset"` // digest of the day
	Rows    int64  `json:"rows"`    // number of rows in the splits
	Action  string `json:"action"`  // Full, Paired or Kept
	Why     string `json:"why"`     // reason for the action, in a few words
	// Evaluations is the number of rows that the night's job of the day computes, each
	// counted once for each model.
	Evaluations int64 `json:"evaluations"`
	// Generation is the number of paired jobs since the last full one, and Error the
	// Lineage.Error of the sums, after the night. They are 0 after a full job.
	Generation int     `json:"generation"`
	Error      float64 `json:"error"`
}

// Outcome is the result of a night.
type Outcome struct {
	// Scores are those of the window. In Scores, Phi and SE are empty.
	Scores scores.File
	// Values writes the values of one feature into those slices of into that are not nil.
	Values func(feature int, into tally.Values)
	Steps  []Step // of the days, the oldest first
}

// night is a night in progress.
type night struct {
	*State
	*Night
	job      *prepare.Job // the full job over the window
	form     tally.Form   // form of a day's sums
	settings Settings
	game     Game
	days     []*dataset.Dataset
	digests  []string // of the days
	earlier  earlier
}

// earlier is the previous model that is available.
type earlier struct {
	digest string // "" = none
	open   func() (modelfile.Source, error)
}

// Night brings the sums of all days of the window to the model and returns the scores of the
// window. Each day is stored as soon as its job is done, so if Night ends early, the next
// one continues. Days that are not in the window are dropped at the end. Then the state
// keeps a copy of the model.
//
// If all days were scored in full with the same baseline, the scores equal those of a full job
// over the window, bit for bit.
//
// Settings that differ from those of the state are wrong usage. A model that does not fit the
// state is bad input, and so is a previous model of which no day has the sums.
func (s *State) Night(ctx context.Context, o *Night) (*Outcome, error) {
	n := &night{State: s, Night: o, days: o.Dataset.Days(), digests: o.Dataset.DayDigests()}
	if len(n.days) == 0 {
		return nil, errors.New("window: the dataset is not a window of days")
	}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	if err := n.findEarlier(); err != nil {
		return nil, err
	}
	steps, err := n.plan()
	if err != nil {
		return nil, err
	}
	if o.OnPlan != nil {
		o.OnPlan(slices.Clone(steps))
	}
	for i := range steps {
		if err := n.do(ctx, i, &steps[i]); err != nil {
			return nil, fmt.Errorf("day %d (%.12s): %w", i+1, n.digests[i], err)
		}
	}
	if err := n.settle(); err != nil {
		return nil, err
	}
	outcome, err := n.combine()
	if err != nil {
		return nil, err
	}
	outcome.Steps = steps
	return outcome, nil
}

// prepare prepares the full job over the window, and finds the game of its model.
func (n *night) prepare() error {
	if !(n.Sample > 0 && n.Sample <= 1) {
		return fault.Usagef("sample %v is outside (0, 1]", n.Sample)
	}
	if n.Baseline == baseline.Words {
		return fault.Usagef("baseline %s: a state keeps sums of nights that have one word for each field: use --baseline %s", n.Baseline, baseline.Codebook)
	}
	r := n.full(n.Dataset)
	r.BaselineValues = nil
	p, err := prepare.New(r, n.log)
	if err != nil {
		return err
	}
	if p.Spec.Fresh != nil {
		return fault.Usagef("fresh rows: a state needs rows that all count once, because it keeps the sums of each day")
	}
	if p.Spec.Tasks != nil {
		return fault.Usagef("--task: a state keeps the sums of the first label: score without a state")
	}
	if p.Spec.LargestWeight != 0 {
		return fault.Usagef("the rows of the dataset have weights: a state needs rows that all count once, because it keeps the sums of each day")
	}
	n.job, n.form = p.Job, p.Sampling().Form(p.Architecture.Fields())
	n.settings = Settings{Spec: job.SpecVersion, Fields: p.Dataset.Fields(), Baseline: n.Baseline, Options: n.Options, Seed: n.Seed, Kernel: p.Spec.Kernel, Revision: p.Spec.Revision, Loss: p.Spec.Loss, Freeze: p.Spec.Freeze}
	for _, split := range dataset.SplitNames {
		if slices.Contains(n.Splits, split) {
			n.settings.Splits = append(n.settings.Splits, split)
		}
	}
	n.game = Game{Model: p.Spec.Model, Baseline: p.Job.Baseline.Values}
	if n.index == nil {
		return nil
	}
	if known := n.index.game(p.Spec.Model); known != nil {
		if len(known.Baseline) != len(n.game.Baseline) {
			return fault.Inputf("%s has a baseline of %d values for the model, expected %d", n.path(indexName), len(known.Baseline), len(n.game.Baseline))
		}
		n.game = *known
	}
	return n.settings.check(&n.index.Settings, n.dir)
}

// full returns the request of a full job over a dataset.
func (n *night) full(d *dataset.Dataset) prepare.Request {
	r := n.Request
	r.Dataset, r.Sample, r.MaxRows, r.Until, r.Audit, r.Previous = d, 1, 0, nil, 0, nil
	if r.BaselineValues = nil; r.Baseline != baseline.Zero {
		r.BaselineValues = &model.Baseline{Values: n.game.Baseline}
	}
	return r
}

// check returns wrong usage unless the settings are those of the state in dir.
func (s *Settings) check(state *Settings, dir string) error {
	list := func(texts []string) string { return strings.Join(texts, ",") }
	type setting struct{ name, own, want string }
	all := []setting{
		{"--loss", s.Loss.Name(), state.Loss.Name()}, {"fields", list(s.Fields), list(state.Fields)}, {"--splits", list(s.Splits), list(state.Splits)}, {"--baseline", s.Baseline, state.Baseline},
		{"frozen fields", fmt.Sprint(s.Freeze), fmt.Sprint(state.Freeze)},
		{"--seed", fmt.Sprint(s.Seed), fmt.Sprint(state.Seed)}, {"--kernel", s.Kernel, state.Kernel},
	}
	wanted := state.Options.Settings()
	for i, own := range s.Options.Settings() {
		all = append(all, setting{"--" + own.Name, own.Value(), wanted[i].Value()})
	}
	for _, v := range all {
		if v.own != v.want {
			return fault.Usagef("the state %s was made with %s %s, not %s: give the same settings, or another --state", dir, v.name, v.want, v.own)
		}
	}
	return nil
}

// findEarlier finds the previous model that is available.
func (n *night) findEarlier() error {
	if n.Previous != nil {
		ck, err := n.Previous()
		if err != nil {
			return err
		}
		n.earlier = earlier{ck.Digest(), n.Previous}
		return n.checkEarlier()
	}
	if n.index == nil || n.index.Copy == nil {
		return nil
	}
	if ok, err := n.has(*n.index.Copy, noCopy); err != nil || !ok {
		return err
	}
	n.earlier = earlier{n.index.Copy.SHA256, n.openCopy}
	return nil
}

// openCopy reads the copy of the newest model.
func (n *night) openCopy() (modelfile.Source, error) {
	f := n.index.Copy
	ck, err := n.Read(n.path(f.Name))
	if err == nil && ck.Digest() != f.SHA256 {
		err = fault.Inputf("its digest is %.12s, expected %.12s", ck.Digest(), f.SHA256)
	}
	if fault.IsInput(err) {
		return nil, n.damaged(*f, noCopy, err)
	}
	return ck, err
}

// checkEarlier returns bad input if days have the sums of earlier models, but none has those
// of the model that the user names.
func (n *night) checkEarlier() error {
	var wanted []string
	for _, digest := range n.digests {
		switch d := n.index.day(digest); {
		case d == nil || d.Model == n.game.Model:
		case d.Model == n.earlier.digest:
			return nil
		case !slices.Contains(wanted, d.Model):
			wanted = append(wanted, d.Model)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return fault.Inputf("the previous model has the digest %.12s, but the days of %s have the sums of the model with the digest %.12s: give that model, or leave out --previous-model", n.earlier.digest, n.dir, wanted[len(wanted)-1])
}

// plan decides what to do with each day.
func (n *night) plan() ([]Step, error) {
	steps := make([]Step, len(n.days))
	for i, day := range n.days {
		step := &steps[i]
		step.Dataset = n.digests[i]
		for _, split := range n.settings.Splits {
			step.Rows += day.Rows(split)
		}
		d := n.index.day(step.Dataset)
		if d != nil {
			ok, err := n.has(d.Sums, fullInstead)
			if err != nil {
				return nil, err
			}
			if d.Rows != step.Rows {
				return nil, fault.Inputf("%s has sums of %d rows for the day %.12s, which has %d", n.dir, d.Rows, d.Dataset, step.Rows)
			}
			if !ok {
				d = nil
			}
		}
		step.Action, step.Why = n.choose(d)
		switch step.Action {
		case Full:
			step.Evaluations = step.Rows
		case Paired:
			step.Evaluations = 2 * n.sampled(step.Rows)
			step.Generation = d.Generation + 1
		case Kept:
			step.Generation = d.Generation
			if d.Lineage != nil {
				step.Error = d.Lineage.Error
			}
		}
	}
	return steps, nil
}

// sampled returns the number of rows that a paired job computes.
func (n *night) sampled(rows int64) int64 {
	return min(rows, max(1, int64(math.Round(n.Sample*float64(rows)))))
}

// choose decides what to do with a day. d is the day in the index, or nil if there are no
// usable sums. choose returns the action and the reason for it.
func (n *night) choose(d *Day) (action, why string) {
	switch {
	case d == nil:
		return Full, "new day"
	case d.Model == n.game.Model:
		return Kept, "same model"
	case n.earlier.digest == "":
		return Full, "no previous model"
	case d.Model != n.earlier.digest:
		return Full, fmt.Sprintf("sums of another model, %.12s", d.Model)
	case n.Sample >= .5:
		return Full, "a paired job on half of the rows or more would cost as much"
	case n.FullEvery > 0 && d.Generation+1 >= n.FullEvery:
		return Full, fmt.Sprintf("paired jobs since the last full one: %d", d.Generation)
	case n.MaxInheritedError > 0 && d.Lineage != nil && d.Lineage.Error > n.MaxInheritedError:
		return Full, fmt.Sprintf("inherited error %.3g", d.Lineage.Error)
	}
	return Paired, fmt.Sprintf("sums of the previous model, %.12s", d.Model)
}

// do carries out the step of a day, and stores its sums.
func (n *night) do(ctx context.Context, i int, step *Step) error {
	n.log.Info("day", zap.String("dataset", step.Dataset), zap.String("action", step.Action), zap.String("why", step.Why), zap.Int64("rows", step.Rows))
	d := &Day{Dataset: step.Dataset, Rows: step.Rows, Scored: step.Rows, Model: n.game.Model, Sample: 1}
	switch step.Action {
	case Full:
		return n.score(ctx, n.days[i], d)
	case Paired:
		if err := n.pair(ctx, n.days[i], d); err != nil {
			return err
		}
		step.Generation, step.Error, step.Evaluations = d.Generation, d.Lineage.Error, 2*d.Scored
	}
	return nil
}

// score scores a day in full and stores it as d.
func (n *night) score(ctx context.Context, day *dataset.Dataset, d *Day) error {
	a := &n.job.Architecture
	return n.Run(ctx, n.full(day), func(sums *tally.Accumulator) error {
		if sums.Rows() != d.Rows {
			return fmt.Errorf("the job scored %d rows of %d", sums.Rows(), d.Rows)
		}
		e := tally.NewSampling(n.Options, d.Rows)
		d.Phi = rootMeanSquare(a.Shape(), func(f int, into tally.Values) { sums.Values(f, e, into) })
		return n.storeSums(d, a, sums, variances{})
	}, func(f *scores.File, _ func(int, tally.Values)) error { return n.add(d, f) })
}

// add adds the day d, whose sums are stored and whose last job had the scores f, to the index.
// The day replaces an earlier entry.
func (n *night) add(d *Day, f *scores.File) error {
	d.EfficiencyError, d.EfficiencySE = f.EfficiencyError, f.EfficiencySE
	var days []Day
	if n.index != nil {
		days = slices.DeleteFunc(slices.Clone(n.index.Days), func(old Day) bool { return old.Dataset == d.Dataset })
	}
	return n.commit(n.index.with(n.settings, append(days, *d), n.game))
}

// rootMeanSquare returns the root mean square of phi over the entries of all features.
func rootMeanSquare(shape layout.Shape, values func(int, tally.Values)) float64 {
	phi, sum := make([]float64, shape.Widest()), 0.0
	for f := range shape.Rows() {
		from, to := shape.Row(f)
		values(f, tally.Values{Phi: phi[:to-from]})
		for _, v := range phi[:to-from] {
			sum += float64(v * v)
		}
	}
	return math.Sqrt(sum / float64(shape.Entries()))
}

// pair corrects a day by a paired job and stores it as d.
func (n *night) pair(ctx context.Context, day *dataset.Dataset, d *Day) error {
	former := *n.index.day(d.Dataset)
	t := newTotal(&n.job.Architecture, n.form)
	if err := t.addDay(n.State, &former); err != nil {
		return err
	}
	file, err := n.formerScores(t, day, &former)
	if err != nil {
		return err
	}
	r := n.full(day)
	r.Sample, r.Previous = n.Sample, &prepare.Previous{Name: "the previous model", Open: n.earlier.open, Scores: file, Digest: former.Sums.SHA256}
	d.Sample = n.Sample
	return n.Run(ctx, r, nil, func(f *scores.File, values func(int, tally.Values)) error {
		if f.Lineage == nil || f.Spec.Previous == nil || f.Rows != d.Rows {
			return errors.New("the job was not paired")
		}
		d.Previous, d.Lineage, d.Generation, d.Scored = f.Spec.Previous, f.Lineage, f.Lineage.Generation, f.Lineage.Rows
		d.Phi = rootMeanSquare(n.job.Architecture.Shape(), values)
		v, err := t.correct(tally.NewSampling(n.Options, 0).Walks, f, values)
		if err != nil {
			return err
		}
		sums, err := t.finish()
		if err != nil {
			return err
		}
		if err := n.storeSums(d, &n.job.Architecture, sums, v); err != nil {
			return err
		}
		return n.add(d, f)
	})
}

// formerScores returns the scores of a day under the previous model. t has the sums of former.
func (n *night) formerScores(t *total, day *dataset.Dataset, former *Day) (*scores.File, error) {
	sums, err := t.finish()
	if err != nil {
		return nil, err
	}
	g := n.index.game(former.Model)
	spec := n.job.Spec
	spec.Model, spec.Dataset, spec.Days, spec.Sample, spec.Previous = former.Model, day.Digest(), day.DayDigests(), former.Sample, former.Previous
	spec.Splits = slices.DeleteFunc(day.SplitNames(), func(split string) bool { return !slices.Contains(n.settings.Splits, split) })
	if spec.BaselineValues = ""; spec.Baseline != baseline.Zero {
		spec.BaselineValues = prepare.Digest(&model.Baseline{Values: g.Baseline})
	}
	e := tally.NewSampling(n.Options, former.Rows)
	result, err := check(sums, e)
	if err != nil {
		return nil, err
	}
	result.EfficiencyError, result.EfficiencySE = former.EfficiencyError, former.EfficiencySE
	shape := t.architecture.Shape()
	result.Values = t.newValues(shape.Entries())
	for f := range shape.Rows() {
		t.values(f, e, result.Part(shape.Row(f)))
	}
	return &scores.File{Fields: n.settings.Fields, Layout: scores.LayoutOf(t.architecture), Spec: spec, Baseline: model.Baseline{Values: g.Baseline}, DatasetRows: former.Rows, Lineage: former.Lineage, Result: *result}, nil
}

// check returns the result of sums without values. It does not require that the efficiency
// identity holds, because paired jobs correct the values of each entry and the losses with
// coefficients of their own.
func check(sums *tally.Accumulator, e tally.Sampling) (*tally.Result, error) {
	e.Efficient, e.Shares = false, false
	return sums.Check(e)
}

// settle drops the days that are not in the window, and stores a copy of the model.
func (n *night) settle() error {
	days := make([]Day, len(n.digests))
	for i, digest := range n.digests {
		days[i] = *n.index.day(digest)
	}
	same := slices.EqualFunc(days, n.index.Days, func(a, b Day) bool { return a.Dataset == b.Dataset })
	next := n.index.with(n.settings, days, n.game)
	if same && len(next.Games) == len(n.index.Games) && next.Copy != nil && next.Copy.SHA256 == n.game.Model {
		if ok, err := n.has(*next.Copy, "it is written again"); ok || err != nil {
			return err
		}
	}
	ck, err := n.Open()
	if err != nil {
		return err
	}
	if ck.Digest() != n.game.Model {
		return fault.Inputf("the file of the model changed while its scores were computed: its digest is %.12s, expected %.12s", ck.Digest(), n.game.Model)
	}
	if next.Copy, err = n.writeModel(ck); err != nil {
		return err
	}
	return n.commit(next)
}
