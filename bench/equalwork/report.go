//go:build unix

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// report prints the points of a game, and the errors of each method at equal evaluations and at equal
// processor time.
func report(w io.Writer, r *result) {
	all := append(r.ours[:len(r.ours):len(r.ours)], r.others.points...)
	fmt.Fprintf(w, "\n## %s\n%d rows, %d runs. The true values have an error of %.2g%%", r.game.name, r.game.rows.Len(), r.game.seeds, 100*r.truth.Noise)
	if r.truth.Walks > 0 {
		fmt.Fprintf(w, ", and antithetic walks differ by %.3g%% from them, expected %.3g%%", 100*r.truth.Walks, 100*r.truth.Expected)
	}
	fmt.Fprint(w, ".\n")
	for _, name := range slices.Sorted(maps.Keys(r.others.versions)) {
		fmt.Fprintf(w, "%s %s. ", name, r.others.versions[name])
	}
	if r.each > 0 {
		fmt.Fprintf(w, "An evaluation takes %.1f us.", 1e6*r.each)
	}
	fmt.Fprint(w, "\n\n| | effort | evaluations | ms | us of the model for an evaluation | error | bias |\n|---|---|---|---|---|---|---|\n")
	for _, p := range all {
		each := "-"
		if p.Model > 0 {
			each = fmt.Sprintf("%.1f", 1e6*p.Model/p.Passes)
		}
		fmt.Fprintf(w, "| %s | %s | %.0f | %.3f | %s | %s ± %s | %s |\n", p.Method, p.Effort, p.Passes, 1e3*p.Seconds, each, percent(p.Error), percent(p.Half), percent(p.Bias))
	}
	work := r.game.budgets
	table(w, "evaluations", all, work, func(p *point) float64 { return p.Passes })
	times := []int{10, 100, 1000, 10_000, 100_000} // in microseconds
	table(w, "microseconds", all, times, func(p *point) float64 { return 1e6 * p.Seconds })
}

// percent formats an error. That of a singular regression is not a number that one can print.
func percent(e float64) string {
	if e > 10 {
		return "> 1000%"
	}
	return fmt.Sprintf("%.1f%%", 100*e)
}

// table prints the error of each method at equal work.
func table(w io.Writer, unit string, all []point, work []int, of func(*point) float64) {
	fmt.Fprintf(w, "\n| error at %s |", unit)
	for _, x := range work {
		fmt.Fprintf(w, " %d |", x)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(work)))
	var done []string
	for _, p := range all {
		if slices.Contains(done, p.Method) {
			continue
		}
		done = append(done, p.Method)
		fmt.Fprintf(w, "| %s |", p.Method)
		for _, x := range work {
			if e := errorAt(all, p.Method, float64(x), of); e >= 0 {
				fmt.Fprintf(w, " %s |", percent(e))
			} else {
				fmt.Fprint(w, " - |")
			}
		}
		fmt.Fprintln(w)
	}
}

// errorAt returns the error of a method at some work, from its points on both sides by linear
// interpolation on logarithmic scales. A point within a quarter of the work stands for it at the ends. It returns -1 if
// the method has no points there.
func errorAt(all []point, method string, work float64, of func(*point) float64) float64 {
	var points []point
	for _, p := range all {
		if p.Method == method {
			points = append(points, p)
		}
	}
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(of(&a), of(&b)) })
	for i := range points {
		p := &points[i]
		x := of(p)
		if i == 0 && x >= work || i == len(points)-1 && x <= work {
			if math.Abs(math.Log(x/work)) < math.Log(1.25) {
				return p.Error
			}
			if i == 0 && x >= work {
				return -1
			}
			continue
		}
		if x < work {
			continue
		}
		q := &points[i-1]
		if p.Error == 0 || q.Error == 0 {
			return q.Error
		}
		share := math.Log(work/of(q)) / math.Log(x/of(q))
		return math.Exp(math.Log(q.Error) + share*math.Log(p.Error/q.Error))
	}
	return -1
}
