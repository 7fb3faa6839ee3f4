// Package prepare turns a request into a job. It opens the model, checks that
// everything fits together, and works out the job's specification, plan, sample
// and baseline. It uses no bus, and computes rows only to measure what the model remembers.
package prepare

import (
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
	"shaver/internal/value/path"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// Request describes what to score, and how. This package does not modify it.
type Request struct {
	// Open reads the model. It may be called several times. Each caller
	// owns the source that it gets, so that its memory can be freed.
	Open    func() (modelfile.Source, error)
	Dataset *dataset.Dataset

	Splits   []string          // splits to score; splits that the dataset lacks are left out
	Sample   float64           // portion of the splits' rows to score, (0, 1]
	MaxRows  int64             // if above 0, the sample has this many rows, or all rows if there are fewer
	Baseline string            // one of baseline.Names
	Options  estimator.Options // with Until, Passes is an upper limit; of fields Estimator may be empty, which means estimator.DefaultForFields
	Players  string            // estimator.Entries, Fields or Pairs; "" = Entries
	Freeze   []string          // names of the fields whose entries are no players
	Seed     uint64            // seed of everything random
	// FreshWeight is how often a fresh row counts, at most estimator.MaxWeight; 0 = it follows from the numbers of rows.
	FreshWeight int64
	FreshDays   int        // number of the newest days of a window that the model was not trained on; their rows of train are fresh
	Loss        string     // one of loss.Names; "" = dataset.Dataset.Loss
	Until       *job.Until // when to end before all rows and passes are done; nil = never
	// Audit is the portion, (0, 1], of the scored rows on which package audit compares
	// a multilinear job with debiased values; 0 = no audit. Audit rows are a fresh sample of
	// all rows of the splits, because the audit computes them with each of its
	// estimators, the job's own included.
	Audit float64

	// BaselineValues is what dropped entries read if the baseline does not follow
	// from the model and the dataset; otherwise nil.
	BaselineValues *model.Baseline
	// Previous is what a paired job corrects; nil = the job is not paired.
	Previous *Previous

	RowsPerShard int64 // 0 = the coordinator chooses; see job.Sizing
	Ranges       int   // number of ranges whose sums mergers keep; 0 = the coordinator keeps all sums
	InPlace      bool  // workers read the dataset from their stores, so shards are not sent

	// Note logs the sentence of a model that does not know its fields; nil = it is logged every time.
	Note func(log *zap.Logger, text string)
}

// Job is a request that was checked. It is immutable.
type Job struct {
	ID   string
	Spec job.Spec
	// Plan says how the job is cut into shards and rounds. If the request does not give
	// RowsPerShard, it follows from the number of rows alone.
	Plan         job.Plan
	Sample       shard.Sample
	Baseline     model.Baseline // what a dropped entry reads; empty for baseline.Marginal
	Architecture model.Architecture
	Dataset      *dataset.Dataset
	Previous     *scores.File // previous values that the job corrects; nil = the job is not paired
}

// Prepared is a job with its model in memory. A reference to the Job alone does not
// keep the model in memory.
type Prepared struct {
	*Job
	Source  modelfile.Source
	Model   *model.Model
	Earlier *Earlier        // nil = the job is not paired
	fields  *shapley.Fields // of Game; nil before the first call
}

// New opens the model and returns the job that r asks for. It logs what it leaves out
// or replaces. An error is wrong usage if the settings are wrong for every model and
// dataset, and bad input if they do not fit this model or dataset.
func New(r Request, log *zap.Logger) (*Prepared, error) {
	ck, err := r.Open()
	if err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	if r.Dataset, err = r.Dataset.For(&m.Architecture, ck.Known()); err != nil {
		return nil, err
	}
	if m, err = r.freeze(m); err != nil {
		return nil, err
	}
	if r.OfFields() && r.Options.Estimator == "" {
		r.Options.Estimator = estimator.DefaultForFields(m.Fields() + len(m.Dense))
	}
	if err := r.validate(&m.Architecture); err != nil {
		return nil, err
	}
	if r.Options.Traits().Derivatives {
		if err := m.Differentiable(); err != nil {
			return nil, fault.Inputf("the %s estimator needs derivatives, which this model does not have: %v: use %s or %s",
				r.Options.Estimator, err, estimator.Permutation, estimator.Antithetic)
		}
	}
	kind, err := r.Dataset.ChooseLoss(r.Loss, ck.Known())
	if err != nil {
		return nil, err
	}
	values, err := r.baseline(m, ck, kind, log)
	if err != nil {
		return nil, err
	}
	if r.Baseline == baseline.Words && values.Words == nil { // then it is the same job
		r.Baseline = baseline.Codebook
	}
	tasks := ck.Known().Tasks
	if p := r.Previous; p != nil && (tasks != nil || p.Scores.Spec.Tasks != nil) {
		return nil, fault.Usagef("tasks: previous scores are corrected for one task only: score all rows again")
	}
	earlier, err := r.earlier(ck, m)
	if err != nil {
		return nil, err
	}
	splits, err := r.splits(log)
	if err != nil {
		return nil, err
	}
	rows := r.Rows(splits)
	portion := r.Sample
	if r.MaxRows > 0 {
		portion = min(1, float64(r.MaxRows)/float64(rows))
	}
	j := &Job{
		Spec: job.Spec{
			Version: job.SpecVersion, Model: ck.Digest(), Dataset: r.Dataset.Digest(), Splits: splits, Sample: portion, Baseline: r.Baseline,
			Options: r.Options, Seed: r.Seed, Kernel: kernel.Name(), Until: r.Until, Audit: r.Audit, Days: r.Dataset.DayDigests(),
			Revision: r.Options.Traits().Revision, Loss: kind, Freeze: m.Frozen, Tasks: tasks,
		},
		Baseline: values, Architecture: m.Architecture, Dataset: r.Dataset,
	}
	if r.BaselineValues != nil || values.Words != nil {
		j.Spec.BaselineValues = Digest(&values)
	}
	if r.OfFields() {
		j.Spec.Players = r.Players
	}
	if r.Previous != nil {
		if err := r.Previous.checkJob(&j.Spec, r.Dataset, rows); err != nil {
			return nil, err
		}
		j.Spec.Previous, j.Previous = r.Previous.spec(), r.Previous.Scores
	}
	if j.Spec.Fresh, err = r.fresh(splits); err != nil {
		return nil, err
	}
	if err := j.weigh(&r, m); err != nil {
		return nil, err
	}
	if largest := r.Dataset.LargestWeight(); largest > 1 {
		j.Spec.LargestWeight = largest
		if r.Previous != nil {
			return nil, fault.Usagef("the rows of the dataset have weights: previous scores need rows that all count once")
		}
		if err := j.Spec.Weights().Validate(rows); err != nil {
			return nil, fault.Inputf("%w", err)
		}
	}
	if f := j.Spec.Fresh; f != nil && f.Weight > 1 {
		log.Info("counting the rows that the model was not trained on more often", zap.Int64("rows", f.Count()), zap.Int64("weight", f.Weight))
	}
	var drops, adds int
	if r.Options.Traits().Ranks {
		drops, adds = path.Rounds(&m.Architecture, r.Options.Sparsity)
		j.Spec.Adds = adds > 0
	}
	j.Sample = shard.SampleOf(&j.Spec, rows)
	j.ID = j.Spec.ID()
	j.Plan = r.plan(j, drops, adds)
	if r.Options.Traits().Ranks && j.Sample.Keep < scores.FewRows {
		log.Info("a path is noisy with few rows: compare it with an estimator of values by shaver sweep",
			zap.Int64("rows", j.Sample.Keep), zap.Int("enough", scores.FewRows), zap.String("estimator", estimator.Multilinear))
	}
	if err := j.Plan.Check(m.Columns()); err != nil {
		if r.RowsPerShard > 0 {
			return nil, fault.Usagef("rows per shard: %w", err)
		}
		return nil, fault.Inputf("the job is too large: %w", err)
	}
	if text := ck.Known().Unknown(); text != "" && r.Note != nil {
		r.Note(log, text)
	} else if text != "" {
		log.Info(text)
	}
	if text := r.Dataset.DoubtPads(m, true); text != "" {
		log.Warn(text)
	}
	if r.Options.Traits().Flips && r.Options.Passes < estimator.JumpPasses && m.Jumps() {
		log.Warn("the network rounds, compares or ranks what it reads, so its logit may jump, and standard errors of few passes may be too small: use more, or the estimator antithetic",
			zap.Int("passes", r.Options.Passes), zap.Int("enough", estimator.JumpPasses))
	}
	return &Prepared{Job: j, Source: ck, Model: m, Earlier: earlier}, nil
}

// freeze returns m without the players of the fields that r freezes.
func (r *Request) freeze(m *model.Model) (*model.Model, error) {
	var fields []int
	for _, name := range r.Freeze {
		j := slices.Index(r.Dataset.Fields(), name)
		if j < 0 {
			return nil, fault.Usagef("freeze: no field %q: the fields are %s", name, strings.Join(r.Dataset.Fields(), ", "))
		}
		fields = append(fields, j)
	}
	slices.Sort(fields)
	m = m.Freeze(nil) // a copy
	if err := m.Architecture.Freeze(slices.Compact(fields)); err != nil {
		return nil, fault.Usagef("freeze %s: %w", strings.Join(r.Freeze, ", "), err)
	}
	return m, nil
}

// Spec returns the specification of the job that r asks for.
func Spec(r Request) (*job.Spec, error) {
	p, err := New(r, zap.NewNop())
	if err != nil {
		return nil, err
	}
	return &p.Job.Spec, nil
}

// WithPlan returns a copy of the job with another plan.
func (j *Job) WithPlan(plan job.Plan) *Job {
	other := *j
	other.Plan = plan
	return &other
}

// Sampling describes the sample from which the job's sums are computed.
func (j *Job) Sampling() tally.Sampling {
	e := tally.NewSampling(j.Spec.TaskOptions(), j.Sample.Rows)
	e.Paired = j.Spec.Previous != nil
	e.Weights, e.Tasks = j.Spec.Weights(), len(j.Spec.Tasks)
	return e
}

// Scan calls visit with all rows of the job's splits, in batches of at most 4096;
// see dataset.Scan.
func (j *Job) Scan(ctx context.Context, visit func(*model.Rows) error) error {
	return j.Dataset.Scan(ctx, j.Spec.Splits, 4096, visit)
}

// validate checks the settings for a model with the architecture a.
func (r *Request) validate(a *model.Architecture) error {
	players := a.MostPlayers()
	switch r.Players {
	case "", estimator.Entries:
		if r.Baseline == baseline.Marginal {
			return fault.Usagef("baseline %s needs --players %s: an entry has the baseline %s", r.Baseline, estimator.Fields, strings.Join(baseline.Names(), " or "))
		}
	case estimator.Fields, estimator.Pairs:
		if err := r.validateFields(); err != nil {
			return err
		}
		players = a.Fields() + len(a.Dense)
		if r.Players == estimator.Pairs {
			if err := estimator.CheckPairs(players); err != nil {
				return fault.Inputf("the model has %w", err)
			}
		}
	default:
		return fault.Usagef("players %q: the players are %s, %s and %s", r.Players, estimator.Entries, estimator.Fields, estimator.Pairs)
	}
	if r.Baseline == baseline.Words && (r.OfFields() || r.Previous != nil) {
		return fault.Usagef("baseline %s: the values of fields, and previous scores, need one word for each field: use the baseline %s", r.Baseline, baseline.Codebook)
	}
	if r.Previous != nil {
		if err := r.Previous.checkSettings(r); err != nil {
			return err
		}
	}
	if err := r.Options.Validate(1); err != nil { // wrong for every model
		return fault.Usagef("%w", err)
	}
	if err := r.Options.Validate(players); err != nil {
		return fault.Inputf("%w", err)
	}
	if !(r.Sample > 0 && r.Sample <= 1) {
		return fault.Usagef("sample %v is outside (0, 1]", r.Sample)
	}
	if r.Ranges != 0 && (r.Previous != nil || r.Until != nil && (r.Until.Rule != "" || !r.Options.Traits().Ranks)) {
		return fault.Usagef("%d ranges: a job with a stop rule, with previous scores or, unless it is a path, with a time limit needs all sums in one process", r.Ranges)
	}
	if r.Audit != 0 && (!(r.Audit > 0 && r.Audit <= 1) || !r.Options.Traits().Draws || r.Options.Traits().Flips) {
		return fault.Usagef("audit %v with estimator %s: an audit needs estimator %s and a portion in (0, 1]", r.Audit, r.Options.Estimator, estimator.Multilinear)
	}
	if r.Options.Traits().Ranks {
		if err := r.validatePath(a.Parameters()); err != nil {
			return err
		}
	}
	if r.Until == nil {
		return nil
	}
	passes := r.Options.Passes
	if r.Previous != nil { // a round has all passes over its rows
		passes = 1
	}
	if err := r.Until.Validate(passes); err != nil {
		return fault.Usagef("%w", err)
	}
	if r.Previous != nil && r.Until.Rule == job.Paper {
		return fault.Usagef("the stop rule %s does not apply to a job that corrects previous scores: use %s or %s", job.Paper, job.Overlap, job.Error)
	}
	return nil
}

// OfFields reports whether r asks for the values of fields.
func (r *Request) OfFields() bool {
	return r.Players == estimator.Fields || r.Players == estimator.Pairs
}

// validateFields checks the settings of a job of fields.
func (r *Request) validateFields() error {
	if err := r.Options.ValidateFields(); err != nil {
		return fault.Usagef("%w", err)
	}
	switch {
	case len(r.Freeze) > 0:
		return fault.Usagef("players %s: freeze is for the players %s: ignore the value of the field instead", r.Players, estimator.Entries)
	case r.Previous != nil || r.BaselineValues != nil:
		return fault.Usagef("players %s: previous scores need the players %s", r.Players, estimator.Entries)
	case r.Ranges != 0:
		return fault.Usagef("players %s: %d ranges: the sums are a number for each field, so the coordinator keeps them", r.Players, r.Ranges)
	}
	return nil
}

// validatePath checks the settings of a path.
func (r *Request) validatePath(entries int) error {
	name := r.Options.Estimator
	if entries > path.MostEntries {
		return fault.Inputf("the tables have %d entries, and the estimator %s takes at most %d: use %s", entries, name, path.MostEntries, estimator.Multilinear)
	}
	switch {
	case r.Previous != nil:
		return fault.Usagef("estimator %s: previous scores need an estimator of values, such as %s", name, estimator.Debiased)
	case r.Until != nil && r.Until.Rule != "":
		return fault.Usagef("estimator %s: the stop rule %s needs an estimator of values, such as %s; a path can only have a time limit", name, r.Until.Rule, estimator.Multilinear)
	}
	return nil
}

// plan returns the plan of j, whose Spec and Sample are set. A path has the given numbers of rounds.
func (r *Request) plan(j *Job, drops, adds int) job.Plan {
	plan := job.Plan{Rows: j.Sample.Keep, RowsPerShard: r.RowsPerShard, InPlace: r.InPlace, Ranges: r.Ranges}
	switch {
	case r.Options.Traits().Ranks:
		plan.Rounds = j.Sample.PathRounds(drops, adds, r.Options.Parts)
		plan.Rows = 0
		for _, round := range plan.Rounds {
			plan.Rows += round.Rows
		}
	case r.Previous != nil:
		portions := 2
		if r.Until != nil {
			portions = job.Portions(j.Sample.Keep)
		}
		plan.Rounds = j.Sample.Rounds(portions, 1)
	case r.Until != nil:
		portions := 1
		if r.Until.Portioned() {
			portions = job.Portions(j.Sample.Keep)
		}
		plan.Rows *= int64(j.Spec.Passes)
		plan.Rounds = j.Sample.Rounds(portions, j.Spec.Passes)
	}
	if plan.RowsPerShard == 0 {
		plan.RowsPerShard = (&job.Sizing{Rows: j.Sample.Keep, Columns: j.Architecture.Columns()}).RowsPerShard()
	}
	return plan
}

// existingSplits returns the named splits that the dataset has, in the dataset's order.
func existingSplits(d *dataset.Dataset, names ...string) []string {
	return slices.DeleteFunc(d.SplitNames(), func(name string) bool { return !slices.Contains(names, name) })
}

// splits returns the splits to score. It leaves out a split that the dataset lacks,
// and logs that.
func (r *Request) splits(log *zap.Logger) ([]string, error) {
	known := dataset.SplitNames
	if len(r.Splits) == 0 {
		return nil, fault.Usagef("no split: expected some of %s", strings.Join(known, ", "))
	}
	for _, name := range r.Splits {
		if !slices.Contains(known, name) {
			return nil, fault.Usagef("split %q: the splits are %s", name, strings.Join(known, ", "))
		}
	}
	splits := existingSplits(r.Dataset, r.Splits...)
	if len(splits) == 0 {
		return nil, fault.Inputf("the dataset has none of the splits %s, only %s", strings.Join(r.Splits, ", "), strings.Join(r.Dataset.SplitNames(), ", "))
	}
	for _, name := range r.Splits {
		if !slices.Contains(splits, name) {
			log.Warn("leaving out a split that the dataset does not have", zap.String("split", name))
		}
	}
	return splits, nil
}

// baseline returns what a dropped entry reads. A codebook weighs values by their
// frequencies in train and val.
func (r *Request) baseline(m *model.Model, ck modelfile.Source, kind loss.Kind, log *zap.Logger) (b model.Baseline, err error) {
	if r.Baseline == baseline.Marginal {
		return b, nil
	}
	if !slices.Contains(baseline.Names(), r.Baseline) {
		return b, fault.Usagef("baseline %q: the baselines are %s", r.Baseline, strings.Join(baseline.Names(), ", "))
	}
	if r.BaselineValues != nil {
		if err := m.CheckBaseline(r.BaselineValues); err != nil {
			return b, fault.Inputf("%w", err)
		}
		return *r.BaselineValues, nil
	}
	var counts []int64
	if r.Baseline != baseline.Zero {
		if counts, err = r.Dataset.Frequencies(existingSplits(r.Dataset, dataset.Train, dataset.Val)...); err != nil {
			return b, err
		}
	}
	if r.Baseline == baseline.Words {
		return r.words(m, ck.Digest(), ck.Known().Tasks, kind, counts, log)
	}
	b, unseen, err := baseline.Of(r.Baseline, &m.Architecture, m.Weights.Embedding, counts)
	if err != nil {
		return b, fault.Usagef("%w", err)
	}
	for _, field := range unseen {
		log.Warn("no row has a value of this field, so its codebook entry is the unweighted mean", zap.String("field", r.Dataset.Fields()[field]))
	}
	return b, nil
}
