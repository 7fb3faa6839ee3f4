package arrowio

import (
	"errors"
	"fmt"

	flatbuffers "github.com/google/flatbuffers/go"
)

// flat reads a FlatBuffers table. It panics if a position is outside the bytes, and
// reader.try turns the panic into an error.
type flat struct{ flatbuffers.Table }

func table(b []byte, at flatbuffers.UOffsetT) flat {
	return flat{flatbuffers.Table{Bytes: b, Pos: at}}
}

func slot(i int) flatbuffers.VOffsetT { return flatbuffers.VOffsetT(4 + 2*i) }

func (f flat) byteAt(i int) byte   { return f.GetByteSlot(slot(i), 0) }
func (f flat) int16At(i int) int16 { return f.GetInt16Slot(slot(i), 0) }
func (f flat) int64At(i int) int64 { return f.GetInt64Slot(slot(i), 0) }

func (f flat) tableAt(i int) (flat, bool) {
	at := f.Offset(slot(i))
	if at == 0 {
		return flat{}, false
	}
	return table(f.Bytes, f.Indirect(f.Pos+flatbuffers.UOffsetT(at))), true
}

// lengthAt returns the length of the vector or string in slot i, or 0 if the slot is
// empty.
func (f flat) lengthAt(i int) int {
	at := f.Offset(slot(i))
	if at == 0 {
		return 0
	}
	return f.VectorLen(flatbuffers.UOffsetT(at))
}

// textAt returns the vector or string in slot i as a string.
func (f flat) textAt(i int) string {
	at := f.Offset(slot(i))
	if at == 0 {
		return ""
	}
	return string(f.ByteVector(f.Pos + flatbuffers.UOffsetT(at)))
}

// pairAt returns element k of the vector in slot i, whose elements are structs of two
// int64.
func (f flat) pairAt(i, k int) (first, second int64, err error) {
	if k >= f.lengthAt(i) {
		return 0, 0, fmt.Errorf("a vector has no element %d", k)
	}
	at := f.Vector(flatbuffers.UOffsetT(f.Offset(slot(i)))) + flatbuffers.UOffsetT(k)*16
	return f.GetInt64(at), f.GetInt64(at + 8), nil
}

func (f flat) elementAt(i, k int) (flat, error) {
	at := f.Vector(flatbuffers.UOffsetT(f.Offset(slot(i)))) + flatbuffers.UOffsetT(k)*4
	if int64(at)+4 > int64(len(f.Bytes)) {
		return flat{}, errors.New("a vector extends beyond its message")
	}
	return table(f.Bytes, f.Indirect(at)), nil
}
