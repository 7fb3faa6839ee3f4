package worker

import (
	"slices"
	"sync/atomic"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/modelfile"
	"shaver/internal/jobs/job"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/shapley"
)

// The tables of a round have the baseline in place of what the first mask drops. In a round that adds, the entries that it does not
// measure have the baseline in those of Measured.
func TestRound(t *testing.T) {
	data, _ := modelOf(t, 4)
	m, _, err := modelfile.Parse("model", data)
	if err != nil {
		t.Fatal(err)
	}
	whole, n := m.Weights.Embedding, m.Parameters()
	dropped, unmeasured := layout.NewMask(n), layout.NewMask(n)
	for i := range n {
		if i%2 == 0 {
			dropped.Drop(i)
		}
		if i%4 != 0 {
			unmeasured.Drop(i)
		}
	}
	const b = 7
	baseline := model.Baseline{Values: slices.Repeat([]float32{b}, m.BaselineSize())}
	without := func(m layout.Mask) []float32 {
		table := slices.Clone(whole)
		for i := range table {
			if m.Dropped(i) {
				table[i] = b
			}
		}
		return table
	}
	for _, adds := range []bool{false, true} {
		f, d := newTask(t)
		f.blobs["masks"] = dropped
		if adds {
			f.blobs["masks"] = slices.Concat(dropped, unmeasured)
		}
		d.Task.Path = &job.PathRound{Masks: f.reference("masks"), Adds: adds, Calibration: loss.Calibration{Scale: 2, Offset: 3}}
		var options shapley.Options
		got, err := new(Models).round(t.Context(), f, &d.Task, &shapley.Game{Model: m, Baseline: baseline}, &options, new(atomic.Int64))
		if err != nil {
			t.Fatal(err)
		}
		wantUnmeasured := dropped
		if adds {
			wantUnmeasured = unmeasured
		}
		if !slices.Equal(got.Weights.Embedding, without(dropped)) || !slices.Equal(options.Unmeasured, wantUnmeasured) || options.Calibration != d.Task.Path.Calibration {
			t.Errorf("adds %t: the tables, the mask or the calibration are others than those of the task", adds)
		}
		if (options.Measured != nil) != adds || adds && !slices.Equal(options.Measured.Weights.Embedding, without(unmeasured)) {
			t.Errorf("adds %t: what the round measures differs from the second mask", adds)
		}
	}
}
