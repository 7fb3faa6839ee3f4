package main

import (
	"fmt"
	"strconv"

	"shaver/bench/paired"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/baseline"
	"shaver/internal/value/mask"
)

// sparsities are those of the tables.
var sparsities = []float64{.2, .5, .8, .9, .95, .99, .999}

// line is a way to prune.
type line struct {
	name      string
	baseline  string
	job       string // name of the job whose scores it needs, or "" for a rival of sweep
	aggregate string
}

// reference is the paper's ranking, with which the others are compared.
const reference = "shapley"

// lines are the ways to prune. Those without scores come last.
var lines = []line{
	{reference, baseline.Codebook, "multilinear", scores.Sum},
	{"shapley-rms", baseline.Codebook, "multilinear", scores.RMS},
	{"path", baseline.Codebook, "path", scores.ByPath},
	{"taylor", baseline.Codebook, "taylor", scores.Sum},
	{"taylor-rms", baseline.Codebook, "taylor", scores.RMS},
	{"shapley, .1 of the rows", baseline.Codebook, "tenth", scores.Sum},
	{"shapley, .01 of the rows", baseline.Codebook, "hundredth", scores.Sum},
	{"shapley, zero", baseline.Zero, "multilinear", scores.Sum},
	{sweep.Frequency, baseline.Codebook, "", ""},
	{sweep.Magnitude, baseline.Codebook, "", ""},
}

// jobs are the flags of shaver score by the name of the job.
var jobs = map[string][]string{
	"multilinear": {"--estimator", "multilinear"},
	"tenth":       {"--estimator", "multilinear", "--sample", ".1"},
	"hundredth":   {"--estimator", "multilinear", "--sample", ".01"},
	"path":        {"--estimator", "path", "--parts", "16"},
	"taylor":      {"--estimator", "taylor"},
}

// quantizers are the methods of PTQ.
var quantizers = []string{"ptq4", "ptq8", "ptq16"}

// against is a pruned model on the test split, compared with the unpruned one and with the reference
// at the same sparsity.
type against struct{ Unpruned, Reference paired.Cell }

// pruned is what is measured of pruned models.
type pruned struct {
	Rows, Features int         // of the test split, and of the table
	Whole          paired.Cell // the unpruned model
	Lines          map[string][]against
	PTQ            []against // by quantizer, with the reference at the sparsity that it counts as
	Bins           []float64 // mean number of kept entries per feature at .5 with the reference, rarest features first
}

// scores returns the name of the scores file of a job, which it runs unless that is done.
func (t *tool) scores(r *repeat, job, base string) (string, error) {
	name := fmt.Sprintf("%s-%s-%s.arrow", r.name, base, job)
	return name, t.work.Make(name, append([]string{"score", "--model", r.model, "--dataset", r.dataset, "--splits", "train", "--baseline", base, "--seed", strconv.Itoa(r.seed), "--out", t.work.Path(name)}, jobs[job]...)...)
}

func (t *tool) prune(r *repeat, to *pruned) error {
	if err := t.bins(r, to); err != nil {
		return err
	}
	c, err := checkpoint.Read(r.model)
	if err != nil {
		return err
	}
	m, err := c.Model()
	if err != nil {
		return err
	}
	d, err := dataset.Open(r.dataset)
	if err != nil {
		return err
	}
	cuts := cutter{m, d, sweep.Unpruned{Architecture: &m.Architecture, Names: d.Fields(), Entries: m.Weights.Embedding, Values: compact.Float32, Counts: func() ([]int64, error) { return d.Frequencies(dataset.Train, dataset.Val) }}, map[string]sweep.Method{}}
	var values model.Baseline // the codebook
	for _, l := range lines {
		if l.job == "" {
			if cuts.methods[l.name], err = cuts.table.Rival(l.name, l.baseline, values, 0); err != nil {
				return err
			}
			continue
		}
		name, err := t.scores(r, l.job, l.baseline)
		if err != nil {
			return err
		}
		f, err := scores.Read(t.work.Path(name))
		if err != nil {
			return err
		}
		if l.baseline == baseline.Codebook {
			values = f.Baseline
		}
		if cuts.methods[l.name], err = cuts.table.ByScores(f, 0, l.aggregate, mask.Abs); err != nil {
			return err
		}
	}
	return cuts.measure(to)
}

// bins measures the paper's RQ5.
func (t *tool) bins(r *repeat, to *pruned) error {
	name, err := t.scores(r, "multilinear", baseline.Codebook)
	if err != nil {
		return err
	}
	var view struct{ All []mask.Bin }
	if err := t.work.Print(r.name+"-frequency.json", &view, "scores", "frequency", t.work.Path(name), "--model", r.model, "--aggregate", scores.Sum, "--sparsity", ".5", "--top", "0"); err != nil {
		return err
	}
	for _, b := range view.All {
		to.Bins = append(to.Bins, b.Mean)
	}
	return nil
}

// cutter measures tables of a model.
type cutter struct {
	model   *model.Model
	data    *dataset.Dataset
	table   sweep.Unpruned
	methods map[string]sweep.Method // by line
}

func (c *cutter) measure(to *pruned) error {
	unpruned, err := c.predict(c.model)
	if err != nil {
		return err
	}
	to.Rows, to.Features, to.Whole, to.Lines = len(unpruned.Rows.Labels), c.model.Features(), unpruned.Minus(unpruned), map[string][]against{}
	for _, at := range sparsities {
		first, err := c.cut(c.methods[reference], at)
		if err != nil {
			return err
		}
		for _, l := range lines {
			p := first
			if l.name != reference {
				if p, err = c.cut(c.methods[l.name], at); err != nil {
					return err
				}
			}
			to.Lines[l.name] = append(to.Lines[l.name], against{p.Minus(unpruned), p.Minus(first)})
		}
	}
	for _, name := range quantizers {
		q, err := c.table.Rival(name, "", model.Baseline{}, 0)
		if err != nil {
			return err
		}
		at := q.Own()[0].Amount
		p, err := c.cut(q, at)
		if err != nil {
			return err
		}
		first, err := c.cut(c.methods[reference], at)
		if err != nil {
			return err
		}
		to.PTQ = append(to.PTQ, against{p.Minus(unpruned), p.Minus(first)})
	}
	return nil
}

// cut returns the predictions of the model at a sparsity.
func (c *cutter) cut(m sweep.Method, sparsity float64) (*paired.Predicted, error) {
	_, table, err := m.Cut(mask.Budget{Unit: mask.Sparsity, Amount: sparsity})
	if err != nil {
		return nil, err
	}
	return c.predict(c.model.WithEmbedding(table))
}

// predict returns predictions without calibration, as the paper measures LogLoss.
func (c *cutter) predict(m *model.Model) (*paired.Predicted, error) {
	p, err := paired.Predict(m, c.data, dataset.Test)
	if err != nil {
		return nil, err
	}
	return &paired.Predicted{Rows: evaluate.Rank(p), Calibration: loss.Uncalibrated}, nil
}
