package train

import (
	"math"
	"testing"

	"shaver/internal/click/model"
)

// The initial values of a NeuMF fill the ranges of the reference model: Glorot's for the tables and
// the MLP's weights, and those of nn.Linear for all biases and for the last layers of both towers.
func TestInitialNeuMF(t *testing.T) {
	a := model.Architecture{Kind: model.NeuMF, FieldDims: []int{300, 200}, Dim: 64, Hidden: []int{96, 80}}
	p := Initial(&a, false, 1)
	if err := p.Check(&a); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		values []float32
		limit  float64
	}{
		{"embedding", p.Embedding, math.Sqrt(6. / (500 + 64))},
		{"product", p.Product, 1 / math.Sqrt(32)},
		{"bias", p.Bias, 1 / math.Sqrt(32)},
		{"hidden layer 0", p.Hidden[0].Weight, math.Sqrt(6. / (64 + 96))},
		{"bias of hidden layer 0", p.Hidden[0].Bias, 1 / math.Sqrt(64)},
		{"hidden layer 1", p.Hidden[1].Weight, math.Sqrt(6. / (96 + 80))},
		{"bias of hidden layer 1", p.Hidden[1].Bias, 1 / math.Sqrt(96)},
		{"output layer", p.Output.Weight, 1 / math.Sqrt(80)},
		{"bias of the output layer", p.Output.Bias, 1 / math.Sqrt(80)},
	} {
		low, high := math.Inf(1), math.Inf(-1)
		for _, v := range c.values {
			low, high = min(low, float64(v)), max(high, float64(v))
		}
		if low < -c.limit*1.00001 || high > c.limit*1.00001 {
			t.Errorf("%s: values from %v to %v, expected at most %v", c.name, low, high, c.limit)
		}
		if len(c.values) > 1 && (low > -.8*c.limit || high < .8*c.limit) {
			t.Errorf("%s: values from %v to %v do not fill the range to %v", c.name, low, high, c.limit)
		}
	}
}
