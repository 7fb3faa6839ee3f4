package cut

import (
	"context"
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/evaluate"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/measure"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/loss"
	"shaver/internal/prune/rate"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// Bound is a budget of quality: as many entries are dropped as the loss allows.
type Bound struct {
	// Most is above 0. The rise of the loss on the validation rows, over the whole model, has a 95% interval that ends at
	// most there. With Options.Calibrate both losses are those after a calibration.
	Most float64
	// Kept is what stays of the model's fields and columns before entries are dropped.
	Kept checkpoint.Slice
	// Compared holds the numbers of the validation rows that chose Kept, ascending. They are not measured.
	Compared []int64
}

// Bounded says what the loss rose by within a Bound.
type Bounded struct {
	Entries *sweep.Interval // by all that is removed before values are rounded to bits that differ from row to row
	Rise    *sweep.Interval // by everything
	Bytes   int64           // of the compact file with these entries and the unrounded network
}

// part is what stays of another source.
type part struct {
	whole *Source
	row   []int32 // by entry of whole: its number in the part, or -1
}

// order returns the order of the entries of the part, which is that of the whole model without what is gone.
func (p *part) order(o *Options) ([]int32, error) {
	whole, err := o.order(p.whole)
	if err != nil {
		return nil, err
	}
	var order []int32
	for _, i := range whole {
		if p.row[i] >= 0 {
			order = append(order, p.row[i])
		}
	}
	return order, nil
}

// sliced returns what stays of s. Its scores have no values: an order of its entries is that of s.
func (s *Source) sliced(keep *checkpoint.Slice) (*Source, error) {
	a := &s.Checkpoint.Architecture
	if len(keep.Fields) == a.Fields() && len(keep.Columns) == a.TableColumns() {
		return s, nil
	}
	ck, err := s.Checkpoint.Sliced(*keep)
	if err != nil {
		return nil, err
	}
	spans, whole := a.Spans(), s.Scores[0]
	if !a.Plain() {
		return nil, fault.Inputf("%s has several tables, or fields that share one: entries can only be dropped together with fields and columns if each field has rows of one table for itself: drop entries of what is left in a second step", s.File)
	}
	f := *whole
	f.Fields, f.Baseline, f.Layout = nil, nil, scores.LayoutOf(&ck.Architecture)
	f.Scores = tally.Scores{Shape: ck.Architecture.Shape()}
	p := &part{whole: s, row: slices.Repeat([]int32{-1}, len(s.Table))}
	number := int32(0)
	for _, j := range keep.Fields {
		span := &spans[j]
		f.Fields = append(f.Fields, whole.Fields[j])
		for _, c := range keep.Columns {
			f.Baseline = append(f.Baseline, whole.Baseline[span.Baseline+c])
		}
		for row := span.Entry; row < span.Entry+span.Rows*span.Dim; row += span.Dim {
			for _, c := range keep.Columns {
				p.row[row+c] = number
				number++
			}
		}
	}
	small := &Source{Checkpoint: ck, File: s.File, Scores: []*scores.File{&f}, part: p}
	small.Table, err = ck.Embedding()
	return small, err
}

// bounded measures pruned models against the whole one.
type bounded struct {
	Bounded
	source  *Source // what Bound.Kept leaves
	options *Options
	bench   *measure.Bench // of what is left
	whole   *evaluate.Predictions
	rises   map[int]*sweep.Interval // by the number of dropped entries
	// calibrated has the rises after a calibration, of the numbers with a rise that is not within the bound. It is nil with
	// Options.Calibrate, which is in rises, and with Options.Tune, which excludes it.
	calibrated map[int]*sweep.Interval
}

// openBound opens the validation split on which the loss of the source is bounded.
func (o *Options) openBound(ctx context.Context, whole *Source) (*bounded, error) {
	switch {
	case !(o.Bound.Most > 0) || math.IsInf(o.Bound.Most, 0):
		return nil, fault.Usagef("%s is %v, expected a finite number above 0", o.name("max-rise"), o.Bound.Most)
	case len(o.Dataset) == 0:
		return nil, fault.Usagef("%s bounds the loss on the validation split: expected %s", o.name("max-rise"), o.name("dataset"))
	case o.Previous != "" || o.Budget != nil:
		return nil, fault.Usagef("%s is a budget: expected no other, and no choices of an earlier model", o.name("max-rise"))
	}
	d, err := dataset.OpenAll(o.Dataset)
	if err != nil {
		return nil, err
	}
	if d, err = d.For(&whole.Checkpoint.Architecture, whole.Checkpoint.Known()); err != nil {
		return nil, err
	}
	whole.Checkpoint.Identities, whole.Checkpoint.Standards = d.Identities(), d.Standards() // by which what is left finds its fields
	small, err := whole.sliced(&o.Bound.Kept)
	if err != nil {
		return nil, err
	}
	b := &bounded{options: o, source: small, rises: map[int]*sweep.Interval{}}
	if !o.Calibrate && !o.Tune {
		b.calibrated = map[int]*sweep.Interval{}
	}
	open := func(s *Source) (*model.Model, *measure.Bench, error) {
		m, err := s.Checkpoint.Model()
		if err != nil {
			return nil, nil, err
		}
		found, err := measure.Open(o.Dataset, dataset.Val, whole.Scores[0].Spec.Loss.Name(), m, s.Checkpoint.Known())
		if err == nil {
			found.Without = o.Bound.Compared
		}
		return m, found, err
	}
	m, bench, err := open(whole)
	if err != nil {
		return nil, err
	}
	if b.whole, err = bench.Predict(ctx, m, nil); err != nil {
		return nil, err
	}
	_, b.bench, err = open(b.source)
	return b, err
}

// rise returns by how much the loss of a model with the given predictions rises over that of the whole one, both with or both
// without a calibration. What a calibration gains would otherwise hide what dropping loses.
func (b *bounded) rise(p *evaluate.Predictions, calibrate bool) *sweep.Interval {
	if calibrate {
		return sweep.NewInterval(evaluate.CompareLoss(b.whole, p, evaluate.Calibrate(b.whole), evaluate.Calibrate(p)))
	}
	return sweep.NewInterval(evaluate.CompareLoss(b.whole, p, loss.Uncalibrated, loss.Uncalibrated))
}

// dropping returns the rise if the first entries of the order are dropped.
func (b *bounded) dropping(ctx context.Context, order []int32, drop int) (*sweep.Interval, error) {
	if i, ok := b.rises[drop]; ok {
		return i, nil
	}
	m, err := b.source.Checkpoint.Model()
	if err != nil {
		return nil, err
	}
	a, baseline := &b.source.Checkpoint.Architecture, b.source.Scores[0].Baseline
	table, err := sweep.Pruned(a, b.source.Table, mask.Of(order, drop), baseline, b.plainValues())
	if err != nil {
		return nil, err
	}
	p, err := b.bench.Predict(ctx, m.WithEmbedding(table), nil)
	if err != nil {
		return nil, err
	}
	rise := b.rise(p, b.options.Calibrate)
	if b.rises[drop] = rise; b.calibrated != nil && !rise.Within(b.options.Bound.Most) {
		b.calibrated[drop] = b.rise(p, true)
	}
	return rise, nil
}

// plainValues returns the encoding of the kept entries, or compact.Float32 if their bits are chosen afterwards.
func (b *bounded) plainValues() compact.Encoding {
	if v := b.options.Form.Values; v != compact.Mixed {
		return v
	}
	return compact.Float32
}

// refinements is how often within halves the range in which the largest number of dropped entries is.
const refinements = 6

// within returns the largest number of entries of the order whose dropping it found to raise the loss by at most most. It
// tries numbers of kept entries, each shrink times the one before, until patience of them in a row rise by more, because
// the loss may rise and fall again, and then those between the last one that does not and the next.
func (b *bounded) within(ctx context.Context, order []int32, most float64) (int, error) {
	const shrink, patience = .75, 3
	good, bad, beyond := 0, b.options.most, 0
	all := b.source.Checkpoint.Architecture.Prunable()
	for kept := float64(all); beyond < patience; kept *= shrink {
		drop := min(all-int(kept), b.options.most)
		rise, err := b.dropping(ctx, order, drop)
		if err != nil {
			return 0, err
		}
		switch {
		case rise.Within(most):
			good, bad, beyond = drop, b.options.most, 0
		case beyond == 0:
			bad, beyond = drop, 1
		default:
			beyond++
		}
		if drop == b.options.most {
			break
		}
	}
	for range refinements {
		n := float64(all)
		middle := all - int(math.Ceil(math.Sqrt((n-float64(good))*(n-float64(bad)))))
		if middle <= good || middle >= bad {
			break
		}
		rise, err := b.dropping(ctx, order, middle)
		if err != nil {
			return 0, err
		}
		if rise.Within(most) {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, nil
}

// few says why not more entries than drop are dropped, and what to do. It is "" unless a calibration lets another
// twentieth of all entries go, or the bound lets less than a hundredth go.
func (b *bounded) few(drop int) string {
	o, all := b.options, b.source.Checkpoint.Architecture.Prunable()
	more, next := drop, all+1
	for n := range b.rises {
		if n > drop {
			next = min(next, n)
		}
	}
	for n, rise := range b.calibrated {
		if rise.Within(o.Bound.Most) {
			more = max(more, n)
		}
	}
	lead := fmt.Sprintf("%s: %d of %d entries go within %s %v", o.Scores, drop, all, o.name("max-rise"), o.Bound.Most)
	switch {
	case 20*(more-drop) >= all:
		return fmt.Sprintf("%s, but at least %d if the logits are calibrated: prune with %s", lead, more, o.name("calibrate"))
	case next > all || 100*drop >= all:
		return ""
	}
	end := "above it"
	if rise := b.rises[next]; rise != nil && rise.High != nil {
		end = fmt.Sprintf("at %+.2g", *rise.High)
	}
	return fmt.Sprintf("%s, because without %d the 95%% interval of the rise ends %s: allow more, give more validation rows, which narrow the interval, or other scores", lead, next, end)
}

// plain returns the number of entries that are dropped, in an order of limited, if their values are not Mixed.
func (b *bounded) plain(ctx context.Context, order []int32) (int, error) {
	drop, err := b.within(ctx, order, b.options.Bound.Most)
	if err != nil {
		return 0, err
	}
	return drop, b.note(ctx, order, drop)
}

// note sets what is known once drop entries are dropped and nothing is rounded.
func (b *bounded) note(ctx context.Context, order []int32, drop int) (err error) {
	if b.Entries, err = b.dropping(ctx, order, drop); err != nil {
		return err
	}
	b.Rise, b.Bytes = b.Entries, b.source.Checkpoint.CompactFootprint(mask.Of(order, drop), b.plainValues()).File
	return nil
}

// attempts is how often round lowers the bound of the entries because rounding takes more than was left for it.
const attempts = 5

// round chooses the dropped entries and the bits of the others of r, whose types are chosen. Entries first leave what
// rounding the network and rounding the tables may raise the loss by.
func (b *bounded) round(ctx context.Context, r *rounded, search *rate.Search) error {
	o, most := b.options, b.options.Bound.Most-2*b.options.Rounding
	packed, err := b.source.Checkpoint.Pack(r.types)
	if err != nil {
		return err
	}
	m, err := packed.Model()
	if err != nil {
		return err
	}
	for range attempts {
		drop, err := b.within(ctx, search.Order, most)
		if err != nil {
			return err
		}
		if err := b.note(ctx, search.Order, drop); err != nil {
			return err
		}
		if r.Found, err = search.Kept(ctx, drop, o.Rounding); err != nil {
			return err
		}
		table, _, err := values(b.source, r.Found, search.Codebook)
		if err != nil {
			return err
		}
		p, err := b.bench.Predict(ctx, m.WithEmbedding(table), nil)
		if err != nil {
			return err
		}
		if b.Rise = b.rise(p, o.Calibrate); b.Rise.Within(o.Bound.Most) {
			return nil
		}
		if b.Rise == nil || b.Rise.High == nil || drop == 0 {
			break
		}
		most -= max(*b.Rise.High-o.Bound.Most, o.Bound.Most/100)
	}
	return fault.Usagef("%s %v: with rounded values the loss rises by more, up to %v: allow more, or less of it for rounding (%s)", o.name("max-rise"), o.Bound.Most, b.Rise, o.name("rounding"))
}
