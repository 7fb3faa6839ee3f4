package tally

import (
	"fmt"
	"math"
	"slices"
)

// Partial is what one task yields: exact sums over its rows, for the features
// that occur in them. x is the contribution of a row's player, added up over the
// row's walks.
type Partial struct {
	Dim            int     // d
	Rows           int64   // rows of the shard, each counted once
	LossFull       int64   // sum over rows of the loss with nothing dropped, in LossUnits
	LossEmpty      int64   // the same with everything dropped
	ResidualSquare int64   // sum over rows of the square of (sum of the row's x)/walks - (empty - full), in SquareUnits
	Features       []int32 // global ids, ascending
	Count          []int64 // rows in which the feature occurs, [len(Features)]
	Sum            []int64 // sums over rows of x, in LossUnits, [len(Features), d]
	Abs            []int64 // of |x|, in LossUnits
	Square         []int64 // of (x/walks)^2, in SquareUnits
	Within         []int64 // of the variance of x, estimated from the row's passes, in SquareUnits; nil if there is one pass
}

// Lists returns how many lists of entries there are: Sum, Abs, Square and, of two
// or more passes, Within.
func Lists(within bool) int {
	if within {
		return 4
	}
	return 3
}

// lists returns the lists in that order; the last is nil if there is none.
func (p *Partial) lists() [4][]int64 { return [4][]int64{p.Sum, p.Abs, p.Square, p.Within} }

// Validate reports what no partial of a table with the given number of features
// and columns, with or without Within, can have. Partials come over the wire.
func (p *Partial) Validate(features, dim int, within bool) error {
	switch {
	case p.Dim != dim:
		return fmt.Errorf("partial has %d columns, the model has %d", p.Dim, dim)
	case p.Rows < 1:
		return fmt.Errorf("partial of %d rows", p.Rows)
	case p.LossFull < 0 || p.LossEmpty < 0:
		return fmt.Errorf("partial has a negative loss")
	case p.ResidualSquare < 0:
		return fmt.Errorf("partial has a negative square of residuals")
	case within != (p.Within != nil):
		return fmt.Errorf("partial has variances within rows: %t, expected %t", p.Within != nil, within)
	case len(p.Count) != len(p.Features):
		return fmt.Errorf("partial has %d features and %d counts", len(p.Features), len(p.Count))
	}
	lists := p.lists()
	for i, list := range lists[:Lists(within)] {
		if len(list) != len(p.Features)*dim {
			return fmt.Errorf("partial has %d features of %d columns and %d sums in list %d", len(p.Features), dim, len(list), i)
		}
	}
	previous := int32(-1)
	for i, f := range p.Features {
		if f <= previous || int(f) >= features {
			return fmt.Errorf("partial has feature %d after %d: ids ascend and are below %d", f, previous, features)
		}
		if p.Count[i] < 1 || p.Count[i] > p.Rows {
			return fmt.Errorf("partial has feature %d in %d of %d rows", f, p.Count[i], p.Rows)
		}
		previous = f
	}
	for _, list := range lists[1:] {
		signs := int64(0)
		for _, s := range list {
			signs |= s
		}
		if signs < 0 {
			i := slices.IndexFunc(list, func(s int64) bool { return s < 0 })
			return fmt.Errorf("partial has a negative sum of what is not negative for feature %d", p.Features[i/dim])
		}
	}
	return nil
}

// Capacity returns how many rows like p's have sums that fit one partial: of more
// comes ErrOverflow. It is +Inf for rows without any loss.
func (p *Partial) Capacity() float64 {
	largest := max(p.LossFull, p.LossEmpty, p.ResidualSquare)
	lists := p.lists()
	for _, list := range lists[1:] { // |x| is at least x
		for _, sum := range list {
			largest = max(largest, sum)
		}
	}
	return float64(p.Rows) / float64(largest) * math.MaxInt64
}

// Builder collects a Partial row by row. It is for one goroutine; builders of
// several are joined with Join.
type Builder struct {
	dim, lists int
	walks      int64
	scale      float64 // 1 / walks
	limit      int64   // of |x|
	head       Partial // without lists; features as they came
	cells      []int64 // of each of them, d values of each list
	slot       []int32 // of each feature: position in head.Features, or -1
	failed     bool
}

// NewBuilder returns an empty builder for a table of features x dim entries, and
// for rows of so many walks, with or without Within.
func NewBuilder(features, dim, walks int, within bool) *Builder {
	b := &Builder{dim: dim, lists: Lists(within), walks: int64(walks), scale: 1 / float64(walks), limit: largest * min(int64(walks), math.MaxInt64/largest), head: Partial{Dim: dim}, slot: make([]int32, features)}
	for i := range b.slot {
		b.slot[i] = -1
	}
	return b
}

// AddRow counts one row: its two losses in LossUnits, its features (global ids,
// [m]), and for each of its m*d entries x, in LossUnits, and the variance of that, in
// SquareUnits: nil without Within. An error says that a square overflows, and leaves
// the builder of no use.
func (b *Builder) AddRow(lossFull, lossEmpty int64, features []int32, sum, within []int64) error {
	p := &b.head
	p.Rows++
	b.into(&p.LossFull, lossFull)
	b.into(&p.LossEmpty, lossEmpty)
	total, large := int64(0), false
	for j, f := range features {
		at := b.at(f)
		p.Count[at]++
		cells := b.entries(at)
		row, over, big := b.addFeature(cells, sum[j*b.dim:(j+1)*b.dim])
		b.failed = b.failed || over
		if within != nil && addAll(cells[3*b.dim:], within[j*b.dim:(j+1)*b.dim]) {
			b.failed = true
		}
		large = large || big
		b.into(&total, row)
	}
	if large {
		i := slices.IndexFunc(sum, func(x int64) bool { return max(x, -x) > b.limit || x == math.MinInt64 })
		return fmt.Errorf("the contributions of player %d reach %g nat: their squares overflow", i, math.Abs(float64(sum[i]))*b.scale*LossUnit)
	}
	due := (lossEmpty - lossFull) * b.walks
	if due/b.walks != lossEmpty-lossFull {
		b.failed = true
	}
	b.into(&total, -due)
	if max(total, -total) > b.limit {
		return fmt.Errorf("the contributions sum %g nat off the loss with everything dropped minus that with nothing dropped", float64(total)*b.scale*LossUnit)
	}
	b.into(&p.ResidualSquare, square(total, b.scale))
	return nil
}

// addFeature adds x to the sums, absolute values and squares of one feature, d of
// each, without a branch. It returns the sum of x, and whether a sum left int64 or x
// is beyond the limit.
func (b *Builder) addFeature(cells, x []int64) (total int64, over, large bool) {
	d, scale, limit := len(x), b.scale, b.limit
	sums, abs, squares := cells[:d], cells[d:][:d], cells[2*d:][:d]
	left, beyond := int64(0), int64(0)
	for c, v := range x {
		total += v
		before := sums[c]
		sum := before + v
		sums[c] = sum
		left |= (before ^ sum) & (v ^ sum)
		size := (v ^ v>>63) - v>>63
		beyond |= size | (limit - size)
		abs[c] += size
		squares[c] += square(v, scale)
		left |= abs[c] | squares[c] // what is added is not negative: an overflow is
	}
	return total, left < 0, beyond < 0
}

// at returns the position of a feature.
func (b *Builder) at(f int32) int {
	at := b.slot[f]
	if at < 0 {
		at = int32(len(b.head.Features))
		b.slot[f] = at
		b.head.Features = append(b.head.Features, f)
		b.head.Count = append(b.head.Count, 0)
		b.cells = append(b.cells, make([]int64, b.lists*b.dim)...)
	}
	return int(at)
}

// entries returns the cells of a position.
func (b *Builder) entries(at int) []int64 {
	n := b.lists * b.dim
	return b.cells[at*n : (at+1)*n]
}

func (b *Builder) into(sum *int64, x int64) {
	var ok bool
	*sum, ok = add(*sum, x)
	b.failed = b.failed || !ok
}

// Join adds everything that other collected; other is not to be used again.
func (b *Builder) Join(other *Builder) {
	p, o := &b.head, &other.head
	p.Rows += o.Rows
	b.into(&p.LossFull, o.LossFull)
	b.into(&p.LossEmpty, o.LossEmpty)
	b.into(&p.ResidualSquare, o.ResidualSquare)
	for i, f := range o.Features {
		at := b.at(f)
		p.Count[at] += o.Count[i]
		if addAll(b.entries(at), other.entries(i)) {
			b.failed = true
		}
	}
	b.failed = b.failed || other.failed
}

// Partial returns what was collected, features ascending, or ErrOverflow. The
// builder is not to be used again.
func (b *Builder) Partial() (*Partial, error) {
	if b.failed {
		return nil, ErrOverflow
	}
	p := b.head
	p.Features = slices.Sorted(slices.Values(b.head.Features))
	p.Count = make([]int64, 0, len(p.Features))
	var lists [4][]int64
	for i := range b.lists {
		lists[i] = make([]int64, 0, len(p.Features)*b.dim)
	}
	for _, f := range p.Features {
		at := int(b.slot[f])
		p.Count = append(p.Count, b.head.Count[at])
		cells := b.entries(at)
		for i := range b.lists {
			lists[i] = append(lists[i], cells[i*b.dim:(i+1)*b.dim]...)
		}
	}
	p.Sum, p.Abs, p.Square, p.Within = lists[0], lists[1], lists[2], lists[3]
	return &p, nil
}
