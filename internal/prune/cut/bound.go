package cut

import (
	"context"
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/rate"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
)

// part is what stays of another source.
type part struct {
	whole *Source
	row   []int32 // by entry of whole: its number in the part, or -1; nil without scores
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

// columns returns the baseline of some fields and columns.
func columns(k *model.Book, keep *checkpoint.Slice) (b model.Baseline) {
	part := func(j, n int) (word []float32) {
		for _, c := range keep.Columns {
			word = append(word, k.Word(j, n)[c])
		}
		return word
	}
	for _, j := range keep.Fields {
		b.Values = append(b.Values, part(j, 0)...)
	}
	if !slices.ContainsFunc(keep.Fields, func(j int) bool { return k.NumberOfWords(j) > 1 }) {
		return b
	}
	for _, j := range keep.Fields {
		for n := 1; n < k.NumberOfWords(j); n++ {
			b.Values = append(b.Values, part(j, n)...)
		}
		b.Words, b.Numbers = append(b.Words, k.NumberOfWords(j)), append(b.Numbers, k.Numbers[k.Spans[j].Row:][:k.Spans[j].Rows]...)
	}
	return b
}

// sliced returns what stays of s. Its scores have no values: an order of its entries is that of s.
func (s *Source) sliced(keep *checkpoint.Slice) (*Source, error) {
	a := &s.Checkpoint.Architecture
	if s.Scores != nil && len(keep.Fields) == a.Fields() && len(keep.Columns) == a.TableColumns() {
		return s, nil
	}
	ck, err := s.Checkpoint.Sliced(*keep)
	if err != nil {
		return nil, err
	}
	ck.Origins = s.Checkpoint.Origins
	if s.Scores == nil {
		_, err := ck.Model() // which checks that every tensor is finite
		return &Source{Checkpoint: ck, File: s.File, part: &part{whole: s}}, err
	}
	spans, whole := a.Spans(), s.Scores[0]
	if !a.Plain() {
		return nil, fault.Inputf("%s has several tables, or fields that share one: entries can only be dropped together with fields and columns if each field has rows of one table for itself: drop entries of what is left in a second step", s.File)
	}
	f := *whole
	f.Fields, f.Baseline, f.Layout = nil, columns(a.Book(whole.Baseline), keep), scores.LayoutOf(&ck.Architecture)
	f.Scores = tally.Scores{Shape: ck.Architecture.Shape()}
	p := &part{whole: s, row: slices.Repeat([]int32{-1}, len(s.Table))}
	number := int32(0)
	for _, j := range keep.Fields {
		span := &spans[j]
		f.Fields = append(f.Fields, whole.Fields[j])
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

// bounded drops entries of a source, and rounds the others, as far as Slicing.MostRise allows.
type bounded struct {
	*bench  // of the source
	source  *Source
	options *Options
	cost    slice.Cost          // of the source
	steps   map[int]*slice.Step // by the number of dropped entries
	// calibrated has the rises after a calibration, of the numbers with a rise that is not within the bound. It is nil with
	// Options.Calibrate, which is in steps, and with Options.Tune, which excludes it.
	calibrated map[int]*sweep.Interval
	taken      []slice.Step // that remove entries and bits
}

func (o *Options) newBounded(b *bench, s *Source) *bounded {
	n := &bounded{bench: b, source: s, options: o, cost: costOf(s.Checkpoint), steps: map[int]*slice.Step{}}
	if !o.Calibrate && !o.Tune {
		n.calibrated = map[int]*sweep.Interval{}
	}
	return n
}

// dropping returns the step that drops the first entries of the order.
func (b *bounded) dropping(ctx context.Context, order []int32, drop int) (*slice.Step, error) {
	if s, ok := b.steps[drop]; ok {
		return s, nil
	}
	ck, dropped, values := b.source.Checkpoint, mask.Of(order, drop), b.options.Form.Values
	if values == compact.Mixed { // bits are chosen afterwards
		values = compact.Float32
	}
	table, err := sweep.Pruned(&ck.Architecture, b.source.Table, dropped, b.source.Scores[0].Baseline, values)
	if err != nil {
		return nil, err
	}
	p, err := b.predict(ctx, ck, table)
	if err != nil {
		return nil, err
	}
	cost := b.cost
	cost.Entries, cost.Bytes = ck.Architecture.Prunable()-drop, ck.CompactFootprint(dropped, b.source.Scores[0].Baseline, values).File
	s := b.step(p, cost, b.options.Calibrate)
	s.Without = slice.Entries
	if b.steps[drop] = s; b.calibrated != nil && !s.Rise.Within(b.options.MostRise) {
		b.calibrated[drop] = rise(b.whole, p, true)
	}
	return s, nil
}

// refinements is how often most halves the range in which the largest number of dropped entries is.
const refinements = 6

// most takes the step that drops the largest number of entries of an order of limited whose dropping it found to raise the
// loss by at most the bound, and returns the number. It tries the numbers of a rate.Ladder, and then those between the last
// one that is within the bound and the next.
func (b *bounded) most(ctx context.Context, order []int32, bound float64) (int, error) {
	within := func(drop int) (bool, error) {
		s, err := b.dropping(ctx, order, drop)
		return err == nil && (drop == 0 || s.Rise.Within(bound)), err
	}
	all := b.source.Checkpoint.Architecture.Prunable()
	ladder := rate.Ladder(all, b.options.least, b.options.most)
	at, err := rate.Climb(ladder, within)
	if err != nil {
		return 0, err
	}
	if at < 0 {
		return 0, fault.Usagef("%s drops at least %d entries, which raises the loss by more than %s %v: allow more, or let the tables keep more", b.options.name("table-budget"), ladder[0], b.options.name("max-rise"), b.options.MostRise)
	}
	good, bad := ladder[at], ladder[min(at+1, len(ladder)-1)]
	for range refinements {
		middle := all - int(math.Ceil(math.Sqrt(float64(all-good)*float64(all-bad))))
		if middle <= good || middle >= bad {
			break
		}
		ok, err := within(middle)
		switch {
		case err != nil:
			return 0, err
		case ok:
			good = middle
		default:
			bad = middle
		}
	}
	b.taken = []slice.Step{*b.steps[good]}
	return good, nil
}

// few says why not more entries than drop are dropped, and what to do. It is "" unless a calibration lets another
// twentieth of all entries go, or the bound lets less than a hundredth go.
func (b *bounded) few(drop int) string {
	o, all := b.options, b.source.Checkpoint.Architecture.Prunable()
	more, next := drop, all+1
	for n := range b.steps {
		if n > drop {
			next = min(next, n)
		}
	}
	for n, rise := range b.calibrated {
		if rise.Within(o.MostRise) {
			more = max(more, n)
		}
	}
	lead := fmt.Sprintf("%s: %d of %d entries go within %s %v", o.Scores, drop, all, o.name("max-rise"), o.MostRise)
	switch {
	case 20*(more-drop) >= all:
		return fmt.Sprintf("%s, but at least %d if the logits are calibrated: prune with %s", lead, more, o.name("calibrate"))
	case next > all || 100*drop >= all:
		return ""
	}
	end := "above it"
	if rise := b.steps[next].Rise; rise != nil && rise.High != nil {
		end = fmt.Sprintf("at %+.2g", *rise.High)
	}
	return fmt.Sprintf("%s, because without %d the 95%% interval of the rise ends %s: allow more, give more validation rows, which narrow the interval, or other scores", lead, next, end)
}

// attempts is how often round lowers the bound of the entries because rounding takes more than was left for it.
const attempts = 5

// round takes the steps that drop entries and round the others to the bits that it chooses for r, whose types are chosen.
// Entries first leave what rounding the network and rounding the tables may raise the loss by.
func (b *bounded) round(ctx context.Context, r *rounded, search *rate.Search) error {
	o, rounding := b.options, b.options.rounding()
	most := o.MostRise - 2*rounding
	packed, err := b.source.Checkpoint.Pack(r.types)
	if err != nil {
		return err
	}
	var s *slice.Step
	for range attempts {
		drop, err := b.most(ctx, search.Order, most)
		if err != nil {
			return err
		}
		if r.Found, err = search.Kept(ctx, drop, rounding); err != nil {
			return err
		}
		table, _, err := values(b.source, r.Found)
		if err != nil {
			return err
		}
		p, err := b.predict(ctx, packed, table)
		if err != nil {
			return err
		}
		s = b.step(p, b.taken[0].Cost, o.Calibrate)
		s.Without = slice.Bits
		if s.Rise.Within(o.MostRise) {
			b.taken = append(b.taken, *s)
			return nil
		}
		if s.Rise == nil || s.Rise.High == nil || drop == 0 {
			break
		}
		most -= max(*s.Rise.High-o.MostRise, o.MostRise/100)
	}
	return fault.Usagef("%s %v: with rounded values the loss rises by more, up to %v: allow more, or give other values than %s", o.name("max-rise"), o.MostRise, s.Rise, compact.Mixed)
}
