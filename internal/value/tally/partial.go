package tally

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"shaver/internal/num/layout"
	"shaver/internal/num/vector"
	"shaver/internal/value/estimator"
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
	Walked int64
	// Fresh is the number of rows that count Sampling.Weight times. In all sums, their x, losses and
	// residuals are multiplied by it, before they are squared.
	Fresh    int64
	Weights  Weights // of the rows; 0 unless rows have weights
	Check    uint64  // weighted sum of all that p has, which was added up row by row, apart from the sums; see check.go
	Features []int32 // global ids, ascending
	Count    []int64 // [len(Features)], number of rows in which the feature occurs
	Sum      []int64 // d values for each of Features: sums over rows of x, in LossUnits
	Abs      []int64 // like Sum, of |x|, in LossUnits
	Square   []int64 // like Sum, of (x/walks)^2, in SquareUnits
	Within   []int64 // like Sum, of the variance of x within the row, in SquareUnits; nil if there is one pass or the job is paired

	// High is nil if all sums fit in an int64. Otherwise its losses, residuals, shared parts and lists
	// have the multiples of 2^63 to add to the same sums here. It has nothing else.
	High *Partial

	// Only if contributions are a base and a correction, otherwise nil. x is then the base in
	// Sum, Abs and Square, and the corrected contribution, x + z, in ResidualSquare, Shared and
	// Within. In paired jobs x is the base only in Abs, Square, AbsDifferenceSquare and Fourths,
	// there is no Correction, and the same holds for y.
	Correction              []int64 // like Sum, of z
	CorrectedSquare         []int64 // like Square, of x + z
	PreviousCorrectedSquare []int64 // as CorrectedSquare, of y; only in paired jobs

	// Only if rows have weights, otherwise nil. c is the mean contribution of the player in a row over its walks, without
	// the weight w of the row. The others then have units of their own, see [Builder.Weigh].
	WeightedSquare []int64 // like Sum, of w*c^2, in SquareUnits times 2^s
	WeightedSum    []int64 // like Sum, of w^2*c, in LossUnits times 2^(2s); c is corrected if there are corrections

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
	// fields except Weighted are then zero.
	Path     bool
	Weighted bool // whether rows have weights; false if Paired
}

// maxLists is the largest number of lists of sums in a partial.
const maxLists = 10

// Lists returns the number of lists of sums in a partial: Sum, Abs, Square and, if there
// are variances within rows, Within. A path has only Sum and Square. A paired job has 5 lists more than Sum, Abs and
// Square. Corrections take two lists more, and weights of rows, except in a path, another two.
func Lists(form Form) int {
	switch {
	case form.Path:
		return 2
	case form.Paired && form.Corrected:
		return maxLists
	case form.Paired:
		return maxLists - 2
	case form.Weighted:
		return form.weightedList() + 2
	case form.Corrected:
		return form.CorrectionList() + 2
	case form.Within:
		return 4
	}
	return 3
}

// Bytes returns the memory of the sums of p.
func (p *Partial) Bytes() int64 { return 8 * int64(len(p.AllLists())) * int64(len(p.Sum)) }

// Form returns the form of p.
func (p *Partial) Form() Form {
	return Form{Path: p.Dropped != nil, Within: p.Within != nil, Paired: p.paired(), Corrected: p.CorrectedSquare != nil, Fields: len(p.Fourths), Weighted: p.Weights != Weights{}}
}

// CorrectionList returns the position of the list Correction, which is followed by
// CorrectedSquare. It returns -1 if a partial does not have it.
func (f Form) CorrectionList() int {
	if !f.Corrected || f.Paired {
		return -1
	}
	if f.Within {
		return 4
	}
	return 3
}

// weightedList returns the position of the list WeightedSquare, which is followed by WeightedSum. It returns -1 if a
// partial does not have it.
func (f Form) weightedList() int {
	if !f.Weighted || f.Path {
		return -1
	}
	f.Weighted = false
	return Lists(f)
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
	switch {
	case form.Path:
		return [maxLists]*[]int64{&p.Sum, &p.Square}
	case form.Paired:
		return [maxLists]*[]int64{&p.Sum, &p.Abs, &p.Square, &p.PreviousSum, &p.PreviousAbs, &p.PreviousSquare, &p.DifferenceSquare, &p.AbsDifferenceSquare, &p.CorrectedSquare, &p.PreviousCorrectedSquare}
	}
	lists := [maxLists]*[]int64{&p.Sum, &p.Abs, &p.Square, &p.Within}
	if at := form.CorrectionList(); at >= 0 {
		lists[at], lists[at+1] = &p.Correction, &p.CorrectedSquare
	}
	if at := form.weightedList(); at >= 0 {
		lists[at], lists[at+1] = &p.WeightedSquare, &p.WeightedSum
	}
	return lists
}

// AllLists returns pointers to the lists of sums of p, in the order of its columns: Sum,
// Abs, Square, then Within if p has it, Correction and CorrectedSquare if p has them, WeightedSquare and WeightedSum if p has them, or
// PreviousSum to AbsDifferenceSquare, and perhaps the squares of corrected contributions, if p
// is paired. If High is not nil, its lists follow in the same order.
func (p *Partial) AllLists() []*[]int64 {
	form := p.Form()
	lists := p.listsOf(form)
	all := lists[:Lists(form)]
	if p.High != nil {
		high := p.High.listsOf(form)
		all = append(all, high[:Lists(form)]...)
	}
	return all
}

// Part returns the partial of the same rows for the features [from, to) alone, which it numbers
// from 0. Its sums share memory with those of p, which must not be of a paired job.
func (p *Partial) Part(from, to int) *Partial {
	if p.paired() {
		panic("tally: Part: a partial of a paired job")
	}
	part := *p
	if p.High != nil {
		high := *p.High
		part.High = &high
	}
	part.Shape = p.Shape.Part(from, to)
	if p.Dropped != nil {
		start := 0
		if to > from {
			start, _ = p.Shape.Row(from)
		}
		part.Dropped = p.Dropped.Part(start, start+part.Shape.Entries())
	}
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
	part.Check = part.Checksum()
	return &part
}

// Validate returns an error if p is not a valid partial of the given form for tables of
// the given shape, or if its sums are not those that Check states. Partials come over the network.
func (p *Partial) Validate(shape *layout.Shape, form Form) error {
	if err := p.validate(shape, form); err != nil {
		return err
	}
	if p.Checksum() != p.Check {
		return errCheck
	}
	return nil
}

// validate is Validate without Check.
func (p *Partial) validate(shape *layout.Shape, form Form) error {
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
	case p.Fresh < 0 || p.Fresh > p.Rows:
		return fmt.Errorf("partial has %d fresh rows of %d", p.Fresh, p.Rows)
	case form.Weighted && p.Fresh > 0:
		return fmt.Errorf("partial has %d fresh rows and weights of rows", p.Fresh)
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
	if err := p.Weights.check(form, p.Rows); err != nil {
		return fmt.Errorf("partial has %w", err)
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
		if form.mayBeNegative(i % Lists(form)) {
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
	most := float64(p.Rows) * float64(shape.Entries()) * (1 << 126) // a square is below 2^63
	for field := range p.Fourths {
		for _, sum := range p.Fourths[field].all() {
			if sum.float() > most {
				return fmt.Errorf("partial has fourth powers of %v in field %d, too much for %d rows", sum, field, p.Rows)
			}
		}
	}
	return p.validateHigh(form)
}

// mayBeNegative reports whether the sums of a list may be negative.
func (f Form) mayBeNegative(list int) bool {
	return list == sumList || list == previousList && f.Paired || list == f.CorrectionList() || f.Weighted && list == f.weightedList()+1
}

// Builder collects a Partial row by row. Only one goroutine may use it at a time. Join
// combines the builders of several goroutines.
type Builder struct {
	form     Form
	lists    int
	dim      int // number of entries of each feature, or 0 if features differ
	walks    int64
	shift    int      // s of Weigh
	scale    float64  // 1 / (walks * 2^s)
	limit    int64    // upper bound of |x| of the current row
	head     Partial  // the partial without its lists; features in order of appearance
	cells    []int64  // for each of these features, its d values of each list
	high     []int64  // multiples of 2^63 to add to cells; may be shorter, and is nil until a cell needs one
	starts   []int    // for each of these features, its first cell; nil if dim is not 0
	slot     []int32  // by feature: position in head.Features, or -1
	position []int32  // positions of the features of a row
	weights  []uint64 // weights of these features in the check
	sums     vector.Sums
	squares  []int64 // addends of WeightedSquare of the row
	products []int64 // addends of WeightedSum of the row
}

// NewBuilder returns an empty builder for tables of the given shape. Each row has the given
// number of walks. form is that of the partial.
func NewBuilder(shape layout.Shape, walks int, form Form) *Builder {
	form.mustBeValid()
	b := &Builder{
		form: form, dim: shape.Dim(), walks: int64(walks),
		head: Partial{Shape: shape}, slot: make([]int32, shape.Rows()),
	}
	b.Weigh(estimator.Weights{})
	for i := range b.slot {
		b.slot[i] = -1
	}
	if form.Paired {
		b.head.Fourths = make([]Powers, form.Fields)
	}
	return b
}

// Weigh makes room for rows that count as often as w says. b must be empty. Let s be the shift of w. The squares of contributions
// times weights, and variances, are then in SquareUnits times 2^(2s), and the second-order terms of a path in SquareUnits times 2^s.
func (b *Builder) Weigh(w estimator.Weights) {
	b.form.Weighted = w.Rows > 0
	b.lists, b.shift = Lists(b.form), w.Shift()
	b.scale = 1 / float64(b.walks<<b.shift)
	b.limit = b.limitOf(1)
	b.sums = vector.Sums{Scale: b.scale, Unit: LossUnit * LossUnit / SquareUnit, Limit: b.limit}
}

// limitOf returns the upper bound of |x| of a row that counts n times, times n.
func (b *Builder) limitOf(n int64) int64 {
	return maxContribution * min(b.walks*min(n, 1<<b.shift), math.MaxInt64/maxContribution)
}

// Expect makes room for the sums of the features that occur in a number of rows, of which b gets one of
// the given number of random parts. occurrences has the number of these rows in which each feature
// occurs, [features]. Sums beyond what is expected, or without this call, are moved as they grow.
func (b *Builder) Expect(occurrences []int32, parts int) {
	features, entries := 0.0, 0.0
	for f, n := range occurrences {
		if n > 0 {
			found := 1.0
			if parts > 1 {
				found -= math.Pow(1-1/float64(parts), float64(n))
			}
			features, entries = features+found, entries+found*float64(b.width(int32(f)))
		}
	}
	n := int(features)
	b.head.Features, b.head.Count = slices.Grow(b.head.Features, n), slices.Grow(b.head.Count, n)
	b.cells = slices.Grow(b.cells, int(entries)*b.lists)
}

// AddRow adds one row. lossFull and lossEmpty are its losses in LossUnits, and features
// holds its global ids, or, in a model with look-ups, the rows of the tables that it
// reads, each once. sum holds x for each entry of the features, in this order, in LossUnits. within
// holds the variances of x, in SquareUnits, or is nil without Within. AddRow returns an
// error if a square, or the sum of x of all entries, would overflow; the builder must not be used
// after that. The job must not be paired.
func (b *Builder) AddRow(lossFull, lossEmpty int64, features []int32, sum, within []int64) error {
	return b.Add(features, &Played{LossFull: lossFull, LossEmpty: lossEmpty, Sum: sum}, within)
}

// Add is AddRow for a row whose residual may have been shared out. It multiplies what row and within have by
// the weight.
func (b *Builder) Add(features []int32, row *Played, within []int64) error {
	if err := b.count(row, within); err != nil {
		return err
	}
	p, sum := &b.head, row.Sum
	b.into(&p.LossFull, row.LossFull)
	b.into(&p.LossEmpty, row.LossEmpty)
	b.into(&p.Shared, row.Shared)
	b.place(features)
	total, large := b.addSums(sum, features)
	more := [...][]int64{within, b.squares, b.products} // addends of some lists, or nil
	lists := [...]int{3, b.form.weightedList(), b.form.weightedList() + 1}
	from, corrections := 0, listWeight(b.form.CorrectionList())
	for i, f := range features {
		if within == nil && row.Correction == nil && b.squares == nil {
			break
		}
		dim := b.width(f)
		start := b.start(int(b.position[i]), dim)
		for k, addends := range more {
			if addends != nil {
				b.addCells(start+lists[k]*dim, addends[from:from+dim])
				p.Check += b.weights[i] * listWeight(lists[k]) * listCheck(addends[from:from+dim])
			}
		}
		if row.Correction != nil {
			at, z := start+b.form.CorrectionList()*dim, row.Correction[from:from+dim]
			corrected, over, beyond := b.addCorrection(b.cells[at:], sum[from:from+dim], z)
			if over && !beyond {
				b.carry(at, z)
				b.carryGrown(at+dim, dim)
			}
			p.Check += b.weights[i] * corrections * correctedCheck(sum[from:from+dim], z, b.scale)
			large = large || beyond
			total.add(corrected)
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

// count counts the row, and multiplies its numbers by its weight.
func (b *Builder) count(row *Played, within []int64) error {
	n := max(row.Weight, 1)
	b.countRow(n)
	if n > 1 {
		if most := mostLoss / n; max(row.LossFull, row.LossEmpty) > most {
			return fmt.Errorf("the loss of the row is %g nat, and it counts %d times, expected at most %g nat: choose smaller weights", float64(max(row.LossFull, row.LossEmpty))*LossUnit, n, float64(most)*LossUnit)
		}
		row.LossFull, row.LossEmpty, row.Shared = n*row.LossFull, n*row.LossEmpty, times(row.Shared, n)
		for i, x := range row.Sum {
			row.Sum[i] = times(x, n)
		}
		for i, z := range row.Correction {
			row.Correction[i] = times(z, n)
		}
	}
	if n > 1 || b.shift > 0 {
		for i, v := range within {
			var ok bool
			if within[i], ok = b.timesSquare(v, n); !ok {
				return fmt.Errorf("the variance of player %d within the row, which counts %d times, overflows", i, n)
			}
		}
	}
	if b.form.Weighted {
		b.weigh(row, float64(n)/float64(int64(1)<<b.shift))
	}
	return nil
}

// timesSquare returns v times the square of n/2^s, rounded to the nearest integer. It returns false if this overflows.
func (b *Builder) timesSquare(v, n int64) (int64, bool) {
	high, low := bits.Mul64(uint64(v), uint64(n*n))
	low, carry := bits.Add64(low, 1<<(2*b.shift)>>1, 0)
	high += carry
	v = int64(high<<(64-2*b.shift) | low>>(2*b.shift))
	return v, high>>(2*b.shift) == 0 && v >= 0
}

// weigh sets squares and products to those of a row, whose contributions are multiplied by its weight. more is this weight, divided by 2^s.
func (b *Builder) weigh(row *Played, more float64) {
	b.squares, b.products = b.squares[:0], b.products[:0]
	for i, x := range row.Sum {
		v := float64(x) * b.scale
		b.squares = append(b.squares, int64(float64(float64(v*v)*(LossUnit*LossUnit/SquareUnit/more))+.5))
		if row.Correction != nil {
			v = float64(x+row.Correction[i]) * b.scale
		}
		b.products = append(b.products, int64(math.RoundToEven(v*more)))
	}
}

// mostLoss is the largest loss of a row times its weight, in LossUnits.
const mostLoss = 16 * MaxLoss / LossUnit

// countRow counts a row of the given weight, at least 1.
func (b *Builder) countRow(n int64) {
	b.head.Rows++
	b.head.Check++
	b.limit = b.limitOf(n)
	b.sums.Limit = b.limit
	switch {
	case b.form.Weighted:
		b.head.Weights.add(Weights{n, n * n})
		b.head.Check += uint64(n + n*n)
	case n > 1:
		b.head.Fresh++
		b.head.Check++
	}
}

// times returns n*x, or a number whose square overflows if n*x does.
func times(x, n int64) int64 {
	if high := math.MaxInt64 / n; x < -high || x > high {
		return math.MinInt64
	}
	return n * x
}

// AddWalked states that the row that is added next has the contributions of walks, because those
// of the estimator did not fit; see Fits.
func (b *Builder) AddWalked() {
	b.head.Walked++
	b.head.Check++
}

// implausible is a magnitude, in LossUnits, up to which a contribution may exceed the losses of its
// row. The squares of thousands of such rows fit in a partial.
const implausible = 16 << 36

// Fits reports whether the squares of a row fit: those of its contributions, without and with
// corrections, and that of its residual. Add returns an error if they do not. Without corrections,
// Fits also returns false for what is not plausible: more than 16 nat and more than four times the
// sum of the row's losses in magnitude. With corrections, leaving such rows out would be a bias.
func (b *Builder) Fits(row *Played) bool {
	limit := b.limitOf(max(row.Weight, 1)) / max(row.Weight, 1)
	if row.Correction == nil {
		limit = min(limit/b.walks, max(implausible, 4*min(row.LossFull+row.LossEmpty, math.MaxInt64/4))) * b.walks
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

// rowTotal is the sum of the contributions of a row.
type rowTotal struct {
	sum  int64
	over bool // whether the sum left int64
}

func (t *rowTotal) add(x int64) {
	sum, ok := add(t.sum, x)
	t.sum, t.over = sum, t.over || !ok
}

// addResidual adds the squared residual of a row whose contributions add up to total.
func (b *Builder) addResidual(into *int64, total rowTotal, row *Played) error {
	worth := row.LossEmpty - row.LossFull
	due := worth * b.walks
	total.add(-due)
	total.add(-row.Shared)
	if total.over || due/b.walks != worth {
		return fmt.Errorf("the sum of the contributions over %d walks overflows: the row is worth %g nat in each", b.walks, float64(worth)*LossUnit)
	}
	if max(total.sum, -total.sum) > b.limit {
		return fmt.Errorf("the sum of the contributions differs by %g nat from the loss with everything dropped minus the loss with nothing dropped", float64(total.sum)*b.scale*LossUnit)
	}
	b.into(into, square(total.sum, b.scale))
	return nil
}

// addSums adds x to the sums, magnitudes and squares of the features of a row, whose positions are
// those of position. It returns the sum of x, and whether an |x| exceeds the limit.
func (b *Builder) addSums(x []int64, features []int32) (total rowTotal, large bool) {
	over := false
	add := func(cells []int64, at []int32, d int, x []int64, weights []uint64) {
		part, check, left, big := vector.AddRow(cells, at, b.lists*d, d, x, &b.sums, weights)
		b.head.Check += check
		over, large = over || left, large || big
		total.add(part)
	}
	if b.dim > 0 {
		add(b.cells, b.position, b.dim, x, b.weights)
	} else {
		rest := x
		for i, f := range features {
			d := b.width(f)
			add(b.entries(int(b.position[i]), d), first, d, rest[:d], b.weights[i:])
			rest = rest[d:]
		}
	}
	if over && !large {
		for i, f := range features {
			d := b.width(f)
			start := b.start(int(b.position[i]), d)
			b.carry(start, x[:d])
			b.carryGrown(start+d, 2*d)
			x = x[d:]
		}
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

// place sets the positions and weights to those of the features of a row, and counts the features.
func (b *Builder) place(features []int32) {
	b.position, b.weights = b.position[:0], b.weights[:0]
	for _, f := range features {
		at, weight := b.at(f, b.width(f)), weightOf(f)
		b.head.Count[at]++
		b.head.Check += weight
		b.position, b.weights = append(b.position, int32(at)), append(b.weights, weight)
	}
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
	start := b.start(at, d)
	return b.cells[start : start+b.lists*d]
}

// start returns the first cell of the feature at a position, which has d entries.
func (b *Builder) start(at, d int) int {
	if b.dim == 0 {
		return b.starts[at]
	}
	return at * b.lists * d
}

// width returns the number of entries of a feature.
func (b *Builder) width(f int32) int {
	if b.dim > 0 {
		return b.dim
	}
	from, to := b.head.Shape.Row(int(f))
	return to - from
}

// into adds x to one of the heads of b.head.
func (b *Builder) into(sum *int64, x int64) {
	b.head.Check += uint64(x)
	var ok bool
	if *sum, ok = add(*sum, x); !ok {
		b.head.carryHead(sum, x)
	}
}

// Join adds the rows of other to b. other must not be used afterwards.
func (b *Builder) Join(other *Builder) {
	p, o := &b.head, &other.head
	p.Rows += o.Rows
	p.Walked += o.Walked
	p.Fresh += o.Fresh
	p.Weights.add(o.Weights)
	p.Check += o.Check
	p.addHeads(o)
	for field := range p.Fourths {
		p.Fourths[field].add(&o.Fourths[field])
	}
	for i, f := range o.Features {
		dim := b.width(f)
		to, from := b.start(b.at(f, dim), dim), other.start(i, dim)
		p.Count[b.slot[f]] += o.Count[i]
		b.addCells(to, other.entries(i, dim))
		if from < len(other.high) {
			high := other.high[from:min(from+b.lists*dim, len(other.high))]
			addAll(b.highCells()[to:], high)
		}
	}
}

// Partial returns the partial of all rows, with features in ascending order. The builder must not
// be used afterwards.
func (b *Builder) Partial() *Partial {
	p := b.head
	if b.high != nil {
		p.needHigh()
	}
	p.Features = slices.Sorted(slices.Values(b.head.Features))
	if p.Dropped != nil {
		p.Features = slices.DeleteFunc(p.Features, func(f int32) bool {
			from, to := p.Shape.Row(int(f))
			left := p.Dropped.Count(from, to) < to-from
			if !left {
				p.Check -= weightOf(f) * uint64(b.head.Count[b.slot[f]])
			}
			return !left
		})
	}
	p.Check += fourthsCheck(p.Fourths)
	p.Count = make([]int64, 0, len(p.Features))
	for _, f := range p.Features {
		p.Count = append(p.Count, b.head.Count[b.slot[f]])
	}
	b.gather(&p, p.Features, b.cells)
	if p.High != nil {
		b.gather(p.High, p.Features, b.highCells())
	}
	return &p
}

// gather sets the lists of p to the cells of features. It takes them from cells, which are those of b or
// the multiples of 2^63 to add to them.
func (b *Builder) gather(p *Partial, features []int32, cells []int64) {
	all := p.listsOf(b.form)
	lists := all[:b.lists]
	for _, list := range lists {
		*list = make([]int64, 0, len(cells)/b.lists)
	}
	for _, f := range features {
		dim := b.width(f)
		from := b.start(int(b.slot[f]), dim)
		for _, list := range lists {
			*list = append(*list, cells[from:from+dim]...)
			from += dim
		}
	}
}
