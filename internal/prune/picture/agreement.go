package picture

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Agreement describes how far two estimates agree.
type Agreement struct {
	X, Y      string  // names of the estimates
	Unit      string  // what the values are
	Low, High float64 // ends of both axes, as exponents of ten
	Count     [][]int // [cells][cells], number of entries by the cell of X, then by that of Y
	Overlap   Curve   // portion of kept entries against sparsity; labels and styles are not used
}

// levels are the colours of cells with up to 9, 99, 999 entries, and so on, from light to
// dark. All differ in brightness.
var levels = []color.RGBA{
	{217, 230, 242, 255}, {166, 200, 228, 255}, {107, 166, 209, 255}, {49, 128, 186, 255}, {8, 88, 153, 255}, {8, 55, 107, 255}, {0, 20, 50, 255},
}

// Draw returns a picture of two panels. The left one has the number of entries with each pair
// of values. The right one has the portion of the kept entries that both estimates keep. The
// size of the picture does not depend on the number of entries.
func (a *Agreement) Draw() *Picture {
	values := blank()
	values.Title.Text = "Entries by the magnitudes of both values, " + plain(a.Unit)
	values.X.Label.Text, values.Y.Label.Text = plain(a.X), plain(a.Y)
	values.X.Min, values.X.Max, values.Y.Min, values.Y.Max = a.Low, a.High, a.Low, a.High
	logAxis(values)
	values.X.Tick.Marker = values.Y.Tick.Marker
	pic := &Picture{Name: "agreement", height: panelHeight}
	for level, ink := range levels {
		c := &cells{Agreement: a, level: level, ink: ink}
		if c.any() {
			values.Add(c)
			pic.keys = append(pic.keys, key{c.label(), []plot.Thumbnailer{c}})
		}
	}
	equal := &plotter.Line{XYs: plotter.XYs{{X: a.Low, Y: a.Low}, {X: a.High, Y: a.High}}, LineStyle: draw.LineStyle{Color: quiet, Width: vg.Points(.8), Dashes: dashes[1]}}
	values.Add(equal)
	pic.keys = append(pic.keys, key{"equal values", []plot.Thumbnailer{equal}})
	kept := grid("Kept by both, portion of the kept entries", "", "")
	sparsityAxis(kept, .999)
	var both, chance points
	for k, t := range a.Overlap.X {
		both.add(position(t), a.Overlap.Y[k], 0)
		chance.add(position(t), 1-t, 0)
	}
	pic.keys = append(pic.keys, key{"kept by both", curve(kept, 1, &both, true)}, key{"by chance", curve(kept, 6, &chance, false)})
	kept.Y.Min, kept.Y.Max = 0, 1
	pic.panels = []panel{{values, "Number of entries by the magnitudes of both values, on logarithmic axes"}, {kept, "Portion of the kept entries that both estimates keep, against sparsity"}}
	return pic
}

// cells draws the cells of one level as a single shape, which keeps files small.
type cells struct {
	*Agreement
	level int
	ink   color.Color
}

// is reports whether a cell with the given number of entries has the level. The last level
// has no upper bound.
func (c *cells) is(count int) bool {
	level := -1
	for n := count; n > 0; n /= 10 {
		level++
	}
	return min(level, len(levels)-1) == c.level
}

func (c *cells) any() bool {
	for _, column := range c.Count {
		for _, count := range column {
			if c.is(count) {
				return true
			}
		}
	}
	return false
}

func (c *cells) label() string {
	least := 1
	for range c.level {
		least *= 10
	}
	if c.level == len(levels)-1 {
		return fmt.Sprintf("%d entries or more", least)
	}
	return fmt.Sprintf("%d to %d entries", least, 10*least-1)
}

// Plot draws each run of cells in a column as one rectangle.
func (c *cells) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	edge := func(i int) float64 { return c.Low + (c.High-c.Low)*float64(i)/float64(len(c.Count)) }
	var path vg.Path
	for i, column := range c.Count {
		for from := 0; from < len(column); from++ {
			if !c.is(column[from]) {
				continue
			}
			to := from + 1
			for to < len(column) && c.is(column[to]) {
				to++
			}
			left, right, low, high := x(edge(i)), x(edge(i+1)), y(edge(from)), y(edge(to))
			path.Move(vg.Point{X: left, Y: low})
			for _, corner := range []vg.Point{{X: right, Y: low}, {X: right, Y: high}, {X: left, Y: high}} {
				path.Line(corner)
			}
			path.Close()
			from = to
		}
	}
	canvas.SetColor(c.ink)
	canvas.Fill(path)
}

// Thumbnail fills the key with the colour.
func (c *cells) Thumbnail(canvas *draw.Canvas) {
	canvas.SetColor(c.ink)
	canvas.Fill(canvas.Rectangle.Path())
}
