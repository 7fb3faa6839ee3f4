package main

import (
	"strings"
	"testing"

	"shaver/bench/paired"
	"shaver/internal/value/baseline"
)

func cells(pairs ...[2]float64) (list []paired.Cell) {
	for _, p := range pairs {
		var c paired.Cell
		c[paired.AUC].Value, c[paired.AUC].Difference, c[paired.AUC].SE = .7+p[0], p[0], p[1]
		list = append(list, c)
	}
	return list
}

// Cells of real data are counted without those of the planted model, and the worst of them is named.
func TestCount(t *testing.T) {
	all := []*result{
		{Title: "A", Baseline: baseline.Zero, Real: true, Cells: map[string][][]paired.Cell{}},
		{Title: "B", Baseline: baseline.Zero, Cells: map[string][][]paired.Cell{}},
	}
	for i := range sparsities {
		all[0].Cells["path"] = append(all[0].Cells["path"], cells([2]float64{.001 * float64(i-1), .0004}))
		all[1].Cells["path"] = append(all[1].Cells["path"], cells([2]float64{-1, .1}))
	}
	var text strings.Builder
	count(&text, all, true, "path", paired.AUC, "AUC")
	want := "\nAUC, real data: path is better than shapley-rms in 5 of 7 cells, in 5 of them beyond the interval. It is worse beyond the interval in 1. The least gain is -.0010 (A, zero, t = 0.5). A seed is at most .0000 from the mean of its cell.\n"
	if text.String() != want {
		t.Errorf("count printed %q, expected %q", text.String(), want)
	}
}
