package picture

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is a value with its interval. Low and High are NaN if the interval is not known.
type Bar struct {
	Label            string
	Value, Low, High float64
}

// Values shows values as bars from 0, each with a line from the low to the high end of its
// interval. The first bar is at the top. unit says what the values are.
func Values(unit string, bars []Bar) *Picture {
	p := grid("Values of the fields, with 95% intervals", plain(unit), "")
	m := len(bars)
	var ticks []plot.Tick
	for j, b := range bars {
		ticks = append(ticks, plot.Tick{Value: float64(m - 1 - j), Label: short(b.Label)})
		for _, end := range []float64{0, b.Value, b.Low, b.High} {
			if !math.IsNaN(end) {
				p.X.Min, p.X.Max = min(p.X.Min, end), max(p.X.Max, end)
			}
		}
	}
	if !(p.X.Max > p.X.Min) {
		p.X.Min, p.X.Max = 0, 1
	}
	p.Y.Tick.Marker, p.X.Tick.Marker = plot.ConstantTicks(ticks), evenTicks{}
	p.Y.Min, p.Y.Max = -.5, float64(m)-.5
	p.Add(barList(bars))
	return &Picture{Name: "values", height: vg.Length(m)*vg.Points(15) + 3*vg.Centimeter, panels: []panel{{p, "Value of each field as a bar, with its 95% interval; the table has the numbers"}}}
}

type barList []Bar

// Plot draws the bars and then the intervals.
func (l barList) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for j, b := range l {
		at := y(float64(len(l) - 1 - j))
		c.SetColor(inks[0])
		fill(&c, x(min(0, b.Value)), at-vg.Points(3.5), x(max(0, b.Value)), at+vg.Points(3.5))
		if !math.IsNaN(b.Low) && !math.IsNaN(b.High) {
			line := draw.LineStyle{Color: inks[7], Width: vg.Points(1.2)}
			c.StrokeLine2(line, x(b.Low), at, x(b.High), at)
			for _, end := range []float64{b.Low, b.High} {
				c.StrokeLine2(line, x(end), at-vg.Points(2.5), x(end), at+vg.Points(2.5))
			}
		}
	}
}

// fill fills a rectangle with the colour of the canvas.
func fill(c *draw.Canvas, left, low, right, high vg.Length) {
	var path vg.Path
	path.Move(vg.Point{X: left, Y: low})
	for _, corner := range []vg.Point{{X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}} {
		path.Line(corner)
	}
	path.Close()
	c.Fill(path)
}

// Cell is a value of two names, which are indices. Unsure means that its interval holds 0 or is not known.
type Cell struct {
	I, J   int
	Value  float64
	Unsure bool
}

// Matrix shows values of pairs of names as squares, whose areas are the magnitudes. A value above
// 0 is a full square and one below 0 an empty one. A value that is unsure is a small point.
func Matrix(names []string, cells []Cell) *Picture {
	p := grid("Interactions of the fields", "", "")
	var across, down []plot.Tick
	m := len(names)
	for i, name := range names {
		across = append(across, plot.Tick{Value: float64(i), Label: short(name)})
		down = append(down, plot.Tick{Value: float64(m - 1 - i), Label: short(name)})
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(across), plot.ConstantTicks(down)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/2, draw.XRight, draw.YCenter
	p.X.Tick.Length = vg.Points(5) // room above the names
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -.6, float64(m)-.4, -.6, float64(m)-.4
	s := &squares{cells: cells, m: m}
	for _, c := range cells {
		s.most = max(s.most, math.Abs(c.Value))
	}
	p.Add(s)
	pic := &Picture{Name: "interactions", height: vg.Length(m)*vg.Points(15) + 4*vg.Centimeter, panels: []panel{{p, "Interaction of each pair of fields as a square; the table has the numbers"}}}
	for _, k := range []struct {
		label string
		shape draw.GlyphDrawer
		style int
		size  float64
	}{{"worth more together", draw.BoxGlyph{}, 0, 4}, {"redundant", draw.SquareGlyph{}, 1, 4}, {"may be chance", draw.CircleGlyph{}, 6, 1.2}} {
		pic.keys = append(pic.keys, key{k.label, []plot.Thumbnailer{&plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: inks[k.style], Radius: vg.Points(k.size), Shape: k.shape}}}})
	}
	return pic
}

type squares struct {
	cells []Cell
	m     int
	most  float64 // largest magnitude
}

// Plot draws each cell on both sides of the diagonal.
func (s *squares) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	room := min(x(1)-x(0), y(1)-y(0)) * .46
	for _, cell := range s.cells {
		for _, at := range [][2]int{{cell.I, cell.J}, {cell.J, cell.I}} {
			point := vg.Point{X: x(float64(at[0])), Y: y(float64(s.m - 1 - at[1]))}
			half := room * vg.Length(math.Sqrt(math.Abs(cell.Value)/max(s.most, math.SmallestNonzeroFloat64)))
			switch {
			case cell.Unsure:
				c.DrawGlyph(draw.GlyphStyle{Color: inks[6], Radius: vg.Points(1.2), Shape: draw.CircleGlyph{}}, point)
			case cell.Value > 0:
				c.SetColor(inks[0])
				fill(&c, point.X-half, point.Y-half, point.X+half, point.Y+half)
			default:
				c.StrokeLines(draw.LineStyle{Color: inks[1], Width: vg.Points(1.3)}, []vg.Point{
					{X: point.X - half, Y: point.Y - half}, {X: point.X + half, Y: point.Y - half}, {X: point.X + half, Y: point.Y + half}, {X: point.X - half, Y: point.Y + half}, {X: point.X - half, Y: point.Y - half},
				})
			}
		}
	}
}

// Removals shows the rise of the loss as a model loses fields and columns, with its interval: against
// the look-ups of a row, and against its multiplications. The X of curves are these numbers, descending.
func Removals(lookUps, multiplications []Curve) *Picture {
	pic := &Picture{Name: "removals", height: lowHeight}
	for _, part := range []struct {
		what   string
		curves []Curve
	}{{"look-ups", lookUps}, {"multiplications", multiplications}} {
		title := "Rise of the loss against the " + part.what + " of a row"
		p := grid(title, part.what+" of a row", "")
		p.Y.Tick.Marker, p.X.Tick.Marker = signedTicks{}, descendingTicks{}
		p.Add(levelLine(0))
		p.Add(labelled(p, part.curves, func(x float64) float64 { return -x }, false))
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = math.Inf(1), math.Inf(-1), 0, 0
		for _, c := range part.curves {
			p.X.Min, p.X.Max = min(p.X.Min, -slices.Max(c.X)), max(p.X.Max, -slices.Min(c.X))
			for _, list := range [][]float64{c.Y, c.Low, c.High} {
				for _, y := range list {
					p.Y.Min, p.Y.Max = min(p.Y.Min, y), max(p.Y.Max, y)
				}
			}
		}
		across, up := max((p.X.Max-p.X.Min)/20, 1e-6), max((p.Y.Max-p.Y.Min)/12, 1e-6)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = p.X.Min-across, p.X.Max+across, p.Y.Min-up, p.Y.Max+up
		pic.panels = append(pic.panels, panel{p, title + ", with its 95% interval; the table has the numbers"})
	}
	return pic
}

// descendingTicks marks about five whole numbers whose negatives are the coordinates.
type descendingTicks struct{}

func (descendingTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for _, t := range roundTicks(low, high, 5) {
		if n := -t.Value; n >= 0 && n == math.Trunc(n) {
			ticks = append(ticks, plot.Tick{Value: t.Value, Label: compactNumber(n)})
		}
	}
	return ticks
}

// compactNumber writes a whole number, above 9999 in thousands or millions.
func compactNumber(n float64) string {
	switch {
	case n >= 1e7:
		return strconv.FormatFloat(n/1e6, 'g', 4, 64) + "M"
	case n >= 1e4:
		return strconv.FormatFloat(n/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}
