package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"gonum.org/v1/gonum/stat/distuv"

	"shaver/internal/atomicfile"
	"shaver/internal/checkpoint"
	"shaver/internal/dataset"
	"shaver/internal/evaluate"
	"shaver/internal/loss"
	"shaver/internal/model"
	"shaver/internal/prune"
	"shaver/internal/scores"
	"shaver/internal/sweep"
)

var sparsities = []float64{.5, .8, .9, .95, .99, .995, .999}

// The metrics of a cell.
const (
	auc     = iota
	logLoss // calibrated on the val split
	metrics
)

// cell is a pruned model on the test split. Its differences are those from the reference with the
// same seed. Each has the standard error that the choice of rows causes.
type cell [metrics]struct{ Value, Difference, SE float64 }

// result is what is measured with a model and a baseline.
type result struct {
	Title    string
	Baseline string
	Real     bool
	Cells    map[string][][]cell  // [sparsities][seeds], by ranking
	CPU      map[string][]float64 // processor time of each job in seconds, by kind of job
}

// result reads or measures the result of a set with a baseline.
func (t *tool) result(ctx context.Context, s *set, base string) (*result, error) {
	r := &result{Title: s.title, Baseline: base, Real: s.real, Cells: map[string][][]cell{}, CPU: map[string][]float64{}}
	file := filepath.Join(t.work, s.name+"-"+base+".json")
	data, err := os.ReadFile(file)
	if err == nil {
		return r, json.Unmarshal(data, r)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := t.measure(ctx, s, r); err != nil {
		return nil, err
	}
	return r, atomicfile.Write(file, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
}

func (t *tool) measure(ctx context.Context, s *set, r *result) error {
	orders, g, err := t.orders(s, r)
	if err != nil {
		return err
	}
	for _, at := range sparsities {
		found := map[string][]*predicted{}
		for name, list := range orders {
			for _, order := range list {
				p, err := g.predict(ctx, order, at)
				if err != nil {
					return err
				}
				found[name] = append(found[name], p)
			}
		}
		for name, list := range found {
			var cells []cell
			for seed, to := range found[reference] {
				cells = append(cells, list[seed%len(list)].minus(to))
			}
			r.Cells[name] = append(r.Cells[name], cells)
		}
		fmt.Fprintln(os.Stderr, "  measured at", at)
	}
	return nil
}

// game is a model whose table is cut, and rows.
type game struct {
	model    *model.Model
	data     *dataset.Dataset
	baseline []float32
}

// orders returns the orders of each ranking, one for each seed on which it depends. It sets r.CPU.
func (t *tool) orders(s *set, r *result) (map[string][][]int32, *game, error) {
	ck, err := checkpoint.Read(s.model)
	if err != nil {
		return nil, nil, err
	}
	g := new(game)
	if g.model, err = ck.Model(); err != nil {
		return nil, nil, err
	}
	if g.data, err = dataset.Open(s.dataset); err != nil {
		return nil, nil, err
	}
	entries := g.model.Weights.Embedding
	table := sweep.Unpruned{Architecture: &g.model.Architecture, Entries: entries, Counts: func() ([]int64, error) {
		return g.data.Frequencies(dataset.Train, dataset.Val)
	}}
	orders := map[string][][]int32{}
	for i := range rankings {
		by := &rankings[i]
		for seed := range by.repeats() {
			var order []int32
			if by.job == "" {
				order, err = table.RivalOrder(by.name, g.baseline, 0)
			} else {
				var f *scores.File
				name := t.file(s, r.Baseline, by, seed)
				if f, err = scores.Read(name); err != nil {
					return nil, nil, err
				}
				g.baseline = f.Baseline
				if len(r.CPU[by.job]) == seed { // otherwise an earlier ranking has the same jobs
					spent, err := cpu(name)
					if err != nil {
						return nil, nil, err
					}
					r.CPU[by.job] = append(r.CPU[by.job], spent)
				}
				order, err = sweep.Order(f, by.aggregate, prune.Abs, entries)
			}
			if err != nil {
				return nil, nil, err
			}
			orders[by.name] = append(orders[by.name], order)
		}
	}
	return orders, g, nil
}

// cpu returns the processor time of a job in seconds, from the report next to its scores.
func cpu(file string) (float64, error) {
	data, err := os.ReadFile(file[:len(file)-len(filepath.Ext(file))] + ".job.json")
	if err != nil {
		return 0, err
	}
	var report struct {
		CPU float64 `json:"cpu_seconds"`
	}
	err = json.Unmarshal(data, &report)
	return report.CPU, err
}

// predicted holds the predictions of a pruned model on the test split.
type predicted struct {
	rows        *evaluate.Ranking
	calibration loss.Calibration
}

func (g *game) predict(ctx context.Context, order []int32, at float64) (*predicted, error) {
	a := &g.model.Architecture
	drop, err := prune.Budget{Unit: prune.Sparsity, Amount: at}.Drop(a, "", nil)
	if err != nil {
		return nil, err
	}
	m := g.model.WithEmbedding(prune.Apply(a, g.model.Weights.Embedding, prune.Mask(order, drop), g.baseline))
	of := func(split string) (*evaluate.Predictions, error) {
		return evaluate.Predict(ctx, m, loss.Logistic, func(ctx context.Context, each func(*model.Rows) error) error {
			return g.data.Scan(ctx, []string{split}, 4096, each)
		}, runtime.GOMAXPROCS(0))
	}
	val, err := of(dataset.Val)
	if err != nil {
		return nil, err
	}
	test, err := of(dataset.Test)
	if err != nil {
		return nil, err
	}
	return &predicted{evaluate.Rank(test), evaluate.Calibrate(val)}, nil
}

// minus returns the metrics of p and their differences from those of to.
func (p *predicted) minus(to *predicted) (c cell) {
	area := p.rows.Minus(to.rows).AUC
	c[auc].Value, c[auc].Difference, c[auc].SE = p.rows.AUC(), area.Value, area.SE
	off := evaluate.CompareLoss(to.rows.Predictions, p.rows.Predictions, to.calibration, p.calibration)
	c[logLoss].Value, c[logLoss].Difference, c[logLoss].SE = p.rows.MeanLoss(p.calibration), off.Value, off.SE
	return c
}

// value returns the mean of a metric over the seeds.
func value(cells []cell, metric int) (mean float64) {
	for i := range cells {
		mean += cells[i][metric].Value / float64(len(cells))
	}
	return mean
}

// difference returns the mean difference over the seeds, and half of its 95% interval. All seeds
// are measured on the same rows. So the errors that the choice of rows causes are taken to be
// equal for all seeds, and their variance is the mean of the seeds' variances. The spread of the seeds is
// independent of it, and the variance of its mean is the sample variance divided by the number of seeds.
// The interval uses Student's t with the degrees of freedom of Welch and Satterthwaite, which are
// unlimited for the rows.
func difference(cells []cell, metric int) (mean, half float64) {
	n := float64(len(cells))
	var rows, between float64
	for i := range cells {
		c := &cells[i][metric]
		mean += c.Difference / n
		rows += c.SE * c.SE / n
	}
	for i := range cells {
		off := cells[i][metric].Difference - mean
		between += off * off / (n * max(n-1, 1))
	}
	degrees := math.Inf(1)
	if between > 0 {
		degrees = (n - 1) * (rows + between) / between * (rows + between) / between
	}
	t := distuv.StudentsT{Sigma: 1, Nu: min(degrees, 1e6)}.Quantile(.975)
	return mean, t * math.Sqrt(rows+between)
}
