package picture

import (
	"math"

	"shaver/internal/base/chart"
	"shaver/internal/prune/benchmark"
)

// Benchmark shows the AUC of the methods against sparsity, for one kind of model. The left panel
// has the methods that prune a trained model in one shot, and the right one all others, on the same axes.
func Benchmark(d *benchmark.Document, kind string) *chart.Figure {
	shots := &chart.Chart{Title: "AUC of " + kind + ", pruned in one shot", About: "AUC against sparsity, of models pruned in one shot, tuned or not"}
	others := &chart.Chart{Title: "AUC of " + kind + ", other methods", About: "AUC against sparsity, of the other methods"}
	f := &chart.Figure{Name: "benchmark", Height: high, Charts: []*chart.Chart{shots, others}}
	curves := map[benchmark.Line]*chart.Series{}
	var order []benchmark.Line
	var names []string
	most, ends := 0.0, chart.Axis{Room: room}
	for _, l := range d.Lines(kind) {
		m := d.MeanOf(l)
		if math.IsNaN(m.AUC.Mean) {
			continue
		}
		ends.Ends = append(ends.Ends, m.AUC.Mean-m.AUC.Off, m.AUC.Mean+m.AUC.Off)
		if l.Method == benchmark.Full {
			rule := &chart.Rule{At: m.AUC.Mean}
			f.Keys = append(f.Keys, chart.Key{Label: "full table", Of: rule})
			shots.Marks, others.Marks = append(shots.Marks, rule), append(others.Marks, rule)
			continue
		}
		at := l.Sparsity
		most = max(most, at)
		if l.Sparsity = 0; curves[l] == nil {
			curves[l] = &chart.Series{Bars: true}
			order, names = append(order, l), append(names, l.Method)
		}
		add(curves[l], at, m.AUC)
	}
	for i, style := range Styles(names) {
		l, on := order[i], others
		if l.Baseline != "" {
			on = shots
		}
		curves[l].Style = style
		on.Marks = append(on.Marks, curves[l])
		f.Keys = append(f.Keys, chart.Key{Label: l.String(), Of: curves[l]})
	}
	for _, c := range f.Charts {
		c.X, c.Y = sparsityAxis(most), ends
	}
	return f
}
