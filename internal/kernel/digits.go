package kernel

import "math"

// digits is a matrix as fixed-point numbers, for levels that multiply bytes: a
// weight is scale[output] * (high*2^16 + middle*2^8 + low), each digit from -128 to
// 127. Together they are off by at most 2^-23.9 of the output's largest weight.
type digits struct {
	values []int8    // [Pad(Out)/16, blocks, 3 (high, middle, low), 16, 64]; see newDigits
	scale  []float32 // [Pad(Out)], with the 2^16 that sums of products lack
	inputs []uint16  // a bit per input, 16 to an element: those that some output reads
	each   []uint16  // the same, 0xffff or 0 per input
	wanted []uint8   // 1 or 0 per output: all of Out
	rest   []float32 // [Pad(Out)], weights of the last input if it is beyond the blocks, else 0
	blocks int       // of 64 inputs
}

const (
	digitBlock = 64
	digitLimit = 127 << 16
	// digitInputs bounds In, so that sums of products stay below 2^31.
	digitInputs = 1 << 14
)

// newDigits returns the weight [out, in], or nil if it has no products or more
// inputs than sums have room for. Outputs are a tile's columns for Layer, in fours of
// inputs, and its rows for Product, which also takes one input alone: DCN-Mix has its
// bias behind its experts, and blocks of 64 are what takes time.
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
			if w != 0 { // an input that nobody reads must not decide how others are rounded
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
