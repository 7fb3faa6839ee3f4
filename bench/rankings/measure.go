package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"

	"gonum.org/v1/gonum/stat/distuv"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
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
	Cells    map[string][][]cell // [sparsities][seeds], by ranking
}

// result reads or measures the result of a set with a baseline.
func (t *tool) result(s *set, base string) *result {
	r := &result{Title: s.title, Baseline: base, Real: s.real, Cells: map[string][][]cell{}}
	file := filepath.Join(t.work, s.name+"-"+base+".json")
	if data, err := os.ReadFile(file); err == nil {
		check(json.Unmarshal(data, r))
		return r
	}
	t.measure(s, r)
	check(atomicfile.Write(file, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) }))
	return r
}

func (t *tool) measure(s *set, r *result) {
	m, d := must(must(checkpoint.Read(s.model)).Model()), must(dataset.Open(s.dataset))
	orders, values := t.orders(s, r.Baseline, m, d)
	for _, at := range sparsities {
		drop := must(mask.Budget{Unit: mask.Sparsity, Amount: at}.Drop(&m.Architecture, r.Baseline, nil))
		found := map[string][]*predicted{}
		for name, list := range orders {
			for _, order := range list {
				table := mask.Apply(&m.Architecture, m.Weights.Embedding, mask.Of(order, drop), values)
				found[name] = append(found[name], predict(m.WithEmbedding(table), d))
			}
		}
		for name, list := range found {
			var cells []cell
			for seed, to := range found[reference] {
				cells = append(cells, list[seed%len(list)].minus(to))
			}
			r.Cells[name] = append(r.Cells[name], cells)
		}
	}
}

// orders returns the orders of each ranking, one for each seed, and the values of the baseline.
func (t *tool) orders(s *set, base string, m *model.Model, d *dataset.Dataset) (orders map[string][][]int32, values []float32) {
	entries := m.Weights.Embedding
	table := sweep.Unpruned{Architecture: &m.Architecture, Entries: entries, Counts: func() ([]int64, error) { return d.Frequencies(dataset.Train, dataset.Val) }}
	orders = map[string][][]int32{}
	for _, r := range rankings { // those without scores come last, when the values are known
		for seed := range r.seeds {
			var order []int32
			if r.job == "" {
				order = must(table.RivalOrder(r.name, values, 0))
			} else {
				f := must(scores.Read(t.file(s, base, &r, seed)))
				order, values = must(sweep.Order(f, r.aggregate, mask.Abs, entries)), f.Baseline
			}
			orders[r.name] = append(orders[r.name], order)
		}
	}
	return orders, values
}

// predicted holds the predictions of a pruned model on the test split.
type predicted struct {
	rows        *evaluate.Ranking
	calibration loss.Calibration
}

func predict(m *model.Model, d *dataset.Dataset) *predicted {
	on := func(split string) *evaluate.Predictions {
		return must(evaluate.Predict(context.Background(), m, loss.Logistic, func(ctx context.Context, each func(*model.Rows) error) error {
			return d.Scan(ctx, []string{split}, 4096, each)
		}, runtime.GOMAXPROCS(0)))
	}
	return &predicted{evaluate.Rank(on(dataset.Test)), evaluate.Calibrate(on(dataset.Val))}
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
// are measured on the same rows. So the errors that the choice of rows causes are taken to be equal
// for all seeds, and their variance is the mean of the seeds' variances. The spread of the seeds is
// independent of them. The variance of its mean is the sample variance divided by the number of
// seeds. The interval uses Student's t with the degrees of freedom of Welch and Satterthwaite,
// which are unlimited for the rows.
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
