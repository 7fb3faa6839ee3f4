package picture

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Trend describes a panel of curves against the numbers of nights. Each curve has its label at
// its end, unless it is empty. A curve may lack nights.
type Trend struct {
	Title  string
	About  string // description for readers who cannot see the panel
	Curves []Curve
	Marked []float64 // nights that are marked at the bottom
	Zero   bool      // the y axis begins at 0
}

// Nights shows trends. Each panel has its own y axis, and all have the same x axis.
func Nights(trends ...Trend) *Picture {
	pic := &Picture{Name: "nights", height: lowHeight}
	first, last := math.Inf(1), math.Inf(-1)
	for _, t := range trends {
		for _, c := range t.Curves {
			for _, x := range c.X {
				first, last = min(first, x), max(last, x)
			}
		}
	}
	if first > last {
		first, last = 1, 1
	}
	if first == last {
		first, last = first-.5, last+.5
	}
	for _, t := range trends {
		p := grid(t.Title, "night", "")
		p.X.Tick.Marker = wholeTicks{}
		labels := labelled(p, t.Curves, func(x float64) float64 { return x }, false)
		p.Add(slices.DeleteFunc(labels, func(l endLabel) bool { return l.text == "" }))
		p.X.Min, p.X.Max = first, last
		low, high := math.Inf(1), math.Inf(-1)
		for _, c := range t.Curves {
			for _, y := range slices.Concat(c.Y, c.Low, c.High) {
				low, high = min(low, y), max(high, y)
			}
		}
		if low > high {
			low, high = 0, 1
		}
		if t.Zero {
			low = min(low, 0)
		}
		room := (high - low) / 12
		if room == 0 {
			room = max(math.Abs(high)/100, 1e-6)
		}
		p.Y.Min, p.Y.Max = low-room, high+room
		if t.Zero && low == 0 {
			p.Y.Min = 0
		}
		p.Add(marks(t.Marked))
		pic.panels = append(pic.panels, panel{p, t.About})
	}
	return pic
}

// marks draws crosses at the bottom of a plot.
type marks []float64

func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	style := draw.GlyphStyle{Color: inks[1], Radius: vg.Points(3.5), Shape: draw.CrossGlyph{}}
	for _, at := range m {
		if at >= p.X.Min && at <= p.X.Max {
			c.DrawGlyph(style, vg.Point{X: x(at), Y: c.Min.Y + vg.Points(5)})
		}
	}
}

// wholeTicks marks about eight whole numbers.
type wholeTicks struct{}

func (wholeTicks) Ticks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 0; (high-low)/step > 8; i++ {
		step *= [...]float64{2, 2.5, 2}[i%3]
	}
	var ticks []plot.Tick
	for x := step * math.Ceil(low/step); x <= high; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	return ticks
}
