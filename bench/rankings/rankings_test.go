package main

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/value/baseline"
)

func cells(pairs ...[2]float64) (list []cell) {
	for _, p := range pairs {
		var c cell
		c[auc].Value, c[auc].Difference, c[auc].SE = .7+p[0], p[0], p[1]
		list = append(list, c)
	}
	return list
}

// The interval of a mean difference contains the error of the rows, which all seeds share, and the
// error of the seeds.
func TestDifference(t *testing.T) {
	for _, test := range []struct {
		name       string
		cells      []cell
		mean, half float64
	}{
		{"one seed", cells([2]float64{.01, .002}), .01, 1.959964 * .002},
		{"equal seeds are one seed", cells([2]float64{.01, .002}, [2]float64{.01, .002}, [2]float64{.01, .002}), .01, 1.959964 * .002},
		{"seeds alone", cells([2]float64{.01, 0}, [2]float64{.02, 0}, [2]float64{.03, 0}), .02, 4.302653 * .01 / math.Sqrt(3)},
		// The variance of the rows is .0001/3, as large as that of the seeds. So there are 2 * 2^2 = 8 degrees of freedom.
		{"both", cells([2]float64{.01, .01 / math.Sqrt(3)}, [2]float64{.02, .01 / math.Sqrt(3)}, [2]float64{.03, .01 / math.Sqrt(3)}), .02, 2.306004 * .01 * math.Sqrt(2./3)},
	} {
		mean, half := difference(test.cells, auc)
		if math.Abs(mean-test.mean) > 1e-12 || math.Abs(half-test.half) > 1e-7 {
			t.Errorf("%s: %v ± %v, expected %v ± %v", test.name, mean, half, test.mean, test.half)
		}
	}
}

// Cells of real data are counted without those of the planted model, and the worst of them is named.
func TestCount(t *testing.T) {
	all := []*result{
		{Title: "A", Baseline: baseline.Zero, Real: true, Cells: map[string][][]cell{}},
		{Title: "B", Baseline: baseline.Zero, Cells: map[string][][]cell{}},
	}
	for i := range sparsities {
		all[0].Cells["path"] = append(all[0].Cells["path"], cells([2]float64{.001 * float64(i-1), .0004}))
		all[1].Cells["path"] = append(all[1].Cells["path"], cells([2]float64{-1, .1}))
	}
	var text strings.Builder
	count(&text, all, true, "path", auc, "AUC")
	want := "\nAUC, real data: path is better than shapley-rms in 5 of 7 cells, in 5 of them beyond the interval. It is worse beyond the interval in 1. The least gain is -.0010 (A, zero, t = 0.5). A seed is at most .0000 from the mean of its cell.\n"
	if text.String() != want {
		t.Errorf("count printed %q, expected %q", text.String(), want)
	}
}
