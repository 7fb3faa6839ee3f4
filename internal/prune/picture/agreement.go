package picture

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/chart"
)

// Agreement describes how far two estimates agree.
type Agreement struct {
	X, Y      string       // names of the estimates
	Unit      string       // what the values are
	Low, High float64      // ends of both axes, as exponents of ten
	Count     [][]int      // [cells][cells], number of entries by the cell of X, then by that of Y
	Overlap   chart.Series // portion of kept entries against sparsity; label and style are not used
}

// levels are the colours of cells with up to 9, 99, 999 entries, and so on, from light to
// dark. All differ in brightness.
var levels = []string{"D9E6F2", "A6C8E4", "6BA6D1", "3180BA", "085899", "08376B", "001432"}

// Draw returns a picture of two panels. The left one has the number of entries with each pair
// of values. The right one has the portion of the kept entries that both estimates keep. The
// size of the picture does not depend on the number of entries.
func (a *Agreement) Draw() *chart.Figure {
	ends := []float64{math.Pow(10, math.Floor(a.Low)), math.Pow(10, math.Ceil(a.High))}
	axis := func(name string) chart.Axis {
		return chart.Axis{Label: name, Scale: math.Log10, Ends: ends, Ticks: chart.Log(func(v float64) string { return fmt.Sprintf("1e%.0f", math.Log10(v)) })}
	}
	values := &chart.Chart{Title: "Entries by the magnitudes of both values, " + a.Unit, About: "Number of entries by the magnitudes of both values, on logarithmic axes", X: axis(a.X), Y: axis(a.Y)}
	f := &chart.Figure{Name: "agreement", Height: high}
	for level, ink := range levels {
		if a.any(level) {
			values.Marks = append(values.Marks, drawing(func(c *chart.Canvas) { c.Boxes(ink, true, a.boxes(c, level)...) }))
			f.Keys = append(f.Keys, chart.Key{Label: levelText(level), Of: drawing(func(c *chart.Canvas) { c.Boxes(ink, true, [4]float64{2, 0, 24, 10}) })})
		}
	}
	equal := &chart.Series{X: ends, Y: ends, Style: chart.Style(6, 1), Plain: true}
	values.Marks = append(values.Marks, equal)
	both, chance := &a.Overlap, &chart.Series{X: a.Overlap.X, Style: 6, Plain: true}
	for _, t := range a.Overlap.X {
		chance.Y = append(chance.Y, 1-t)
	}
	both.Style = 1
	f.Keys = append(f.Keys, chart.Key{Label: "equal values", Of: equal}, chart.Key{Label: "kept by both", Of: both}, chart.Key{Label: "by chance", Of: chance})
	f.Charts = []*chart.Chart{values, {
		Title: "Kept by both, portion of the kept entries", About: "Portion of the kept entries that both estimates keep, against sparsity",
		X: sparsityAxis(.999), Y: chart.Axis{Ends: []float64{0, 1}}, Marks: []chart.Mark{both, chance},
	}}
	return f
}

// levelOf returns the level of a cell with a number of entries, or -1. The last level has no upper bound.
func levelOf(count int) int {
	level := -1
	for ; count > 0; count /= 10 {
		level++
	}
	return min(level, len(levels)-1)
}

func (a *Agreement) any(level int) bool {
	return slices.ContainsFunc(slices.Concat(a.Count...), func(count int) bool { return levelOf(count) == level })
}

func levelText(level int) string {
	least := 1
	for range level {
		least *= 10
	}
	if level == len(levels)-1 {
		return fmt.Sprintf("%d entries or more", least)
	}
	return fmt.Sprintf("%d to %d entries", least, 10*least-1)
}

// boxes returns each run of cells of a level in a column as one rectangle.
func (a *Agreement) boxes(c *chart.Canvas, level int) (all [][4]float64) {
	edge := func(i int) float64 { return math.Pow(10, a.Low+(a.High-a.Low)*float64(i)/float64(len(a.Count))) }
	for i, column := range a.Count {
		for from := 0; from < len(column); from++ {
			to := from
			for to < len(column) && levelOf(column[to]) == level {
				to++
			}
			if to > from {
				all = append(all, [4]float64{c.X(edge(i)), c.Y(edge(to)), c.X(edge(i + 1)), c.Y(edge(from))})
				from = to
			}
		}
	}
	return all
}
