package model

import (
	"math"
	"slices"
)

// Sides of a list on which pads fill the positions without a value.
const (
	Front = "front"
	End   = "end"
)

// PadSides compares logits of rows whose lists have one value and are filled at the front or at the end. For each of Lists,
// needs has the only side from which such a value reaches the logit, or "". moves reports whether the logit depends on the
// side. Both are measured with a few ids; all dense inputs are 1, which may be the lengths of the lists.
func (m *Model) PadSides() (needs []string, moves bool) {
	const (
		tries, most = 4, 16 // rows without a change, and lists that are examined
		little      = 1e-3  // of a change; a recurrent network forgets little by little
		rounding    = 1e-5  // of a logit
	)
	needs = make([]string, len(m.Lists))
	if len(m.Lists) == 0 {
		return needs, false
	}
	rows, offsets, examined := &Rows{Width: m.Width(), Inputs: len(m.Dense)}, m.Offsets(), min(most, len(m.Lists))
	add := func(try, changed int, front bool) {
		for j, l := range m.lists() {
			for i := range l.Length {
				id, seed := l.Pad, (try+1)*(j+1)
				if l.Pad < 0 {
					seed += i // it is full
				}
				if l.Pad < 0 || i == 0 && !front || i == l.Length-1 && front {
					id = int(uint32(seed)*2654435761>>1) % m.FieldDims[j]
					for move := j == changed || id == l.Pad; move; move = id == l.Pad && m.FieldDims[j] > 1 {
						id = (id + 1) % m.FieldDims[j]
					}
				}
				rows.Features = append(rows.Features, offsets[j]+int32(id))
			}
		}
		rows.Number, rows.Label = append(rows.Number, int64(rows.Len())), append(rows.Label, 0)
		rows.Dense = append(rows.Dense, slices.Repeat([]float32{1}, rows.Inputs)...)
	}
	for try := range tries {
		for k := -1; k < examined; k++ {
			changed := -1
			if k >= 0 {
				changed = m.Lists[k].Field
			}
			add(try, changed, false)
			add(try, changed, true)
		}
	}
	logits := make([]float64, rows.Len())
	m.NewScorer().Logits(logits, rows)
	size, moved, reach := 1.0, 0.0, make([][2]float64, examined) // largest changes; reach by list, filled at the end or the front
	for row := range slices.Chunk(logits, 2+2*examined) {
		size, moved = max(size, math.Abs(row[0]), math.Abs(row[1])), max(moved, math.Abs(row[0]-row[1]))
		for k := range reach {
			for side := range reach[k] {
				reach[k][side] = max(reach[k][side], math.Abs(row[2+2*k+side]-row[side]))
			}
		}
	}
	largest := 0.0
	for k, r := range reach {
		switch largest = max(largest, r[0], r[1]); {
		case r[0] < little*r[1] && r[1] > rounding*size:
			needs[k] = Front
		case r[1] < little*r[0] && r[0] > rounding*size:
			needs[k] = End
		}
	}
	return needs, moved > max(little*largest, rounding*size)
}
