package synth

import (
	"math"
	"math/bits"
	"strconv"

	"shaver/internal/num/random"
)

// Logits are integers, in multiples of 1/unit, so that labels do not depend on a
// machine's rounding.
const (
	unit      = 1 << 10
	maxLogit  = 8 * unit // largest logit of the table; larger logits count as this one
	mainSD    = 1.1      // standard deviation of the sum of the columns' effects
	pairSD    = .6       // standard deviation of the sum of the pairs' effects, unless the shape has another one
	calibrate = 1 << 13  // number of rows from which the intercept is determined
)

// law is a shape with a seed. It determines each row by its number. Labels follow
//
//	P(label = 1) = 1 / (1 + exp(-(intercept + sum of effects)))
//
// The effect of a value is a keyed hash of (column, value) with a nearly normal
// distribution, so it needs no table. So is the effect of a pair of values, or each of its
// factors.
type law struct {
	shape     *shape
	seed      uint64
	rows      int64
	key       uint64
	columns   []columnLaw
	pairs     []pair
	intercept int64
	clicks    []uint32 // P(label = 1) in multiples of 2^-32, by logit from -maxLogit on
}

// columnLaw is the law of one column.
type columnLaw struct {
	column
	key   uint64
	scale int64
	// Ranks are drawn by octaves: octave e holds ranks 2^e to 2^(e+1)-1. The weight of an
	// octave follows Zipf's law, and its ranks are equally likely. Outcome 0 is the
	// missing value, and outcome e+1 is octave e. bounds holds the cumulative
	// probabilities of the outcomes, in multiples of 2^-32. guide holds, for each value
	// of a draw's highest byte, the first possible outcome.
	bounds []uint64
	widths []uint64 // number of ranks in each octave
	guide  [256]uint8
}

// pair is a joint effect of two columns' values. Without factors, each pair of values has an
// effect of its own. With factors, a value has as many numbers, and the effect is the scalar
// product of those of the two values.
type pair struct {
	a, b    int
	key     uint64
	scale   int64 // of the effect, or of each of the numbers
	factors int
}

func (s *shape) pair(a, b int, key uint64) pair {
	sd := pairSD
	if s.pairSD > 0 {
		sd = s.pairSD
	}
	sd /= math.Sqrt(float64(len(s.pairs)))
	if s.factors > 0 {
		sd = math.Sqrt(sd / math.Sqrt(float64(s.factors)))
	}
	return pair{a, b, key, scale(sd), s.factors}
}

// effect returns the effect of two ranks' values on the logit.
func (p *pair) effect(a, b uint32) int64 {
	if p.factors == 0 {
		return effect(p.key+mix(uint64(a)<<32|uint64(b)), p.scale)
	}
	sum := int64(0)
	for k := range uint64(p.factors) {
		sum += effect(p.key+mix(2*k<<32|uint64(a)), p.scale) * effect(p.key+mix((2*k+1)<<32|uint64(b)), p.scale)
	}
	return sum / unit
}

func newLaw(s *shape, rows int64, seed uint64) *law {
	l := &law{shape: s, seed: seed, rows: rows}
	stream := random.At(seed, random.Synthetic, 0, keys)
	l.key = stream.Uint64()
	weights, sum := make([]float64, len(s.columns)), 0.0
	for j := range s.columns {
		l.columns = append(l.columns, columnLaw{column: s.columns[j], key: stream.Uint64()})
		if l.columns[j].exponent == 0 {
			l.columns[j].exponent = s.exponent
		}
		weights[j] = .25 + 1.5*stream.Float64() // some columns matter more than others
		sum += weights[j] * weights[j]
	}
	for j := range l.columns {
		l.columns[j].divide()
		l.columns[j].scale = scale(mainSD * weights[j] / math.Sqrt(sum))
	}
	for _, p := range s.pairs {
		l.pairs = append(l.pairs, s.pair(p[0], p[1], stream.Uint64()))
	}
	l.clicks = make([]uint32, 2*maxLogit+1)
	for i := range l.clicks {
		l.clicks[i] = uint32(math.Round(math.Ldexp(1/(1+math.Exp(-float64(i-maxLogit)/unit)), 32)))
	}
	l.setIntercept()
	return l
}

// The streams of a seed: for rows, for keys, and for the rows that determine the
// intercept.
const (
	draws = iota
	keys
	trial
)

// divide computes bounds, widths and guide.
func (c *columnLaw) divide() {
	var weights []float64
	total := 0.0
	for low := uint64(1); low <= uint64(c.values); low *= 2 {
		width := min(low, uint64(c.values)-low+1)
		c.widths = append(c.widths, width)
		weight := power(low, low+width, c.exponent)
		weights = append(weights, weight)
		total += weight
	}
	part := c.missing
	c.bounds = []uint64{uint64(math.Ldexp(part, 32))}
	for _, weight := range weights {
		part += (1 - c.missing) * weight / total
		c.bounds = append(c.bounds, uint64(math.Ldexp(part, 32)))
	}
	c.bounds[len(c.bounds)-1] = 1 << 32
	outcome := 0
	for top := range c.guide {
		for uint64(top)<<24 >= c.bounds[outcome] {
			outcome++
		}
		c.guide[top] = uint8(outcome)
	}
}

// power returns the sum of k^-s over [from, to). It approximates long sums by an
// integral.
func power(from, to uint64, s float64) (sum float64) {
	if to-from <= 1<<10 {
		for k := from; k < to; k++ {
			sum += math.Pow(float64(k), -s)
		}
		return sum
	}
	a, b := float64(from)-.5, float64(to)-.5
	if s == 1 {
		return math.Log(b / a)
	}
	return (math.Pow(b, 1-s) - math.Pow(a, 1-s)) / (1 - s)
}

// draw returns the rank for 64 random bits.
func (c *columnLaw) draw(random uint64) uint32 {
	outcome := c.guide[random>>56]
	for random>>32 >= c.bounds[outcome] {
		outcome++
	}
	if outcome == 0 {
		return 0
	}
	octave := outcome - 1
	return uint32(1<<octave + (random&math.MaxUint32)*c.widths[octave]>>32)
}

// effect returns the effect of a rank's value on the logit.
func (c *columnLaw) effect(rank uint32) int64 {
	if c.counts {
		rank = uint32(bits.Len32(rank))
	}
	return effect(c.key+uint64(rank), c.scale)
}

// append appends the text of a rank's value to the slice to.
func (c *columnLaw) append(to []byte, rank uint32) []byte {
	switch c.form {
	case hex:
		const digits = "0123456789abcdef"
		v := scramble(rank ^ uint32(c.key))
		return append(to, digits[v>>28], digits[v>>24&15], digits[v>>20&15], digits[v>>16&15], digits[v>>12&15], digits[v>>8&15], digits[v>>4&15], digits[v&15])
	case hashed:
		return strconv.AppendUint(to, mix(c.key+uint64(rank)), 10)
	}
	return strconv.AppendInt(to, c.base+int64(rank)-1, 10)
}

// scale returns the scale of effects with the standard deviation sd.
func scale(sd float64) int64 {
	const four = 37837.2 // standard deviation of the sum of four uniform 16-bit numbers
	return int64(math.Round(sd * unit / four * (1 << 16)))
}

// effect returns a hash of x with a nearly normal distribution: the sum of the hash's
// four 16-bit parts.
func effect(x uint64, scale int64) int64 {
	h := mix(x)
	sum := int64(h&0xffff + h>>16&0xffff + h>>32&0xffff + h>>48)
	return ((sum - 2*0xffff) * scale) >> 16
}

// mix is a bijection of 64 bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// scramble is a bijection of 32 bits (the finalizer of MurmurHash3).
func scramble(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// draw fills r with the row of the given number, from a stream of random numbers. It returns
// the row's logit without the intercept, and the random number that decides the label.
func (l *law) draw(r *row, number int64, stream random.Stream) (logit int64, label uint32) {
	r.number = number
	r.ranks = r.ranks[:0]
	for j := range l.columns {
		r.ranks = append(r.ranks, l.columns[j].draw(stream.Uint64()))
	}
	last := stream.Uint64()
	r.spare = uint32(last)
	if l.shape.settle != nil {
		l.shape.settle(r.ranks, number, l.rows)
	}
	for j, rank := range r.ranks {
		logit += l.columns[j].effect(rank)
	}
	for i := range l.pairs {
		p := &l.pairs[i]
		logit += p.effect(r.ranks[p.a], r.ranks[p.b])
	}
	return logit, uint32(last >> 32)
}

// row fills r with the row of the given number, and returns the place of its logit.
func (l *law) row(r *row, number int64) (place int) {
	logit, label := l.draw(r, number, random.At(l.seed, random.Synthetic, uint64(number), draws))
	r.label, place = 0, placeOf(logit+l.intercept)
	if label < l.clicks[place] {
		r.label = 1
	}
	return place
}

// placeOf returns the place of a logit in a table of all logits.
func placeOf(logit int64) int { return int(max(0, min(2*maxLogit, logit+maxLogit))) }

// setIntercept finds the intercept for which the shape's share of rows has a click. It
// uses separate trial rows.
func (l *law) setIntercept() {
	var r row
	logits := make([]int64, calibrate)
	for i := range logits {
		number := uint64(l.rows) * uint64(i) / calibrate
		if l.rows > math.MaxInt64/calibrate {
			number = uint64(l.rows) / calibrate * uint64(i)
		}
		logits[i], _ = l.draw(&r, int64(number), random.At(l.seed, random.Synthetic, uint64(i), trial))
	}
	low, high := int64(-2*maxLogit), int64(2*maxLogit)
	for low < high {
		middle := (low + high) >> 1
		sum := uint64(0)
		for _, logit := range logits {
			sum += uint64(l.clicks[placeOf(logit+middle)])
		}
		if float64(sum) < l.shape.rate*calibrate*(1<<32) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	l.intercept = low
}
