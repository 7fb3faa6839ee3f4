package picture

import (
	"slices"

	"shaver/internal/base/chart"
)

// Waterfall shows how the effects of names lead from a base to a logit, before and after a change. The base is at the top and the logit at the bottom. Each bar
// between them begins where the one above it ends. Both panels have the same axis.
func Waterfall(titles [2]string, names []string, bases [2]float64, effects [2][]float64) *chart.Figure {
	names = slices.Concat([]string{"base"}, names, []string{"logit"})
	f := &chart.Figure{Name: "row", Height: float64(len(names)*line + 58)}
	x := &chart.Axis{Label: "logit", Room: [2]float64{6, 6}}
	for k, at := range bases {
		ends := []float64{at}
		for _, effect := range effects[k] {
			at += effect
			ends = append(ends, at)
		}
		x.Ends = append(x.Ends, ends...)
		f.Charts = append(f.Charts, &chart.Chart{Title: titles[k], About: titles[k] + ": effect of each field on the logit as a bar; the table has the numbers", Y: rows(names), Marks: []chart.Mark{fall(ends)}})
	}
	for _, c := range f.Charts {
		c.X = *x
	}
	box := [4]float64{9, 1, 17, 9} // in the middle of a key
	f.Keys = []chart.Key{
		{Label: "raises the logit", Of: drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(0), true, box) })},
		{Label: "lowers the logit", Of: drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(1), false, box) })},
	}
	return f
}

// fall has the ends of the bars of a waterfall.
type fall []float64

// Draw draws the bars, and a line from each to the next.
func (f fall) Draw(c *chart.Canvas) {
	const half = 4 // px of a bar
	for j, v := range f {
		x, y := c.X(v), c.Y(float64(j))
		c.Lines(chart.Ink(6), [4]float64{x, y - half, x, c.Y(float64(j+1)) + half})
		if last := c.X(f[max(0, j-1)]); x > last {
			c.Boxes(chart.Ink(0), true, [4]float64{last, y - half, x, y + half})
		} else if x < last {
			c.Boxes(chart.Ink(1), false, [4]float64{x, y - half, last, y + half})
		}
	}
}
