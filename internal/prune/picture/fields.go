package picture

import (
	"math"

	"shaver/internal/base/chart"
)

// rows is an axis with a line for each field, the first at the top.
func rows(fields []string) chart.Axis {
	return chart.Axis{Scale: func(v float64) float64 { return -v }, Ends: []float64{0, float64(len(fields) - 1)}, Ticks: chart.Names(fields), Room: [2]float64{8, 8}}
}

// Fields shows the share of each field in several wholes. shares is [wholes][m], in [0,
// 1]. The first field is at the top.
func Fields(fields, wholes []string, shares [][]float64) *chart.Figure {
	c := &chart.Chart{Title: "Shares of the fields", About: "Shares of the fields, in percent", X: chart.Axis{Label: "share, %", Ends: []float64{0}, Room: [2]float64{6, 8}}}
	return dots("fields", c, fields, wholes, func(k, j int) float64 { return 100 * shares[k][j] })
}

// Concentration shows how few features of each field account for a given portion of the
// rows. features is [wholes][m], numbers of features from 1 on. The first field is at the
// top.
func Concentration(fields, wholes []string, features [][]int) *chart.Figure {
	most := 10
	for _, list := range features {
		for _, n := range list {
			for most < n {
				most *= 10
			}
		}
	}
	c := &chart.Chart{Title: "How many features cover the rows", About: "How many features of each field cover a given share of the rows"}
	c.X = chart.Axis{Label: "number of features, most frequent first", Scale: math.Log10, Ends: []float64{1, float64(most)}, Ticks: chart.Log(chart.Count), Room: [2]float64{6, 6}}
	return dots("concentration", c, fields, wholes, func(k, j int) float64 { return float64(max(features[k][j], 1)) })
}

// dots draws a line for each field, the first at the top. On the line of field j it draws
// x(k, j) for each whole k.
func dots(name string, c *chart.Chart, fields, wholes []string, x func(k, j int) float64) *chart.Figure {
	c.Y = rows(fields)
	f := &chart.Figure{Name: name, Height: float64(len(fields)*line + 58), Charts: []*chart.Chart{c}}
	for k, label := range wholes {
		// These shapes leave the points below them visible.
		s := &chart.Series{Style: chart.Shaped(k, []int{chart.Ring, chart.Cross, chart.Square, chart.Triangle}[k]), Alone: true}
		for j := range fields {
			s.X, s.Y = append(s.X, x(k, j)), append(s.Y, float64(j))
		}
		c.Marks, f.Keys = append(c.Marks, s), append(f.Keys, chart.Key{Label: label, Of: s})
	}
	return f
}

// Bar is a value with its interval. Low and High are NaN if the interval is not known.
type Bar struct {
	Label            string
	Value, Low, High float64
}

// Values shows values as bars from 0, each with a line from the low to the high end of its
// interval. The first bar is at the top. unit says what the values are.
func Values(unit string, bars []Bar) *chart.Figure {
	c := &chart.Chart{Title: "Values of the fields, with 95% intervals", About: "Value of each field as a bar, with its 95% interval; the table has the numbers", Marks: []chart.Mark{barList(bars)}}
	c.X = chart.Axis{Label: unit, Ends: []float64{0}, Room: [2]float64{4, 8}}
	var names []string
	for _, b := range bars {
		names, c.X.Ends = append(names, b.Label), append(c.X.Ends, b.Value, b.Low, b.High)
	}
	c.Y = rows(names)
	return &chart.Figure{Name: "values", Height: float64(len(bars)*line + 58), Charts: []*chart.Chart{c}}
}

type barList []Bar

// Draw draws the bars and then the intervals.
func (l barList) Draw(c *chart.Canvas) {
	var boxes, lines [][4]float64
	for j, b := range l {
		y := c.Y(float64(j))
		boxes = append(boxes, [4]float64{c.X(min(0, b.Value)), y - 3.5, c.X(max(0, b.Value)), y + 3.5})
		if low, high := c.X(b.Low), c.X(b.High); !math.IsNaN(low + high) {
			lines = append(lines, [4]float64{low, y, high, y}, [4]float64{low, y - 2.5, low, y + 2.5}, [4]float64{high, y - 2.5, high, y + 2.5})
		}
	}
	c.Boxes(chart.Ink(0), true, boxes...)
	c.Lines(chart.Ink(7), lines...)
}

// Cell is a value of two names, which are indices. Unsure means that its interval holds 0 or is not known.
type Cell struct {
	I, J   int
	Value  float64
	Unsure bool
}

// Matrix shows values of pairs of names as squares, whose areas are the magnitudes. A value above
// 0 is a full square and one below 0 an empty one. A value that is unsure is a small point.
func Matrix(names []string, cells []Cell) *chart.Figure {
	c := &chart.Chart{Title: "Interactions of the fields", About: "Interaction of each pair of fields as a square; the table has the numbers", Marks: []chart.Mark{squares(cells)}, Y: rows(names)}
	c.Y.Room = [2]float64{13, 13}
	c.X = chart.Axis{Ends: c.Y.Ends, Ticks: c.Y.Ticks, Room: [2]float64{16, 16}, Upright: true}
	f := &chart.Figure{Name: "interactions", Height: float64(len(names)*line + 125), Charts: []*chart.Chart{c}}
	box := [4]float64{9, 1, 17, 9} // in the middle of a key
	f.Keys = []chart.Key{
		{Label: "worth more together", Of: drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(0), true, box) })},
		{Label: "redundant", Of: drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(1), false, box) })},
		{Label: "may be chance", Of: drawing(func(c *chart.Canvas) { c.Dots(chart.Ink(6), [2]float64{13, 5}) })},
	}
	return f
}

type squares []Cell

// Draw draws each cell on both sides of the diagonal.
func (s squares) Draw(c *chart.Canvas) {
	most := math.SmallestNonzeroFloat64
	for _, cell := range s {
		most = max(most, math.Abs(cell.Value))
	}
	room := min(c.X(1)-c.X(0), c.Y(1)-c.Y(0)) * .46
	var full, empty [][4]float64
	var dots [][2]float64
	for _, cell := range s {
		for _, at := range [][2]int{{cell.I, cell.J}, {cell.J, cell.I}} {
			x, y, half := c.X(float64(at[0])), c.Y(float64(at[1])), room*math.Sqrt(math.Abs(cell.Value)/most)
			switch box := [4]float64{x - half, y - half, x + half, y + half}; {
			case cell.Unsure:
				dots = append(dots, [2]float64{x, y})
			case cell.Value > 0:
				full = append(full, box)
			default:
				empty = append(empty, box)
			}
		}
	}
	c.Boxes(chart.Ink(0), true, full...)
	c.Boxes(chart.Ink(1), false, empty...)
	c.Dots(chart.Ink(6), dots...)
}

// GoneBins is the number of bins of Gone, and GoneBin the number of the bin of a sparsity.
const GoneBins = 80

func GoneBin(sparsity float64) int {
	return min(int(position(sparsity)/position(1)*GoneBins), GoneBins-1)
}

// Gone shows at which sparsities the features of each field lose their last entry. counts is [m][GoneBins][sorts]: how many features of
// each sort do so in a bin. Each bar has a part for each sort, and the tallest bars of all fields have the same height. The first
// field is at the top. shown is a sparsity to mark.
func Gone(fields, sorts []string, counts [][][]int, shown float64) *chart.Figure {
	const tall = 30 // px of a field
	c := &chart.Chart{Title: "Sparsity at which features lose their last entry", About: "How many features of each field lose their last entry around each sparsity", Y: rows(fields)}
	c.X, c.Y.Room = sparsityAxis(.999), [2]float64{4, tall}
	c.X.Ends = []float64{0, 1}
	f := &chart.Figure{Name: "gone", Height: float64(len(fields)*tall + 58), Charts: []*chart.Chart{c}}
	c.Marks = append(c.Marks, &chart.Rule{At: shown, Vertical: true})
	for k, label := range sorts {
		c.Marks = append(c.Marks, drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(k), true, bars(c, counts, k, tall*.85)...) }))
		f.Keys = append(f.Keys, chart.Key{Label: label, Of: drawing(func(c *chart.Canvas) { c.Boxes(chart.Ink(k), true, [4]float64{9, 1, 17, 9}) })})
	}
	return f
}

// bars returns the parts of the k-th sort of the bars of Gone, which are at most tall px high.
func bars(c *chart.Canvas, counts [][][]int, k int, tall float64) (boxes [][4]float64) {
	edge := func(b int) float64 { return c.X(1 - math.Pow(10, -position(1)*float64(b)/GoneBins)) }
	for j, bins := range counts {
		most := 1
		sums := make([][2]int, len(bins)) // features below the part, and with it
		for b, sorts := range bins {
			all := 0
			for i, n := range sorts {
				if i == k {
					sums[b] = [2]int{all, all + n}
				}
				all += n
			}
			most = max(most, all)
		}
		bottom := c.Y(float64(j))
		for b, of := range sums {
			if of[1] > of[0] {
				boxes = append(boxes, [4]float64{edge(b), bottom - tall*float64(of[1])/float64(most), edge(b+1) - .5, bottom - tall*float64(of[0])/float64(most)})
			}
		}
	}
	return boxes
}
