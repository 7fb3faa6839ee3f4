package train

import (
	"math"

	"shaver/internal/num/random"
)

// Trial sets the learning rate, the weight decay and the dropout of o to those of a trial of
// a random search. It draws them from the ranges of the paper's searches: the first two from
// 1e-5 to 1e-2, uniformly by their logarithms, and the dropout from 0 to 1. They have three
// significant digits.
func (o *Options) Trial(number int) {
	stream := random.At(o.Seed, random.Search, uint64(number), 0)
	o.LearningRate = rounded(math.Pow(10, -5+3*stream.Float64()))
	o.WeightDecay = rounded(math.Pow(10, -5+3*stream.Float64()))
	o.Dropout = math.Floor(stream.Float64()*1000) / 1000
}

// rounded returns x with three significant digits.
func rounded(x float64) float64 {
	scale := math.Pow(10, 2-math.Floor(math.Log10(x)))
	return math.Round(x*scale) / scale
}
