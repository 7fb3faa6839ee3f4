package main

import (
	"context"

	"shaver/bench/gates"
	"shaver/bench/paired"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
)

var sparsities = []float64{.5, .8, .9, .95, .98, .99, .995}

// result is what is measured with the models of a set. The cells of a ranking are compared with those of reference.
type result struct {
	Title string
	Real  bool
	Cells map[string][][]paired.Cell // [sparsities][seeds], by ranking
	// Kept [sparsities] is the number of entries that are left, and Bytes [sparsities] the size of the compact file that the
	// reference gives, as the mean over the seeds.
	Kept  []int
	Bytes []int64
}

// result reads or measures the result of a set.
func (t *tool) result(s *set) *result {
	r := &result{Title: s.title, Real: s.real, Cells: map[string][][]paired.Cell{}, Kept: make([]int, len(sparsities)), Bytes: make([]int64, len(sparsities))}
	check(t.work.Measure(s.name+".json", r, func() error {
		r.Cells[unpruned] = make([][]paired.Cell, len(sparsities))
		for _, by := range rankings {
			r.Cells[by.name] = make([][]paired.Cell, len(sparsities))
		}
		for seed := 1; seed <= seeds; seed++ {
			t.measure(s, seed, r)
		}
		return nil
	}))
	return r
}

// measure adds the cells of a seed to r.
func (t *tool) measure(s *set, seed int, r *result) {
	ck, d := must(checkpoint.Read(s.model(seed))), must(dataset.Open(s.dataset))
	m := must(ck.Model())
	orders, values := t.orders(s, seed, m, d)
	predict := s.predictor(m, d)
	whole := predict(m)
	_, most := mask.PadsLast(&m.Architecture, orders[reference])
	floor := predict(m.WithEmbedding(mask.Apply(&m.Architecture, m.Weights.Embedding, mask.Of(orders[reference], most), values)))
	for i, at := range sparsities {
		drop := must(mask.Budget{Unit: mask.Sparsity, Amount: at}.Drop(&m.Architecture, &values, nil))
		found := map[string]*paired.Predicted{nothing: floor, unpruned: whole}
		for name, order := range orders {
			found[name] = predict(m.WithEmbedding(mask.Apply(&m.Architecture, m.Weights.Embedding, mask.Of(order, drop), values)))
		}
		for name, p := range found {
			r.Cells[name][i] = append(r.Cells[name][i], p.Minus(found[reference]))
		}
		r.Kept[i] = m.Prunable() - drop
		r.Bytes[i] += ck.CompactFootprint(mask.Of(orders[reference], drop), values, compact.Float32).File / seeds
	}
}

// predictor returns a function that predicts the test split with a model, calibrated on the val split. The rows of real users are grouped.
func (s *set) predictor(m *model.Model, d *dataset.Dataset) func(*model.Model) *paired.Predicted {
	test := must(measure.Open([]string{s.dataset}, dataset.Test, "", m, nil))
	if s.real {
		check(test.GroupBy(context.Background(), "user", evaluate.DefaultTop))
	}
	return func(m *model.Model) *paired.Predicted {
		return &paired.Predicted{Rows: evaluate.Rank(must(test.Predict(context.Background(), m, nil))), Calibration: evaluate.Calibrate(must(paired.Predict(m, d, dataset.Val)))}
	}
}

// orders returns the order of each ranking except nothing, and the values of the baseline.
func (t *tool) orders(s *set, seed int, m *model.Model, d *dataset.Dataset) (orders map[string][]int32, values model.Baseline) {
	entries := m.Weights.Embedding
	table := sweep.Unpruned{Architecture: &m.Architecture, Entries: entries, Counts: d.Occurrences}
	orders = map[string][]int32{}
	for _, r := range rankings { // those without scores come last, when the values are known
		switch {
		case r.name == nothing:
		case r.name == gated:
			orders[r.name] = gate(m, d, seed, values)
		case r.job == "":
			orders[r.name], _ = mask.PadsLast(&m.Architecture, must(table.RivalOrder(r.name, values, 0)))
		default:
			f := must(scores.Read(t.score(s, s.model(seed), r.job, seed, r.flags)))
			orders[r.name], values = must(sweep.Order(f, r.aggregate, mask.Abs, entries)), f.Baseline
		}
	}
	return orders, values
}

// gate returns the order of the gates that are trained on the train and the fresh rows.
func gate(m *model.Model, d *dataset.Dataset, seed int, values model.Baseline) []int32 {
	o := gates.Default
	o.Epochs, o.Seed = 5, uint64(seed)
	found := must(gates.Train(context.Background(), m, func(ctx context.Context, each func(*model.Rows) error) error {
		return d.Scan(ctx, []string{dataset.Train, dataset.Fresh}, 4096, each)
	}, o))
	return must(gates.Order(m, found, values))
}
