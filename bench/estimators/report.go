//go:build unix

package main

import (
	"fmt"
	"math"
	"strings"

	"shaver/internal/value/shapley"
)

// report prints the outcome of each effort, and the time in which each estimator is as
// accurate as one walk and as four walks per row.
func report(results []*result) {
	for _, r := range results {
		fmt.Printf("\n%s: %d rows, %d entries; the reference has an error of %.1f%%.\n\n", r.name, r.rows, r.entries, 100*r.noise)
		fmt.Printf("| | rows/s | error | Spearman | overlap at %g |\n|---|---|---|---|---|\n", overlapAt)
		for c := range r.curves {
			for _, p := range r.points[c] {
				fmt.Printf("| %s | %.0f | %.1f%% | %.3f | %.3f |\n", effort(p.options), float64(r.rows)/p.cpu, 100*p.rms, p.spearman, p.overlap)
			}
		}
	}
	walks := []int{1, 4}
	fmt.Printf("\n| core-seconds per thousand rows | %s |\n|---|%s\n", strings.Join(names(results[0].curves), " | "), strings.Repeat("---|", len(results[0].curves)))
	for _, r := range results {
		for _, n := range walks {
			fmt.Printf("| %s: ranks of %d walks |", r.name, n)
			target := r.spearmanOf(n)
			for c := range r.curves {
				fmt.Printf(" %s |", reach(r.points[c], target, float64(r.rows)/1000))
			}
			fmt.Println()
		}
	}
}

func names(curves []curve) (all []string) {
	for _, c := range curves {
		all = append(all, c.name)
	}
	return all
}

func effort(o shapley.Options) string {
	switch {
	case o.Flips > 0:
		return fmt.Sprintf("%s, R = %d, %d", o.Estimator, o.Flips, o.Passes)
	case o.Draws > 0:
		return fmt.Sprintf("%s, K = %d, %s", o.Estimator, o.Draws, o.Endpoints)
	}
	return fmt.Sprintf("%s, %d", o.Estimator, o.Passes)
}

// spearmanOf returns the rank correlation of the given number of walks per row.
func (r *result) spearmanOf(walks int) float64 {
	for _, p := range r.points[0] {
		if p.options.Passes == walks {
			return p.spearman
		}
	}
	panic(fmt.Sprintf("estimators: no point of %d walks", walks))
}

// reach returns the time in which an estimator reaches a rank correlation. Between two
// points it interpolates linearly on logarithmic scales.
func reach(points []point, target, unit float64) string {
	for i, p := range points {
		switch {
		case p.spearman < target:
			continue
		case i == 0 && p.spearman > target:
			return fmt.Sprintf("< %.3g", p.cpu/unit)
		case i == 0:
			return fmt.Sprintf("%.3g", p.cpu/unit)
		}
		q := points[i-1]
		x, y, at := math.Log(1-q.spearman), math.Log(1-p.spearman), math.Log(1-target)
		share := 1.0
		if x != y {
			share = (x - at) / (x - y)
		}
		return fmt.Sprintf("%.3g", math.Exp(math.Log(q.cpu)+share*(math.Log(p.cpu)-math.Log(q.cpu)))/unit)
	}
	return fmt.Sprintf("not reached in %.3g", points[len(points)-1].cpu/unit)
}
