package tally

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/num/layout"
	"shaver/internal/num/vector"
)

// Partial is the result of one task. It holds exact sums over the rows of a shard, for
// the features that occur in them. In the field comments, x is the contribution of a
// player in a row, summed over the row's walks, and d is the number of columns of a
// feature. In a model with look-ups, a feature is a row of a table.
//
// The residual of a row is (sum of the row's x)/walks - (empty - full). An estimator may share
// a row's residual out among the players, so that their x add up. The residual here is that
// before it was shared out.
type Partial struct {
	Shape layout.Shape
	// Dropped is not nil in a round of a path, and has the entries that earlier rounds dropped.
	// Sum and Square are then the terms of the other entries, see [Terms], and 0 for these
	// entries. There is no other list, and features without other entries are left out. Nothing
	// is known about losses with everything dropped, and about residuals.
	Dropped        layout.Mask
	Rows           int64 // number of rows of the shard, each counted once
	LossFull       int64 // sum over rows of the loss with nothing dropped, in LossUnits
	LossEmpty      int64 // sum over rows of the loss with everything dropped, in LossUnits
	ResidualSquare int64 // sum over rows of the square of the row's residual, in SquareUnits
	Shared         int64 // sum over rows of what x contains beyond the estimates, so that it adds up; in LossUnits
	// Walked is the number of rows whose contributions did not fit in the sums of this form and
	// were replaced by those of walks; see [Builder.AddWalked].
	Walked   int64
	Features []int32 // global ids, ascending
	Count    []int64 // [len(Features)], number of rows in which the feature occurs
	Sum      []int64 // d values for each of Features: sums over rows of x, in LossUnits
	Abs      []int64 // like Sum, of |x|, in LossUnits
	Square   []int64 // like Sum, of (x/walks)^2, in SquareUnits
	Within   []int64 // like Sum, of the variance of x within the row, in SquareUnits; nil if there is one pass or the job is paired

	// Only if contributions are a base and a correction, otherwise nil. x is then the base in
	// Sum, Abs and Square, and the corrected contribution, x + z, in ResidualSquare, Shared and
	// Within. In paired jobs x is the base only in Abs, Square, AbsDifferenceSquare and Fourths,
	// there is no Correction, and the same holds for y.
	Correction              []int64 // like Sum, of z
	CorrectedSquare         []int64 // like Square, of x + z
	PreviousCorrectedSquare []int64 // as CorrectedSquare, of y; only in paired jobs

	// Only in the partials of paired jobs, otherwise 0 or nil. y is the contribution of the
	// player under the previous model, with the same random numbers as x.
	PreviousLossFull       int64    // as LossFull, under the previous model
	PreviousLossEmpty      int64    // as LossEmpty, under the previous model
	PreviousResidualSquare int64    // as ResidualSquare, of y and the previous model's losses
	PreviousShared         int64    // as Shared, of y
	PreviousSum            []int64  // as Sum, of y
	PreviousAbs            []int64  // as Abs, of y
	PreviousSquare         []int64  // as Square, of y
	DifferenceSquare       []int64  // as Square, of x - y
	AbsDifferenceSquare    []int64  // as Square, of |x| - |y|
	Fourths                []Powers // [m], by field
}

// Form states which sums partials have. It depends on the job.
type Form struct {
	Within bool // whether they have variances within rows; false if Paired
	Paired bool // whether they have the sums of both models of a paired job
	// Corrected states whether contributions are a base and a correction.
	Corrected bool
	Fields    int // m, the number of fields; used only if Paired
	// Path states whether they have the terms of a path, and nothing else. All other
	// fields are then zero.
	Path bool
}

// maxLists is the largest number of lists of sums in a partial.
const maxLists = 10

// Lists returns the number of lists of sums in a partial: Sum, Abs, Square and, if there
// are variances within rows, Within. A path has only Sum and Square. A paired job has 5 lists more than Sum, Abs and
// Square. Corrections take two lists more.
func Lists(form Form) int {
	switch {
	case form.Path:
		return 2
	case form.Paired && form.Corrected:
		return maxLists
	case form.Paired:
		return maxLists - 2
	case form.Within && form.Corrected:
		return 6
	case form.Corrected:
		return 5
	case form.Within:
		return 4
	}
	return 3
}

// Bytes returns the memory of the sums of p.
func (p *Partial) Bytes() int64 { return 8 * int64(Lists(p.Form())) * int64(len(p.Sum)) }

// Form returns the form of p.
func (p *Partial) Form() Form {
	return Form{Path: p.Dropped != nil, Within: p.Within != nil, Paired: p.paired(), Corrected: p.CorrectedSquare != nil, Fields: len(p.Fourths)}
}

// CorrectionList returns the position of the list Correction, which is followed by
// CorrectedSquare. It returns -1 if a partial does not have it.
func (f Form) CorrectionList() int {
	if !f.Corrected || f.Paired {
		return -1
	}
	return Lists(f) - 2
}

// paired reports whether p has the sums of two models.
func (p *Partial) paired() bool { return p.Fourths != nil }

// Positions of the lists Sum and, in a paired partial, PreviousSum. Their sums may be
// negative.
const (
	sumList      = 0
	previousList = 3
)

// listsOf returns pointers to the lists of sums. The first Lists(form) of them are those of
// a partial of this form.
func (p *Partial) listsOf(form Form) [maxLists]*[]int64 {
	fourth := &p.Within
	switch {
	case form.Path:
		return [maxLists]*[]int64{&p.Sum, &p.Square}
	case form.Paired:
		fourth = &p.PreviousSum
	case form.Corrected && form.Within:
		return [maxLists]*[]int64{&p.Sum, &p.Abs, &p.Square, &p.Within, &p.Correction, &p.CorrectedSquare}
	case form.Corrected:
		return [maxLists]*[]int64{&p.Sum, &p.Abs, &p.Square, &p.Correction, &p.CorrectedSquare}
	}
	return [maxLists]*[]int64{&p.Sum, &p.Abs, &p.Square, fourth, &p.PreviousAbs, &p.PreviousSquare, &p.DifferenceSquare, &p.AbsDifferenceSquare, &p.CorrectedSquare, &p.PreviousCorrectedSquare}
}

// AllLists returns pointers to the lists of sums of p, in the order of its columns: Sum,
// Abs, Square, then Within if p has it, Correction and CorrectedSquare if p has them, or
// PreviousSum to AbsDifferenceSquare, and perhaps the squares of corrected contributions, if p
// is paired.
func (p *Partial) AllLists() []*[]int64 {
	form := p.Form()
	lists := p.listsOf(form)
	return lists[:Lists(form)]
}

// Part returns the partial of the same rows for the features [from, to) alone, which it numbers
// from 0. Its sums share memory with those of p, which must not be of a paired job.
func (p *Partial) Part(from, to int) *Partial {
	if p.paired() {
		panic("tally: Part: a partial of a paired job")
	}
	part := *p
	part.Shape = p.Shape.Part(from, to)
	first, _ := slices.BinarySearch(p.Features, int32(from))
	end, _ := slices.BinarySearch(p.Features, int32(to))
	part.Features, part.Count = make([]int32, end-first), p.Count[first:end]
	before, entries := 0, 0 // entries of the features before from, and of those of the part
	for i, f := range p.Features[:end] {
		left, right := p.Shape.Row(int(f))
		if i < first {
			before += right - left
			continue
		}
		part.Features[i-first] = f - int32(from)
		entries += right - left
	}
	for _, list := range part.AllLists() {
		*list = (*list)[before : before+entries]
	}
	return &part
}

// Validate returns an error if p is not a valid partial of the given form for tables of
// the given shape. Partials come over the network.
func (p *Partial) Validate(shape *layout.Shape, form Form) error {
	switch {
	case !p.Shape.Equal(shape):
		return fmt.Errorf("partial is for tables of another shape than the model's")
	case p.Rows < 1:
		return fmt.Errorf("partial has %d rows, expected at least 1", p.Rows)
	case p.LossFull < 0 || p.LossEmpty < 0:
		return fmt.Errorf("partial has a negative loss")
	case p.ResidualSquare < 0:
		return fmt.Errorf("partial has a negative sum of squared residuals")
	case p.Walked < 0 || p.Walked > p.Rows:
		return fmt.Errorf("partial has walks in %d of %d rows", p.Walked, p.Rows)
	case form.Path != (p.Dropped != nil):
		return fmt.Errorf("partial has the terms of a path: %t, expected %t", p.Dropped != nil, form.Path)
	case form.Within != (p.Within != nil):
		return fmt.Errorf("partial has variances within rows: %t, expected %t", p.Within != nil, form.Within)
	case form.Corrected != (p.CorrectedSquare != nil):
		return fmt.Errorf("partial has corrections: %t, expected %t", p.CorrectedSquare != nil, form.Corrected)
	case form.Paired != p.paired():
		return fmt.Errorf("partial has the sums of two models: %t, expected %t", p.paired(), form.Paired)
	case form.Paired && len(p.Fourths) != form.Fields:
		return fmt.Errorf("partial has the fourth powers of %d fields, expected %d", len(p.Fourths), form.Fields)
	case p.PreviousLossFull < 0 || p.PreviousLossEmpty < 0:
		return fmt.Errorf("partial has a negative loss of the previous model")
	case p.PreviousResidualSquare < 0:
		return fmt.Errorf("partial has a negative sum of squared residuals of the previous model")
	case len(p.Count) != len(p.Features):
		return fmt.Errorf("partial has %d features and %d counts", len(p.Features), len(p.Count))
	}
	previous, entries := int32(-1), 0
	for i, f := range p.Features {
		if f <= previous || int(f) >= shape.Rows() {
			return fmt.Errorf("partial has feature %d after %d: ids must ascend and be below %d", f, previous, shape.Rows())
		}
		if p.Count[i] < 1 || p.Count[i] > p.Rows {
			return fmt.Errorf("partial has feature %d in %d of %d rows", f, p.Count[i], p.Rows)
		}
		previous = f
		from, to := shape.Row(int(f))
		entries += to - from
	}
	for i, into := range p.AllLists() {
		list := *into
		if len(list) != entries {
			return fmt.Errorf("partial has %d features of %d entries and %d sums in list %d", len(p.Features), entries, len(list), i)
		}
		if i == sumList || i == previousList && form.Paired || i == form.CorrectionList() {
			continue
		}
		signs := int64(0)
		for _, s := range list {
			signs |= s
		}
		if signs < 0 {
			at := slices.IndexFunc(list, func(s int64) bool { return s < 0 })
			return fmt.Errorf("partial has a negative sum in list %d at position %d", i, at)
		}
	}
	return nil
}

// Capacity returns the number of rows like those of p whose sums fit in one partial. More
// rows cause ErrOverflow. Capacity is +Inf if no row has any loss.
func (p *Partial) Capacity() float64 {
	largest := max(p.LossFull, p.LossEmpty, p.ResidualSquare, p.PreviousLossFull, p.PreviousLossEmpty, p.PreviousResidualSquare)
	for _, list := range p.AllLists()[1:] { // Sum is at most Abs
		for _, sum := range *list {
			largest = max(largest, sum)
		}
	}
	powers := 0.0
	for i := range p.Fourths {
		for _, sum := range p.Fourths[i].all() {
			powers = max(powers, sum.float())
		}
	}
	return min(float64(p.Rows)/float64(largest)*math.MaxInt64, float64(p.Rows)/powers*(1<<127)*2)
}

// Builder collects a Partial row by row. Only one goroutine may use it at a time. Join
// combines the builders of several goroutines.
type Builder struct {
	form     Form
	lists    int
	dim      int // number of entries of each feature, or 0 if features differ
	walks    int64
	scale    float64 // 1 / walks
	limit    int64   // upper bound of |x|
	head     Partial // the partial without its lists; features in order of appearance
	cells    []int64 // for each of these features, its d values of each list
	starts   []int   // for each of these features, its first cell; nil if dim is not 0
	slot     []int32 // by feature: position in head.Features, or -1
	position []int32 // positions of the features of a row
	sums     vector.Sums
	failed   bool
}

// NewBuilder returns an empty builder for tables of the given shape. Each row has the given
// number of walks. form is that of the partial.
func NewBuilder(shape layout.Shape, walks int, form Form) *Builder {
	form.mustBeValid()
	b := &Builder{
		form: form, lists: Lists(form), dim: shape.Dim(), walks: int64(walks), scale: 1 / float64(walks), limit: maxContribution * min(int64(walks), math.MaxInt64/maxContribution),
		head: Partial{Shape: shape}, slot: make([]int32, shape.Rows()),
	}
	b.sums = vector.Sums{Scale: b.scale, Unit: LossUnit * LossUnit / SquareUnit, Limit: b.limit}
	for i := range b.slot {
		b.slot[i] = -1
	}
	if form.Paired {
		b.head.Fourths = make([]Powers, form.Fields)
	}
	return b
}

// AddRow adds one row. lossFull and lossEmpty are its losses in LossUnits, and features
// holds its global ids, or, in a model with look-ups, the rows of the tables that it
// reads. sum holds x for each entry of the features, in this order, in LossUnits. within
// holds the variances of x, in SquareUnits, or is nil without Within. AddRow returns an
// error if a square would overflow; the builder must not be used after that. The job must
// not be paired.
func (b *Builder) AddRow(lossFull, lossEmpty int64, features []int32, sum, within []int64) error {
	return b.Add(features, &Played{LossFull: lossFull, LossEmpty: lossEmpty, Sum: sum}, within)
}

// Add is AddRow for a row whose residual may have been shared out.
func (b *Builder) Add(features []int32, row *Played, within []int64) error {
	p, sum := &b.head, row.Sum
	p.Rows++
	b.into(&p.LossFull, row.LossFull)
	b.into(&p.LossEmpty, row.LossEmpty)
	b.into(&p.Shared, row.Shared)
	b.position = b.position[:0]
	for _, f := range features {
		at := b.at(f, b.width(f))
		p.Count[at]++
		b.position = append(b.position, int32(at))
	}
	total, large := b.addSums(sum, features)
	from := 0
	for i, f := range features {
		if within == nil && row.Correction == nil {
			break
		}
		dim := b.width(f)
		cells := b.entries(int(b.position[i]), dim)
		if within != nil && addAll(cells[3*dim:], within[from:from+dim]) {
			b.failed = true
		}
		if row.Correction != nil {
			corrections, over, beyond := b.addCorrection(cells[b.form.CorrectionList()*dim:], sum[from:from+dim], row.Correction[from:from+dim])
			b.failed, large = b.failed || over, large || beyond
			b.into(&total, corrections)
		}
		from += dim
	}
	if large {
		if err := b.tooLarge(sum); err != nil || row.Correction == nil {
			return err
		}
		return b.tooLarge(row.corrected())
	}
	return b.addResidual(&p.ResidualSquare, total, row)
}

// AddWalked states that the row that is added next has the contributions of walks, because those
// of the estimator did not fit; see Fits.
func (b *Builder) AddWalked() { b.head.Walked++ }

// implausible is a magnitude, in LossUnits, up to which a contribution may exceed the losses of its
// row. The squares of thousands of such rows fit in a partial.
const implausible = 16 << 36

// Fits reports whether the squares of a row fit: those of its contributions, without and with
// corrections, and that of its residual. Add returns an error if they do not. Without corrections,
// Fits also returns false for what is not plausible: more than 16 nat and more than four times the
// sum of the row's losses in magnitude. With corrections, leaving such rows out would be a bias.
func (b *Builder) Fits(row *Played) bool {
	limit := b.limit
	if row.Correction == nil {
		limit = min(b.limit/b.walks, max(implausible, 4*min(row.LossFull+row.LossEmpty, math.MaxInt64/4))) * b.walks
	}
	total, beyond := int64(0), int64(0)
	for _, x := range row.Sum {
		size := magnitude(x)
		beyond |= size | (limit - size)
		total += x
	}
	for i, z := range row.Correction {
		size := magnitude(row.Sum[i] + z)
		beyond |= size | (limit - size)
		total += z
	}
	size := magnitude(total - (row.LossEmpty-row.LossFull)*b.walks - row.Shared)
	return beyond|size|(limit-size) >= 0
}

// tooLarge returns the error for the first contribution whose square overflows, or nil if
// all squares fit.
func (b *Builder) tooLarge(sum []int64) error {
	i := slices.IndexFunc(sum, func(x int64) bool { return max(x, -x) > b.limit || x == math.MinInt64 })
	if i < 0 {
		return nil
	}
	return fmt.Errorf("the mean contribution of player %d is %g nat, whose square overflows", i, math.Abs(float64(sum[i]))*b.scale*LossUnit)
}

// addResidual adds the squared residual of a row whose contributions add up to total.
func (b *Builder) addResidual(into *int64, total int64, row *Played) error {
	worth := row.LossEmpty - row.LossFull
	due := worth * b.walks
	if due/b.walks != worth {
		b.failed = true
	}
	b.into(&total, -due)
	b.into(&total, -row.Shared)
	if max(total, -total) > b.limit {
		return fmt.Errorf("the sum of the contributions differs by %g nat from the loss with everything dropped minus the loss with nothing dropped", float64(total)*b.scale*LossUnit)
	}
	b.into(into, square(total, b.scale))
	return nil
}

// addSums adds x to the sums, magnitudes and squares of the features of a row, whose positions are
// those of position. It returns the sum of x, and whether an |x| exceeds the limit.
func (b *Builder) addSums(x []int64, features []int32) (total int64, large bool) {
	add := func(cells []int64, at []int32, d int, x []int64) {
		part, over, big := vector.AddRow(cells, at, b.lists*d, d, x, &b.sums)
		b.failed, large = b.failed || over, large || big
		b.into(&total, part)
	}
	if b.dim > 0 {
		add(b.cells, b.position, b.dim, x)
		return total, large
	}
	for i, f := range features {
		d := b.width(f)
		add(b.entries(int(b.position[i]), d), first, d, x[:d])
		x = x[d:]
	}
	return total, large
}

// first is the position of the only feature of a record.
var first = []int32{0}

// addCorrection adds the corrections z of a feature to its d sums, and the squares of x + z. It
// returns the sum of z. It also reports whether a sum overflowed, and whether an |x + z|
// exceeds the limit.
func (b *Builder) addCorrection(cells, x, z []int64) (total int64, over, large bool) {
	d := len(x)
	sums, squares := cells[:d], cells[d:][:d]
	for c, v := range z {
		value := x[c] + v
		size := magnitude(value)
		if size > b.limit || size < 0 {
			large = true
			continue
		}
		total += v
		var ok bool
		sums[c], ok = add(sums[c], v)
		squares[c] += square(value, b.scale)
		over = over || !ok || squares[c] < 0
	}
	return total, over, large
}

// at returns the position of a feature with d entries, and adds the feature if it is new.
func (b *Builder) at(f int32, d int) int {
	at := b.slot[f]
	if at < 0 {
		at = int32(len(b.head.Features))
		b.slot[f] = at
		b.head.Features = append(b.head.Features, f)
		b.head.Count = append(b.head.Count, 0)
		if b.dim == 0 {
			b.starts = append(b.starts, len(b.cells))
		}
		if n := b.lists * d; cap(b.cells)-len(b.cells) < n {
			b.cells = slices.Grow(b.cells, max(n, len(b.cells))) // append alone would copy more often
		}
		b.cells = append(b.cells, make([]int64, b.lists*d)...)
	}
	return int(at)
}

// entries returns the cells of the feature at a position, which has d entries.
func (b *Builder) entries(at, d int) []int64 {
	n := b.lists * d
	start := at * n
	if b.dim == 0 {
		start = b.starts[at]
	}
	return b.cells[start : start+n]
}

// width returns the number of entries of a feature.
func (b *Builder) width(f int32) int {
	if b.dim > 0 {
		return b.dim
	}
	from, to := b.head.Shape.Row(int(f))
	return to - from
}

func (b *Builder) into(sum *int64, x int64) {
	var ok bool
	*sum, ok = add(*sum, x)
	b.failed = b.failed || !ok
}

// Join adds the rows of other to b. other must not be used afterwards.
func (b *Builder) Join(other *Builder) {
	p, o := &b.head, &other.head
	p.Rows += o.Rows
	p.Walked += o.Walked
	b.into(&p.LossFull, o.LossFull)
	b.into(&p.LossEmpty, o.LossEmpty)
	b.into(&p.ResidualSquare, o.ResidualSquare)
	b.into(&p.Shared, o.Shared)
	b.into(&p.PreviousLossFull, o.PreviousLossFull)
	b.into(&p.PreviousLossEmpty, o.PreviousLossEmpty)
	b.into(&p.PreviousResidualSquare, o.PreviousResidualSquare)
	b.into(&p.PreviousShared, o.PreviousShared)
	for field := range p.Fourths {
		b.failed = !p.Fourths[field].add(&o.Fourths[field]) || b.failed
	}
	for i, f := range o.Features {
		dim := b.width(f)
		at := b.at(f, dim)
		p.Count[at] += o.Count[i]
		if addAll(b.entries(at, dim), other.entries(i, dim)) {
			b.failed = true
		}
	}
	b.failed = b.failed || other.failed
}

// Partial returns the partial of all rows, with features in ascending order, or
// ErrOverflow. The builder must not be used afterwards.
func (b *Builder) Partial() (*Partial, error) {
	if b.failed {
		return nil, ErrOverflow
	}
	p := b.head
	p.Features = slices.Sorted(slices.Values(b.head.Features))
	if p.Dropped != nil {
		p.Features = slices.DeleteFunc(p.Features, func(f int32) bool {
			from, to := p.Shape.Row(int(f))
			return p.Dropped.Count(from, to) == to-from
		})
	}
	p.Count = make([]int64, 0, len(p.Features))
	all := p.listsOf(b.form)
	lists := all[:b.lists]
	for _, list := range lists {
		*list = make([]int64, 0, len(b.cells)/b.lists)
	}
	for _, f := range p.Features {
		at := int(b.slot[f])
		p.Count = append(p.Count, b.head.Count[at])
		dim := b.width(f)
		cells := b.entries(at, dim)
		for i, list := range lists {
			*list = append(*list, cells[i*dim:(i+1)*dim]...)
		}
	}
	return &p, nil
}
