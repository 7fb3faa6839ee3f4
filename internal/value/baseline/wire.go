package baseline

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode returns the bytes in which workers receive a baseline: little-endian float32.
func Encode(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// Decode is the inverse of Encode for a baseline of the given number of values. It returns
// an error if a value is not finite.
func Decode(data []byte, size int) ([]float32, error) {
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
