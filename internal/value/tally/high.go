package tally

import (
	"fmt"
	"math"
	"slices"
)

// A sum of a partial that leaves int64 goes back into it by a multiple of 2^63, which Partial.High
// counts. The sum in the partial thus keeps its sign and never wraps around, and the loops that add rows only have
// to notice when it leaves int64. A single addend always fits, so one multiple is enough each time.

// carryOver goes through sums to which x was just added. Each one that left int64 goes back, and high
// counts the multiple of 2^63.
func carryOver(sums, high, x []int64) {
	for c, v := range x {
		if _, ok := add(sums[c]-v, v); !ok {
			sums[c] ^= math.MinInt64
			high[c] += carryOf(v)
		}
	}
}

// heads returns pointers to the sums of p that are not in lists.
func (p *Partial) heads() [8]*int64 {
	return [...]*int64{&p.LossFull, &p.LossEmpty, &p.ResidualSquare, &p.Shared,
		&p.PreviousLossFull, &p.PreviousLossEmpty, &p.PreviousResidualSquare, &p.PreviousShared}
}

// needHigh makes High, without lists, if it is nil.
func (p *Partial) needHigh() {
	if p.High == nil {
		p.High = &Partial{}
	}
}

// carryHead is carryOver for one of the heads, which left int64 when x was just added.
func (p *Partial) carryHead(head *int64, x int64) {
	p.needHigh()
	*head ^= math.MinInt64
	heads := p.heads()
	*p.High.heads()[slices.Index(heads[:], head)] += carryOf(x)
}

// addHeads adds the heads of o to those of p.
func (p *Partial) addHeads(o *Partial) {
	sums := p.heads()
	for k, x := range o.heads() {
		var ok bool
		if *sums[k], ok = add(*sums[k], *x); !ok {
			p.carryHead(sums[k], *x)
		}
	}
	if o.High != nil {
		p.needHigh()
		sums = p.High.heads()
		for k, x := range o.High.heads() {
			*sums[k] += *x
		}
	}
}

// validateHigh returns an error if High is not that of a valid partial. The lengths and signs of its lists are
// valid. In a row at most two int64 are added to a sum.
func (p *Partial) validateHigh(form Form) error {
	if p.High == nil {
		return nil
	}
	heads, most := p.High.heads(), min(p.Rows, math.MaxInt64/2)*2
	for k, high := range heads {
		if shared := k%4 == 3; *high < 0 && !shared {
			return fmt.Errorf("partial has a negative loss or sum of squared residuals")
		}
		if *high < -most || *high > most {
			return fmt.Errorf("partial has a sum of %d times 2^63 over %d rows", *high, p.Rows)
		}
	}
	lists := p.High.listsOf(form)
	for i, into := range lists[:Lists(form)] {
		for at, high := range *into {
			if high < -most || high > most {
				return fmt.Errorf("partial has the sum of %d times 2^63 over %d rows in list %d at position %d", high, p.Rows, i, at)
			}
		}
	}
	return nil
}

// highCells returns high, with an element for each cell.
func (b *Builder) highCells() []int64 {
	b.high = append(b.high, make([]int64, len(b.cells)-len(b.high))...)
	return b.high
}

// carry is carryOver for consecutive cells.
func (b *Builder) carry(at int, x []int64) { carryOver(b.cells[at:], b.highCells()[at:], x) }

// carryGrown is carry for n cells whose sums only grow. They are negative only if they have just left
// int64.
func (b *Builder) carryGrown(at, n int) {
	high := b.highCells()[at:]
	for c, sum := range b.cells[at : at+n] {
		if sum < 0 {
			b.cells[at+c] ^= math.MinInt64
			high[c]++
		}
	}
}

// addCells adds x to consecutive cells.
func (b *Builder) addCells(at int, x []int64) {
	if addAll(b.cells[at:], x) {
		b.carry(at, x)
	}
}

// addHigh adds x times 2^63.
func (w *wide) addHigh(x int64) {
	w.carry += x >> 1
	if x&1 != 0 {
		w.add(math.MaxInt64)
		w.add(1)
	}
}
