package merger

import (
	"encoding/binary"
	"fmt"
	"math"

	"shaver/internal/value/tally"
)

const (
	answerBytes = 512 << 10 // most bytes of values in an answer, unless a single feature has more
	entryBytes  = 8 + 4*4   // bytes of the values of an entry
)

// narrow returns the statistics of v that are float32.
func narrow(v *tally.Values) [4][]float32 { return [4][]float32{v.Abs, v.RMS, v.SE, v.PopulationSE} }

func encodeValues(v *tally.Values) []byte {
	body := make([]byte, 0, entryBytes*len(v.Phi))
	for _, x := range v.Phi {
		body = binary.LittleEndian.AppendUint64(body, math.Float64bits(x))
	}
	for _, list := range narrow(v) {
		for _, x := range list {
			body = binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
		}
	}
	return body
}

// keyBytes is the number of bytes of an entry of an order: its number and its key.
const keyBytes = 4 + 8

// decodeOrder returns what encodeOrder wrote.
func decodeOrder(body []byte) (entries []int32, keys []float64, err error) {
	if len(body)%keyBytes != 0 {
		return nil, nil, fmt.Errorf("the order of a merger has %d bytes, expected a multiple of %d", len(body), keyBytes)
	}
	for ; len(body) > 0; body = body[keyBytes:] {
		entries = append(entries, int32(binary.LittleEndian.Uint32(body)))
		keys = append(keys, math.Float64frombits(binary.LittleEndian.Uint64(body[4:])))
	}
	return entries, keys, nil
}

func encodeOrder(entries []int32, key func(i int32) float64) []byte {
	body := make([]byte, 0, keyBytes*len(entries))
	for _, i := range entries {
		body = binary.LittleEndian.AppendUint32(body, uint32(i))
		body = binary.LittleEndian.AppendUint64(body, math.Float64bits(key(i)))
	}
	return body
}

// decodeValues returns the values of n entries.
func decodeValues(body []byte, n int) (tally.Values, error) {
	if len(body) != entryBytes*n {
		return tally.Values{}, fmt.Errorf("the values of a merger have %d bytes, expected %d", len(body), entryBytes*n)
	}
	v := tally.NewValues(n)
	for i := range v.Phi {
		v.Phi[i] = math.Float64frombits(binary.LittleEndian.Uint64(body[8*i:]))
	}
	body = body[8*n:]
	for _, list := range narrow(&v) {
		for i := range list {
			list[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[4*i:]))
		}
		body = body[4*n:]
	}
	return v, nil
}
