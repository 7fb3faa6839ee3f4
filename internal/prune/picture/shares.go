package picture

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Curve is a sequence of points (x, y).
type Curve struct {
	Label string
	X, Y  []float64
	// Low and High are an interval around each Y. Both are nil if there are no intervals.
	Low, High []float64
	Style     int  // number of the curve's style
	Strong    bool // the curve is drawn with a wide line
	Alone     bool // the points are not joined, and the first one has the label
}

// Fields shows the share of each field in several wholes. shares is [wholes][m], in [0,
// 1]. The first field is at the top.
func Fields(fields, wholes []string, shares [][]float64) *Picture {
	p := grid("Shares of the fields", "share, %", "")
	pic := dots(p, fields, wholes, func(k, j int) float64 { return 100 * shares[k][j] })
	pic.Name, pic.panels[0].about = "fields", "Shares of the fields, in percent"
	p.X.Min = 0
	return pic
}

// Concentration shows how few features of each field account for a given portion of the
// rows. features is [wholes][m], numbers of features from 1 on. The first field is at the
// top.
func Concentration(fields, wholes []string, features [][]int) *Picture {
	p := grid("How many features cover the rows", "number of features, most frequent first", "")
	pic := dots(p, fields, wholes, func(k, j int) float64 { return math.Log10(float64(max(features[k][j], 1))) })
	pic.Name, pic.panels[0].about = "concentration", "How many features of each field cover a given share of the rows"
	var ticks []plot.Tick
	for x, label := range []string{"1", "10", "100", "1k", "10k", "100k", "1M", "10M", "100M", "1G"} {
		ticks = append(ticks, plot.Tick{Value: float64(x), Label: label})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Min, p.X.Max = 0, max(math.Ceil(p.X.Max), 1)
	return pic
}

// dots draws a line for each field, the first at the top. On the line of field j it draws
// x(k, j) for each whole k.
func dots(p *plot.Plot, fields, wholes []string, x func(k, j int) float64) *Picture {
	m := len(fields)
	var ticks []plot.Tick
	for j, name := range fields {
		ticks = append(ticks, plot.Tick{Value: float64(m - 1 - j), Label: short(name)})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	pic := &Picture{height: vg.Length(m)*vg.Points(15) + 3*vg.Centimeter, panels: []panel{{Plot: p}}}
	// These shapes leave the marks below them visible.
	for k, shape := range []draw.GlyphDrawer{draw.RingGlyph{}, draw.CrossGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}[:len(wholes)] {
		var list plotter.XYs
		for j := range fields {
			list = append(list, plotter.XY{X: x(k, j), Y: float64(m - 1 - j)})
		}
		s := &plotter.Scatter{XYs: list, GlyphStyle: draw.GlyphStyle{Color: inks[k], Radius: vg.Points(3.5), Shape: shape}}
		p.Add(s)
		pic.keys = append(pic.keys, key{wholes[k], []plot.Thumbnailer{s}})
	}
	p.Y.Min, p.Y.Max = -.5, float64(m)-.5
	return pic
}

// Frequency shows the mean number of kept entries of a feature, for bins of features from
// rare to frequent. most is the largest number of entries of a feature, and of says in words
// how many entries features have. The X of a curve are the numbers of the bins.
func Frequency(most int, of string, bins []string, curves []Curve) *Picture {
	p := grid("Kept entries per feature, of "+of+", at each sparsity", "features, by how often they occur", "")
	var ticks []plot.Tick
	for i, name := range bins {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	pic := &Picture{Name: "frequency", height: lowHeight, panels: []panel{{p, "Kept entries per feature, by how often features occur"}}}
	p.Add(labelled(p, curves, func(x float64) float64 { return x }, false))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -.4, float64(len(bins))-.6, 0, float64(most)
	return pic
}

// Cut shows values, in nat, against the sparsity at which they are cut off. The value
// axis is logarithmic; values that are not positive are omitted.
func Cut(label string, curves []Curve) *Picture {
	p := grid("The value at the cut, "+label, "", "")
	sparsityAxis(p, .999)
	var logs []Curve
	for _, c := range curves {
		l := Curve{Label: c.Label}
		for i, y := range c.Y {
			if y > 0 {
				l.X, l.Y = append(l.X, position(c.X[i])), append(l.Y, math.Log10(y))
			}
		}
		logs = append(logs, l)
	}
	pic := &Picture{Name: "cut", height: lowHeight, panels: []panel{{p, "Value of the entry at the cut against sparsity, with its uncertainty"}}}
	for i, c := range logs {
		var list points
		for k, x := range c.X {
			list.add(x, c.Y[k], 0)
		}
		pic.keys = append(pic.keys, key{c.Label, curve(p, i, &list, false)})
	}
	logAxis(p)
	return pic
}

// Calibration shows how far observed rates are from predicted probabilities. The X of a
// curve are predicted probabilities, and its Y are the differences, with or without intervals.
func Calibration(curves []Curve) *Picture {
	p := grid("Observed rate minus predicted probability", "predicted probability", "")
	p.Y.Tick.Marker = signedTicks{}
	pic := &Picture{Name: "calibration", height: lowHeight, panels: []panel{{p, "Observed rate minus predicted probability, against predicted probability"}}}
	p.Add(levelLine(0))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 0, 0, 0
	for _, c := range curves {
		glyph, line := styles(c.Style)
		var list plotter.XYs
		for k, x := range c.X {
			list = append(list, plotter.XY{X: x, Y: c.Y[k]})
			p.X.Max = max(p.X.Max, x)
			p.Y.Min, p.Y.Max = min(p.Y.Min, c.Y[k]), max(p.Y.Max, c.Y[k])
		}
		if c.Low != nil {
			p.Add(&intervals{c, func(x float64) float64 { return x }})
			p.Y.Min, p.Y.Max = min(p.Y.Min, slices.Min(c.Low)), max(p.Y.Max, slices.Max(c.High))
		}
		if c.Strong {
			line.Width, line.Dashes = vg.Points(2.2), nil
		}
		l, s := &plotter.Line{XYs: list, LineStyle: line}, &plotter.Scatter{XYs: list, GlyphStyle: glyph}
		low, high, left, right := p.Y.Min, p.Y.Max, p.X.Min, p.X.Max
		p.Add(l, s)
		p.Y.Min, p.Y.Max, p.X.Min, p.X.Max = low, high, left, right
		pic.keys = append(pic.keys, key{c.Label, []plot.Thumbnailer{l, s}})
	}
	room := max((p.Y.Max-p.Y.Min)/12, 1e-6)
	p.Y.Min, p.Y.Max = p.Y.Min-room, p.Y.Max+room
	p.X.Max = max(1.05*p.X.Max, 1e-6)
	return pic
}
