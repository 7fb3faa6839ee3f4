package baseline

import (
	"encoding/binary"
	"fmt"
	"math"

	"shaver/internal/click/model"
)

// Encode returns the bytes in which workers receive a baseline: Values as little-endian float32, then, if it has Words,
// a byte for each span, the number of its words less 1, and Numbers.
func Encode(b *model.Baseline) []byte {
	data := EncodeValues(b.Values)
	for _, n := range b.Words {
		data = append(data, byte(n-1))
	}
	return append(data, b.Numbers...)
}

// Decode is the inverse of Encode for a baseline of a. It returns an error if data is not the bytes of one.
func Decode(data []byte, a *model.Architecture) (b model.Baseline, err error) {
	size := a.BaselineSize()
	if len(data) > 4*size {
		spans := a.Spans()
		last := &spans[len(spans)-1]
		tail := len(spans) + last.Row + last.Rows
		if len(data) < 4*size+tail {
			return b, fmt.Errorf("the baseline has %d bytes, expected %d, or at least %d with words", len(data), 4*size, 4*size+tail)
		}
		rest := data[len(data)-tail:]
		data = data[:len(data)-tail]
		for j := range spans {
			b.Words = append(b.Words, int(rest[j])+1)
			size += int(rest[j]) * spans[j].Dim
		}
		b.Numbers = rest[len(spans):]
	}
	if b.Values, err = DecodeValues(data, size); err == nil {
		err = a.CheckBaseline(&b)
	}
	return b, err
}

// EncodeValues returns values as little-endian float32.
func EncodeValues(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// DecodeValues is the inverse of EncodeValues for the given number of values. It returns an error if a value is not finite.
func DecodeValues(data []byte, size int) ([]float32, error) {
	if len(data) != 4*size {
		return nil, fmt.Errorf("the baseline has %d bytes, %d values need %d", len(data), size, 4*size)
	}
	values := make([]float32, size)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("value %d of the baseline is %v, expected a finite number", i, v)
		}
	}
	return values, nil
}
