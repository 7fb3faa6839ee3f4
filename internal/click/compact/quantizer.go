package compact

import (
	"fmt"
	"math"
)

// Mixed is the Encoding in which each row has a quantizer of its own, and the positions of
// the kept entries are coded near their entropy. EncodeMixed writes it. Its Size is 0,
// because values of different rows take different numbers of bits, and Encodings does not
// return it.
const Mixed Encoding = "mixed"

// Quantizer is a way to store values in a fixed number of bits.
type Quantizer struct {
	// Bits is the number of bits of a value. With 2, 3, 4 or 8 bits, number q, from 0 to
	// 2^Bits-1, stands for Origin + Step*q, of which the product and the sum are rounded to
	// float32. 16 bits are a float16 number, and 32 bits a float32 number.
	Bits int
	// Origin is the value of number 0, and Step is the distance between neighbours, not
	// negative. All values are finite. Both are 0 with 16 and 32 bits.
	Origin, Step float32
}

// MaxQuantizers is the largest number of quantizers of a palette.
const MaxQuantizers = 15

// ZeroLine stands for the values 0 in Palette.Codebook.
const ZeroLine = MaxQuantizers

// Palette says how the values of the rows are stored.
type Palette struct {
	// Quantizers are shared by all fields. There are 1 to MaxQuantizers.
	Quantizers []Quantizer
	// Rows holds the number of the quantizer of each row of all spans, [sum of Span.Rows],
	// in the order of model.Architecture.Spans. It is 0 for rows without a kept entry.
	Rows []uint8
	// Codebook holds the number of the quantizer of each span's words, [spans]. ZeroLine
	// stands for the value 0, which takes no bits. If Codebook is nil, the
	// values are stored exactly with the fewest bits of 0, 16 and 32, which may add two
	// quantizers to the palette.
	Codebook []uint8
}

// maxHalf is the largest float16 number.
const maxHalf = 65504

// Check returns an error unless q is a Quantizer as its comments say.
func (q Quantizer) Check() error {
	switch q.Bits {
	case 2, 3, 4, 8:
		if !finite(q.Origin) || !finite(q.Step) || q.Step < 0 || !finite(q.value(1<<q.Bits-1)) {
			return fmt.Errorf("%d bits with the origin %v and the step %v: expected finite values and a step of at least 0", q.Bits, q.Origin, q.Step)
		}
	case 16, 32:
		if q.Origin != 0 || q.Step != 0 {
			return fmt.Errorf("%d bits with the origin %v and the step %v: expected 0 and 0, because the number is the value", q.Bits, q.Origin, q.Step)
		}
	default:
		return fmt.Errorf("%d bits: expected 2, 3, 4, 8, 16 or 32", q.Bits)
	}
	return nil
}

// value returns the value of a number of 2, 3, 4 or 8 bits.
func (q Quantizer) value(number uint32) float32 {
	return q.Origin + float32(q.Step*float32(number)) // the conversion forbids a fused operation
}

// Value returns the value of a number, of which the highest 32-Bits bits must be 0.
func (q Quantizer) Value(number uint32) float32 {
	switch q.Bits {
	case 32:
		return math.Float32frombits(number)
	case 16:
		return fromHalf(uint16(number))
	}
	return q.value(number)
}

// Nearest returns the number whose value is nearest to v, and this value. v is finite. Of
// two values at the same distance it may return either. With 16 bits, a magnitude above
// 65504 becomes 65504.
func (q Quantizer) Nearest(v float32) (number uint32, value float32) {
	switch q.Bits {
	case 32:
		return math.Float32bits(v), v
	case 16:
		h := toHalf(min(max(v, -maxHalf), maxHalf))
		return uint32(h), fromHalf(h)
	}
	most := float64(uint32(1)<<q.Bits - 1)
	guess := 0.0
	if q.Step > 0 {
		guess = min(max(math.RoundToEven((float64(v)-float64(q.Origin))/float64(q.Step)), 0), most)
	}
	number = uint32(guess)
	value = q.value(number)
	// Rounding to float32 may move a neighbour closer.
	for _, n := range [2]uint32{number - 1, number + 1} {
		if n < 1<<q.Bits && math.Abs(float64(q.value(n))-float64(v)) < math.Abs(float64(value)-float64(v)) {
			number, value = n, q.value(n)
		}
	}
	return number, value
}

// exactly returns the number of v, and whether its value has the same bits as v.
func (q Quantizer) exactly(v float32) (number uint32, same bool) {
	number, value := q.Nearest(v)
	return number, math.Float32bits(value) == math.Float32bits(v)
}
