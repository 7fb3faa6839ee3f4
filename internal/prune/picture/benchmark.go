package picture

import (
	"math"

	"gonum.org/v1/plot"

	"shaver/internal/prune/benchmark"
)

// Benchmark shows the AUC of the methods against sparsity, for one kind of model. The left panel
// has the methods that prune a trained model in one shot, and the right one all others, on the same axes.
func Benchmark(d *benchmark.Document, kind string) *Picture {
	shapley, others := grid(plain("AUC of "+kind+", pruned in one shot"), "", ""), grid(plain("AUC of "+kind+", other methods"), "", "")
	p := &Picture{Name: "benchmark", height: panelHeight, panels: []panel{
		{shapley, "AUC against sparsity, of models pruned in one shot, tuned or not"}, {others, "AUC against sparsity, of the other methods"},
	}}
	curves := map[benchmark.Line]*points{}
	var order []benchmark.Line
	most := 0.0
	for _, l := range d.Lines(kind) {
		m := d.MeanOf(l)
		if math.IsNaN(m.AUC.Mean) {
			continue
		}
		if l.Method == benchmark.Full {
			p.keys = append(p.keys, key{"full table", []plot.Thumbnailer{horizontal(shapley, m.AUC.Mean)}})
			horizontal(others, m.AUC.Mean)
			continue
		}
		at := l.Sparsity
		most = max(most, at)
		if l.Sparsity = 0; curves[l] == nil {
			curves[l] = &points{}
			order = append(order, l)
		}
		curves[l].add(position(at), m.AUC.Mean, m.AUC.Off)
	}
	var names []string
	for _, l := range order {
		names = append(names, l.Method)
	}
	styles := Styles(names)
	for i, l := range order {
		on := others
		if l.Baseline != "" {
			on = shapley
		}
		p.keys = append(p.keys, key{plain(l.String()), curve(on, styles[i], curves[l], true)})
	}
	low, high := min(shapley.Y.Min, others.Y.Min), max(shapley.Y.Max, others.Y.Max)
	for _, panel := range p.panels {
		sparsityAxis(panel.Plot, most)
		room := (high - low) / 30
		panel.Y.Min, panel.Y.Max = low-room, high+room
	}
	return p
}
