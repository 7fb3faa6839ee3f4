package train

import (
	"math"

	"shaver/internal/num/kernel"
)

// tensor is an array of weights, with its gradient and the moments of Adam.
type tensor struct {
	name     string
	values   []float32 // [rows, width]
	gradient []float32 // [rows, stride], overwritten in each step
	m, v     []float32 // like values
	width    int
	stride   int
}

// newTensor returns a tensor that keeps values. The gradient is a matrix whose rows begin at
// multiples of stride.
func newTensor(name string, values []float32, width, stride int) *tensor {
	t := &tensor{name: name, values: values, width: width, stride: stride}
	t.m, t.v = make([]float32, len(values)), make([]float32, len(values))
	if width > 0 {
		t.gradient = make([]float32, len(values)/width*stride)
	}
	return t
}

// newVector returns a tensor of one dimension that keeps values.
func newVector(name string, values []float32) *tensor {
	return newTensor(name, values, len(values), len(values))
}

// adam moves the weights by one step.
func (t *tensor) adam(s *kernel.AdamStep) {
	if t.width == 0 {
		return
	}
	rows := len(t.values) / t.width
	parts(rows, max(1, adamValues/t.width), func(from, to int) {
		for r := from; r < to; r++ {
			a, b := r*t.width, (r+1)*t.width
			kernel.Adam(t.values[a:b], t.gradient[r*t.stride:][:t.width], t.m[a:b], t.v[a:b], s)
		}
	})
}

const (
	beta1   = .9
	beta2   = .999
	epsilon = 1e-8
)

// adamStep returns the numbers of step t = 1, 2, ... of PyTorch's Adam.
func adamStep(t int64, rate, decay float64) *kernel.AdamStep {
	return &kernel.AdamStep{
		Decay: float32(decay), First: float32(1 - beta1), Second: float32(1 - beta2), Keep: float32(beta2),
		Rate: float32(rate / (1 - math.Pow(beta1, float64(t)))), Root: float32(math.Sqrt(1 - math.Pow(beta2, float64(t)))), Epsilon: epsilon,
	}
}

// sparseStep returns the numbers of step t of PyTorch's SparseAdam.
func sparseStep(t int64, rate float64) *kernel.AdamStep {
	s := adamStep(t, rate, 0)
	s.Rate = float32(rate * math.Sqrt(1-math.Pow(beta2, float64(t))) / (1 - math.Pow(beta1, float64(t))))
	s.Root = 1
	return s
}
