//go:build unix

package main

import (
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"shaver/bench/axes"
	"shaver/internal/base/atomicfile"
)

// colours are the colours of the curves. Colour-blind people can distinguish them too.
var colours = []color.RGBA{{0, 114, 178, 255}, {86, 180, 233, 255}, {213, 94, 0, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {0, 0, 0, 255}}

var glyphs = []plotdraw.GlyphDrawer{plotdraw.CircleGlyph{}, plotdraw.SquareGlyph{}, plotdraw.TriangleGlyph{}, plotdraw.PyramidGlyph{}, plotdraw.RingGlyph{}, plotdraw.CrossGlyph{}}

// draw draws the error in ranks and the error in values over time, for each result.
func draw(results []*result, file string) error {
	grid := make([][]*plot.Plot, 2)
	var legend *plot.Plot // drawn as a panel of its own
	for i, figure := range []struct {
		name string
		of   func(*point) float64
	}{{"1 - Spearman", func(p *point) float64 { return 1 - p.spearman }}, {"relative RMS error", func(p *point) float64 { return p.rms }}} {
		for j, r := range results {
			p, err := panel(r, figure.of)
			if err != nil {
				return err
			}
			if i == 0 {
				p.Title.Text = r.name
			} else {
				p.X.Label.Text = "core-seconds per thousand rows"
			}
			if j == 0 {
				p.Y.Label.Text = figure.name
			}
			if legend == nil {
				legend = plot.New()
				legend.HideAxes()
				legend.Legend, legend.Legend.Left, legend.Legend.Top = p.Legend, true, true
			}
			p.Legend = plot.NewLegend()
			grid[i] = append(grid[i], p)
		}
	}
	grid[0], grid[1] = append(grid[0], legend), append(grid[1], nil)
	width := vg.Length(len(results)+1) * 7 * vg.Centimeter
	canvas := vgsvg.New(width, 14*vg.Centimeter)
	tiles := plotdraw.Tiles{Rows: 2, Cols: len(results) + 1, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4, PadTop: vg.Millimeter * 2, PadBottom: vg.Millimeter * 2, PadLeft: vg.Millimeter * 2, PadRight: 3 * vg.Centimeter} // the wide right margin is for the legend
	paper := plotdraw.New(canvas)
	paper.SetColor(color.White)
	paper.Fill(paper.Rectangle.Path())
	for i, row := range plot.Align(grid, tiles, paper) {
		for j, c := range row {
			if grid[i][j] != nil {
				grid[i][j].Draw(c)
			}
		}
	}
	return atomicfile.Write(file, func(w io.Writer) error {
		_, err := canvas.WriteTo(w)
		return err
	})
}

// panel returns a plot of the curves of a result.
func panel(r *result, of func(*point) float64) (*plot.Plot, error) {
	p := plot.New()
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(axes.Ticks), plot.TickerFunc(axes.Ticks)
	p.Add(plotter.NewGrid())
	for c, points := range r.points {
		var line plotter.XYs
		for _, q := range points {
			if y := of(&q); y > 0 { // leave out values that have no logarithm
				line = append(line, plotter.XY{X: q.cpu / float64(r.rows) * 1000, Y: y})
			}
		}
		l, s, err := plotter.NewLinePoints(line)
		if err != nil {
			return nil, err
		}
		l.Color, s.Color, s.Shape, s.Radius = colours[c], colours[c], glyphs[c], vg.Points(3)
		p.Add(l, s)
		p.Legend.Add(strings.ReplaceAll(r.curves[c].name, "multilinear, ", "multilinear "), l, s)
	}
	return p, nil
}
