package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"shaver/bench/paired"
	"shaver/internal/base/chart"
	"shaver/internal/prune/picture"
)

// report prints the tables of the rankings and what they add up to.
func report(w io.Writer, all []*result) {
	for _, real := range []bool{true, false} {
		var of []*result
		for _, r := range all {
			if r.Real == real {
				of = append(of, r)
			}
		}
		if len(of) == 0 {
			continue
		}
		metrics := []int{paired.AUC, paired.LogLoss}
		if real {
			metrics = append(metrics, paired.GAUC)
		}
		for _, metric := range metrics {
			count(w, of, metric)
		}
		for _, r := range of {
			r.table(w)
		}
		if real {
			within(w, of)
		}
	}
}

// head prints the first lines of a table whose columns are the sparsities.
func head(w io.Writer, title string) {
	fmt.Fprintf(w, "\n| %s |", title)
	for i, at := range sparsities {
		fmt.Fprintf(w, " %s%s |", strings.Repeat("t = ", max(0, 1-i)), paired.Number("%g", at))
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", len(sparsities)+1))
}

// row prints a row of a table of sparsities.
func row(w io.Writer, title string, cell func(i int) string) {
	fmt.Fprintf(w, "| %s |", title)
	for i := range sparsities {
		fmt.Fprintf(w, " %s |", cell(i))
	}
	fmt.Fprintln(w)
}

// table prints the AUC of the rankings. A star marks those that differ from the reference beyond the interval.
func (r *result) table(w io.Writer) {
	head(w, r.Title)
	row(w, "entries", func(i int) string { return fmt.Sprint(r.Kept[i]) })
	row(w, "kB", func(i int) string { return fmt.Sprint((r.Bytes[i] + 500) / 1000) })
	r.rows(w, unpruned)
	for _, by := range rankings {
		r.rows(w, by.name)
	}
}

// rows prints the AUC of what name stands for.
func (r *result) rows(w io.Writer, name string) {
	row(w, name, func(i int) string {
		mean, half := paired.Difference(r.Cells[name][i], paired.AUC, true)
		star := ""
		if math.Abs(mean) > half {
			star = " *"
		}
		return paired.Number("%.4f", paired.Value(r.Cells[name][i], paired.AUC)) + star
	})
}

// within prints the GAUC of the whole models, of the reference, and of the best other ranking, with the difference from it.
func within(w io.Writer, all []*result) {
	head(w, "GAUC by user")
	for _, r := range all {
		gauc := func(name string) func(i int) string {
			return func(i int) string { return paired.Number("%.4f", paired.Value(r.Cells[name][i], paired.GAUC)) }
		}
		row(w, r.Title+": "+unpruned, gauc(unpruned))
		row(w, reference, gauc(reference))
		row(w, "less the best other", func(i int) string {
			best, text := math.Inf(-1), ""
			for _, by := range rankings {
				if gain, half := paired.Difference(r.Cells[by.name][i], paired.GAUC, true); by.name != reference && gain > best {
					best, text = gain, fmt.Sprintf("%s (%s)", paired.Spread(-gain, half), by.name)
				}
			}
			return text
		})
	}
}

// count prints in how many cells the reference is clearly worse than another ranking, and in how many it is best or level with the best.
func count(w io.Writer, all []*result, metric int) {
	cells, best := 0, 0
	var worse, below []string
	for _, r := range all {
		for i, at := range sparsities {
			lead, where := math.Inf(-1), ""
			clear := false
			for _, by := range rankings {
				if by.name == reference {
					continue
				}
				gain, half := paired.Difference(r.Cells[by.name][i], metric, true)
				if metric == paired.LogLoss {
					gain = -gain
				}
				if by.name == nothing && gain > 0 {
					below = append(below, fmt.Sprintf("%s at %g", r.Title, at))
				}
				clear = clear || gain > half
				if gain > lead {
					lead, where = gain, fmt.Sprintf("%s at %g by %s %s", r.Title, at, by.name, paired.Spread(gain, half))
				}
			}
			cells++
			if !clear {
				best++
			} else {
				worse = append(worse, where)
			}
		}
	}
	name := map[int]string{paired.AUC: "AUC", paired.LogLoss: "calibrated LogLoss", paired.GAUC: "GAUC"}[metric]
	fmt.Fprintf(w, "\n%s: in %d of %d cells no ranking is better than %s beyond its interval. The others: %s. Worse than %s: %s.\n", name, best, cells, reference, list(worse), nothing, list(below))
}

// list joins items, or returns "none".
func list(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, "; ")
}

// reportUses prints the table of the uses of the fresh rows, for one model that shaver can train.
func (t *tool) reportUses(w io.Writer, all []set) {
	for i := range all {
		if s := &all[i]; s.name == logs[0].name+"-dcn-mix" {
			r := t.measureUses(s)
			head(w, s.title+": the fresh rows")
			for _, u := range uses {
				r.rows(w, u.name)
			}
			r.rows(w, retrained)
		}
	}
}

// draw shows the AUC of the models of real users and items, or of all models without these. A panel ends below the lowest
// point of the two paths.
func draw(all []*result) *chart.Figure {
	var panels []picture.Lines
	shown := []string{"path", "path, train rows", "shapley-rms", "shapley", gated, "frequency"}
	for _, r := range all {
		if !r.Real && slices.ContainsFunc(all, func(r *result) bool { return r.Real }) {
			continue
		}
		l := picture.Lines{Title: "Test AUC: " + r.Title, About: "AUC of " + r.Title + " against sparsity, by ranking", Low: 1}
		l.Levels = append(l.Levels, chart.Rule{At: paired.Value(r.Cells[unpruned][0], paired.AUC), Label: unpruned})
		for i, name := range shown {
			c := chart.Series{Label: name, X: sparsities, Style: i, Strong: name == reference}
			for _, cells := range r.Cells[name] {
				c.Y = append(c.Y, paired.Value(cells, paired.AUC))
			}
			l.High, l.Low = max(l.High, slices.Max(c.Y), l.Levels[0].At), min(l.Low, slices.Min(c.Y))
			l.Curves = append(l.Curves, c)
		}
		room := (l.High - l.Low) / 20
		l.Low, l.High = l.Low-room, l.High+room
		panels = append(panels, l)
	}
	return picture.Rankings(panels...)
}
