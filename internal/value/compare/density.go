package compare

import "math"

// Density counts pairs of magnitudes in square cells on logarithmic axes. Its size does not
// depend on the number of pairs.
type Density struct {
	Low, High float64 // powers of ten at the ends of both axes, as exponents
	// Count is [cells][cells]: the number of pairs by the cell of the reference, then by
	// that of the value. Magnitudes below Low, also 0, are in cell 0.
	Count [][]int
}

// decades is the largest length of the axes of a Density in powers of ten. Values that are
// much smaller than the largest one do not matter.
const decades = 6

// NewDensity counts the pairs of two estimates in a square of cells. Both axes end at the
// first power of ten that is at least as large as every magnitude. They begin at the last one
// below every magnitude except 0, but at most 6 powers of ten below their end. The values
// must be finite.
func NewDensity(values, reference []float64, cells int) *Density {
	checkLengths(values, reference)
	least, most := math.Inf(1), 0.0
	for _, list := range [][]float64{values, reference} {
		for _, v := range list {
			if v = math.Abs(v); v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	d := &Density{Count: make([][]int, cells)}
	for i := range d.Count {
		d.Count[i] = make([]int, cells)
	}
	if most > 0 {
		d.High = math.Ceil(math.Log10(most))
		d.Low = max(math.Ceil(math.Log10(least))-1, d.High-decades)
	}
	d.High = max(d.High, d.Low+1)
	cell := func(v float64) int {
		if v = math.Abs(v); v == 0 {
			return 0
		}
		return min(max(int((math.Log10(v)-d.Low)/(d.High-d.Low)*float64(cells)), 0), cells-1)
	}
	for i, r := range reference {
		d.Count[cell(r)][cell(values[i])]++
	}
	return d
}

// Shift returns the mean of values - reference, divided by the mean magnitude of reference.
// It is NaN if reference is all 0.
func Shift(values, reference []float64) float64 {
	checkLengths(values, reference)
	var difference, size float64
	for i, r := range reference {
		difference += values[i] - r
		size += math.Abs(r)
	}
	if size == 0 {
		return math.NaN()
	}
	return difference / size
}
