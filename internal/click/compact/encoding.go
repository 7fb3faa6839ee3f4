package compact

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encoding is the way in which kept values are stored.
type Encoding string

// The encodings. The comments give the largest difference between a value written and the
// value read.
const (
	Float32 Encoding = "float32" // exact
	Float16 Encoding = "float16" // rounded to nearest: 2^-11 of the value, or 2^-25 below 2^-14; magnitudes up to 65504
	Int8    Encoding = "int8"    // 256 even levels from a field's smallest to its largest value: half a step, plus float32 rounding
)

// Encodings returns all encodings.
func Encodings() []Encoding { return []Encoding{Float32, Float16, Int8} }

// EncodingNames returns the names of all encodings.
func EncodingNames() (names []string) {
	for _, v := range Encodings() {
		names = append(names, string(v))
	}
	return names
}

// Size returns the number of bytes of one value, or 0 if v is not one of the constants.
func (v Encoding) Size() int {
	switch v {
	case Float32:
		return 4
	case Float16:
		return 2
	case Int8:
		return 1
	}
	return 0
}

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// toHalf returns the binary16 number nearest to v, with ties to even. It returns infinity
// if v is out of range.
func toHalf(v float32) uint16 {
	b := math.Float32bits(v)
	sign, b := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case b >= 0x47800000: // 65536
		return sign | 0x7c00
	case b >= 0x38800000: // 2^-14, the smallest normal number
		b -= 0x38000000 // the exponents' biases differ by 112
		return sign | uint16((b+0xfff+b>>13&1)>>13)
	}
	return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*(1<<24)))
}

// fromHalf returns the value of a finite binary16 number.
func fromHalf(h uint16) float32 {
	return math.Float32frombits(uint32(h&0x8000)<<16|uint32(h&0x7fff)<<13) * 0x1p112
}

// steps returns an origin and a step such that 255 steps from the origin span [least,
// greatest]. least and greatest are finite.
func steps(least, greatest float32) (origin, step float32) {
	reach := float64(greatest) - float64(least)
	step = float32(reach / 255)
	if float64(step)*255 < reach {
		step = math.Nextafter32(step, math.MaxFloat32)
	}
	return least, step
}

// zeroSteps is like steps, but 0 is one of the values.
func zeroSteps(least, greatest float32) (origin, step float32) {
	least, greatest = min(least, 0), max(greatest, 0)
	bits := math.Float32bits(float32((float64(greatest) - float64(least)) / 254))
	step = math.Float32frombits((bits + 0x1ff) &^ 0xff) // has 16 bits, so its products with 0 to 255 are exact
	if least == greatest {
		step = 0
	}
	if least == 0 {
		return 0, step
	}
	return float32(-math.Ceil(-float64(least)/float64(step)) * float64(step)), step
}

// levels returns the values of the 256 numbers of an Int8 field. A value that rounding
// would push beyond the range of float32 is clamped.
func levels(origin, step float32) *[256]float32 {
	var l [256]float32
	for q := range l {
		l[q] = float32(min(float64(origin)+float64(step)*float64(q), math.MaxFloat32))
	}
	return &l
}

// appendValues appends one field's kept values to data. For Int8 it also returns the
// field's origin and step. zero says that Int8 must have the value 0. row is the number of
// the field's first row, and is used in errors.
func (v Encoding) appendValues(data []byte, table []float32, dropped []bool, zero bool, row, dim int) (_ []byte, origin, step float32, err error) {
	if v == Int8 {
		least, greatest := float32(math.Inf(1)), float32(math.Inf(-1))
		for i, gone := range dropped {
			if !gone {
				least, greatest = min(least, table[i]), max(greatest, table[i])
			}
		}
		if least <= greatest {
			origin, step = steps(least, greatest)
			if zero {
				origin, step = zeroSteps(least, greatest)
			}
		}
	}
	for i, gone := range dropped {
		if gone {
			continue
		}
		switch e := table[i]; v {
		case Float32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(e))
		case Float16:
			h := toHalf(e)
			if h&0x7c00 == 0x7c00 {
				return nil, 0, 0, fmt.Errorf("row %d has the value %v in column %d: float16 holds magnitudes up to 65504", row+i/dim, e, i%dim)
			}
			data = binary.LittleEndian.AppendUint16(data, h)
		case Int8:
			q := 0.0
			if step > 0 {
				q = math.RoundToEven((float64(e) - float64(origin)) / float64(step))
			}
			data = append(data, byte(q))
		}
	}
	return data, origin, step, nil
}

// reader reads a field's values. The zero reader returns 1 for every value.
type reader struct {
	size   int // bytes of a value
	data   []byte
	levels *[256]float32 // levels of an Int8 field
}

// newReader returns a reader, or an error if a value is not finite.
func newReader(v Encoding, data []byte, steps []float32) (reader, error) {
	r := reader{size: v.Size(), data: data}
	switch v {
	case Float32:
		for i := 0; i < len(data); i += 4 {
			if e := math.Float32frombits(binary.LittleEndian.Uint32(data[i:])); !finite(e) {
				return r, fmt.Errorf("kept value %d is %v: values must be finite", i/4, e)
			}
		}
	case Float16:
		for i := 0; i < len(data); i += 2 {
			if binary.LittleEndian.Uint16(data[i:])&0x7c00 == 0x7c00 {
				return r, fmt.Errorf("kept value %d is infinite or NaN: values must be finite", i/2)
			}
		}
	case Int8:
		if !finite(steps[0]) || !finite(steps[1]) || steps[1] < 0 {
			return r, fmt.Errorf("the origin is %v and the step %v: both must be finite and the step must not be negative", steps[0], steps[1])
		}
		r.levels = levels(steps[0], steps[1])
	}
	return r, nil
}

// at returns value i. It is short enough to be inlined.
func (r *reader) at(i int) float32 {
	switch r.size {
	case 4:
		return math.Float32frombits(binary.LittleEndian.Uint32(r.data[4*i:]))
	case 2:
		return fromHalf(binary.LittleEndian.Uint16(r.data[2*i:]))
	case 1:
		return r.levels[r.data[i]]
	}
	return 1
}

// row writes len(x) values, from value i on, to x.
func (r *reader) row(x []float32, i int) {
	if r.size == 4 {
		data := r.data[4*i : 4*(i+len(x))]
		for c := range x {
			x[c] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*c:]))
		}
		return
	}
	for c := range x {
		x[c] = r.at(i + c)
	}
}
