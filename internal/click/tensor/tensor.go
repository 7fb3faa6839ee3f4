// Package tensor has the dense arrays of checkpoints, as the bytes of their elements, and
// what errors say about them: their keys and their shapes.
package tensor

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"shaver/internal/base/fault"
)

// DType is the type of a tensor's elements, named as in safetensors.
type DType string

// The element types that checkpoints of click models use.
const (
	F64  DType = "F64"
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	I64  DType = "I64"
	I32  DType = "I32"
	I16  DType = "I16"
	I8   DType = "I8"
	U8   DType = "U8"
	Bool DType = "BOOL"
)

// Size returns the bytes of one element, or 0 for an unsupported type.
func (d DType) Size() int {
	switch d {
	case F64, I64:
		return 8
	case F32, I32:
		return 4
	case F16, BF16, I16:
		return 2
	case I8, U8, Bool:
		return 1
	}
	return 0
}

// Float reports whether elements are floating-point numbers.
func (d DType) Float() bool { return d == F64 || d == F32 || d == F16 || d == BF16 }

// Tensor is a dense array. Data holds its elements in row-major order, without gaps and
// little-endian. Data may be shared with other tensors and with the parsed bytes, so it
// must not be written to.
type Tensor struct {
	DType DType
	Shape []int // empty for a scalar
	Data  []byte
}

// Elements returns the product of the shape.
func (t Tensor) Elements() int {
	n, _ := Count(t.Shape)
	return n
}

// Count returns the product of shape. It returns false if a dimension is negative, or
// if the product, in bytes of the widest type, overflows.
func Count(shape []int) (int, bool) {
	n := 1
	for _, size := range shape {
		if size < 0 {
			return 0, false
		}
		if size > 0 && n > math.MaxInt/8/size {
			return 0, false
		}
		n *= size
	}
	return n, true
}

// Float32s returns the elements, rounded to the nearest float32, in memory that the
// caller owns. A value that is NaN, infinite or outside the range of float32 is an input
// error that names its position.
func (t Tensor) Float32s() ([]float32, error) {
	values := make([]float32, len(t.Data)/max(t.DType.Size(), 1))
	read := t.reader()
	if read == nil {
		return nil, fault.Inputf("has elements of the unsupported type %s", t.DType)
	}
	for i := range values {
		v := float32(read(i))
		if !Finite(v) {
			return nil, t.notFinite(i, read(i))
		}
		values[i] = v
	}
	return values, nil
}

// Float32View is like Float32s, but avoids the copy if the bytes are aligned and
// little-endian. The result is read-only.
func (t Tensor) Float32View() ([]float32, error) {
	values := t.aligned()
	if values == nil {
		return t.Float32s()
	}
	for i, v := range values {
		if !Finite(v) {
			return nil, t.notFinite(i, float64(v))
		}
	}
	return values, nil
}

// AnyFloat32s is like Float32View for a tensor of type F32, but the values may be NaN or
// infinite.
func (t Tensor) AnyFloat32s() ([]float32, error) {
	if t.DType != F32 {
		return t.Float32s()
	}
	values := t.aligned()
	if values == nil {
		values = make([]float32, len(t.Data)/4)
		for i, read := 0, t.reader(); i < len(values); i++ {
			values[i] = float32(read(i))
		}
	}
	return values, nil
}

// aligned returns the elements in t's memory, or nil if they are not aligned little-endian
// float32.
func (t Tensor) aligned() []float32 {
	if t.DType != F32 || len(t.Data) == 0 || !littleEndian || uintptr(unsafe.Pointer(&t.Data[0]))%4 != 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&t.Data[0])), len(t.Data)/4)
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Finite reports whether v is neither NaN nor infinite.
func Finite(v float32) bool {
	const exponent = 0x7f800000
	return math.Float32bits(v)&exponent != exponent
}

// notFinite returns the error for element i with the value v.
func (t Tensor) notFinite(i int, v float64) error {
	position := make([]int, len(t.Shape))
	for a := len(t.Shape) - 1; a >= 0; a-- {
		position[a] = i % t.Shape[a]
		i /= t.Shape[a]
	}
	return fault.Inputf("has the value %v at position %s, expected a finite float32", v, ShapeText(position))
}

// reader returns a function that returns element i, or nil for an unknown type.
func (t Tensor) reader() func(i int) float64 {
	data, le := t.Data, binary.LittleEndian
	switch t.DType {
	case F64:
		return func(i int) float64 { return math.Float64frombits(le.Uint64(data[8*i:])) }
	case F32:
		return func(i int) float64 { return float64(math.Float32frombits(le.Uint32(data[4*i:]))) }
	case F16:
		return func(i int) float64 { return Half(le.Uint16(data[2*i:])) }
	case BF16:
		return func(i int) float64 {
			return float64(math.Float32frombits(uint32(le.Uint16(data[2*i:])) << 16))
		}
	}
	if read := t.intReader(); read != nil {
		return func(i int) float64 { return float64(read(i)) }
	}
	return nil
}

// intReader is reader for types of whole numbers. For all other types it returns nil.
func (t Tensor) intReader() func(i int) int64 {
	data, le := t.Data, binary.LittleEndian
	switch t.DType {
	case I64:
		return func(i int) int64 { return int64(le.Uint64(data[8*i:])) }
	case I32:
		return func(i int) int64 { return int64(int32(le.Uint32(data[4*i:]))) }
	case I16:
		return func(i int) int64 { return int64(int16(le.Uint16(data[2*i:]))) }
	case I8:
		return func(i int) int64 { return int64(int8(data[i])) }
	case U8, Bool:
		return func(i int) int64 { return int64(data[i]) }
	}
	return nil
}

// Ints returns the elements of a tensor of whole numbers.
func (t Tensor) Ints() ([]int, error) {
	read := t.intReader()
	if read == nil {
		return nil, fault.Inputf("has elements of type %s, expected whole numbers", t.DType)
	}
	values := make([]int, t.Elements())
	for i := range values {
		values[i] = int(read(i))
	}
	return values, nil
}

// Half returns the value of an IEEE 754 binary16 number.
func Half(h uint16) float64 {
	sign := 1.0
	if h>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	switch {
	case exponent == 0x1f && fraction != 0:
		return math.NaN()
	case exponent == 0x1f:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// FromFloat32s returns a tensor of type F32 with a copy of values.
func FromFloat32s(shape []int, values []float32) Tensor {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return Tensor{F32, shape, data}
}

// View returns a tensor of type F32 that shares the memory of values if the machine is little-endian.
func View(shape []int, values []float32) Tensor {
	if !littleEndian || len(values) == 0 {
		return FromFloat32s(shape, values)
	}
	return Tensor{F32, shape, unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))}
}

// FromInt64s returns a tensor of type I64 with a copy of values.
func FromInt64s(shape []int, values ...int64) Tensor {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return Tensor{I64, shape, data}
}

// Address returns the address of the first element, which says whether tensors share memory.
func (t Tensor) Address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(t.Data))) }

// Same reports whether t and o are the same memory, as for two names of one parameter.
func (t Tensor) Same(o Tensor) bool {
	return len(t.Data) > 0 && len(t.Data) == len(o.Data) && &t.Data[0] == &o.Data[0] && t.DType == o.DType && slices.Equal(t.Shape, o.Shape)
}

// Take returns a tensor that has, along one axis, only the given positions of t, in their
// order. It keeps the type. The result shares no memory with t.
func (t Tensor) Take(axis int, positions []int) Tensor {
	size := t.DType.Size() // bytes of the elements at one position of the axis
	for _, n := range t.Shape[axis+1:] {
		size *= n
	}
	shape := slices.Clone(t.Shape)
	shape[axis] = len(positions)
	taken := Tensor{DType: t.DType, Shape: shape}
	taken.Data = make([]byte, 0, taken.Elements()*t.DType.Size())
	for rest := t.Data; len(rest) > 0; rest = rest[t.Shape[axis]*size:] {
		for _, p := range positions {
			taken.Data = append(taken.Data, rest[p*size:(p+1)*size]...)
		}
	}
	return taken
}
