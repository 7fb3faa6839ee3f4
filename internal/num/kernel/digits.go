package kernel

import "math"

// digits holds a matrix as fixed-point numbers, for levels that multiply bytes. A weight
// is scale[output] * (high*2^16 + middle*2^8 + low), with each digit in [-128, 127]. A
// weight is off by at most 2^-23.9 times the largest weight of its output.
type digits struct {
	values []int8    // [Pad(Out)/16, blocks, 3 (high, middle, low), 16, 64]; see newDigits
	scale  []float32 // [Pad(Out)]; includes the factor 2^16 that sums of products lack
	inputs []uint16  // one bit per input, 16 per element: set if some output reads the input
	each   []uint16  // the same information as inputs: 0xffff or 0 per input
	wanted []uint8   // one per output: 1 below Out, 0 in the padding
	rest   []float32 // [Pad(Out)]: weights of the last input if it lies beyond the blocks, else 0
	blocks int       // number of blocks of 64 inputs
}

const (
	digitBlock = 64
	digitLimit = 127 << 16
	// digitInputs bounds In so that sums of products stay below 2^31.
	digitInputs = 1 << 14
)

// newDigits returns the digits of weight, [out, in]. It returns nil if in or out is 0, or
// if in exceeds digitInputs.
//
// If columns is set, outputs are the columns of a tile, in groups of four inputs, as
// Layer needs them. Otherwise outputs are the rows of a tile, as Product needs them.
// Product can also process one last input by itself, outside the blocks. DCN-Mix needs
// this for its bias, which is the input after those of the experts. A whole block of 64
// for that one input would be slow.
func newDigits(weight []float32, in, out int, columns bool) *digits {
	if in == 0 || out == 0 || in > digitInputs {
		return nil
	}
	all, rest := in, make([]float32, Pad(out))
	if !columns && in%digitBlock == 1 && in > 1 {
		in--
		for o := range out {
			rest[o] = weight[o*all+in]
		}
	}
	blocks := (in + digitBlock - 1) / digitBlock
	d := &digits{
		values: make([]int8, Pad(out)*blocks*3*digitBlock), scale: make([]float32, Pad(out)), rest: rest, blocks: blocks,
		inputs: make([]uint16, blocks*digitBlock/Columns), each: make([]uint16, blocks*digitBlock), wanted: make([]uint8, Pad(out)),
	}
	for o := range out {
		d.wanted[o] = 1
		row := weight[o*all : o*all+in]
		largest := 0.0
		for _, w := range row {
			largest = max(largest, math.Abs(float64(w)))
		}
		if largest == 0 {
			continue
		}
		d.scale[o] = float32(largest / digitLimit * (1 << 16))
		for i, w := range row {
			if w != 0 { // an input that no output reads must not affect how others are rounded
				d.inputs[i/Columns] |= 1 << (i % Columns)
				d.each[i] = math.MaxUint16
			}
			tile := (o/Columns*blocks + i/digitBlock) * 3 * Columns * digitBlock
			at := tile + o%Columns*digitBlock + i%digitBlock
			if columns {
				at = tile + i%digitBlock/4*digitBlock + o%Columns*4 + i%4
			}
			v := int32(math.RoundToEven(float64(w)/largest*digitLimit)) + 0x808080
			for digit := range 3 {
				d.values[at+digit*Columns*digitBlock] = int8(byte(v>>(16-8*digit)) - 0x80)
			}
		}
	}
	return d
}
