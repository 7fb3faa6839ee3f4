package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"shaver/internal/baseline"
	"shaver/internal/picture"
)

// figure prints a metric, and signed a difference, without the zero before the point.
func figure(v float64) string { return strings.Replace(fmt.Sprintf("%.4f", v), "0.", ".", 1) }
func signed(v float64) string { return strings.Replace(fmt.Sprintf("%+.4f", v), "0.", ".", 1) }

// report prints the tables.
func report(w io.Writer, all []*result) {
	for metric, name := range []string{auc: "test AUC", logLoss: "test LogLoss, calibrated"} {
		table(w, all, metric, name)
		short(w, all, metric, name)
		for _, by := range []string{"path", "path, 16 parts"} {
			count(w, all, by, metric, name)
		}
	}
	cost(w, all)
}

func head(w io.Writer, title string) {
	fmt.Fprintf(w, "\n| %s |", title)
	for i, at := range sparsities {
		if text := strings.TrimPrefix(fmt.Sprint(at), "0"); i == 0 {
			fmt.Fprintf(w, " t = %s |", text)
		} else {
			fmt.Fprintf(w, " %s |", text)
		}
	}
	fmt.Fprintf(w, "\n|%s\n", strings.Repeat("---|", len(sparsities)+1))
}

// table prints the metric of all rankings with the codebook. Bold is the best of a model.
func table(w io.Writer, all []*result, metric int, name string) {
	head(w, name+", codebook")
	for _, r := range all {
		if r.Baseline != baseline.Codebook {
			continue
		}
		for _, by := range rankings {
			fmt.Fprintf(w, "| %s: %s |", r.Title, by.name)
			for i := range sparsities {
				text := figure(value(r.Cells[by.name][i], metric))
				if text == r.best(i, metric) {
					text = "**" + text + "**"
				}
				fmt.Fprintf(w, " %s |", text)
			}
			fmt.Fprintln(w)
		}
	}
}

// best returns the best figure of all rankings at a sparsity.
func (r *result) best(i, metric int) string {
	var values []float64
	for _, by := range rankings {
		values = append(values, value(r.Cells[by.name][i], metric))
	}
	if metric == auc {
		return figure(slices.Max(values))
	}
	return figure(slices.Min(values))
}

// short prints the differences of path and of path with 16 parts for both baselines, and the metric of path.
func short(w io.Writer, all []*result, metric int, name string) {
	for _, base := range []string{baseline.Codebook, baseline.Zero} {
		head(w, name+", "+base)
		for _, r := range all {
			if r.Baseline != base {
				continue
			}
			if base == baseline.Zero {
				for _, by := range []string{"path", reference} {
					fmt.Fprintf(w, "| %s: %s |", r.Title, by)
					for i := range sparsities {
						fmt.Fprintf(w, " %s |", figure(value(r.Cells[by][i], metric)))
					}
					fmt.Fprintln(w)
				}
			}
			for _, by := range []string{"path", "path, 16 parts"} {
				fmt.Fprintf(w, "| %s: %s, difference |", r.Title, by)
				for i := range sparsities {
					mean, half := difference(r.Cells[by][i], metric)
					fmt.Fprintf(w, " %s ± %s |", signed(mean), figure(half))
				}
				fmt.Fprintln(w)
			}
		}
	}
}

// count prints how often a ranking is better than the reference on real data, and how far it is
// behind at worst.
func count(w io.Writer, all []*result, by string, metric int, name string) {
	cells, better, sure, worse, worst, where, spread := 0, 0, 0, 0, math.Inf(1), "", 0.0
	for _, r := range all {
		for i, at := range sparsities {
			list := r.Cells[by][i]
			for k := range list {
				spread = max(spread, math.Abs(list[k][metric].Value-value(list, metric)))
			}
			mean, half := difference(list, metric)
			if metric == logLoss {
				mean = -mean
			}
			if !r.Real {
				continue
			}
			cells++
			if mean > 0 {
				better++
			}
			if mean > half {
				sure++
			}
			if mean < -half {
				worse++
			}
			if mean < worst {
				worst, where = mean, fmt.Sprintf("%s, %s, t = %v", r.Title, r.Baseline, at)
			}
		}
	}
	fmt.Fprintf(w, "\n%s: %s is better than %s in %d of %d cells of real data, in %d of them beyond the interval. It is worse beyond the interval in %d. The least gain is %s (%s). A seed is at most %.4f from the mean of its cell.\n",
		name, by, reference, better, cells, sure, worse, signed(worst), where, spread)
}

// cost prints the medians of the processor time of jobs.
func cost(w io.Writer, all []*result) {
	fmt.Fprint(w, "\n| median seconds of CPU | multilinear | path | path, 16 parts | taylor |\n|---|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(w, "| %s, %s |", r.Title, r.Baseline)
		base := median(r.CPU["multilinear"])
		for _, job := range []string{"multilinear", "path", "path-16", "taylor"} {
			spent := median(r.CPU[job])
			fmt.Fprintf(w, " %.1f (%.2fx) |", spent, spent/base)
		}
		fmt.Fprintln(w)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// draw shows the AUC of the models of real data with the codebook. A panel ends below the lowest point of
// the rankings, except for magnitude.
func draw(all []*result) *picture.Picture {
	var panels []picture.Lines
	for _, r := range all {
		if r.Baseline != baseline.Codebook || !r.Real {
			continue
		}
		l := picture.Lines{Title: r.Title, About: "AUC of " + r.Title + " against sparsity, by ranking", Low: 1}
		for i, by := range rankings {
			if by.name == "path, 16 parts" {
				continue
			}
			c := picture.Curve{Label: by.name, X: sparsities, Style: i, Strong: by.name == "path"}
			for k := range sparsities {
				v := value(r.Cells[by.name][k], auc)
				c.Y = append(c.Y, v)
				if l.High = max(l.High, v); by.name != "magnitude" {
					l.Low = min(l.Low, v)
				}
			}
			l.Curves = append(l.Curves, c)
		}
		room := (l.High - l.Low) / 20
		l.Low, l.High = l.Low-room, l.High+room
		panels = append(panels, l)
	}
	return picture.Rankings(panels...)
}
