package checkpoint

import (
	"encoding/binary"
	"math"

	"shaver/internal/click/tensor"
)

// numpyType is a numpy.dtype of numbers. kind is numpy's letter (b, i, u, f), and size is
// the number of bytes of an element.
type numpyType struct {
	kind byte
	size int
}

// newNumpyType evaluates numpy.dtype("i8", False, True).
func newNumpyType(args tuple) (any, bool) {
	if len(args) < 1 {
		return nil, false
	}
	text, ok := args[0].(string)
	if !ok || len(text) != 2 {
		return nil, false
	}
	switch text {
	case "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8":
		return &numpyType{text[0], int(text[1] - '0')}, true
	}
	return nil, false
}

// restore takes the state (3, "<", None, None, None, -1, -1, 0). For numbers only its
// byte order matters.
func (t *numpyType) restore(state any) bool {
	items, ok := state.(tuple)
	return ok && len(items) >= 2 && (items[1] == any("<") || items[1] == any("|") || items[1] == any("="))
}

// value returns element i of data as an int64, float64 or bool. An integer that does not
// fit int64 becomes an opaque.
func (t *numpyType) value(data []byte, i int) any {
	var b [8]byte
	copy(b[:], data[i*t.size:(i+1)*t.size])
	bits := binary.LittleEndian.Uint64(b[:])
	shift := 64 - 8*t.size
	switch t.kind {
	case 'b':
		return bits != 0
	case 'i':
		return int64(bits<<shift) >> shift
	case 'u':
		if bits > math.MaxInt64 {
			return opaque("an int of more than 63 bits")
		}
		return int64(bits)
	}
	switch t.size {
	case 2:
		return tensor.Half(uint16(bits))
	case 4:
		return float64(math.Float32frombits(uint32(bits)))
	}
	return math.Float64frombits(bits)
}

// scalar evaluates numpy.core.multiarray.scalar(dtype, bytes).
func scalar(args tuple) (any, bool) {
	if len(args) != 2 {
		return nil, false
	}
	dtype, ok := args[0].(*numpyType)
	data, isBytes := args[1].([]byte)
	if !ok || !isBytes || len(data) != dtype.size {
		return nil, false
	}
	return dtype.value(data, 0), true
}

// ndarray is a numpy array of numbers. data is little-endian and row-major.
type ndarray struct {
	dtype *numpyType // nil until its state is restored
	shape []int
	data  []byte
}

// restore takes the state (version, shape, dtype, fortran order, bytes).
func (a *ndarray) restore(state any) bool {
	items, ok := state.(tuple)
	if !ok || len(items) != 5 {
		return false
	}
	if _, foreign := items[2].(*object); foreign {
		return true // an array of text or of objects, which nothing reads
	}
	return a.fill(items[4], items[2], items[1], items[3] == any(true))
}

func (a *ndarray) fill(data, dtype, shape any, fortran bool) bool {
	bytes, isBytes := data.([]byte)
	t, isType := dtype.(*numpyType)
	sizes, isShape := sizes(shape)
	if !isBytes || !isType || !isShape || fortran && len(sizes) > 1 {
		return false
	}
	if n, ok := tensor.Count(sizes); !ok || n*t.size != len(bytes) {
		return false
	}
	a.data, a.dtype, a.shape = bytes, t, sizes
	return true
}

// arrayFromBuffer evaluates numpy.core.numeric._frombuffer(bytes, dtype, shape, order),
// which is how protocol 5 writes arrays.
func arrayFromBuffer(args tuple) (any, bool) {
	if len(args) != 4 {
		return nil, false
	}
	a := &ndarray{}
	return a, a.fill(args[0], args[1], args[2], args[3] == any("F"))
}

// items returns the elements of a vector, or false if the array is not one.
func (a *ndarray) items() ([]any, bool) {
	if a.dtype == nil || len(a.shape) != 1 {
		return nil, false
	}
	items := make([]any, a.shape[0])
	for i := range items {
		items[i] = a.dtype.value(a.data, i)
	}
	return items, true
}
