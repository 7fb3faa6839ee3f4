package dense

import (
	"errors"
	"math"
	"math/big"
)

// A float64 is a whole multiple of 2^-lowest below 2^1024, so a Sum is an integer in
// units of 2^-lowest.
const (
	lowest   = 1074
	limbBits = 32
	limbs    = (lowest+1024+64)/limbBits + 2
)

// Sum is an exact sum of float64 values, which therefore does not depend on their order.
// The zero value is an empty sum. It must not be used by several goroutines at once.
type Sum struct {
	limb    [limbs]int64 // limb i counts 2^(32i-lowest); between carries, limbs may exceed 32 bits
	pending int          // number of values added since the last carry
}

// mostPending is the number of values between two carries. Each adds less than 2^32 to a limb.
const mostPending = 1 << 30

// Add adds x, which must be finite.
func (s *Sum) Add(x float64) {
	bits := math.Float64bits(x)
	exponent, fraction := int(bits>>52&0x7ff), bits&(1<<52-1)
	if exponent > 0 {
		fraction |= 1 << 52
		exponent--
	}
	i, shift := exponent/limbBits, exponent%limbBits
	low, high := fraction<<shift, fraction>>(64-shift) // a shift by 64 gives 0
	a, b, c := int64(low&(1<<32-1)), int64(low>>32), int64(high)
	if bits>>63 != 0 {
		a, b, c = -a, -b, -c
	}
	s.limb[i] += a
	s.limb[i+1] += b
	s.limb[i+2] += c
	if s.pending++; s.pending == mostPending {
		s.carry()
	}
}

// carry makes all limbs except the last less than 2^32 and at least 0.
func (s *Sum) carry() {
	s.pending = 0
	carry := int64(0)
	for i := range s.limb[:limbs-1] {
		x := s.limb[i] + carry
		carry = x >> limbBits
		s.limb[i] = x - carry<<limbBits
	}
	s.limb[limbs-1] += carry
}

// Merge adds the values of other.
func (s *Sum) Merge(other *Sum) {
	o := *other
	o.carry()
	s.carry()
	for i, x := range o.limb {
		s.limb[i] += x
	}
	s.pending = 1
}

// integer returns the sum in units of 2^-lowest.
func (s *Sum) integer() *big.Int {
	sum := new(big.Int)
	for i := limbs - 1; i >= 0; i-- {
		sum.Lsh(sum, limbBits)
		sum.Add(sum, big.NewInt(s.limb[i]))
	}
	return sum
}

// exact returns the sum.
func (s *Sum) exact() *big.Rat { return new(big.Rat).SetFrac(s.integer(), unit) }

var unit = new(big.Int).Lsh(big.NewInt(1), lowest)

// MarshalText returns the sum in hexadecimal digits.
func (s *Sum) MarshalText() ([]byte, error) { return s.integer().Append(nil, 16), nil }

// UnmarshalText sets the sum to a result of MarshalText.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) > limbs*limbBits/4 {
		return errors.New("a sum is too large")
	}
	x, ok := new(big.Int).SetString(string(text), 16)
	if !ok {
		return errors.New("a sum is not a hexadecimal number")
	}
	*s = Sum{}
	negative := x.Sign() < 0
	x.Abs(x)
	for i := range s.limb {
		s.limb[i] = int64(x.Uint64() & (1<<limbBits - 1))
		if negative {
			s.limb[i] = -s.limb[i]
		}
		x.Rsh(x, limbBits)
	}
	return nil
}

// Moments holds the sums from which the statistics of a rule follow. Add and Merge may be
// called in any order, with the same result.
type Moments struct {
	Present int64 `json:"present"` // number of rows with the number
	Missing int64 `json:"missing"` // number of rows in which it is missing
	Sum     Sum   `json:"sum"`
	Squares Sum   `json:"squares"`
}

// Add adds a number, which must have passed Input.Check, or NaN if it is missing.
func (m *Moments) Add(x float64) {
	if math.IsNaN(x) {
		m.Missing++
		return
	}
	m.Present++
	m.Sum.Add(x)
	square := x * x
	m.Squares.Add(square)
	m.Squares.Add(math.FMA(x, x, -square)) // the rounding error of the square
}

// Merge adds the numbers of other.
func (m *Moments) Merge(other *Moments) {
	m.Present += other.Present
	m.Missing += other.Missing
	m.Sum.Merge(&other.Sum)
	m.Squares.Merge(&other.Squares)
}

// Mean returns the mean of the numbers that are present, correctly rounded. There must be
// at least one.
func (m *Moments) Mean() float64 {
	mean, _ := m.Sum.exact().Mul(m.Sum.exact(), big.NewRat(1, m.Present)).Float64()
	return mean
}

// Statistics returns the mean and the standard deviation (divided by n) of all numbers,
// with missing ones replaced by fill. There must be at least one number.
func (m *Moments) Statistics(fill float64) (mean, deviation float64) {
	sum, squares := m.Sum.exact(), m.Squares.exact()
	if m.Missing > 0 {
		x, times := new(big.Rat).SetFloat64(fill), new(big.Rat).SetInt64(m.Missing)
		part := new(big.Rat).Mul(x, times)
		sum.Add(sum, part)
		squares.Add(squares, part.Mul(part, x))
	}
	count := big.NewRat(1, m.Present+m.Missing)
	sum.Mul(sum, count)
	squares.Mul(squares, count)
	mean, _ = sum.Float64()
	variance := squares.Sub(squares, sum.Mul(sum, sum))
	if variance.Sign() <= 0 {
		return mean, 0
	}
	root := new(big.Float).SetPrec(256).SetRat(variance)
	deviation, _ = root.Sqrt(root).Float64()
	return mean, deviation
}

// Measure sets what the input's rule still needs, from the numbers of the split train. If
// fill is true and no number replaces missing ones yet, their mean does. Measure returns
// an error if train has no numbers, or if they are all equal and the rule divides by their
// deviation.
func (in *Input) Measure(m *Moments, fill bool) error {
	if m.Present == 0 && (fill && in.Missing == nil || !in.Measured() && m.Missing == 0) {
		return errors.New("train has no numbers, so they have no mean")
	}
	if fill && in.Missing == nil {
		mean := m.Mean()
		in.Missing = &mean
	}
	if in.Measured() {
		return nil
	}
	fillWith := 0.0
	if in.Missing != nil {
		fillWith = *in.Missing
	}
	mean, deviation := m.Statistics(fillWith)
	if deviation == 0 {
		return errors.New("all numbers in train are equal, so the rule " + ZScore + " would divide by 0: choose another rule, or leave the column out")
	}
	in.Mean, in.Deviation = &mean, &deviation
	return nil
}

// Summary collects the Values of an input. Add and Merge may be called in any order, with
// the same result.
type Summary struct {
	Rows, Filled int64
	min, max     float64
	sum          Sum
}

// Add adds a number of a row, after a missing one is replaced.
func (s *Summary) Add(x float64) {
	if s.Rows == 0 {
		s.min, s.max = x, x
	}
	s.Rows++
	s.min, s.max = min(s.min, x), max(s.max, x)
	s.sum.Add(x)
}

// Merge adds the numbers of other.
func (s *Summary) Merge(other *Summary) {
	if other.Rows == 0 {
		return
	}
	if s.Rows == 0 {
		s.min, s.max = other.min, other.max
	}
	s.Rows += other.Rows
	s.Filled += other.Filled
	s.min, s.max = min(s.min, other.min), max(s.max, other.max)
	s.sum.Merge(&other.sum)
}

// Values returns the smallest number, the mean and the largest. There must be at least
// one number.
func (s *Summary) Values() Values {
	m := Moments{Present: s.Rows, Sum: s.sum}
	return Values{Min: s.min, Mean: m.Mean(), Max: s.max}
}
