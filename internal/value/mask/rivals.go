package mask

import (
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// Magnitude returns the scores of the rival MagPrune: |weight|.
func Magnitude(weights []float32) []float64 {
	scores := make([]float64, len(weights))
	for i, w := range weights {
		scores[i] = math.Abs(float64(w))
	}
	return scores
}

// Random returns n random scores from [0, 1). Every useful method should be better than
// these.
func Random(n int, seed uint64) []float64 {
	stream := random.At(seed, random.Floor, 0, 0)
	scores := make([]float64, n)
	for i := range scores {
		scores[i] = stream.Float64()
	}
	return scores
}

// Frequency returns |weight - baseline| * sqrt(occurrences of the feature). This is
// proportional to the root mean square, over all rows, of the change in the entry's value
// when the entry is dropped. counts are the occurrences of
// the features, [n]. The occurrences of features that read the same rows are added.
func Frequency(a *model.Architecture, weights []float32, baseline model.Baseline, counts []int64) []float64 {
	scores, rows := make([]float64, len(weights)), a.RowCounts(counts)
	book := a.Book(baseline)
	for j, s := range book.Spans {
		i := s.Entry
		for row, count := range rows[s.Row : s.Row+s.Rows] {
			root := math.Sqrt(float64(count))
			for _, b := range book.Of(j, row) {
				scores[i] = math.Abs(float64(weights[i])-float64(b)) * root
				i++
			}
		}
	}
	return scores
}

// The sets of entries that share a grid in PTQ.
const (
	PerTable = "table" // all entries, as in the paper
	PerField = "field" // the entries of one field, or, in a model with look-ups, of one span
	PerRow   = "row"   // the entries of one feature, which are a row of a table
)

// Quantize returns a copy of the tables, one after another, after PTQ to the given number
// of bits. The number of grids is 1, m or n, depending on per. Pad rows keep their values.
func Quantize(a *model.Architecture, table []float32, bits int, per string) []float32 {
	out, shape := quantize(a, table, bits, per), a.Shape()
	for _, row := range a.FixedRows() {
		from, to := shape.Row(row)
		copy(out[from:to], table[from:to])
	}
	return out
}

// quantize is Quantize, but also rounds pad rows.
func quantize(a *model.Architecture, table []float32, bits int, per string) []float32 {
	switch per {
	case PerTable:
		return quantized(slices.Values([]int{len(table)}), table, bits)
	case PerField:
		return quantized(func(yield func(int) bool) {
			for _, s := range a.Spans() {
				if !yield(s.Rows * s.Dim) {
					return
				}
			}
		}, table, bits)
	case PerRow:
		return quantized(func(yield func(int) bool) {
			for _, s := range a.Spans() {
				for range s.Rows {
					if !yield(s.Dim) {
						return
					}
				}
			}
		}, table, bits)
	}
	panic("prune: Quantize: per " + per)
}

// quantized divides the table into consecutive parts of the given lengths. Each part has
// its own grid.
func quantized(lengths func(yield func(int) bool), table []float32, bits int) []float32 {
	out := slices.Clone(table)
	from := 0
	for n := range lengths {
		part := out[from : from+n]
		g := newGrid(part, bits)
		for i, v := range part {
			part[i] = g.Round(v)
		}
		from += n
	}
	return out
}
