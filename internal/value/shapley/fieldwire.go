package shapley

import (
	"encoding/binary"
	"fmt"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/value/baseline"
)

// Encode returns the bytes in which workers receive f: little-endian words of 32 bits. They are the values of
// Absent in the order of its declaration, or the ids and the dense inputs of each row of Background.
func (f *Fields) Encode() []byte {
	if a := f.Absent; a != nil {
		return append(append(baseline.EncodeValues(a.Embedding), baseline.EncodeValues(a.Constants)...), baseline.EncodeValues(a.Dense)...)
	}
	var data []byte
	for i := range f.Background.Len() {
		for _, id := range f.Background.Row(i) {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
		data = append(data, baseline.EncodeValues(f.Background.DenseRow(i))...)
	}
	return data
}

// DecodeFields is the inverse of Encode for a game of m. background says whether data has rows. It
// returns an error if data does not fit m.
func DecodeFields(data []byte, m *model.Model, background bool) (*Fields, error) {
	if !background {
		constants := 0
		for _, n := range m.Constants() {
			constants += n
		}
		size := m.BaselineSize()
		values, err := baseline.DecodeValues(data, size+constants+len(m.Dense))
		if err != nil {
			return nil, err
		}
		a := &model.Absent{Embedding: values[:size], Constants: values[size:][:constants], Dense: values[size+constants:]}
		return &Fields{Absent: a}, m.CheckAbsent(a)
	}
	width, dense := m.Width(), len(m.Dense)
	bytes := 4 * (width + dense)
	if len(data) == 0 || len(data)%bytes != 0 {
		return nil, fmt.Errorf("the background rows have %d bytes, expected a multiple of %d above 0", len(data), bytes)
	}
	n := len(data) / bytes
	rows := &model.Rows{
		Width: width, Inputs: dense, Number: make([]int64, n), Label: make([]float32, n),
		Features: make([]int32, 0, n*width), Dense: make([]float32, 0, n*dense),
	}
	for i := range n {
		for range width {
			rows.Features = append(rows.Features, int32(binary.LittleEndian.Uint32(data)))
			data = data[4:]
		}
		if err := m.CheckRow(rows.Row(i)); err != nil {
			return nil, fmt.Errorf("background row %d: %w", i, err)
		}
		for k := range dense {
			v := math.Float32frombits(binary.LittleEndian.Uint32(data))
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("background row %d has the value %v for dense input %s, expected a finite number", i, v, m.Dense[k])
			}
			rows.Dense = append(rows.Dense, v)
			data = data[4:]
		}
	}
	return &Fields{Background: rows}, nil
}
