// Package chart draws charts as SVG, as files and as parts of pages. The same chart gives the same bytes.
//
// A chart has no typeface of its own. It leaves room for the letters of a wide one.
package chart

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Chart is a pair of axes with marks.
type Chart struct {
	Title string
	About string // description for readers who cannot see the chart
	X, Y  Axis
	Marks []Mark // in the order in which they are drawn
}

// Mark is something that a chart shows: a Series, a Rule, or a mark of another package.
type Mark interface{ Draw(*Canvas) }

// Series is a sequence of points.
type Series struct {
	Label     string // of the end of the curve, at the right of the chart; "" = none
	X, Y      []float64
	Low, High []float64 // interval around each Y; nil = none
	Style     int       // number of the style: ink, dashes and shape of the points
	Strong    bool      // the curve is wide
	Plain     bool      // the points have no shapes, unless there is only one
	Bars      bool      // intervals are bars, and not an area
	Alone     bool      // the points are not joined, and the first one has the label
	Small     bool      // the points are small
	Below     bool      // the label of Alone is below the point
}

// Rule is a dashed line across the chart.
type Rule struct {
	Label    string // at the right of the chart; "" = none
	At       float64
	Vertical bool // the line is at an x
}

// Draw draws the curve, and the intervals below it.
func (s *Series) Draw(c *Canvas) {
	look := lookOf(s)
	if s.Low != nil && s.Bars {
		c.paint("stroke", look.ink, 1)
		for k := range s.X {
			x, low, high := c.x.at(s.X[k]), c.y.at(s.Low[k]), c.y.at(s.High[k])
			if low != high {
				c.move(x-2.5, low).to(x+2.5, low).move(x, low).to(x, high).move(x-2.5, high).to(x+2.5, high)
			}
		}
		c.end()
	} else if len(s.Low) > 1 {
		c.paint("fill", look.ink, .2)
		for k := range s.X {
			c.to(c.x.at(s.X[k]), c.y.at(s.High[k]))
		}
		for k := range slices.Backward(s.X) {
			c.to(c.x.at(s.X[k]), c.y.at(s.Low[k]))
		}
		c.end()
	}
	if !s.Alone {
		c.line(look)
		for k := range s.X {
			c.to(c.x.at(s.X[k]), c.y.at(s.Y[k]))
		}
		c.end()
	}
	if s.Plain && len(s.X) != 1 {
		return
	}
	c.glyphs(look)
	for k := range s.X {
		if x, y := c.x.at(s.X[k]), c.y.at(s.Y[k]); c.x.holds(x) && c.y.holds(y) {
			c.glyph(look, x, y)
		}
	}
	c.end()
	if s.Alone && s.Label != "" && len(s.X) > 0 {
		if x, y := c.x.at(s.X[0]), c.y.at(s.Y[0]); c.x.holds(x) && c.y.holds(y) {
			if s.Below {
				y += 16
			}
			label := c.short(s.Label)
			half := width(label, textSize) / 2
			c.text(min(max(x, half), c.width-half), y-5, "middle", "", label)
		}
	}
}

// Draw draws the line.
func (r *Rule) Draw(c *Canvas) {
	c.line(look{ink: quiet, dash: "4 3", width: .8})
	if at := c.x.at(r.At); r.Vertical && c.x.holds(at) {
		c.move(at, c.y.from).to(at, c.y.to)
	} else if at := c.y.at(r.At); !r.Vertical && c.y.holds(at) {
		c.move(c.x.from, at).to(c.x.to, at)
	}
	c.end()
}

const (
	textSize  = 9.5
	titleSize = 11
	labelGap  = 20 // from the end of the axis to the label of a curve
	labelStep = 11 // least distance of two labels

	mostUpright = 85 // px of an upright label
)

// draw draws the chart on the canvas, with its title if that is set.
func (h *Chart) draw(c *Canvas, titled bool) {
	var xs, ys [][]float64
	var labels []label
	for _, m := range h.Marks {
		switch m := m.(type) {
		case *Series:
			xs, ys = append(xs, m.X), append(ys, m.Y, m.Low, m.High)
			for k := range slices.Backward(m.X) {
				if m.Label != "" && !m.Alone && finite(h.X.place(m.X[k])+h.Y.place(m.Y[k])) {
					labels = append(labels, label{c.short(m.Label), m.X[k], m.Y[k], lookOf(m).ink, m.Strong})
					break
				}
			}
		case *Rule:
			if m.Vertical {
				xs = append(xs, []float64{m.At})
			} else {
				ys = append(ys, []float64{m.At})
			}
			if m.Label != "" {
				labels = append(labels, label{c.short(m.Label), math.NaN(), m.At, quiet, false})
				if m.Vertical {
					labels[len(labels)-1].y = math.Inf(-1)
				}
			}
		}
	}
	c.x, c.y = h.X.over(xs), h.Y.over(ys)
	for i := range labels {
		if math.IsInf(labels[i].y, -1) {
			labels[i].y = c.y.low // the label of a vertical rule is at the bottom
		}
	}
	labels = slices.DeleteFunc(labels, func(l label) bool { return !finite(h.Y.place(l.y)) })
	// The height is known before the labels of the ticks, and the width follows from those of y.
	c.y.to, c.y.from = 8, c.height-18
	if titled && h.Title != "" {
		size := min(titleSize, titleSize*(c.width-4)/width(h.Title, titleSize))
		c.write(fmt.Sprintf(` x="2" y="11" font-size="%s"`, number(size)), "", "", h.Title)
		c.y.to = 24
	}
	if h.X.Label != "" {
		c.y.from -= 14
		defer func() { c.text((c.x.from+c.x.to)/2, c.height-4, "middle", quiet, h.X.Label) }()
	}
	longest := func(ticks []Tick, px float64) (most float64) {
		for i := range ticks {
			ticks[i].Label = cut(ticks[i].Label, px)
			most = max(most, width(ticks[i].Label, textSize))
		}
		return most
	}
	along := func(t Tick) float64 { return width(t.Label, textSize) + 4 }
	if h.X.Under != nil {
		along = func(t Tick) float64 { return max(width(t.Label, textSize), width(h.X.Under(t.At), textSize)) + 4 }
		c.y.from -= 12
	}
	if h.X.Upright {
		along = func(Tick) float64 { return 11 }
		c.x.from, c.x.to = 0, c.width
		c.y.from -= longest(c.x.ticks(1, along), mostUpright) - 6
	}
	across := c.y.ticks(20, func(Tick) float64 { return 10 })
	c.x.from, c.x.to = longest(across, c.width/3)+7, c.width-6
	if h.Y.Label != "" {
		c.x.from += 14
		c.turned(10, (c.y.from+c.y.to)/2, "middle", h.Y.Label)
	}
	for _, l := range labels {
		c.x.to = min(c.x.to, c.width-labelGap-4-l.width())
	}
	c.x.to = max(c.x.to, c.x.from+20)
	down := c.x.ticks(36, along)
	if n := len(down); n > 0 && !h.X.Upright { // the label of the last tick extends beyond the axis
		c.x.to = min(c.x.to, c.width-1-((along(down[n-1])-4)/2-(c.x.to-c.x.at(down[n-1].At))))
		down = c.x.ticks(36, along)
	}

	if h.X.Upright {
		longest(down, mostUpright)
	}
	c.paint("stroke", faint, .8)
	for _, t := range across {
		c.move(c.x.from, c.y.at(t.At)).to(c.x.to, c.y.at(t.At))
	}
	for _, t := range down {
		c.move(c.x.at(t.At), c.y.from).to(c.x.at(t.At), c.y.to)
	}
	c.end()
	c.paint("stroke", quiet, .6)
	c.move(c.x.from, c.y.from).to(c.x.to, c.y.from)
	c.end()
	for _, t := range across {
		c.text(c.x.from-5, c.y.at(t.At)+3.4, "end", quiet, t.Label)
	}
	for _, t := range down {
		if h.X.Upright {
			c.turned(c.x.at(t.At)+3.4, c.y.from+6, "end", t.Label)
		} else {
			c.text(c.x.at(t.At), c.y.from+13, "middle", quiet, t.Label)
			if h.X.Under != nil {
				c.text(c.x.at(t.At), c.y.from+25, "middle", quiet, h.X.Under(t.At))
			}
		}
	}
	c.clip(h.X.Fixed || h.Y.Fixed)
	for _, m := range h.Marks {
		m.Draw(c)
	}
	c.clip(false)
	c.labels(labels)
}

// label is the label of a curve, or of a rule, whose x is NaN.
type label struct {
	text   string
	x, y   float64 // end of the curve
	ink    string
	strong bool
}

// width has room for bold letters.
func (l *label) width() float64 { return 1.1 * width(l.text, textSize) }

// labels writes the labels at the right. Labels of curves that end close to each other, or beyond the y axis, are moved apart. A thin
// line in the ink of the curve joins a label to the end of its curve. There are no shapes, which would look like points.
func (c *Canvas) labels(all []label) {
	slices.SortStableFunc(all, func(a, b label) int { return cmp.Compare(c.y.at(a.y), c.y.at(b.y)) })
	at := func(i int) float64 { return min(max(c.y.at(all[i].y), c.y.to), c.y.from) }
	places := make([]float64, len(all))
	for i := range all {
		places[i] = at(i)
		if i > 0 {
			places[i] = max(places[i], places[i-1]+labelStep)
		}
	}
	for i, most := len(all)-1, c.y.from; i >= 0; i, most = i-1, most-labelStep {
		places[i] = min(places[i], most)
		most = places[i]
	}
	for i, l := range all {
		c.paint("stroke", l.ink, .8)
		c.move(c.x.to+9, places[i]).to(c.x.to+labelGap-3, places[i])
		if c.y.holds(c.y.at(l.y)) { // the curve ends on the axes
			c.move(c.x.to+9, places[i]).to(c.x.to+1, at(i))
		}
		c.end()
		if end := c.x.at(l.x); end < c.x.to-12 && c.y.holds(c.y.at(l.y)) { // dots, so that nobody takes them for the curve
			c.line(look{ink: l.ink, dash: "1 3", width: .8})
			c.move(end+5, at(i)).to(c.x.to, at(i))
			c.end()
		}
		ink := ""
		if math.IsNaN(l.x) {
			ink = quiet
		}
		c.bold = l.strong
		c.text(c.x.to+labelGap, places[i]+3.4, "", ink, l.text)
		c.bold = false
	}
}
