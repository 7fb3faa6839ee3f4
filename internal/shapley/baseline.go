package shapley

import (
	"encoding/binary"
	"fmt"
	"math"
)

// EncodeBaseline returns a Game's baseline as it travels to workers:
// little-endian float32.
func EncodeBaseline(baseline []float32) []byte {
	data := make([]byte, 0, 4*len(baseline))
	for _, v := range baseline {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// DecodeBaseline is the inverse of EncodeBaseline, for a row of the given number
// of players; values are finite.
func DecodeBaseline(data []byte, players int) ([]float32, error) {
	if len(data) != 4*players {
		return nil, fmt.Errorf("%d bytes, %d players need %d", len(data), players, 4*players)
	}
	baseline := make([]float32, players)
	for i := range baseline {
		baseline[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		if v := float64(baseline[i]); math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("value %d is %v", i, v)
		}
	}
	return baseline, nil
}
