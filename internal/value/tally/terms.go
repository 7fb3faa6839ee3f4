package tally

import (
	"errors"
	"fmt"
	"math"

	"shaver/internal/num/layout"
	"shaver/internal/num/vector"
	"shaver/internal/value/estimator"
)

// mostTerm is the largest magnitude of a first-order term, in nat, before the row is weighted. Larger ones are clipped, and
// second-order terms are clipped to its square. A row whose logit is too steep thus counts like
// a bad row and does not decide alone.
const mostTerm = 32

// Terms are what the players of a row of a path give. Let v be the change of the logit, to first
// order, by a player's entry. The first-order term of the player is First*v, and the second-order
// term is Second*v^2, both in nat. Their sums are Partial.Sum, in LossUnits, and Partial.Square,
// in SquareUnits.
type Terms struct {
	LossFull      int64     // loss of the row, in LossUnits
	Weight        int64     // how often the row counts; 0 is 1
	Change        []float64 // v of each player
	First, Second float64   // first and second derivative of the row's loss by its logit; Second is at least 0
}

// errSteep says that a row has no terms.
var errSteep = errors.New("a derivative of the logit is not finite")

// NewTermsBuilder returns an empty builder for a round of a path at tables of the given shape.
// dropped has the entries that earlier rounds dropped. The builder keeps it.
func NewTermsBuilder(shape layout.Shape, dropped layout.Mask) *Builder {
	b := NewBuilder(shape, 1, Form{Path: true})
	b.head.Dropped = dropped
	return b
}

// AddTerms adds the terms of one row. features is as in AddRow. AddTerms returns an error if a
// derivative is not finite; the builder must not be used after that. The builder must be one of NewTermsBuilder.
func (b *Builder) AddTerms(features []int32, row *Terms) error {
	p := &b.head
	times := max(row.Weight, 1)
	b.countRow(times)
	if row.LossFull > mostLoss/times {
		return fmt.Errorf("the loss of the row is %g nat, and it counts %d times: choose smaller weights", float64(row.LossFull)*LossUnit, times)
	}
	b.into(&p.LossFull, times*row.LossFull)
	b.place(features)
	weight := float64(times)
	less := weight / float64(int64(1)<<b.shift)
	t := vector.Terms{
		First: weight * row.First / LossUnit, Second: less * row.Second / SquareUnit,
		MostFirst: weight * mostTerm / LossUnit, MostSecond: less * mostTerm * mostTerm / SquareUnit,
	}
	over, finite, check := false, true, uint64(0)
	if b.dim > 0 {
		check, over, finite = vector.AddTerms(b.cells, b.position, b.lists*b.dim, b.dim, row.Change, &t, b.weights)
	} else {
		change := row.Change
		for i, f := range features {
			d := b.width(f)
			part, left, whole := vector.AddTerms(b.entries(int(b.position[i]), d), first, b.lists*d, d, change[:d], &t, b.weights[i:])
			check += part
			over, finite, change = over || left, finite && whole, change[d:]
		}
	}
	if !finite {
		return errSteep
	}
	p.Check += check
	if over {
		b.carryTerms(features, row.Change, &t)
	}
	return nil
}

// carryTerms is carry for the terms of a row, whose features have the positions of position.
func (b *Builder) carryTerms(features []int32, change []float64, t *vector.Terms) {
	for i, f := range features {
		d := b.width(f)
		terms := make([]int64, b.lists*d) // those of the feature in this row alone
		vector.AddTerms(terms, first, b.lists*d, d, change[:d], t, b.weights[i:])
		b.carry(b.start(int(b.position[i]), d), terms)
		change = change[d:]
	}
}

// Terms writes the sums of the terms of a feature's entries, in nat, to first and second, [d]
// each. Those of second are divided by 2^s if rows have weights with the shift s. The form must be that of a path.
func (a *Accumulator) Terms(feature int, first, second []float64) {
	from, to := a.shape.Row(feature)
	d := to - from
	for c := range d {
		at := a.lists*from + c
		first[c], second[c] = a.cell(at)*LossUnit, a.cell(at+d)*SquareUnit
	}
}

// SetTerms sets what Terms returns. Each term is rounded to a multiple of its unit.
func (a *Accumulator) SetTerms(feature int, first, second []float64) {
	from, to := a.shape.Row(feature)
	d := to - from
	for c := range d {
		at := a.lists*from + c
		a.setCell(at, math.RoundToEven(first[c]/LossUnit))
		a.setCell(at+d, math.RoundToEven(second[c]/SquareUnit))
	}
}

// Term returns the sums of the terms of an entry, as Terms does.
func (a *Accumulator) Term(entry int) (first, second float64) {
	d := a.shape.Dim()
	from := 0
	if d > 0 {
		from = entry - entry%d
	} else {
		var to int
		from, to = a.shape.Row(a.shape.RowOf(entry))
		d = to - from
	}
	at := from + entry // the first cell of the feature is 2*from
	return a.cell(at) * LossUnit, a.cell(at+d) * SquareUnit
}

// setCell sets a cell to an integer.
func (a *Accumulator) setCell(at int, x float64) {
	if len(a.carries) > 0 {
		delete(a.carries, at)
	}
	if high := math.Floor(x/(1<<64) + .5); high != 0 {
		a.carries[at] = int64(high)
		x -= high * (1 << 64)
	}
	a.cells[at] = int64(x)
}

// Weighed returns the weights of the rows, which count as often as by says.
func (s *Summary) Weighed(by estimator.Weights) Weights {
	if s.Weights != (Weights{}) {
		return s.Weights
	}
	return WeightsOf(s.Rows, s.Fresh, by)
}

// MeanLoss returns the mean loss of the rows with nothing dropped, in nat, or 0 without rows. They count as often as by says.
func (s *Summary) MeanLoss(by estimator.Weights) float64 {
	if s.Rows == 0 {
		return 0
	}
	return wide{s.Current.LossFull[0], s.Current.LossFull[1]}.float() * LossUnit / float64(s.Weighed(by).Sum)
}

// ClearRows sets all sums but the terms to 0.
func (a *Accumulator) ClearRows() {
	clear(a.count)
	a.rows, a.walked, a.fresh, a.weights, a.current = 0, 0, 0, Weights{}, gameSums{}
}

// Shape returns the shape of the tables.
func (a *Accumulator) Shape() layout.Shape { return a.shape }

// Form returns the form of the partials.
func (a *Accumulator) Form() Form { return a.form }
