package cut

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/shard"
	"shaver/internal/num/loss"
	"shaver/internal/prune/slice"
)

// ComparedRows is the default of Slicing.Rows.
const ComparedRows = 20000

// Slicing says which whole fields and columns a model loses. What is left is an ordinary smaller model: it reads fewer
// ids, and its table and its layers have no weights for what went. What is removed reads zeros, and first-order weights of a
// removed field are 0, so the logits are those of the whole model with such fields and columns.
type Slicing struct {
	Fields      []string // names of the fields that go
	KeepFields  int      // least number of fields that a path leaves; 0 = no path over fields, or with MostRise 1
	KeepColumns int      // least number of columns that a path leaves; 0 = no path over columns, or with MostRise 1
	// MostRise is a budget of quality; 0 stands for no such budget. Each step that removes fields, columns, entries or bits leaves a
	// model whose loss on the validation rows has a rise over the whole model with a 95% interval that ends at most there. With
	// Options.Calibrate, entries and bits go by both losses after a calibration.
	MostRise float64
	Rows     int    // largest number of validation rows on which a path compares candidates; 0 = ComparedRows. It is at most half of them
	Path     string // file that keeps the path, or "". It is followed if it is of this model and these rows, and has each new step once it is measured
}

// measures reports whether a path chooses what goes.
func (o *Slicing) measures() bool { return o.KeepFields > 0 || o.KeepColumns > 0 || o.MostRise > 0 }

// Slices reports whether fields or columns may go.
func (o *Slicing) Slices() bool { return len(o.Fields) > 0 || o.measures() }

// Sliced says which fields and columns went.
type Sliced struct {
	Removed  []string     `json:"removed"` // names of fields
	Before   slice.Cost   `json:"before"`
	After    slice.Cost   `json:"after"`
	Loss     *float64     `json:"loss,omitempty"`   // mean loss of the whole model on the rows that are measured, if there is a path
	Rows     int64        `json:"rows,omitempty"`   // number of these rows: the validation rows on which candidates were not compared
	Path     []slice.Step `json:"path,omitempty"`   // steps that were taken, in their order; with MostRise also those of entries and bits
	Beyond   []slice.Step `json:"beyond,omitempty"` // steps that were not taken because of MostRise: the first of fields, and the first of columns
	Compared []int64      `json:"-"`                // numbers of the validation rows on which candidates are compared, ascending
}

// slice chooses the fields and columns that go, says so in c, and returns what is left of s. The ids of a model that does
// not say what they stand for are taken for those of the dataset, and the model is then measured, as with a path. The bench
// has what is left. It is nil if nothing was measured.
func (o *Options) slice(ctx context.Context, c *Choice, s *Source) (small *Source, b *bench, err error) {
	ck := s.Checkpoint
	if s.Scores != nil && len(s.Scores[0].Spec.Freeze) > 0 { // they keep their columns
		return nil, nil, fault.Usagef("fields and columns go before entries, but the scores of %s freeze fields: give a budget of entries alone", o.Scores)
	}
	if o.data != nil {
		ck.Identities, ck.Standards = o.data.Identities(), o.data.Standards() // by which what is left finds its fields
	}
	names := ck.Known().FieldNames()
	if names == nil {
		return nil, nil, fault.Inputf("%s does not name its fields: give --dataset with the dataset of its training", o.Model)
	}
	kept, err := o.named(names, ck.Architecture.TableColumns())
	if err != nil {
		return nil, nil, err
	}
	c.Sliced = &Sliced{Removed: o.Fields, Before: costOf(ck)}
	if o.measures() || c.Unknown != "" && o.data.Rows(dataset.Val) > 0 {
		if b, err = openBench(o.Dataset, s.loss(), ck); err == nil {
			err = o.walk(ctx, c, b, ck, kept, names)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if small, err = s.sliced(kept); err != nil {
		return nil, nil, err
	}
	c.After = costOf(small.Checkpoint)
	if b != nil {
		b, err = b.of(small.Checkpoint)
	}
	return small, b, err
}

// walk takes the steps of a path, which begins at what is kept of ck, from kept, and says so in c. If no path chooses what goes,
// it measures ck alone.
func (o *Options) walk(ctx context.Context, c *Choice, b *bench, ck *checkpoint.Checkpoint, kept *checkpoint.Slice, names []string) error {
	if !o.measures() {
		return b.begin(ctx, o, ck)
	}
	most := o.MostRise
	if o.bounded() && o.Form.Values == compact.Mixed {
		most -= 2 * o.rounding() // what the network and the tables may take
	}
	w, err := o.newWalker(ctx, b, ck, kept, names)
	if err != nil {
		return err
	}
	if err := w.walk(ctx, o.KeepFields, o.KeepColumns, most); err != nil {
		return err
	}
	*kept, c.Path, c.Beyond, c.Loss = w.left, w.steps, w.beyond, &w.path.Whole.Loss
	c.Rows, c.Compared = w.path.Rows-w.path.Compared, w.sample.Number
	for _, step := range w.steps {
		if step.Field != "" {
			c.Removed = append(c.Removed, step.Field)
		}
	}
	return nil
}

// named returns what stays of a model whose fields have the given names without Slicing.Fields.
func (o *Options) named(names []string, columns int) (*checkpoint.Slice, error) {
	s := &checkpoint.Slice{}
	for i, name := range o.Fields {
		switch {
		case !slices.Contains(names, name):
			return nil, fault.Usagef("there is no field %q to remove: expected one of %s", name, strings.Join(names, ", "))
		case slices.Contains(o.Fields[:i], name):
			return nil, fault.Usagef("the field %q is to be removed twice", name)
		}
	}
	for j, name := range names {
		if !slices.Contains(o.Fields, name) {
			s.Fields = append(s.Fields, j)
		}
	}
	if s.Fields == nil {
		return nil, fault.Usagef("all %d fields are to be removed, but a model needs at least one", len(names))
	}
	s.Columns = Without(columns)
	return s, nil
}

// walker walks along a path over the fields and columns of a model. It follows the steps that are known, and measures the
// others. A step that is measured compares all candidates on a sample of the validation rows, and measures the best one on
// the other rows, so that the choice does not favour it.
type walker struct {
	*bench
	file   string // that keeps the path, or ""
	ck     *checkpoint.Checkpoint
	names  []string // of its fields
	path   *slice.Path
	left   checkpoint.Slice // of ck
	steps  []slice.Step     // that were taken
	beyond []slice.Step     // that were not taken because of their rise
	sample *model.Rows      // of ck
}

// newWalker returns a walker of ck, whose fields have the given names. It begins with what is kept once Slicing.Fields
// are gone, and measures ck, also if all steps are known.
func (o *Options) newWalker(ctx context.Context, b *bench, ck *checkpoint.Checkpoint, kept *checkpoint.Slice, names []string) (*walker, error) {
	rows, compared := b.Rows, int64(o.Rows)
	if rows < 2 {
		return nil, fault.Inputf("the dataset has %d validation rows: expected at least 2, some to choose by and others to measure on; it has the splits %v", rows, b.Dataset.SplitNames())
	}
	if compared == 0 {
		compared = ComparedRows
	}
	w := &walker{
		bench: b, file: o.Path, ck: ck, names: names, left: *kept,
		path: &slice.Path{Version: slice.Version, Model: ck.Digest(), Dataset: b.Dataset.Digest(), Kind: b.Loss, Rows: rows, Compared: min(rows/2, compared), Removed: o.Fields, Fields: []slice.Step{}},
	}
	m, err := ck.Model()
	if err != nil {
		return nil, err
	}
	validation := func(ctx context.Context, each func(*model.Rows) error) error {
		return b.Dataset.Scan(ctx, []string{dataset.Val}, 4096, each)
	}
	if w.sample, err = shard.NewSample(rows, 1, 1).Draw(ctx, validation, w.path.Compared, m.CheckRow); err != nil {
		return nil, err
	}
	b.Without = w.sample.Number
	if err := b.begin(ctx, o, ck); err != nil {
		return nil, err
	}
	w.path.Whole = figures(b.whole, costOf(ck))
	if o.Path == "" {
		return w, nil
	}
	switch known, err := slice.ReadPath(o.Path); {
	case err == nil && known.Continues(w.path):
		known.Whole, w.path = w.path.Whole, known
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !fault.IsInput(err):
		return nil, err
	}
	return w, nil
}

// walk removes fields and then columns until the given numbers are left, or until the next step has a rise whose interval
// ends above most. Without most, a number of 0 stands for all of them, and otherwise for as few as possible.
func (w *walker) walk(ctx context.Context, fields, columns int, most float64) error {
	a, all, least := &w.ck.Architecture, len(w.left.Fields), 1
	expected := fmt.Sprintf("1 to %d", a.TableColumns())
	if a.Kind == model.NeuMF { // which needs both of its fields, and columns of both halves
		expected, least = fmt.Sprintf("an even number up to %d, half of them of the product", a.TableColumns()), 2
	}
	switch {
	case fields > all:
		return fault.Usagef("%d fields are to stay: expected 1 to %d", fields, all)
	case columns > 0 && a.TableColumns() == 0:
		return fault.Inputf("the model has tables of %s columns: expected the same number in all of them to remove columns", tableColumns(a))
	case columns > a.TableColumns() || columns%least != 0:
		return fault.Usagef("%d columns are to stay: expected %s", columns, expected)
	}
	if fields == 0 {
		fields = all
		if most > 0 {
			fields = least
		}
	}
	if columns == 0 {
		columns = a.TableColumns()
		if most > 0 {
			columns = least
		}
	}
	taken, err := true, error(nil)
	for err == nil && taken && len(w.left.Fields) > fields {
		taken, err = w.next(ctx, &w.path.Fields, len(w.steps), true, most)
	}
	taken = true
	for at := len(w.steps); err == nil && taken && len(w.left.Columns) > columns; {
		taken, err = w.next(ctx, w.path.Branch(len(w.left.Fields)), len(w.steps)-at, false, most)
	}
	return err
}

// next takes the step that follows the first ones of known, of which taken are taken, and reports whether its rise is
// within most. Otherwise it does not take the step. It measures the step unless it is known. fields says whether the step
// removes a field; otherwise it removes columns.
func (w *walker) next(ctx context.Context, known *[]slice.Step, taken int, fields bool, most float64) (bool, error) {
	if taken == len(*known) {
		s, err := w.measure(ctx, fields)
		if err != nil {
			return false, err
		}
		*known = append(*known, *s)
		if w.file != "" {
			if err := w.path.Write(w.file); err != nil {
				return false, err
			}
		}
	}
	s := &(*known)[taken]
	if most > 0 && !s.Rise.Within(most) {
		w.beyond = append(w.beyond, *s)
		return false, nil
	}
	if s.Field != "" {
		j := slices.Index(w.names, s.Field)
		if j < 0 {
			return false, fault.Inputf("%s removes the field %q, which the model lacks: delete the file", w.file, s.Field)
		}
		w.left.Fields = except(w.left.Fields, []int{j})
	}
	w.left.Columns = except(w.left.Columns, s.Gone)
	w.steps = append(w.steps, *s)
	return true, nil
}

// measure returns the step to the candidate with the least loss on the sample.
func (w *walker) measure(ctx context.Context, fields bool) (*slice.Step, error) {
	var best *checkpoint.Checkpoint
	var chosen []int
	var refused error
	least := 0.
	for _, gone := range w.candidates(fields) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		keep := w.left
		if fields {
			keep.Fields = except(keep.Fields, gone)
		} else {
			keep.Columns = except(keep.Columns, gone)
		}
		small, err := w.ck.Sliced(keep)
		if fault.IsInput(err) { // a graph needs what goes
			refused = err
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := small.Model()
		if err != nil {
			return nil, err
		}
		rows := RowsOf(w.sample, keep.Fields, &w.ck.Architecture, &small.Architecture)
		p, err := evaluate.Predict(ctx, m, w.Loss, func(_ context.Context, each func(*model.Rows) error) error {
			for from := 0; from < rows.Len(); from += 4096 {
				part := rows.Slice(from, min(from+4096, rows.Len()))
				if err := each(&part); err != nil {
					return err
				}
			}
			return nil
		}, runtime.GOMAXPROCS(0))
		if err != nil {
			return nil, err
		}
		if l := p.MeanLoss(loss.Uncalibrated); best == nil || l < least {
			best, chosen, least = small, gone, l
		}
	}
	if best == nil {
		return nil, refused
	}
	b, err := w.of(best)
	if err != nil {
		return nil, err
	}
	after, err := b.predict(ctx, best, nil)
	if err != nil {
		return nil, err
	}
	s := w.step(after, costOf(best), false)
	if fields {
		s.Field = w.names[chosen[0]]
	} else {
		s.Gone = chosen
	}
	return s, nil
}

// candidates returns what may go in a step: each field or each column that is left, or with a NeuMF each column of one half
// with each of the other.
func (w *walker) candidates(fields bool) (all [][]int) {
	a := &w.ck.Architecture
	switch half := a.TableColumns() / 2; {
	case fields:
		all = slices.Collect(slices.Chunk(w.left.Fields, 1))
	case a.Kind == model.NeuMF:
		for _, c := range w.left.Columns {
			for _, o := range w.left.Columns {
				if c < half && o >= half {
					all = append(all, []int{c, o})
				}
			}
		}
	default:
		all = slices.Collect(slices.Chunk(w.left.Columns, 1))
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
	chosen := &model.Rows{Width: after.Width(), Inputs: rows.Inputs, Number: rows.Number, Label: rows.Label, Dense: rows.Dense, Weight: rows.Weight}
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

func costOf(ck *checkpoint.Checkpoint) slice.Cost {
	a := &ck.Architecture
	lookUps, lengths := 0, a.Lengths()
	if a.Plain() {
		lookUps = len(lengths)
	}
	for _, l := range a.LookUps {
		lookUps += lengths[l.Field]
	}
	products := multiplications(a)
	if a.Kind == model.Graph {
		products = ck.HeadProducts()
	}
	return slice.Cost{Fields: a.Fields(), Columns: a.TableColumns(), LookUps: lookUps, Entries: a.Parameters(), Multiplications: products, Bytes: ck.Size()}
}

// multiplications returns the number of multiplications that a row takes in the layers that read
// the embedding, and in the cross layers.
func multiplications(a *model.Architecture) int {
	elements := a.Players()
	read := 0 // outputs that read each element
	if len(a.Hidden) > 0 {
		read = a.Hidden[0]
	}
	switch a.Kind {
	case model.NeuMF:
		read /= 2 // the MLP reads half of the columns
	case model.DCNv2:
		read += a.CrossLayers * elements
	case model.DCNMix:
		read += a.CrossLayers * a.Experts * (2*a.Rank + 1)
	}
	return elements * read
}
