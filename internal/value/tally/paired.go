package tally

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
)

// Paired holds the sums over the rows of a paired job for one entry. c is the mean
// contribution of the entry in a row under the new model, and p the same under the previous
// model, with the same random numbers. Both are 0 in rows that do not activate the entry.
//
// If contributions are a base and a correction, c and p are the bases, but Sum, PreviousSum,
// DifferenceSquare, SumSquare and PreviousSumSquare are those of the corrected contributions.
type Paired struct {
	Sum, Abs, Square                         float64 // sums of c, |c| and c^2, in nat and nat^2
	PreviousSum, PreviousAbs, PreviousSquare float64 // sums of p, |p| and p^2
	DifferenceSquare                         float64 // sum of (c - p)^2
	AbsDifferenceSquare                      float64 // sum of (|c| - |p|)^2
	SumSquare, PreviousSumSquare             float64 // sums of the squares of what Sum and PreviousSum add up
}

// Fourths holds sums of fourth powers over the rows of a paired job and all entries of a
// field, in nat^4. They measure how exactly mean squares are known. The sums of single
// entries are not kept, because they would need three quarters of the memory of all others.
type Fourths struct {
	New, Previous float64 // sums of c^4 and p^4
	Difference    float64 // sum of (c^2 - p^2)^2
}

// Powers holds the exact sums that belong to a Fourths, in squared SquareUnits.
type Powers struct {
	New        Uint192 `json:"new"`
	Previous   Uint192 `json:"previous"`
	Difference Uint192 `json:"difference"`
}

func (p *Powers) all() [3]*Uint192 { return [3]*Uint192{&p.New, &p.Previous, &p.Difference} }

// add adds o to p.
func (p *Powers) add(o *Powers) {
	sums := p.all()
	for k, x := range o.all() {
		sums[k].add(*x)
	}
}

// Uint192 is the integer Top * 2^128 + High * 2^64 + Low. Fourth powers are below 2^126, so the sums of
// all of a job fit. Its text form is decimal.
type Uint192 struct{ Top, High, Low uint64 }

func (u *Uint192) add(o Uint192) {
	var carry uint64
	u.Low, carry = bits.Add64(u.Low, o.Low, 0)
	u.High, carry = bits.Add64(u.High, o.High, carry)
	u.Top += o.Top + carry
}

func (u Uint192) float() float64 {
	return float64(float64(u.Top)*(1<<128)) + (float64(float64(u.High)*(1<<64)) + float64(u.Low))
}

// String returns u in decimal.
func (u Uint192) String() string {
	v := new(big.Int)
	for _, word := range []uint64{u.Top, u.High, u.Low} {
		v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(word))
	}
	return v.String()
}

// MarshalText returns u in decimal.
func (u Uint192) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText sets u to a decimal integer. The text must have exactly the form that
// MarshalText gives.
func (u *Uint192) UnmarshalText(text []byte) error {
	const digits = 58 // of 2^192
	v := new(big.Int)
	if len(text) <= digits {
		if _, ok := v.SetString(string(text), 10); ok && v.Sign() >= 0 && v.BitLen() <= 192 && v.String() == string(text) {
			word := func(k uint) uint64 {
				w := new(big.Int).Rsh(v, 64*k)
				return w.And(w, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
			}
			*u = Uint192{word(2), word(1), word(0)}
			return nil
		}
	}
	return fmt.Errorf("%q is not a decimal integer in [0, 2^192)", text[:min(len(text), digits+1)])
}

// Played is what one model gives for a row.
type Played struct {
	LossFull, LossEmpty int64   // losses with nothing and with everything dropped, in LossUnits
	Sum                 []int64 // contributions of the row's players, summed over walks, [D], in LossUnits
	Shared              int64   // sum of what Sum and Correction contain beyond the estimates, so that they add up; in LossUnits
	Weight              int64   // how often the row counts; 0 is 1
	Correction          []int64 // what is added to Sum to give the row's contributions, [D], in LossUnits; nil if nothing is
}

// corrected returns the sums of Sum and Correction.
func (p *Played) corrected() []int64 { return plus(p.Sum, p.Correction) }

// plus returns x + z. z may be shorter than x.
func plus(x, z []int64) []int64 {
	all := slices.Clone(x)
	for i, v := range z {
		all[i] += v
	}
	return all
}

// mustBeValid panics if no partial has the form f.
func (f Form) mustBeValid() {
	if f.Path && f != (Form{Path: true, Weighted: f.Weighted}) {
		panic("tally: the form of a path has nothing else")
	}
	if f.Paired && (f.Within || f.Weighted || f.Fields < 1) {
		panic("tally: the form of a paired job needs fields, and has neither variances within rows nor weights")
	}
}

// AddPair adds one row of a paired job. current and previous are what the two models give
// for it. features is as in AddRow, and fields holds the field of each of the features.
// AddPair returns an error if a square would overflow; the builder must not be used after
// that. The job must be paired.
func (b *Builder) AddPair(features []int32, fields []int, current, previous *Played) error {
	p := &b.head
	b.countRow(1)
	b.into(&p.LossFull, current.LossFull)
	b.into(&p.LossEmpty, current.LossEmpty)
	b.into(&p.PreviousLossFull, previous.LossFull)
	b.into(&p.PreviousLossEmpty, previous.LossEmpty)
	var total, previousTotal rowTotal
	large, from := false, 0
	for i, f := range features {
		dim := b.width(f)
		at := b.at(f, dim)
		p.Count[at]++
		cells := b.entries(at, dim)
		x, y := current.Sum[from:from+dim], previous.Sum[from:from+dim]
		from += dim
		row, previousRow, over, big := b.addFeaturePair(cells, &p.Fourths[fields[i]], x, y)
		large = large || big
		var z, w []int64
		if current.Correction != nil {
			z, w = current.Correction[from-dim:from], previous.Correction[from-dim:from]
			rowZ, previousW, more, big := b.addPairCorrections(cells, x, y, z, w)
			over, large = over || more, large || big
			total.add(rowZ)
			previousTotal.add(previousW)
		}
		if over && !large {
			b.carryPair(b.start(at, dim), plus(x, z), plus(y, w))
		}
		p.Check += weightOf(f) * (1 + pairCheck(x, y, z, w, b.scale))
		total.add(row)
		previousTotal.add(previousRow)
	}
	if large {
		if err := b.pairTooLarge(current.Sum, previous.Sum); err != nil || current.Correction == nil {
			return err
		}
		return b.pairTooLarge(current.corrected(), previous.corrected())
	}
	b.into(&p.Shared, current.Shared)
	b.into(&p.PreviousShared, previous.Shared)
	if err := b.addResidual(&p.ResidualSquare, total, current); err != nil {
		return err
	}
	if err := b.addResidual(&p.PreviousResidualSquare, previousTotal, previous); err != nil {
		return fmt.Errorf("previous model: %w", err)
	}
	return nil
}

// FitsPair is like Fits for AddPair. The differences between the two models must fit, too.
func (b *Builder) FitsPair(current, previous *Played) bool {
	if !b.Fits(current) || !b.Fits(previous) {
		return false
	}
	beyond := int64(0)
	for i, x := range current.Sum {
		y := previous.Sum[i]
		beyond |= b.apart(x, y)
		if current.Correction != nil {
			beyond |= b.apart(x+current.Correction[i], y+previous.Correction[i])
		}
	}
	return beyond >= 0
}

// apart returns a negative number if x - y overflows or exceeds the limit.
func (b *Builder) apart(x, y int64) int64 {
	difference := x - y
	size := magnitude(difference)
	return size | (b.limit - size) | (x^y)&(x^difference)
}

// addFeaturePair adds the contributions x and y of a feature under two models to its sums,
// absolute values and squares. It also adds the squares of x - y and of |x| - |y|, and the fourth
// powers. It reports whether a sum overflowed, and whether an |x|, |y| or |x - y| exceeds the
// limit.
func (b *Builder) addFeaturePair(cells []int64, powers *Powers, x, y []int64) (total, previousTotal int64, over, large bool) {
	d, scale, limit := len(x), b.scale, b.limit
	sums, abs, squares := cells[:d], cells[d:][:d], cells[2*d:][:d]
	previousSums, previousAbs, previousSquares := cells[previousList*d:][:d], cells[4*d:][:d], cells[5*d:][:d]
	differences, absDifferences := cells[6*d:][:d], cells[7*d:][:d]
	y = y[:d]
	left, beyond := int64(0), int64(0)
	fourth, previousFourth, apartFourth := powers.New, powers.Previous, powers.Difference // in registers
	for c, v := range x {
		w := y[c]
		total += v
		previousTotal += w
		sum, previousSum := sums[c], previousSums[c]
		nextSum, nextPreviousSum := sum+v, previousSum+w
		left |= (sum^nextSum)&(v^nextSum) | (previousSum^nextPreviousSum)&(w^nextPreviousSum)
		sums[c], previousSums[c] = nextSum, nextPreviousSum
		difference := v - w
		size, previousSize, apart := magnitude(v), magnitude(w), magnitude(difference)
		beyond |= size | (limit - size) | previousSize | (limit - previousSize) | apart | (limit - apart) | (v^w)&(v^difference)
		abs[c] += size
		previousAbs[c] += previousSize
		s, t := square(v, scale), square(w, scale)
		squares[c] += s
		previousSquares[c] += t
		differences[c] += square(difference, scale)
		absDifferences[c] += square(size-previousSize, scale)
		left |= abs[c] | previousAbs[c] | squares[c] | previousSquares[c] | differences[c] | absDifferences[c] // all only grow, so they are negative only after an overflow
		fourth = fourth.plusSquare(uint64(s))
		previousFourth = previousFourth.plusSquare(uint64(t))
		apartFourth = apartFourth.plusSquare(uint64(magnitude(s - t)))
	}
	*powers = Powers{fourth, previousFourth, apartFourth}
	return total, previousTotal, left < 0, beyond < 0
}

// carryPair is carry for a feature to whose sums the contributions x and y under two models, with their
// corrections, were just added. The first cell is that at start.
func (b *Builder) carryPair(start int, x, y []int64) {
	d := len(x)
	b.carry(start, x)
	b.carryGrown(start+d, 2*d)
	b.carry(start+previousList*d, y)
	b.carryGrown(start+4*d, (b.lists-4)*d)
}

// addPairCorrections adds the corrections z of x and w of y to the sums of a feature to which
// addFeaturePair has just added x and y. It also replaces the square of x - y by that of the
// corrected difference. It returns the sums of z and w, and the same as addFeaturePair.
func (b *Builder) addPairCorrections(cells, x, y, z, w []int64) (total, previousTotal int64, over, large bool) {
	d := len(x)
	sums, previousSums, differences := cells[:d], cells[previousList*d:][:d], cells[6*d:][:d]
	squares, previousSquares := cells[8*d:][:d], cells[9*d:][:d]
	for c, v := range z {
		u := w[c]
		value, previous, difference := x[c]+v, y[c]+u, x[c]+v-y[c]-u
		if size := max(magnitude(value), magnitude(previous), magnitude(difference)); size > b.limit || size < 0 {
			large = true
			continue
		}
		total, previousTotal = total+v, previousTotal+u
		var ok, previousOK bool
		sums[c], ok = add(sums[c], v)
		previousSums[c], previousOK = add(previousSums[c], u)
		differences[c] += square(difference, b.scale) - square(x[c]-y[c], b.scale)
		squares[c] += square(value, b.scale)
		previousSquares[c] += square(previous, b.scale)
		over = over || !ok || !previousOK || differences[c]|squares[c]|previousSquares[c] < 0
	}
	return total, previousTotal, over, large
}

// magnitude returns |v| without a branch. That of the least int64 is negative.
func magnitude(v int64) int64 { return (v ^ v>>63) - v>>63 }

// plusSquare returns u + v^2.
func (u Uint192) plusSquare(v uint64) Uint192 {
	high, low := bits.Mul64(v, v)
	low, carry := bits.Add64(u.Low, low, 0)
	high, carry = bits.Add64(u.High, high, carry)
	return Uint192{u.Top + carry, high, low}
}

// pairTooLarge returns the error for a row of a paired job of which a contribution, or a
// difference between contributions, has a square that overflows.
func (b *Builder) pairTooLarge(x, y []int64) error {
	if err := b.tooLarge(x); err != nil {
		return err
	}
	if err := b.tooLarge(y); err != nil {
		return fmt.Errorf("previous model: %w", err)
	}
	at, most := 0, 0.0
	for i, v := range x {
		if apart := math.Abs(float64(v) - float64(y[i])); apart > most {
			at, most = i, apart
		}
	}
	return fmt.Errorf("the mean contribution of player %d differs by %g nat between the two models: the square of this difference overflows", at, most*b.scale*LossUnit)
}

// Paired writes the sums of a feature's entries to into, [d]. The job must be paired.
func (a *Accumulator) Paired(feature int, e Sampling, into []Paired) {
	walks := float64(e.Walks)
	from, to := a.shape.Row(feature)
	dim := to - from
	for c := range dim {
		at := a.lists*from + c
		sum := func(list int) float64 { return a.cell(at+list*dim) * LossUnit / walks }
		square := func(list int) float64 { return a.cell(at+list*dim) * SquareUnit }
		into[c] = Paired{
			Sum: sum(0), Abs: sum(1), Square: square(2),
			PreviousSum: sum(3), PreviousAbs: sum(4), PreviousSquare: square(5),
			DifferenceSquare: square(6), AbsDifferenceSquare: square(7), SumSquare: square(2), PreviousSumSquare: square(5),
		}
		if a.form.Corrected {
			into[c].SumSquare, into[c].PreviousSumSquare = square(8), square(9)
		}
	}
}

// Fourths returns the sums of fourth powers of a field. The job must be paired.
func (a *Accumulator) Fourths(field int) Fourths {
	p := &a.fourths[field]
	return Fourths{New: p.New.float() * SquareUnit * SquareUnit, Previous: p.Previous.float() * SquareUnit * SquareUnit, Difference: p.Difference.float() * SquareUnit * SquareUnit}
}

// PreviousLosses returns the mean losses of the previous model over the rows of a paired
// job, with nothing and with everything dropped, in nat.
func (a *Accumulator) PreviousLosses() (full, empty float64) {
	rows := float64(a.rows)
	return a.previous.lossFull.float() * LossUnit / rows, a.previous.lossEmpty.float() * LossUnit / rows
}
