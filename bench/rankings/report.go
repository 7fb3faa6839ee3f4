package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"shaver/bench/paired"
	"shaver/internal/prune/picture"
	"shaver/internal/value/baseline"
)

// report prints the tables.
func report(w io.Writer, all []*result) {
	for metric, name := range []string{paired.AUC: "test AUC", paired.LogLoss: "test LogLoss, calibrated"} {
		for _, base := range []string{baseline.Codebook, baseline.Zero} {
			fmt.Fprintf(w, "\n| %s, %s |", name, base)
			for i, at := range sparsities {
				fmt.Fprintf(w, " %s%s |", strings.Repeat("t = ", max(0, 1-i)), paired.Number("%g", at))
			}
			fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", len(sparsities)+1))
			for _, r := range all {
				if r.Baseline == base {
					r.rows(w, metric)
				}
			}
		}
		for _, by := range []string{"path", "path, 16 parts"} {
			count(w, all, true, by, metric, name)
			count(w, all, false, by, metric, name)
		}
	}
}

// rows prints a metric, and by how much that of the paths differs. With the codebook all rankings have a row.
func (r *result) rows(w io.Writer, metric int) {
	for _, by := range rankings {
		if r.Baseline == baseline.Codebook || by.name == "path" || by.name == reference {
			fmt.Fprintf(w, "| %s: %s |", r.Title, by.name)
			for i := range sparsities {
				fmt.Fprintf(w, " %s |", paired.Number("%.4f", paired.Value(r.Cells[by.name][i], metric)))
			}
			fmt.Fprintln(w)
		}
	}
	for _, by := range []string{"path", "path, 16 parts"} {
		fmt.Fprintf(w, "| %s: %s, difference |", r.Title, by)
		for i := range sparsities {
			mean, half := paired.Difference(r.Cells[by][i], metric, true)
			fmt.Fprintf(w, " %s |", paired.Spread(mean, half))
		}
		fmt.Fprintln(w)
	}
}

// count prints how often a ranking is better than the reference, and its least gain.
func count(w io.Writer, all []*result, real bool, by string, metric int, name string) {
	cells, better, sure, worse, least, where, spread := 0, 0, 0, 0, math.Inf(1), "", 0.0
	for _, r := range all {
		for i, list := range r.Cells[by] {
			if r.Real != real {
				continue
			}
			for k := range list {
				spread = max(spread, math.Abs(list[k][metric].Value-paired.Value(list, metric)))
			}
			gain, half := paired.Difference(list, metric, true)
			if metric == paired.LogLoss {
				gain = -gain
			}
			cells++
			for n, holds := range map[*int]bool{&better: gain > 0, &sure: gain > half, &worse: gain < -half} {
				if holds {
					*n++
				}
			}
			if gain < least {
				least, where = gain, fmt.Sprintf("%s, %s, t = %v", r.Title, r.Baseline, sparsities[i])
			}
		}
	}
	if cells > 0 {
		fmt.Fprintf(w, "\n%s, %s: %s is better than %s in %d of %d cells, in %d of them beyond the interval. It is worse beyond the interval in %d. The least gain is %s (%s). A seed is at most %s from the mean of its cell.\n",
			name, map[bool]string{true: "real data", false: "planted"}[real], by, reference, better, cells, sure, worse, paired.Number("%+.4f", least), where, paired.Number("%.4f", spread))
	}
}

// draw shows the AUC of the models of real data with the codebook. A panel ends below the lowest
// point of the rankings, except for magnitude.
func draw(all []*result) *picture.Picture {
	var panels []picture.Lines
	for _, r := range all {
		if r.Baseline != baseline.Codebook || !r.Real {
			continue
		}
		l := picture.Lines{Title: "Test AUC: " + r.Title, About: "AUC of " + r.Title + " against sparsity, by ranking", Low: 1}
		for i, by := range rankings {
			if by.name == "path, 16 parts" {
				continue
			}
			c := picture.Curve{Label: by.name, X: sparsities, Style: i, Strong: by.name == "path"}
			for _, cells := range r.Cells[by.name] {
				c.Y = append(c.Y, paired.Value(cells, paired.AUC))
			}
			if l.High = max(l.High, slices.Max(c.Y)); by.name != "magnitude" {
				l.Low = min(l.Low, slices.Min(c.Y))
			}
			l.Curves = append(l.Curves, c)
		}
		room := (l.High - l.Low) / 20
		l.Low, l.High = l.Low-room, l.High+room
		panels = append(panels, l)
	}
	return picture.Rankings(panels...)
}
