package picture

import (
	"cmp"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Lines describes a panel of curves against sparsity. Each curve has its label at its end.
type Lines struct {
	Title  string
	About  string // description for readers who cannot see the panel
	Curves []Curve
	Levels []Level
	Below  bool // labels of curves that stand alone are below their points, not above
	// Low and High limit the y axis. Parts of curves beyond them are not drawn.
	Low, High float64
}

// Level is a labelled horizontal line.
type Level struct {
	Y     float64
	Label string
}

// Differences shows differences to the unpruned model against sparsity. Each panel has its
// own y axis.
func Differences(panels ...Lines) *Picture {
	return lines("differences", signedTicks{}, panels)
}

// Rankings shows metrics of pruned models against sparsity. Each panel has its own y axis. There
// are two panels in a row.
func Rankings(panels ...Lines) *Picture {
	pic := lines("rankings", evenTicks{}, panels)
	pic.columns = 2
	return pic
}

// lines returns a picture of panels whose y axes have the given ticks.
func lines(name string, ticks plot.Ticker, panels []Lines) *Picture {
	pic := &Picture{Name: name, height: lowHeight}
	for _, l := range panels {
		p := grid(l.Title, "", "")
		sparsityTicks(p, l.Curves)
		p.Y.Tick.Marker = ticks
		labels := labelled(p, l.Curves, position, l.Below)
		for _, level := range l.Levels {
			p.Add(levelLine(level.Y))
			labels = append(labels, endLabel{text: plain(level.Label), y: level.Y})
		}
		p.Add(labels)
		p.Y.Min, p.Y.Max = l.Low, l.High
		pic.panels = append(pic.panels, panel{p, l.About})
	}
	return pic
}

// labelled draws curves, intervals first. A point at X has the coordinate x(X). below is
// Lines.Below. labelled returns the labels for the ends of the curves.
func labelled(p *plot.Plot, curves []Curve, x func(float64) float64, below bool) (labels ends) {
	for _, c := range curves {
		if len(c.Low) > 0 {
			p.Add(&intervals{c, x})
		}
	}
	for _, c := range curves {
		if len(c.X) == 0 {
			continue
		}
		glyph, line := styles(c.Style)
		if c.Strong {
			line.Width, line.Dashes = vg.Points(2.2), nil
		}
		var list plotter.XYs
		for k, at := range c.X {
			list = append(list, plotter.XY{X: x(at), Y: c.Y[k]})
		}
		if c.Alone {
			p.Add(&plotter.Scatter{XYs: list, GlyphStyle: glyph}, &markLabel{list[0], short(c.Label), below})
			continue
		}
		p.Add(&plotter.Line{XYs: list, LineStyle: line}, &plotter.Scatter{XYs: list, GlyphStyle: glyph})
		labels = append(labels, endLabel{short(c.Label), list[len(list)-1].Y, glyph.Color, c.Strong})
	}
	return labels
}

// sparsityTicks makes the x axis an axis of sparsity that begins and ends with the curves.
// It has ticks at those sparsities of the points that have room for a label.
func sparsityTicks(p *plot.Plot, curves []Curve) {
	p.X.Label.Text = "sparsity (the axis is stretched towards 1)"
	var at []float64
	for _, c := range curves {
		if !c.Alone {
			at = append(at, c.X...)
		}
	}
	if len(at) == 0 {
		for _, c := range curves {
			at = append(at, c.X...)
		}
	}
	if len(at) == 0 {
		at = []float64{0, .5}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	p.X.Min, p.X.Max = position(at[0]), position(at[len(at)-1])
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min-.1, p.X.Max+.1
	}
	room := (p.X.Max - p.X.Min) / 16
	p.X.Min, p.X.Max = p.X.Min-room, p.X.Max+room
	var ticks []plot.Tick
	last := math.Inf(1)
	for _, t := range slices.Backward(at) {
		if x := position(t); last-x > (p.X.Max-p.X.Min)/9 {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(t, 'g', 4, 64)})
			last = x
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
}

// signedTicks marks round differences, about six of them, with their signs.
type signedTicks struct{}

func (signedTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for _, t := range roundTicks(low, high, 6) {
		t.Label = strings.Replace(t.Label, "-", "−", 1)
		if t.Value > 0 {
			t.Label = "+" + t.Label
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// evenTicks marks about six round values.
type evenTicks struct{}

func (evenTicks) Ticks(low, high float64) []plot.Tick { return roundTicks(low, high, 6) }

// roundTicks returns ticks at multiples of a round step, with as many decimals as the step
// needs. There are at most most+1 ticks.
func roundTicks(low, high float64, most int) []plot.Tick {
	if !(high > low) {
		return nil
	}
	scale := math.Pow(10, math.Floor(math.Log10((high-low)/float64(most))))
	step := 10 * scale
	for _, round := range []float64{1, 2, 5} {
		if (high-low)/(round*scale) <= float64(most) {
			step = round * scale
			break
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks []plot.Tick
	first := math.Ceil(low/step - 1e-9)
	for i := range most + 1 {
		k := first + float64(i)
		if k*step > high+1e-9*step {
			break
		}
		label := strconv.FormatFloat(k*step, 'f', decimals, 64)
		switch {
		case k == 0:
			label = "0"
		case len(label) > 8:
			label = strconv.FormatFloat(k*step, 'g', 3, 64)
		}
		ticks = append(ticks, plot.Tick{Value: k * step, Label: label})
	}
	return ticks
}

// levelLine is a dashed horizontal line at a value of y.
type levelLine float64

func (l levelLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	if at := y(float64(l)); at >= c.Min.Y && at <= c.Max.Y {
		c.StrokeLine2(levelStyle, c.Min.X, at, c.Max.X, at)
	}
}

var levelStyle = draw.LineStyle{Color: quiet, Width: vg.Points(.8), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}

// intervals draws the area between the Low and the High of a curve.
type intervals struct {
	Curve
	at func(float64) float64
}

func (b *intervals) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var corners []vg.Point
	for k := range b.X {
		corners = append(corners, vg.Point{X: x(b.at(b.X[k])), Y: y(b.High[k])})
	}
	for k := range slices.Backward(b.X) {
		corners = append(corners, vg.Point{X: x(b.at(b.X[k])), Y: y(b.Low[k])})
	}
	corners = c.ClipPolygonXY(corners)
	if len(corners) < 3 {
		return
	}
	c.SetColor(faded(inks[b.Style%len(inks)]))
	var path vg.Path
	path.Move(corners[0])
	for _, corner := range corners[1:] {
		path.Line(corner)
	}
	path.Close()
	c.Fill(path)
}

// faded is a transparent ink.
type faded color.RGBA

// RGBA rounds up, because vgsvg rounds down when it computes the ink from the result.
func (f faded) RGBA() (r, g, b, a uint32) {
	a = 0xffff / 5
	part := func(v uint8) uint32 { return (uint32(v)*a + 254) / 255 }
	return part(f.R), part(f.G), part(f.B), a
}

// markLabel writes a label above or below a point.
type markLabel struct {
	at    plotter.XY
	text  string
	below bool
}

func (m *markLabel) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := vg.Point{X: x(m.at.X), Y: y(m.at.Y)}
	if !c.Contains(at) {
		return
	}
	style := labelStyle()
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	at.Y += vg.Points(4)
	if m.below {
		style.YAlign = draw.YTop
		at.Y -= vg.Points(8)
	}
	c.FillText(style, at, m.text)
}

// ends writes the labels of curves at the right of the plot. Labels of curves that end close
// to each other, or beyond the y axis, are moved apart. A thin line in the ink of the curve joins a label to
// the end of its curve. There are no marks, which would look like points.
type ends []endLabel

type endLabel struct {
	text   string
	y      float64
	ink    color.Color // nil for a Level
	strong bool
}

const (
	labelGap  = 18 // from the end of the axis to a label, in points
	labelStep = 11 // least distance of two labels, in points
)

func (e ends) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	sorted := slices.Clone(e)
	slices.SortStableFunc(sorted, func(a, b endLabel) int { return cmp.Compare(b.y, a.y) })
	var tops []vg.Length
	for _, l := range sorted {
		tops = append(tops, min(max(y(l.y), c.Min.Y), c.Max.Y))
	}
	places := spaced(tops, c.Min.Y, vg.Points(labelStep))
	for i, l := range sorted {
		place := vg.Point{X: c.Max.X + vg.Points(labelGap), Y: places[i]}
		line := draw.LineStyle{Color: quiet, Width: vg.Points(.8)}
		if l.ink != nil {
			line.Color = l.ink
		}
		joint := vg.Point{X: c.Max.X + vg.Points(9), Y: places[i]}
		if at := y(l.y); at >= c.Min.Y && at <= c.Max.Y { // the curve ends on the axes
			c.StrokeLines(line, []vg.Point{{X: c.Max.X + vg.Points(1), Y: tops[i]}, joint})
		}
		c.StrokeLines(line, []vg.Point{joint, {X: place.X, Y: place.Y}})
		place.X += vg.Points(2)
		c.FillText(l.style(), place, l.text)
	}
}

// spaced returns heights, in descending order, that are at least step apart and at least low.
// It changes the given heights, which descend, as little as a single pass allows.
func spaced(heights []vg.Length, low, step vg.Length) []vg.Length {
	places := slices.Clone(heights)
	for i := 1; i < len(places); i++ {
		places[i] = min(places[i], places[i-1]-step)
	}
	for i := len(places) - 1; i >= 0; i-- {
		places[i] = max(places[i], low)
		low = places[i] + step
	}
	return places
}

func (l *endLabel) style() draw.TextStyle {
	style := labelStyle()
	style.YAlign = draw.YCenter
	if l.ink == nil {
		style.Color = quiet
	}
	if l.strong {
		style.Font.Weight = bold
	}
	return style
}

// GlyphBoxes keeps room for the labels at the right of the axis.
func (e ends) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	var boxes []plot.GlyphBox
	for _, l := range e {
		box := plot.GlyphBox{X: 1, Y: .5}
		box.Max.X = vg.Points(labelGap+2) + l.style().Width(l.text)
		boxes = append(boxes, box)
	}
	return boxes
}
