package shapley_test

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// The curvature of a kept entry is the second-order term of a path without the square of the
// entry's change. The curvature of the baseline's values is that of the entries that read them,
// if a row reads each of them once.
func TestCurvature(t *testing.T) {
	for name, g := range games(t) {
		a := &g.Model.Architecture
		rows := modeltest.Rows(*a, 90, 4)
		o, n, shape := pathOptions(), a.Parameters(), a.Shape()
		o.Calibration, o.Unmeasured = loss.Calibration{Scale: .5, Offset: -.75}, layout.NewMask(n)
		pads := map[int]bool{}
		for _, row := range a.FixedRows() {
			pads[row] = true
		}
		table, spread := append([]float32(nil), g.Model.Weights.Embedding...), baselines(g.Model, g.Baseline)
		for i := 0; i < n; i += 3 {
			if !pads[shape.RowOf(i)] {
				o.Unmeasured.Drop(i)
				table[i] = spread[i]
			}
		}
		g.Model = g.Model.WithEmbedding(table)
		h, err := shapley.MeasureCurvature(t.Context(), g, o.Unmeasured, o.Calibration, rows)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		weighted, repeated := *rows, &model.Rows{} // a row of weight w is w equal rows
		for i := range rows.Len() {
			weighted.Weight = append(weighted.Weight, int32(1+i%3))
			for range 1 + i%3 {
				repeated.Append(rows, i)
			}
		}
		one, err := shapley.MeasureCurvature(t.Context(), g, o.Unmeasured, o.Calibration, &weighted)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		many, err := shapley.MeasureCurvature(t.Context(), g, o.Unmeasured, o.Calibration, repeated)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, want := range many.Entries {
			if math.Abs(one.Entries[i]-want) > 1e-12+1e-9*want {
				t.Fatalf("%s: entry %d with weights: %g, expected %g", name, i, one.Entries[i], want)
			}
		}
		p, err := shapley.Estimate(t.Context(), g, o, rows, 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		sums := tally.NewAccumulator(shape, tally.Form{Path: true})
		if err := sums.Merge(p); err != nil {
			t.Fatal(err)
		}
		for row := range shape.Rows() {
			from, to := shape.Row(row)
			first, second := make([]float64, to-from), make([]float64, to-from)
			sums.Terms(row, first, second)
			for i := from; i < to; i++ {
				delta := float64(table[i]) - float64(spread[i])
				if got, want := h.Entries[i]*delta*delta, second[i-from]/90; math.Abs(got-want) > 1e-12+1e-9*want {
					t.Fatalf("%s: entry %d: %g, expected %g", name, i, got, want)
				}
				if o.Unmeasured.Dropped(i) && h.Entries[i] != 0 {
					t.Fatalf("%s: dropped entry %d has the curvature %g", name, i, h.Entries[i])
				}
			}
		}
		if strings.HasPrefix(name, "lists") || !a.Plain() {
			continue
		}
		all, err := shapley.MeasureCurvature(t.Context(), g, layout.NewMask(n), o.Calibration, rows)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float64, len(g.Baseline.Values))
		for i, at := range places(g.Model, g.Baseline) {
			if o.Unmeasured.Dropped(i) {
				want[at] += all.Entries[i]
			}
		}
		for i := range want {
			if math.Abs(h.Baseline[i]-want[i]) > 1e-9*want[i] {
				t.Fatalf("%s: baseline %d: %g, expected %g", name, i, h.Baseline[i], want[i])
			}
		}
	}
}

// The curvature does not depend on the number of goroutines.
func TestCurvatureThreads(t *testing.T) {
	g := games(t)["deepfm"]
	rows := modeltest.Rows(g.Model.Architecture, 500, 4)
	var want *shapley.Curvature
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, threads := range []int{1, 3} {
		runtime.GOMAXPROCS(threads)
		h, err := shapley.MeasureCurvature(t.Context(), g, layout.NewMask(g.Model.Parameters()), loss.Uncalibrated, rows)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = h
		}
		if !reflect.DeepEqual(h, want) {
			t.Errorf("%d goroutines give other values", threads)
		}
	}
}
