package slice

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// Rows is the number of rows of the validation split on which a path is measured by default.
const Rows = 20000

// Step is one step of a path: the field, or the columns, whose removal raised the loss least of
// all that were left. Figures are those of what is left after it.
type Step struct {
	Field string          `json:"field,omitempty"` // name of the field that went
	Gone  []int           `json:"gone,omitempty"`  // numbers of the columns that went, in the whole table
	Loss  float64         `json:"loss"`            // mean loss of the rows; RMSE of a squared loss
	Rise  *sweep.Interval `json:"rise"`            // difference to the loss of the whole model, with its 95% interval
	AUC   *float64        `json:"auc,omitempty"`
	Cost
}

// walker walks along a path. Each step measures every candidate again.
type walker struct {
	ck      *checkpoint.Checkpoint
	names   []string // of the fields of ck
	columns []int    // numbers of ck's columns in the whole table
	rows    *model.Rows
	kind    loss.Kind
	whole   *evaluate.Predictions
	steps   []Step
}

// newWalker returns a walker that begins with ck, whose fields have the given names. It measures
// on a sample of the validation rows of d, which must fit ck.
func newWalker(ctx context.Context, ck *checkpoint.Checkpoint, names []string, d *dataset.Dataset, size int) (*walker, error) {
	if d.Rows(dataset.Val) == 0 {
		return nil, fault.Inputf("the dataset has no validation rows to measure on: it has the splits %v", d.SplitNames())
	}
	w := &walker{ck: ck, names: names, kind: d.Loss()}
	for c := range ck.Architecture.Dim {
		w.columns = append(w.columns, c)
	}
	source := func(ctx context.Context, each func(*model.Rows) error) error {
		return d.Scan(ctx, []string{dataset.Val}, 4096, each)
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	w.rows, err = shard.NewSample(d.Rows(dataset.Val), 1, 1).Draw(ctx, source, int64(size), m.CheckRow)
	if err == nil {
		w.whole, err = w.predict(ctx, ck, w.rows)
	}
	return w, err
}

func (w *walker) predict(ctx context.Context, ck *checkpoint.Checkpoint, rows *model.Rows) (*evaluate.Predictions, error) {
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	source := func(_ context.Context, each func(*model.Rows) error) error {
		for from := 0; from < rows.Len(); from += 4096 {
			part := rows.Slice(from, min(from+4096, rows.Len()))
			if err := each(&part); err != nil {
				return err
			}
		}
		return nil
	}
	return evaluate.Predict(ctx, m, w.kind, source, runtime.GOMAXPROCS(0))
}

// candidate is a smaller model that the next step may lead to.
type candidate struct {
	keep checkpoint.Slice
	gone []int // fields or columns of the current model that go
}

// step takes the step to the candidate with the least loss. fields says whether the candidates
// are without fields; otherwise they are without columns.
func (w *walker) step(ctx context.Context, fields bool) error {
	var best *checkpoint.Checkpoint
	var chosen candidate
	var predicted *evaluate.Predictions
	least := 0.
	for _, c := range w.candidates(fields) {
		small, err := w.ck.Sliced(c.keep)
		if err != nil {
			return err
		}
		p, err := w.predict(ctx, small, w.chosenRows(c.keep.Fields, small))
		if err != nil {
			return err
		}
		if l := p.MeanLoss(loss.Uncalibrated); best == nil || l < least {
			best, chosen, predicted, least = small, c, p, l
		}
	}
	s := Step{Loss: least, Cost: costOf(best), AUC: scores.Figure(predicted.Metrics().AUC),
		Rise: sweep.NewInterval(evaluate.CompareLoss(w.whole, predicted, loss.Uncalibrated, loss.Uncalibrated))}
	if fields {
		s.Field = w.names[chosen.gone[0]]
	} else {
		for _, c := range chosen.gone {
			s.Gone = append(s.Gone, w.columns[c])
		}
	}
	w.rows = w.chosenRows(chosen.keep.Fields, best)
	w.names, w.columns = take(w.names, chosen.keep.Fields), take(w.columns, chosen.keep.Columns)
	w.ck, w.steps = best, append(w.steps, s)
	return nil
}

// candidates returns all models with a field or a column less. A NeuMF loses a column of each of its
// halves.
func (w *walker) candidates(fields bool) (all []candidate) {
	m, d := w.ck.Architecture.Fields(), w.ck.Architecture.Dim
	whole := checkpoint.Slice{Fields: Without(m), Columns: Without(d)}
	add := func(gone ...int) {
		c := candidate{whole, gone}
		if fields {
			c.keep.Fields = Without(m, gone...)
		} else {
			c.keep.Columns = Without(d, gone...)
		}
		all = append(all, c)
	}
	switch {
	case fields:
		for j := range m {
			add(j)
		}
	case w.ck.Architecture.Kind == model.NeuMF:
		for c := range d / 2 {
			for o := d / 2; o < d; o++ {
				add(c, o)
			}
		}
	default:
		for c := range d {
			add(c)
		}
	}
	return all
}

// Without returns the numbers below n except those that go.
func Without(n int, gone ...int) []int {
	kept := []int{}
	for i := range n {
		if !slices.Contains(gone, i) {
			kept = append(kept, i)
		}
	}
	return kept
}

// take returns the values at the given positions.
func take[T any](values []T, positions []int) []T {
	taken := make([]T, len(positions))
	for i, p := range positions {
		taken[i] = values[p]
	}
	return taken
}

// chosenRows returns the rows with the given fields only, as the smaller model reads them.
func (w *walker) chosenRows(fields []int, small *checkpoint.Checkpoint) *model.Rows {
	return RowsOf(w.rows, fields, &w.ck.Architecture, &small.Architecture)
}

// RowsOf returns rows of a model with the architecture before as a model that has only the given fields reads them.
func RowsOf(rows *model.Rows, fields []int, before, after *model.Architecture) *model.Rows {
	from, to := before.Offsets(), after.Offsets()
	chosen := &model.Rows{Width: len(fields), Number: rows.Number, Label: rows.Label}
	for i := range rows.Label {
		row := rows.Row(i)
		for k, j := range fields {
			chosen.Features = append(chosen.Features, row[j]-from[j]+to[k])
		}
	}
	return chosen
}

// walk removes fields and then columns until the given numbers are left. A number of 0 stands for
// all of them.
func (w *walker) walk(ctx context.Context, fields, columns int) error {
	a := &w.ck.Architecture
	if fields < 0 || fields > a.Fields() {
		return fault.Usagef("%d fields are to stay: expected 1 to %d", fields, a.Fields())
	}
	if columns < 0 || columns > a.Dim || a.Kind == model.NeuMF && columns%2 != 0 {
		expected := fmt.Sprintf("1 to %d", a.Dim)
		if a.Kind == model.NeuMF {
			expected = fmt.Sprintf("an even number up to %d, half of them of the product", a.Dim)
		}
		return fault.Usagef("%d columns are to stay: expected %s", columns, expected)
	}
	for fields > 0 && w.ck.Architecture.Fields() > fields {
		if err := w.step(ctx, true); err != nil {
			return err
		}
	}
	for columns > 0 && w.ck.Architecture.Dim > columns {
		if err := w.step(ctx, false); err != nil {
			return err
		}
	}
	return nil
}
