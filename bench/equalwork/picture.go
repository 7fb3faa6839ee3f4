//go:build unix

package main

import (
	"cmp"
	"image/color"
	"io"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"shaver/bench/axes"
	"shaver/internal/base/atomicfile"
	"shaver/internal/value/estimator"
)

// style is how the curve of a method is drawn. Colour-blind people can distinguish the colours, which
// stand for the algorithm. The dashes stand for the package.
type style struct {
	label  string
	colour color.RGBA
	dashes []vg.Length
}

var (
	blue   = color.RGBA{0, 114, 178, 255}
	sky    = color.RGBA{86, 180, 233, 255}
	red    = color.RGBA{213, 94, 0, 255}
	orange = color.RGBA{230, 159, 0, 255}
	green  = color.RGBA{0, 158, 115, 255}
	pink   = color.RGBA{204, 121, 167, 255}
	black  = color.RGBA{0, 0, 0, 255}

	shapiq = []vg.Length{vg.Points(5), vg.Points(2)}
	other  = []vg.Length{vg.Points(1.5), vg.Points(1.5)}
)

var styles = map[string]style{
	estimator.Permutation:         {"permutation", blue, nil},
	estimator.Antithetic:          {"antithetic", sky, nil},
	estimator.Debiased:            {"debiased", red, nil},
	estimator.Multilinear:         {"multilinear", orange, nil},
	"shapiq permutation":          {"shapiq permutation", blue, shapiq},
	"shapiq KernelSHAP":           {"shapiq KernelSHAP", green, shapiq},
	"shapiq RegressionMSR":        {"shapiq RegressionMSR", pink, shapiq},
	"shapiq ProxySHAP":            {"shapiq ProxySHAP", black, shapiq},
	"captum ShapleyValueSampling": {"captum sampling", blue, other},
	"captum KernelShap":           {"captum KernelShap", green, other},
	"sage permutation":            {"sage permutation", blue, other},
	"sage kernel":                 {"sage kernel", green, other},
}

// The errors that are drawn. Below, a method has evaluated all coalitions. Above, its values mean nothing, and it would
// flatten the other curves.
const (
	leastError = 1e-4
	mostError  = 4
)

// draw draws the error of each method over evaluations and over processor time, for each game.
func draw(results []*result, file string) error {
	grid := make([][]*plot.Plot, 2)
	for j, r := range results {
		for i, x := range []struct {
			name string
			of   func(*point) float64
		}{{"evaluations per row", func(p *point) float64 { return p.Passes }}, {"processor time per row, ms", func(p *point) float64 { return 1e3 * p.Seconds }}} {
			p, err := panel(r, x.of)
			if err != nil {
				return err
			}
			if i == 0 {
				p.Title.Text = r.game.name
			}
			if p.X.Label.Text = x.name; j == 0 {
				p.Y.Label.Text = "relative error"
			}
			grid[i] = append(grid[i], p)
		}
	}
	canvas := vgsvg.New(vg.Length(len(results))*9*vg.Centimeter, 16*vg.Centimeter)
	tiles := plotdraw.Tiles{Rows: 2, Cols: len(results), PadX: vg.Millimeter * 3, PadY: vg.Millimeter * 4, PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2, PadLeft: vg.Millimeter * 2, PadRight: vg.Millimeter * 2}
	paper := plotdraw.New(canvas)
	paper.SetColor(color.White)
	paper.Fill(paper.Rectangle.Path())
	for i, row := range plot.Align(grid, tiles, paper) {
		for j, c := range row {
			grid[i][j].Draw(c)
		}
	}
	return atomicfile.Write(file, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
}

// curve is a method in one panel. Its line has a gap where errors are not drawn.
type curve struct {
	style
	lines []plotter.XYs
}

// end returns the right end of a curve.
func (c *curve) end() plotter.XY {
	last := c.lines[len(c.lines)-1]
	return last[len(last)-1]
}

// curves returns the curves of a result, and the place of exact, or 0.
func curves(r *result, of func(*point) float64) (all []curve, exact float64) {
	at := map[string]int{}
	for _, p := range append(r.ours[:len(r.ours):len(r.ours)], r.others.points...) {
		if p.Method == estimator.Exact {
			exact = of(&p)
			continue
		}
		style, ok := styles[p.Method]
		if !ok || p.Error < leastError {
			continue
		}
		if _, ok := at[p.Method]; !ok {
			at[p.Method] = len(all)
			all = append(all, curve{style: style, lines: []plotter.XYs{nil}})
		}
		c := &all[at[p.Method]]
		last := len(c.lines) - 1
		switch {
		case p.Error <= mostError:
			c.lines[last] = append(c.lines[last], plotter.XY{X: of(&p), Y: p.Error})
		case len(c.lines[last]) > 0:
			c.lines = append(c.lines, nil)
		}
	}
	for i := range all {
		all[i].lines = slices.DeleteFunc(all[i].lines, func(l plotter.XYs) bool { return len(l) == 0 })
	}
	return slices.DeleteFunc(all, func(c curve) bool { return len(c.lines) == 0 }), exact
}

// panel returns a plot of the curves of a result. Their names are at their right ends.
func panel(r *result, of func(*point) float64) (*plot.Plot, error) {
	p := plot.New()
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(axes.Ticks)
	p.Add(plotter.NewGrid())
	all, exact := curves(r, of)
	for _, c := range all {
		for _, line := range c.lines {
			l, s, err := plotter.NewLinePoints(line)
			if err != nil {
				return nil, err
			}
			l.Color, l.Dashes, s.Color, s.Shape, s.Radius = c.colour, c.dashes, c.colour, plotdraw.CircleGlyph{}, vg.Points(1.8)
			p.Add(l, s)
		}
	}
	most := max(p.X.Max, exact) // the names are to the right of it
	p.X.Tick.Marker = plot.TickerFunc(func(from, to float64) []plot.Tick {
		return slices.DeleteFunc(axes.Ticks(from, to), func(t plot.Tick) bool { return t.Value > most })
	})
	if exact > 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: exact, Y: p.Y.Min}, {X: exact, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes = color.Gray{110}, other
		p.Add(line)
		all = append(all, curve{style{"exact (vertical)", color.RGBA{110, 110, 110, 255}, nil}, []plotter.XYs{{{X: exact, Y: p.Y.Min}}}})
	}
	labels, err := names(all, most, p.Y.Min, p.Y.Max)
	if err != nil {
		return nil, err
	}
	p.Add(labels)
	p.X.Max = most * math.Pow(most/p.X.Min, .62)
	return p, nil
}

// names returns the names of the curves, next to their right ends and not above one another.
func names(all []curve, x, low, high float64) (*plotter.Labels, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b curve) int { return cmp.Compare(a.end().Y, b.end().Y) })
	gap := math.Log(high/low) / 17
	y := make([]float64, len(all))
	for i, c := range all {
		y[i] = math.Log(c.end().Y)
		if i > 0 {
			y[i] = max(y[i], y[i-1]+gap)
		}
	}
	for i, top := len(all)-1, math.Log(high); i >= 0; i, top = i-1, top-gap {
		y[i] = min(y[i], top)
	}
	var at plotter.XYLabels
	for i, c := range all {
		at.XYs = append(at.XYs, plotter.XY{X: x, Y: math.Exp(y[i])})
		at.Labels = append(at.Labels, c.label)
	}
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return nil, err
	}
	labels.Offset = vg.Point{X: vg.Points(4)}
	for i := range labels.TextStyle {
		s := &labels.TextStyle[i]
		s.Color, s.Font.Size, s.YAlign = all[i].colour, vg.Points(8), text.YCenter
		s.Handler = plot.DefaultTextHandler
	}
	return labels, nil
}
