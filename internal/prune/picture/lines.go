package picture

import (
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"shaver/internal/base/chart"
)

// Lines describes a panel of curves against sparsity. Each curve has its label at its end.
type Lines struct {
	Title  string
	About  string // description for readers who cannot see the panel
	Curves []chart.Series
	Levels []chart.Rule
	// Low and High limit the y axis. Parts of curves beyond them are not drawn.
	Low, High float64
	Answer    float64              // sparsity that is marked by a vertical line; 0 = none
	Under     func(float64) string // second line of the label of a sparsity; nil = none
}

// Differences shows differences to the unpruned model against sparsity. Each panel has its
// own y axis.
func Differences(panels ...Lines) *chart.Figure {
	return lines("differences", chart.Signed, panels)
}

// Rankings shows metrics of pruned models against sparsity. Each panel has its own y axis. There
// are two panels in a row.
func Rankings(panels ...Lines) *chart.Figure {
	f := lines("rankings", chart.Round, panels)
	f.Columns = 2
	return f
}

// lines returns a picture of panels whose y axes have the given ticks.
func lines(name string, ticks chart.Ticks, panels []Lines) *chart.Figure {
	f := &chart.Figure{Name: name, Height: low}
	for _, l := range panels {
		c := &chart.Chart{Title: l.Title, About: l.About, X: measured(l.Curves), Y: chart.Axis{Ends: []float64{l.Low, l.High}, Fixed: true, Ticks: ticks}}
		c.Marks = marks(l.Curves)
		for i := range l.Levels {
			c.Marks = append(c.Marks, &l.Levels[i])
		}
		c.X.Under = l.Under
		if l.Answer > 0 {
			c.Marks = append(c.Marks, &chart.Rule{At: l.Answer, Vertical: true})
			c.X.Ticks = around(l.Answer, c.X.Ends)
		}
		f.Charts = append(f.Charts, c)
	}
	return f
}

// marks returns the curves, without those that have no points.
func marks(curves []chart.Series) (all []chart.Mark) {
	for i := range curves {
		if len(curves[i].X) > 0 {
			all = append(all, &curves[i])
		}
	}
	return all
}

// measured returns an axis of sparsity that begins and ends with the curves, with ticks at their points.
func measured(curves []chart.Series) chart.Axis {
	var at, alone []float64
	for _, c := range curves {
		if c.Alone {
			alone = append(alone, c.X...)
		} else {
			at = append(at, c.X...)
		}
	}
	if len(at) == 0 {
		at = alone
	}
	if len(at) == 0 {
		at = []float64{0, .5}
	}
	slices.Sort(at)
	at = slices.Compact(at)
	return chart.Axis{Label: "sparsity (the axis is stretched towards 1)", Scale: position, Ends: at, Fixed: true, Ticks: chart.Values(at...), Room: [2]float64{14, 14}}
}

// around marks the sparsity first, and of the others those that are not too close to it or to each other. The labels may have two lines.
func around(first float64, at []float64) chart.Ticks {
	return func(low, high float64, most int) []chart.Tick {
		gap := 1.5 * math.Abs(position(high)-position(low)) / float64(most)
		kept := []float64{first}
		for _, t := range at {
			if !slices.ContainsFunc(kept, func(k float64) bool { return math.Abs(position(t)-position(k)) < gap }) {
				kept = append(kept, t)
			}
		}
		return chart.Values(kept...)(low, high, most)
	}
}

// Trend describes a panel of curves against the numbers of nights. Each curve has its label at its
// end, unless it is empty. A curve may lack nights.
type Trend struct {
	Title  string
	About  string // description for readers who cannot see the panel
	Curves []chart.Series
	Marked []float64 // nights that are marked at the bottom
	Zero   bool      // the y axis has 0
}

// Nights shows trends. Each panel has its own y axis, and all have the same x axis. names has the names of nights by their
// numbers. If one is too long for the axis, the axis has numbers.
func Nights(names map[float64]string, trends ...Trend) *chart.Figure {
	const few, longest = 3, 12 // ticks, and characters
	f := &chart.Figure{Name: "nights", Height: low}
	axis := chart.Axis{Label: "night", Ticks: chart.Whole, Room: [2]float64{6, 6}}
	if !slices.ContainsFunc(slices.Collect(maps.Values(names)), func(name string) bool { return utf8.RuneCountInString(name) > longest }) {
		axis.Ticks = func(low, high float64, _ int) (ticks []chart.Tick) {
			for _, t := range chart.Whole(low, high, few) {
				if name, ok := names[t.At]; ok {
					ticks = append(ticks, chart.Tick{At: t.At, Label: name})
				}
			}
			if ticks == nil {
				return chart.Whole(low, high, few)
			}
			return ticks
		}
	}
	for _, t := range trends {
		for _, c := range t.Curves {
			axis.Ends = append(axis.Ends, c.X...)
		}
	}
	for _, t := range trends {
		c := &chart.Chart{Title: t.Title, About: t.About, X: axis, Y: chart.Axis{Room: [2]float64{14, 14}}, Marks: append(marks(t.Curves), crosses(t.Marked))}
		if t.Zero {
			c.Y.Ends = []float64{0}
		}
		f.Charts = append(f.Charts, c)
	}
	return f
}

// crosses are at the bottom of a chart.
type crosses []float64

func (m crosses) Draw(c *chart.Canvas) {
	var lines [][4]float64
	for _, at := range m {
		x, y := c.X(at), c.Bottom()-6
		lines = append(lines, [4]float64{x - 3, y - 3, x + 3, y + 3}, [4]float64{x - 3, y + 3, x + 3, y - 3})
	}
	c.Lines(chart.Ink(1), lines...)
}

// Frequency shows the mean number of kept entries of a feature, for bins of features from
// rare to frequent. most is the largest number of entries of a feature, and of says in words
// how many entries features have. The X of a curve are the numbers of the bins.
func Frequency(most int, of string, bins []string, curves []chart.Series) *chart.Figure {
	return &chart.Figure{Name: "frequency", Height: low, Charts: []*chart.Chart{{
		Title: "Kept entries per feature, of " + of + ", at each sparsity", About: "Kept entries per feature, by how often features occur",
		X: chart.Axis{Label: "features, by how often they occur", Ends: []float64{0, float64(len(bins) - 1)}, Ticks: chart.Names(bins), Room: [2]float64{20, 20}},
		Y: chart.Axis{Ends: []float64{0, float64(most)}}, Marks: marks(curves),
	}}}
}

// Cut shows values, in nat, against the sparsity at which they are cut off. The value
// axis is logarithmic; values that are not positive are omitted.
func Cut(label string, curves []chart.Series) *chart.Figure {
	c := &chart.Chart{Title: "The value at the cut, " + label, About: "Value of the entry at the cut against sparsity, with its uncertainty", X: sparsityAxis(.999), Y: chart.Axis{Scale: math.Log10, Ticks: chart.Log(chart.Short), Room: room}}
	for i := range curves {
		curves[i].Plain, curves[i].Style = true, i
	}
	return keyed("cut", c, curves)
}

// keyed returns a low picture of curves that have keys instead of labels.
func keyed(name string, c *chart.Chart, curves []chart.Series) *chart.Figure {
	f := &chart.Figure{Name: name, Height: low, Charts: []*chart.Chart{c}}
	for i := range curves {
		s := curves[i]
		s.Label = ""
		c.Marks = append(c.Marks, &s)
		f.Keys = append(f.Keys, chart.Key{Label: curves[i].Label, Of: &s})
	}
	return f
}

// Calibration shows how far observed rates are from predicted probabilities. The X of a
// curve are predicted probabilities, and its Y are the differences, with or without intervals.
func Calibration(curves []chart.Series) *chart.Figure {
	return keyed("calibration", &chart.Chart{
		Title: "Observed rate minus predicted probability", About: "Observed rate minus predicted probability, against predicted probability",
		X: chart.Axis{Label: "predicted probability", Ends: []float64{0}, Room: [2]float64{0, 10}}, Y: chart.Axis{Ticks: chart.Signed, Room: room}, Marks: []chart.Mark{&chart.Rule{}},
	}, curves)
}

// Removals shows the rise of the loss as a model loses fields and columns, with its interval: against
// the look-ups of a row, and against its multiplications. The X of curves are these numbers, descending.
func Removals(lookUps, multiplications []chart.Series) *chart.Figure {
	f := &chart.Figure{Name: "removals", Height: low}
	for _, part := range []struct {
		what   string
		curves []chart.Series
	}{{"look-ups", lookUps}, {"multiplications", multiplications}} {
		title := "Rise of the loss against the " + part.what + " of a row"
		f.Charts = append(f.Charts, &chart.Chart{
			Title: title, About: title + ", with its 95% interval; the table has the numbers",
			X: chart.Axis{Label: part.what + " of a row", Scale: func(v float64) float64 { return -v }, Ticks: chart.Whole, Room: [2]float64{14, 14}},
			Y: chart.Axis{Ticks: chart.Signed, Room: room}, Marks: append(marks(part.curves), &chart.Rule{}),
		})
	}
	return f
}
