package coordinator

import (
	"slices"
	"strings"

	"go.uber.org/zap"

	"shaver/internal/baseline"
	"shaver/internal/bus"
	"shaver/internal/dataset"
	"shaver/internal/estimator"
	"shaver/internal/fault"
	"shaver/internal/job"
	"shaver/internal/kernel"
	"shaver/internal/shard"
)

// newRun checks that everything fits together, before anything is sent.
func newRun(b *bus.Bus, c *Config) (*run, error) {
	r := &run{Config: c, bus: b}
	var err error
	if r.checkpoint, err = c.Open(); err != nil {
		return nil, err
	}
	if r.model, err = r.checkpoint.Model(); err != nil {
		return nil, err
	}
	arch := r.model.Architecture
	r.arch = &arch
	if err := c.Dataset.CheckModel(&r.model.Architecture); err != nil {
		return nil, err
	}
	if err := c.Options.Validate(1); err != nil { // wrong for any model
		return nil, fault.Usagef("%w", err)
	}
	if err := c.Options.Validate(r.model.Players()); err != nil {
		return nil, fault.Inputf("%w", err)
	}
	if !(c.Sample > 0 && c.Sample <= 1) {
		return nil, fault.Usagef("sample %v is outside (0, 1]", c.Sample)
	}
	if c.Audit != 0 && (!(c.Audit > 0 && c.Audit <= 1) || !c.Options.Traits().Draws) {
		return nil, fault.Usagef("an audit of a portion of %v of the rows, by %s: it is of the %s estimator, and the portion in (0, 1]", c.Audit, c.Options.Estimator, estimator.Multilinear)
	}
	if c.Until != nil {
		if err := c.Until.Validate(c.Options.Passes); err != nil {
			return nil, fault.Usagef("%w", err)
		}
	}
	if r.baseline, err = r.codebook(); err != nil {
		return nil, err
	}
	if r.Splits, err = c.splits(); err != nil {
		return nil, err
	}
	rows := int64(0)
	for _, split := range r.Splits {
		rows += c.Dataset.Rows(split)
	}
	if c.MaxRows > 0 {
		c.Sample = min(1, float64(c.MaxRows)/float64(rows))
	}
	r.spec = job.Spec{
		Version: job.SpecVersion, Model: r.checkpoint.Digest(), Dataset: c.Dataset.Digest(), Splits: r.Splits, Sample: c.Sample, Baseline: c.Baseline,
		Options: c.Options, Seed: c.Seed, Kernel: kernel.Name(), Until: c.Until, Audit: c.Audit,
	}
	c.Options = r.spec.TaskOptions()
	r.id = r.spec.ID()
	r.log = c.Log.With(zap.String("job", r.id))
	r.sample = shard.NewSample(rows, c.Sample, c.Seed)
	r.plan = job.Plan{Rows: r.sample.Keep, RowsPerShard: c.RowsPerShard, InPlace: c.InPlace}
	if c.Until != nil {
		portions := 1
		if c.Until.Portioned() {
			portions = job.Portions(r.sample.Keep)
		}
		r.plan.Rows *= int64(r.spec.Passes)
		r.plan.Rounds = r.sample.Rounds(portions, r.spec.Passes)
	}
	if r.plan.RowsPerShard == 0 {
		r.plan.RowsPerShard = (&job.Sizing{Rows: r.sample.Keep}).RowsPerShard() // choose may do better
	}
	return r, nil
}

// JobID returns the id that the job of c has, without starting it.
func JobID(c Config) (string, error) {
	c.Log = zap.NewNop() // what it warns of, Run will
	r, err := newRun(nil, &c)
	if err != nil {
		return "", err
	}
	return r.id, nil
}

// having returns those of the named splits that the dataset has, in its order.
func having(d *dataset.Dataset, names ...string) []string {
	return slices.DeleteFunc(d.SplitNames(), func(name string) bool { return !slices.Contains(names, name) })
}

// splits returns the splits to score. One that the dataset lacks is left out,
// and said.
func (c *Config) splits() ([]string, error) {
	known := []string{dataset.Train, dataset.Val, dataset.Test}
	for _, name := range c.Splits {
		if !slices.Contains(known, name) {
			return nil, fault.Usagef("split %q: the splits are %s", name, strings.Join(known, ", "))
		}
	}
	splits := having(c.Dataset, c.Splits...)
	if len(splits) == 0 {
		return nil, fault.Inputf("the dataset has none of the splits %s, only %s", strings.Join(c.Splits, ", "), strings.Join(c.Dataset.SplitNames(), ", "))
	}
	for _, name := range c.Splits {
		if !slices.Contains(splits, name) {
			c.Log.Warn("the dataset has no such split: it is left out", zap.String("split", name))
		}
	}
	return splits, nil
}

// codebook returns the job's baseline; frequencies are those of train and val.
func (r *run) codebook() ([]float32, error) {
	var counts []int64
	if r.Baseline == baseline.Codebook {
		var err error
		if counts, err = r.Dataset.Frequencies(having(r.Dataset, dataset.Train, dataset.Val)...); err != nil {
			return nil, err
		}
	}
	values, unseen, err := baseline.Of(r.Baseline, &r.model.Architecture, r.model.Weights.Embedding, counts)
	if err != nil {
		return nil, fault.Usagef("%w", err)
	}
	for _, j := range unseen {
		r.Log.Warn("no row has a value of this field: its codebook entry is the plain mean", zap.String("field", r.Dataset.Fields()[j]))
	}
	return values, nil
}
