//go:build unix

package main

import (
	"math"

	"shaver/internal/base/chart"
	"shaver/internal/value/estimator"
)

// style is how the curve of a method is drawn. The ink stands for the algorithm, and the dashes for the package.
type style struct {
	label       string
	ink, dashes int
}

const (
	own = iota // dashes
	shapiq
	other
)

var styles = map[string]style{
	estimator.Permutation:         {"permutation", 0, own},
	estimator.Antithetic:          {"antithetic", 3, own},
	estimator.Debiased:            {"debiased", 1, own},
	estimator.Multilinear:         {"multilinear", 8, own},
	"shapiq permutation":          {"shapiq permutation", 0, shapiq},
	"shapiq KernelSHAP":           {"shapiq KernelSHAP", 2, shapiq},
	"shapiq RegressionMSR":        {"shapiq RegressionMSR", 5, shapiq},
	"shapiq ProxySHAP":            {"shapiq ProxySHAP", 7, shapiq},
	"captum ShapleyValueSampling": {"captum sampling", 0, other},
	"captum KernelShap":           {"captum KernelShap", 2, other},
	"sage permutation":            {"sage permutation", 0, other},
	"sage kernel":                 {"sage kernel", 2, other},
}

// The errors that are drawn. Below, a method has evaluated all coalitions. Above, its values mean nothing, and it would
// flatten the other curves.
const (
	leastError = 1e-4
	mostError  = 4
)

// draw draws the error of each method over evaluations and over processor time, for each game.
func draw(results []*result, file string) error {
	f := &chart.Figure{Columns: 2, Width: 390, Height: 227}
	for _, r := range results {
		for _, x := range []struct {
			name string
			of   func(*point) float64
		}{{"evaluations per row", func(p *point) float64 { return p.Passes }}, {"processor time per row, ms", func(p *point) float64 { return 1e3 * p.Seconds }}} {
			axis := chart.Axis{Label: x.name, Scale: math.Log10, Ticks: chart.Log(chart.Short), Room: [2]float64{6, 6}}
			c := &chart.Chart{Title: r.game.name, About: "Relative error against " + x.name + ": " + r.game.name, X: axis, Y: axis, Marks: curves(r, x.of)}
			c.Y.Label = "relative error"
			f.Charts = append(f.Charts, c)
		}
	}
	return f.Write(file)
}

// curves returns the curves of a result, with gaps where errors are not drawn, and a line at the place of exact.
func curves(r *result, of func(*point) float64) (all []chart.Mark) {
	at := map[string]*chart.Series{}
	for _, p := range append(r.ours[:len(r.ours):len(r.ours)], r.others.points...) {
		if p.Method == estimator.Exact {
			all = append(all, &chart.Rule{Label: "exact (vertical)", At: of(&p), Vertical: true})
			continue
		}
		style, ok := styles[p.Method]
		if !ok || p.Error < leastError {
			continue
		}
		c := at[p.Method]
		y := p.Error
		if y > mostError {
			y = math.NaN()
		}
		if c == nil {
			if math.IsNaN(y) {
				continue
			}
			c = &chart.Series{Label: style.label, Style: chart.Style(style.ink, style.dashes), Small: true}
			at[p.Method], all = c, append(all, c)
		}
		c.X, c.Y = append(c.X, of(&p)), append(c.Y, y)
	}
	return all
}
