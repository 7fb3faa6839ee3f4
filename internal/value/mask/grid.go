package mask

import (
	"fmt"
	"math"
)

// grid represents numbers in fewer bits for post-training quantization (PTQ). It maps each
// integer q from 0 to Levels-1 to the number Step*(q-Zero). The integer Zero maps to 0 and
// may lie outside this range. If Step is 0, every integer maps to Constant.
type grid struct {
	Step     float64
	Zero     int64
	Levels   int64
	Constant float32
}

// newGrid returns a grid of 2^bits levels from the least to the greatest of values. bits is
// 1 to 16, and the values must be finite. newGrid rounds Zero to the nearest integer, which
// moves the grid by at most half a step.
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

// Level returns the integer in [0, Levels) whose number is nearest to v.
func (g grid) Level(v float32) int64 {
	if g.Step == 0 {
		return 0
	}
	return min(max(int64(math.RoundToEven(float64(v)/g.Step))+g.Zero, 0), g.Levels-1)
}

// Number returns the number of an integer in [0, Levels), not yet rounded to float32. It
// differs by at most half a Step from every value of newGrid that has this Level.
func (g grid) Number(level int64) float64 {
	if g.Step == 0 {
		return float64(g.Constant)
	}
	return g.Step * float64(level-g.Zero)
}

// Round returns the number that represents v on the grid.
func (g grid) Round(v float32) float32 { return float32(g.Number(g.Level(v))) }
