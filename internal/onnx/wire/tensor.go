package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

// maxElements bounds the elements of a tensor.
const maxElements = min(1<<40, math.MaxInt)

// form says how the elements of a tensor are stored.
type form uint8

const (
	nothing   form = iota // the tensor has no elements, or they cannot be read
	fixed                 // little-endian, width bytes each
	varints               // a protobuf varint for each element
	computed              // from codes of a few bits; see scaled
	compacted             // from the constants of a compact table; see entries
)

// Tensor is a constant of a file. Its elements are in the file, in row-major order.
type Tensor struct {
	Name string
	Type Type
	Dims []int // empty for a scalar

	form     form
	source   io.ReaderAt // file with the elements
	at, size int64       // their first byte and number of bytes, within the file
	file     string      // name of the file, for errors

	place   *message // the tensor in the model's file; nil if it is empty
	data    field    // the elements in the model's file; its tag is 0 if the file has no elements
	outside *outside // nil unless the elements are in another file

	scaled  *scaled  // form computed
	entries *entries // form compacted
	input   bool     // whether it is an input, too, so that a program may replace it
}

// Elements returns the number of elements.
func (t *Tensor) Elements() int {
	n := 1
	for _, size := range t.Dims {
		n *= size
	}
	return n
}

// InPlace reports whether ReadFloats can start at any element. Otherwise ReadFloats also
// reads all elements before the first one.
func (t *Tensor) InPlace() bool {
	return t.form == fixed || t.form == compacted || t.form == computed && t.scaled.inPlace()
}

// check verifies that t has exactly as many bytes in the file as its type and shape
// require. It must be called once, after all fields are set.
func (t *Tensor) check() error {
	n := 1
	for _, size := range t.Dims {
		if size == 0 {
			n = 0
		}
	}
	for _, size := range t.Dims {
		if n > 0 && size > maxElements/n {
			return fault.Inputf("tensor %s has the shape %v, expected at most %d elements", Quote(t.Name), t.Dims, int64(maxElements))
		}
		n *= size
	}
	width := int64(t.Type.width())
	if bits := t.Type.packed(); bits > 0 {
		n, width = n/8*bits+(n%8*bits+7)/8, 1
	}
	switch {
	case width == 0:
		t.form = nothing
	case t.form == fixed && t.size != int64(n)*width,
		t.form == varints && (t.size < int64(n) || t.size > binary.MaxVarintLen64*int64(n)),
		t.form == nothing && n > 0:
		return fault.Inputf("tensor %s of type %s has the shape %v, but %d bytes", Quote(t.Name), t.Type, t.Dims, t.size)
	}
	return nil
}

// chunk is the number of bytes that are read at once.
const chunk = 64 << 10

// Compact reports whether t is a compact table of the file.
func (t *Tensor) Compact() bool { return t.form == compacted }

// Replace gives t, of float32, other elements in memory. Rewrite does not write them.
func (t *Tensor) Replace(values []float32) {
	data := floatBytes(values)
	if t.Type != Float || len(values) != t.Elements() {
		panic(fmt.Sprintf("onnx: Replace: %d values for tensor %s of %s with the shape %v", len(values), t.Name, t.Type, t.Dims))
	}
	t.source, t.form, t.at, t.size = bytes.NewReader(data), fixed, 0, int64(len(data))
}

// each calls f for count consecutive elements of t, beginning at element first. It passes
// the bits of a floating-point element, or the value of a whole number.
func (t *Tensor) each(first, count int, f func(i int, bits uint64) error) error {
	if t.Type.width() == 0 {
		return fault.Inputf("%s: tensor %s is of %s, which is not supported", t.file, Quote(t.Name), t.Type)
	}
	if first < 0 || count < 0 || first > t.Elements()-count {
		panic(fmt.Sprintf("onnx: elements %d to %d of tensor %s with shape %v", first, first+count, t.Name, t.Dims))
	}
	switch t.form {
	case varints:
		return t.eachVarint(first, count, f)
	case computed:
		return t.eachScaled(first, count, f)
	case compacted:
		return t.eachKept(first, count, f)
	}
	width := t.Type.width()
	buffer := make([]byte, min(chunk, count*width))
	for done := 0; done < count; {
		part := buffer[:min(len(buffer), (count-done)*width)]
		if err := t.read(part, int64(first+done)*int64(width)); err != nil {
			return err
		}
		for ; len(part) > 0; part, done = part[width:], done+1 {
			var bits uint64
			switch width {
			case 1:
				bits = uint64(part[0])
			case 2:
				bits = uint64(binary.LittleEndian.Uint16(part))
			case 4:
				bits = uint64(binary.LittleEndian.Uint32(part))
			case 8:
				bits = binary.LittleEndian.Uint64(part)
			}
			if err := f(done, t.widen(bits)); err != nil {
				return err
			}
		}
	}
	return nil
}

// widen extends the sign of a whole number.
func (t *Tensor) widen(bits uint64) uint64 {
	switch t.Type {
	case Int8:
		return uint64(int64(int8(bits)))
	case Int16:
		return uint64(int64(int16(bits)))
	case Int32:
		return uint64(int64(int32(bits)))
	}
	return bits
}

func (t *Tensor) eachVarint(first, count int, f func(i int, bits uint64) error) error {
	buffer := make([]byte, min(chunk, t.size))
	var rest []byte // bytes that are read and not yet decoded
	at := int64(0)
	n := t.Elements()
	for i := range n {
		if len(rest) < binary.MaxVarintLen64 && at < t.size {
			kept := copy(buffer, rest)
			more := min(int64(len(buffer)-kept), t.size-at)
			if err := t.read(buffer[kept:kept+int(more)], at); err != nil {
				return err
			}
			at += more
			rest = buffer[:kept+int(more)]
		}
		bits, length := protowire.ConsumeVarint(rest)
		if length < 0 {
			return fault.Inputf("%s: tensor %s has %d elements, expected %d by its shape", t.file, Quote(t.Name), i, n)
		}
		rest = rest[length:]
		if i >= first && i < first+count {
			if err := f(i-first, bits); err != nil {
				return err
			}
		}
	}
	if len(rest) > 0 || at < t.size {
		return fault.Inputf("%s: tensor %s has more than the %d elements of its shape", t.file, Quote(t.Name), n)
	}
	return nil
}

// read fills b with the bytes of t that begin at byte at.
func (t *Tensor) read(b []byte, at int64) error {
	n, err := t.source.ReadAt(b, t.at+at)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		return fault.Inputf("%s: the file was cut short while tensor %s was read", t.file, Quote(t.Name))
	}
	return fmt.Errorf("%s: tensor %s: %w", t.file, Quote(t.Name), err)
}

// ReadFloats fills dst with consecutive elements of t, beginning at element first. Wider
// and narrower floating-point types are converted. t must be of a floating-point type.
func (t *Tensor) ReadFloats(dst []float32, first int) error {
	if !t.Type.Floating() {
		return fault.Inputf("%s: tensor %s is of %s, expected floating-point numbers", t.file, Quote(t.Name), t.Type)
	}
	return t.each(first, len(dst), func(i int, bits uint64) error {
		dst[i] = t.Type.float(bits)
		return nil
	})
}

// float returns the number with the given bits of a floating-point type.
func (t Type) float(bits uint64) float32 {
	switch t {
	case Double:
		return float32(math.Float64frombits(bits))
	case Float16:
		return half(uint16(bits))
	case Bfloat16:
		return math.Float32frombits(uint32(bits) << 16)
	}
	return math.Float32frombits(uint32(bits))
}

// Floats returns all elements of a tensor of a floating-point type, in a new slice.
func (t *Tensor) Floats() ([]float32, error) {
	dst := make([]float32, t.Elements())
	return dst, t.ReadFloats(dst, 0)
}

// Ints returns all elements of a tensor of whole numbers, in a new slice.
func (t *Tensor) Ints() ([]int64, error) {
	if !t.Type.Integer() {
		return nil, fault.Inputf("%s: tensor %s is of %s, expected whole numbers", t.file, Quote(t.Name), t.Type)
	}
	dst := make([]int64, t.Elements())
	return dst, t.each(0, len(dst), func(i int, bits uint64) error {
		if t.Type == Uint64 && bits > math.MaxInt64 {
			return fault.Inputf("%s: tensor %s holds %d, expected at most %d", t.file, Quote(t.Name), bits, int64(math.MaxInt64))
		}
		dst[i] = int64(bits)
		return nil
	})
}

// Bools returns all elements of a tensor of Bool, in a new slice.
func (t *Tensor) Bools() ([]bool, error) {
	if t.Type != Bool {
		return nil, fault.Inputf("%s: tensor %s is of %s, expected bool", t.file, Quote(t.Name), t.Type)
	}
	dst := make([]bool, t.Elements())
	return dst, t.each(0, len(dst), func(i int, bits uint64) error {
		dst[i] = bits != 0
		return nil
	})
}

// half returns the value of an IEEE 754 half-precision number.
func half(bits uint16) float32 {
	sign := uint32(bits&0x8000) << 16
	exponent, fraction := uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch {
	case exponent == 0x1f: // infinite or not a number
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	case exponent > 0:
		return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
	}
	value := float32(fraction) / (1 << 24)
	if sign != 0 {
		value = -value
	}
	return value
}
