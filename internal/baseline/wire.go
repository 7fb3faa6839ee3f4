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

// Decode is the inverse of Encode for rows with the given number of players. It returns an
// error if a value is not finite.
func Decode(data []byte, players int) ([]float32, error) {
	if len(data) != 4*players {
		return nil, fmt.Errorf("the baseline has %d bytes, %d players need %d", len(data), players, 4*players)
	}
	values := make([]float32, players)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(values[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("value %d of the baseline is %v, expected a finite number", i, v)
		}
	}
	return values, nil
}
