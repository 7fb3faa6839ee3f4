package main

import (
	"shaver/bench/paired"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

var sparsities = []float64{.5, .8, .9, .95, .99, .995, .999}

// result is what is measured with a model and a baseline.
type result struct {
	Title    string
	Baseline string
	Real     bool
	Cells    map[string][][]paired.Cell // [sparsities][seeds], by ranking
}

// result reads or measures the result of a set with a baseline.
func (t *tool) result(s *set, base string) *result {
	r := &result{Title: s.title, Baseline: base, Real: s.real, Cells: map[string][][]paired.Cell{}}
	check(t.work.Measure(s.name+"-"+base+".json", r, func() error { t.measure(s, r); return nil }))
	return r
}

func (t *tool) measure(s *set, r *result) {
	m, d := must(must(checkpoint.Read(s.model)).Model()), must(dataset.Open(s.dataset))
	orders, values := t.orders(s, r.Baseline, m, d)
	for _, at := range sparsities {
		drop := must(mask.Budget{Unit: mask.Sparsity, Amount: at}.Drop(&m.Architecture, r.Baseline, nil))
		found := map[string][]*paired.Predicted{}
		for name, list := range orders {
			for _, order := range list {
				table := mask.Apply(&m.Architecture, m.Weights.Embedding, mask.Of(order, drop), values)
				found[name] = append(found[name], predict(m.WithEmbedding(table), d))
			}
		}
		for name, list := range found {
			var cells []paired.Cell
			for seed, to := range found[reference] {
				cells = append(cells, list[seed%len(list)].Minus(to))
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

// predict returns the predictions for the test split, calibrated on the val split.
func predict(m *model.Model, d *dataset.Dataset) *paired.Predicted {
	return &paired.Predicted{Rows: evaluate.Rank(must(paired.Predict(m, d, dataset.Test))), Calibration: evaluate.Calibrate(must(paired.Predict(m, d, dataset.Val)))}
}
