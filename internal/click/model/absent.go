package model

import (
	"fmt"
	"math"
)

// Absent holds what a row without one of its fields reads in place of the field.
type Absent struct {
	Embedding []float32 // what the field's look-ups read, [BaselineSize], as in Baseline with one word for each span
	Constants []float32 // the field's constants, [Constants]: first-order weights, and rows of tables without players
	Dense     []float32 // value of each dense input, [len(Architecture.Dense)]
}

// Constants returns the number of constants that each field adds to a row, [m]: its first-order
// weight and the columns of its tables without players.
func (m *Model) Constants() []int {
	sizes := make([]int, m.Fields())
	if m.Weights.FirstOrder != nil {
		for j := range sizes {
			sizes[j]++
		}
	}
	if g := m.Weights.Graph; g != nil {
		for _, c := range g.Constants {
			sizes[c.Field] += c.Dim
		}
	}
	return sizes
}

// MeanConstants returns the mean constants of each field, in the order of Absent.Constants. It
// weighs the features by counts, [n]. A field without counts has the unweighted mean.
func (m *Model) MeanConstants(counts []int64) []float32 {
	var means []float32
	first := 0
	for j, features := range m.FieldDims {
		weights := counts[first : first+features]
		if m.Weights.FirstOrder != nil {
			means = appendMean(means, weights, m.Weights.FirstOrder[first:first+features])
		}
		if g := m.Weights.Graph; g != nil {
			for _, c := range g.Constants {
				if c.Field == j {
					means = appendMean(means, weights, c.Values)
				}
			}
		}
		first += features
	}
	return means
}

// appendMean appends the mean of the rows of a table, which it weighs by counts, [rows].
func appendMean(dst []float32, counts []int64, table []float32) []float32 {
	total := 0.0
	for _, n := range counts {
		total += float64(n)
	}
	dim := len(table) / len(counts)
	for c := range dim {
		sum := 0.0
		for i, n := range counts {
			weight := 1 / float64(len(counts))
			if total > 0 {
				weight = float64(n) / total
			}
			sum += float64(weight * float64(table[i*dim+c]))
		}
		dst = append(dst, float32(sum))
	}
	return dst
}

// CheckAbsent returns an error unless v has finite values for the fields of m.
func (m *Model) CheckAbsent(v *Absent) error {
	constants := 0
	for _, n := range m.Constants() {
		constants += n
	}
	for _, part := range []struct {
		name   string
		values []float32
		want   int
	}{{"embeddings", v.Embedding, m.BaselineSize()}, {"constants", v.Constants, constants}, {"dense inputs", v.Dense, len(m.Dense)}} {
		if len(part.values) != part.want {
			return fmt.Errorf("absent fields have %d values for %s, expected %d", len(part.values), part.name, part.want)
		}
		for i, x := range part.values {
			if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("absent fields have the value %v for %s at position %d, expected a finite number", x, part.name, i)
			}
		}
	}
	return nil
}

// WithAbsent returns a model that shares everything with m, and also evaluates rows without some
// of their fields. The ids of such a field are the complements ^id of the ids that it would
// have. Pad ids read what they always read, and a graph that reads ids as numbers reads the ids that the
// field would have. v must have passed CheckAbsent, and the model keeps it.
func (m *Model) WithAbsent(v *Absent) *Model {
	other := *m
	r := &absentReader{m: m, spread: m.Book(Baseline{Values: v.Embedding}).Spread(nil, nil), positions: m.Architecture.positions()}
	at, sizes, offsets := 0, m.Constants(), m.Offsets()
	for j, l := range m.lists() {
		for range l.Length {
			pad := int32(-1)
			if l.Pad >= 0 {
				pad = offsets[j] + int32(l.Pad)
			}
			r.pads = append(r.pads, pad)
			r.constants = append(r.constants, v.Constants[at:at+sizes[j]])
		}
		at += sizes[j]
	}
	other.table, other.absent = r, r
	return &other
}

// absentReader reads rows without some of their fields.
type absentReader struct {
	m         *Model
	spread    []float32 // [D]
	positions []position
	// By index of an id in a row.
	pads      []int32     // global pad id, or -1
	constants [][]float32 // constants of the field if it is absent
}

// read returns the id at an index of a row, and whether it is of an absent field. A nil reader has no such fields.
func (r *absentReader) read(at int, feature int32) (id int32, absent bool) {
	if feature >= 0 {
		return feature, false
	}
	return ^feature, ^feature != r.pads[at]
}

// Embed implements Embedder.
func (r *absentReader) Embed(x []float32, features []int32) {
	own := make([]int32, len(features))
	for i, f := range features {
		own[i] = max(f, ^f)
	}
	r.m.Embed(x, own)
	width := r.m.Width()
	for from := 0; from < len(features); from += width {
		element := 0
		for i := range r.positions {
			p := &r.positions[i]
			if _, absent := r.read(p.at, features[from+p.at]); absent {
				copy(x[element:element+p.dim], r.spread[element:])
			}
			element += p.dim
		}
		x = x[element:]
	}
}
