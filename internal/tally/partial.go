package tally

import (
	"fmt"
	"math"
	"slices"
)

// Partial is what one task yields: exact sums over its rows, for the features
// that occur in them.
type Partial struct {
	Dim       int     // d
	Rows      int64   // rows of the shard, each counted once
	LossFull  int64   // sum over rows of the loss with nothing dropped, in LossUnits
	LossEmpty int64   // the same with everything dropped
	Features  []int32 // global ids, ascending
	Count     []int64 // rows in which the feature occurs, [len(Features)]
	Sum       []int64 // sums of contributions over rows and passes, in LossUnits, [len(Features), d]
	Square    []int64 // sums of squares or of within-row variances (see Spread), in SquareUnits, [len(Features), d]
}

// Validate reports what no partial of a table with the given number of features
// and columns can have. Partials come over the wire.
func (p *Partial) Validate(features, dim int) error {
	switch {
	case p.Dim != dim:
		return fmt.Errorf("partial has %d columns, the model has %d", p.Dim, dim)
	case p.Rows < 1:
		return fmt.Errorf("partial of %d rows", p.Rows)
	case p.LossFull < 0 || p.LossEmpty < 0:
		return fmt.Errorf("partial has a negative loss")
	case len(p.Count) != len(p.Features), len(p.Sum) != len(p.Features)*dim, len(p.Square) != len(p.Sum):
		return fmt.Errorf("partial has %d features, %d counts, %d sums, %d squares", len(p.Features), len(p.Count), len(p.Sum), len(p.Square))
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
	signs := int64(0)
	for _, s := range p.Square {
		signs |= s
	}
	if signs < 0 {
		i := slices.IndexFunc(p.Square, func(s int64) bool { return s < 0 })
		return fmt.Errorf("partial has a negative square for feature %d", p.Features[i/dim])
	}
	return nil
}

// Builder collects a Partial row by row. It is for one goroutine; builders of
// several are joined with Join.
type Builder struct {
	dim    int
	p      Partial
	slot   []int32 // of each feature: position in p, or -1
	failed bool
}

// NewBuilder returns an empty builder for a table of features x dim entries.
func NewBuilder(features, dim int) *Builder {
	b := &Builder{dim: dim, p: Partial{Dim: dim}, slot: make([]int32, features)}
	for i := range b.slot {
		b.slot[i] = -1
	}
	return b
}

// AddRow counts one row: its two losses in LossUnits, its features (global ids,
// [m]), and for each of its m*d entries the contribution summed over passes, in
// LossUnits, and its square or variance, in SquareUnits.
func (b *Builder) AddRow(lossFull, lossEmpty int64, features []int32, sum, square []int64) {
	p := &b.p
	p.Rows++
	b.into(&p.LossFull, lossFull)
	b.into(&p.LossEmpty, lossEmpty)
	for j, f := range features {
		b.addFeature(f, 1, sum[j*b.dim:(j+1)*b.dim], square[j*b.dim:(j+1)*b.dim])
	}
}

func (b *Builder) addFeature(f int32, count int64, sum, square []int64) {
	p := &b.p
	at := b.slot[f]
	if at < 0 {
		at = int32(len(p.Features))
		b.slot[f] = at
		p.Features = append(p.Features, f)
		p.Count = append(p.Count, 0)
		p.Sum = append(p.Sum, make([]int64, b.dim)...)
		p.Square = append(p.Square, make([]int64, b.dim)...)
	}
	b.into(&p.Count[at], count)
	start := int(at) * b.dim
	for c := range sum {
		b.into(&p.Sum[start+c], sum[c])
		b.into(&p.Square[start+c], square[c])
	}
}

func (b *Builder) into(sum *int64, x int64) {
	var ok bool
	*sum, ok = add(*sum, x)
	b.failed = b.failed || !ok
}

// Join adds everything that other collected; other is not to be used again.
func (b *Builder) Join(other *Builder) {
	o := &other.p
	b.p.Rows += o.Rows
	b.into(&b.p.LossFull, o.LossFull)
	b.into(&b.p.LossEmpty, o.LossEmpty)
	for i, f := range o.Features {
		b.addFeature(f, o.Count[i], o.Sum[i*b.dim:(i+1)*b.dim], o.Square[i*b.dim:(i+1)*b.dim])
	}
	b.failed = b.failed || other.failed
}

// Partial returns what was collected, features ascending, or ErrOverflow. The
// builder is not to be used again.
func (b *Builder) Partial() (*Partial, error) {
	if b.failed {
		return nil, ErrOverflow
	}
	sorted := slices.Clone(b.p.Features)
	slices.Sort(sorted)
	p := &Partial{Dim: b.dim, Rows: b.p.Rows, LossFull: b.p.LossFull, LossEmpty: b.p.LossEmpty, Features: sorted,
		Count: make([]int64, 0, len(sorted)), Sum: make([]int64, 0, len(b.p.Sum)), Square: make([]int64, 0, len(b.p.Square))}
	for _, f := range sorted {
		at := int(b.slot[f])
		p.Count = append(p.Count, b.p.Count[at])
		p.Sum = append(p.Sum, b.p.Sum[at*b.dim:(at+1)*b.dim]...)
		p.Square = append(p.Square, b.p.Square[at*b.dim:(at+1)*b.dim]...)
	}
	return p, nil
}

// Scores is the merged, normalised result over all n features.
type Scores struct {
	Dim   int
	Count []int64   // rows in which the feature occurs, [n]
	Phi   []float64 // Shapley values in nat, [n, d]; above 0 means useful
	SE    []float64 // standard errors of Phi, [n, d]; NaN never, 0 for features that do not occur
}

// Spread says what Partial.Square holds, and so how far SE reaches.
type Spread string

const (
	// RowToRow: squares of each row's contribution, summed over its passes. SE
	// is the distance from the value over all rows of which these are a random
	// sample; with every row used it is an upper bound of the distance from
	// the dataset's own value.
	RowToRow Spread = "row-to-row"
	// WithinRow: the variance of each row's summed contribution, estimated from
	// its passes (two or more). SE is the distance from the value that these
	// very rows would have after infinitely many passes.
	WithinRow Spread = "within-row"
)

// standardError returns the standard error of phi from the sum and the square
// sum of an entry, both in nat, over the given rows and walks.
func standardError(spread Spread, sum, square, rows, walks float64) float64 {
	if spread == RowToRow {
		square -= sum * sum / rows
	}
	return math.Sqrt(max(square, 0)) / (rows * walks)
}
