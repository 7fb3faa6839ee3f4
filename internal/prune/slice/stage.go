package slice

import (
	"context"
	"errors"
	"math"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/prune/sweep"
)

// Stage is a model of a series, in which each lacks more than the one before.
type Stage struct {
	Without string          `json:"without,omitempty"`       // what this stage removed: fields or columns; "" of the whole model
	Rise    *sweep.Interval `json:"rise,omitempty"`          // of the loss on validation rows, over the whole model; nil of the whole model, and if no step was measured
	Batch   float64         `json:"batch_seconds,omitempty"` // time of a batch, which differs from run to run; 0 if it was not measured
	Cost
}

// batch is the number of rows of a batch whose time is measured, and runs how often.
const (
	batch = 4096
	runs  = 7
)

// stages returns the whole model, what is left without the fields, and what is left without the columns as well. A stage
// that removes nothing is left out.
func (w *walker) stages(ctx context.Context) ([]Stage, error) {
	columns := Without(w.whole.Architecture.TableColumns())
	seconds, err := w.seconds(ctx, w.whole)
	if err != nil {
		return nil, err
	}
	all := []Stage{{Batch: seconds, Cost: costOf(w.whole)}}
	add := func(without string, keep checkpoint.Slice, measured func(*Step) bool) error {
		small, err := w.whole.Sliced(keep)
		if err != nil {
			return err
		}
		s := Stage{Without: without, Cost: costOf(small)}
		for i := range w.steps {
			if measured(&w.steps[i]) {
				s.Rise = w.steps[i].Rise
			}
		}
		s.Batch, err = w.seconds(ctx, small)
		all = append(all, s)
		return err
	}
	if len(w.left.Fields) < w.whole.Architecture.Fields() {
		if err := add("fields", checkpoint.Slice{Fields: w.left.Fields, Columns: columns}, func(s *Step) bool { return s.Field != "" }); err != nil {
			return nil, err
		}
	}
	if len(w.left.Columns) < len(columns) {
		if err := add("columns", w.left, func(s *Step) bool { return s.Gone != nil }); err != nil {
			return nil, err
		}
	}
	if n := len(w.steps); n > 0 && w.steps[n-1].Cost != all[len(all)-1].Cost {
		return nil, fault.Inputf("%s: a row costs %+v after %d steps, but %+v in what is left of the model: expected the path of this model", w.file, w.steps[n-1].Cost, n, all[len(all)-1].Cost)
	}
	return all, nil
}

var errEnough = errors.New("enough")

// seconds returns the least time in which one core predicts a batch of validation rows.
func (w *walker) seconds(ctx context.Context, ck *checkpoint.Checkpoint) (float64, error) {
	m, err := ck.Model()
	if err != nil {
		return 0, err
	}
	d, err := w.dataset.For(&ck.Architecture, ck.Known())
	if err != nil {
		return 0, err
	}
	least, rows := math.Inf(1), &model.Rows{}
	err = validation(d)(ctx, func(part *model.Rows) error {
		for i := range part.Len() {
			if m.CheckRow(part.Row(i)) == nil && rows.Len() < batch {
				rows.Append(part, i)
			}
		}
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	scorer, logits := m.NewScorer(), make([]float64, rows.Len())
	for range runs {
		begin := time.Now()
		scorer.Logits(logits, rows)
		least = min(least, time.Since(begin).Seconds())
	}
	return least, nil
}
