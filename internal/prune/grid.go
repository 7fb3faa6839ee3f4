package prune

import (
	"fmt"
	"math"
)

// grid stores numbers in fewer bits (PTQ, post-training quantization). It is the
// affine map of the integers 0 to Levels-1 to numbers: Step*(q-Zero).
// Zero, which maps to 0, is an integer and may lie outside them. If Step is 0 all
// are Constant.
type grid struct {
	Step     float64
	Zero     int64
	Levels   int64
	Constant float32
}

// newGrid returns the grid of 2^bits levels from the least to the greatest of
// values, which are finite; bits is 1 to 16. The zero point is rounded to nearest,
// which moves the grid by half a step at most.
func newGrid(values []float32, bits int) grid {
	if bits < 1 || bits > 16 {
		panic(fmt.Sprintf("prune: newGrid: %d bits", bits))
	}
	g := grid{Levels: 1 << bits}
	if len(values) == 0 {
		return g
	}
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if low == high {
		g.Constant = low
		return g
	}
	g.Step = (float64(high) - float64(low)) / float64(g.Levels-1)
	g.Zero = int64(math.RoundToEven(-float64(low) / g.Step))
	return g
}

// Level returns the integer whose number is nearest to v, in [0, Levels).
func (g grid) Level(v float32) int64 {
	if g.Step == 0 {
		return 0
	}
	return min(max(int64(math.RoundToEven(float64(v)/g.Step))+g.Zero, 0), g.Levels-1)
}

// Number returns the number of an integer in [0, Levels), before it is rounded to
// float32: at most half a Step from every value of newGrid whose Level it is.
func (g grid) Number(level int64) float64 {
	if g.Step == 0 {
		return float64(g.Constant)
	}
	return g.Step * float64(level-g.Zero)
}

// Round returns what v reads after it was stored on the grid.
func (g grid) Round(v float32) float32 { return float32(g.Number(g.Level(v))) }
