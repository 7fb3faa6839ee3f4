package slice

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/loss"
	"shaver/internal/prune/sweep"
)

// Rows is the largest number of rows of the validation split on which a path compares candidates by default.
const Rows = 20000

// walker walks along a path. It follows the steps that are known, and measures the others. A step that is measured
// compares all candidates on a sample of the validation rows, and measures the best one on the other rows, so that the
// choice does not favour it.
type walker struct {
	file    string // that keeps the path, or ""
	whole   *checkpoint.Checkpoint
	names   []string         // of its fields
	dataset *dataset.Dataset // with these fields
	path    *Path
	left    checkpoint.Slice // of whole
	steps   []Step           // that were taken
	beyond  []Step           // that were not taken because of their rise

	sample *model.Rows           // of whole
	before *evaluate.Predictions // of whole, of the rows besides the sample
}

// newWalker returns a walker of whole, whose fields have the given names. It begins with what is kept once Options.Fields
// are gone. d has the fields of whole.
func (o *Options) newWalker(whole *checkpoint.Checkpoint, kept *checkpoint.Slice, names []string, d *dataset.Dataset) (*walker, error) {
	rows := d.Rows(dataset.Val)
	if rows < 2 {
		return nil, fault.Inputf("the dataset has %d validation rows: expected at least 2, some to choose by and others to measure on; it has the splits %v", rows, d.SplitNames())
	}
	kind, err := d.ChooseLoss("", whole.Known())
	if err != nil {
		return nil, err
	}
	w := &walker{
		file: o.Path, whole: whole, names: names, dataset: d, left: *kept,
		path: &Path{Version: Version, Model: whole.Digest(), Dataset: d.Digest(), Kind: kind, Rows: rows, Compared: min(rows/2, int64(o.Rows)), Removed: o.Fields, Fields: []Step{}},
	}
	known, err := o.stored(w.path)
	if err != nil || known == nil {
		return w, err
	}
	if err := known.fits(&whole.Architecture, names); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	w.path = known
	return w, nil
}

// walk removes fields and then columns until the given numbers are left, or until the next step has a rise whose interval
// ends above most. Without most, a number of 0 stands for all of them, and otherwise for as few as possible.
func (w *walker) walk(ctx context.Context, fields, columns int, most float64) error {
	a, all := &w.whole.Architecture, len(w.left.Fields)
	if fields < 0 || fields > all {
		return fault.Usagef("%d fields are to stay: expected 1 to %d", fields, all)
	}
	if columns > 0 && a.TableColumns() == 0 {
		return fault.Inputf("the model has tables of %s columns: expected the same number in all of them to remove columns", tableColumns(a))
	}
	if columns < 0 || columns > a.TableColumns() || a.Kind == model.NeuMF && columns%2 != 0 {
		expected := fmt.Sprintf("1 to %d", a.TableColumns())
		if a.Kind == model.NeuMF {
			expected = fmt.Sprintf("an even number up to %d, half of them of the product", a.TableColumns())
		}
		return fault.Usagef("%d columns are to stay: expected %s", columns, expected)
	}
	least := 0
	if most > 0 {
		least = 1
	}
	switch {
	case fields > 0:
	case least > 0 && a.Kind != model.NeuMF: // which needs both of its fields
		fields = least
	default:
		fields = all
	}
	switch {
	case columns > 0:
	case least > 0 && a.Kind == model.NeuMF:
		columns = 2
	case least > 0:
		columns = least
	default:
		columns = a.TableColumns()
	}
	if err := w.draw(ctx); err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	for taken := true; taken && len(w.left.Fields) > fields; {
		var err error
		if taken, err = w.next(ctx, &w.path.Fields, len(w.steps), true, most); err != nil {
			return err
		}
	}
	at := len(w.steps)
	for taken := true; taken && len(w.left.Columns) > columns; {
		var err error
		if taken, err = w.next(ctx, w.path.branch(len(w.left.Fields)), len(w.steps)-at, false, most); err != nil {
			return err
		}
	}
	return nil
}

// next takes the step that follows the first ones of known, of which taken are taken, and reports whether its rise is
// within most. Otherwise it does not take the step. It measures the step unless it is known. fields says whether the step
// removes a field; otherwise it removes columns.
func (w *walker) next(ctx context.Context, known *[]Step, taken int, fields bool, most float64) (bool, error) {
	if taken == len(*known) {
		s, err := w.measure(ctx, fields)
		if err != nil {
			return false, err
		}
		*known = append(*known, *s)
		if err := w.path.write(w.file); err != nil {
			return false, err
		}
	}
	s := &(*known)[taken]
	if most > 0 && !s.Rise.Within(most) {
		w.beyond = append(w.beyond, *s)
		return false, nil
	}
	if s.Field != "" {
		w.left.Fields = except(w.left.Fields, []int{slices.Index(w.names, s.Field)})
	}
	w.left.Columns = except(w.left.Columns, s.Gone)
	w.steps = append(w.steps, *s)
	return true, nil
}

// candidate is a smaller model that the next step may lead to.
type candidate struct {
	keep checkpoint.Slice
	gone []int // fields or columns of whole that go
}

// measure returns the step to the candidate with the least loss on the sample.
func (w *walker) measure(ctx context.Context, fields bool) (*Step, error) {
	var best *checkpoint.Checkpoint
	var chosen candidate
	var refused error
	least := 0.
	for _, c := range w.candidates(fields) {
		small, err := w.whole.Sliced(c.keep)
		if fault.IsInput(err) { // a graph needs what goes
			refused = err
			continue
		}
		if err != nil {
			return nil, err
		}
		rows := RowsOf(w.sample, c.keep.Fields, &w.whole.Architecture, &small.Architecture)
		p, err := w.predict(ctx, small, func(_ context.Context, each func(*model.Rows) error) error {
			for from := 0; from < rows.Len(); from += 4096 {
				part := rows.Slice(from, min(from+4096, rows.Len()))
				if err := each(&part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if l := p.MeanLoss(loss.Uncalibrated); best == nil || l < least {
			best, chosen, least = small, c, l
		}
	}
	if best == nil {
		return nil, refused
	}
	after, err := w.predictOthers(ctx, best)
	if err != nil {
		return nil, err
	}
	s := &Step{Figures: figures(best, after), Rise: sweep.NewInterval(evaluate.CompareLoss(w.before, after, loss.Uncalibrated, loss.Uncalibrated))}
	if fields {
		s.Field = w.names[chosen.gone[0]]
	} else {
		s.Gone = chosen.gone
	}
	return s, nil
}

// draw draws the sample.
func (w *walker) draw(ctx context.Context) error {
	m, err := w.whole.Model()
	if err != nil {
		return err
	}
	w.sample, err = shard.NewSample(w.path.Rows, 1, 1).Draw(ctx, validation(w.dataset), w.path.Compared, m.CheckRow)
	return err
}

// begin measures the whole model, also if all steps are known, because Options.Warn needs its predictions.
func (w *walker) begin(ctx context.Context) (err error) {
	if w.before, err = w.predictOthers(ctx, w.whole); err == nil {
		w.path.Whole = figures(w.whole, w.before)
	}
	return err
}

// validation returns the validation rows of d.
func validation(d *dataset.Dataset) model.RowSource {
	return func(ctx context.Context, each func(*model.Rows) error) error {
		return d.Scan(ctx, []string{dataset.Val}, 4096, each)
	}
}

// predictOthers returns the predictions of ck for the validation rows besides the sample.
func (w *walker) predictOthers(ctx context.Context, ck *checkpoint.Checkpoint) (*evaluate.Predictions, error) {
	return predict(ctx, ck, w.dataset, w.sample.Number)
}

// predict returns the predictions of ck, which has fields of d, for the validation rows besides those with the given
// numbers, which ascend.
func predict(ctx context.Context, ck *checkpoint.Checkpoint, d *dataset.Dataset, without []int64) (*evaluate.Predictions, error) {
	rows, kind := d.Rows(dataset.Val), d.Loss()
	d, err := d.For(&ck.Architecture, ck.Known())
	if err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	return (&measure.Bench{Dataset: d, Split: dataset.Val, Rows: rows, Loss: kind, Without: without}).Predict(ctx, m, nil)
}

func (w *walker) predict(ctx context.Context, ck *checkpoint.Checkpoint, rows model.RowSource) (*evaluate.Predictions, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	return evaluate.Predict(ctx, m, w.path.Kind, rows, runtime.GOMAXPROCS(0))
}

func figures(ck *checkpoint.Checkpoint, p *evaluate.Predictions) Figures {
	return Figures{Loss: p.MeanLoss(loss.Uncalibrated), AUC: scores.Figure(p.Metrics().AUC), Cost: costOf(ck)}
}

// candidates returns all models with a field or a column less. A NeuMF loses a column of each of its
// halves.
func (w *walker) candidates(fields bool) (all []candidate) {
	add := func(gone ...int) {
		keep := w.left
		if fields {
			keep.Fields = except(keep.Fields, gone)
		} else {
			keep.Columns = except(keep.Columns, gone)
		}
		all = append(all, candidate{keep, gone})
	}
	a := &w.whole.Architecture
	switch {
	case fields:
		for _, j := range w.left.Fields {
			add(j)
		}
	case a.Kind == model.NeuMF:
		for _, c := range w.left.Columns {
			for _, o := range w.left.Columns {
				if c < a.TableColumns()/2 && o >= a.TableColumns()/2 {
					add(c, o)
				}
			}
		}
	default:
		for _, c := range w.left.Columns {
			add(c)
		}
	}
	return all
}

// Without returns the numbers below n except those that go.
func Without(n int, gone ...int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return except(all, gone)
}

// except returns the numbers except those that go.
func except(numbers, gone []int) []int {
	kept := []int{}
	for _, i := range numbers {
		if !slices.Contains(gone, i) {
			kept = append(kept, i)
		}
	}
	return kept
}

// RowsOf returns rows of a model with the architecture before as a model that has only the given fields reads them.
func RowsOf(rows *model.Rows, fields []int, before, after *model.Architecture) *model.Rows {
	from, to, lengths := before.Offsets(), after.Offsets(), before.Lengths()
	first := model.Offsets(lengths) // index of each field's first id
	chosen := &model.Rows{Width: after.Width(), Inputs: rows.Inputs, Number: rows.Number, Label: rows.Label, Dense: rows.Dense}
	for i := range rows.Label {
		row := rows.Row(i)
		for k, j := range fields {
			for _, id := range row[first[j]:][:lengths[j]] {
				chosen.Features = append(chosen.Features, id-from[j]+to[k])
			}
		}
	}
	return chosen
}

// tableColumns returns the different numbers of columns of the tables, such as "4, 8".
func tableColumns(a *model.Architecture) string {
	var numbers []int
	for _, t := range a.Tables {
		numbers = append(numbers, t.Dim)
	}
	slices.Sort(numbers)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Compact(numbers)), " ", ", "), "[]")
}
