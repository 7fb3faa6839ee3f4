// Package axes labels the axes of pictures.
package axes

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// Ticks returns 1, 2 and 5 times the powers of ten, for an axis with a logarithmic scale. If the
// range is more than a decade there is room only for the labels of the powers.
func Ticks(from, to float64) (all []plot.Tick) {
	for unit := math.Pow(10, math.Floor(math.Log10(from))); unit <= to; unit *= 10 {
		for _, m := range []float64{1, 2, 5} {
			if v := m * unit; v >= from && v <= to {
				tick := plot.Tick{Value: v}
				if m == 1 || to < 10*from {
					tick.Label = strconv.FormatFloat(v, 'g', 6, 64)
				}
				all = append(all, tick)
			}
		}
	}
	return all
}
