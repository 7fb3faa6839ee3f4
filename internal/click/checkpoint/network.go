package checkpoint

import (
	"fmt"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
)

// Model returns the model that c describes, with BatchNorm folded into the linear layers.
// It shares the memory of c's float32 tensors. A NaN or infinite value is an input error
// that names the tensor and the position. Weights.Embedding is nil only for ParseModel of
// a compact file.
func (c *Checkpoint) Model() (*model.Model, error) {
	if c.graph != nil {
		return c.graphModel()
	}
	l, err := c.state().roles()
	if err != nil {
		return nil, err
	}
	r := &weightReader{c: c}
	w := model.Weights{
		FirstOrder: r.firstOrder(l), Linear: r.values(l.linear), Product: r.values(l.product),
		Output: r.linear(l.output), Gates: r.values(l.gates),
	}
	small := c.Compact != nil && c.Tensors[l.embedding].Data == nil
	if !small {
		w.Embedding = r.values(l.embedding)
	}
	if bias := r.values(l.bias); len(bias) == 1 {
		w.Bias = bias[0]
	}
	for _, keys := range l.hidden {
		w.Hidden = append(w.Hidden, r.folded(keys))
	}
	if l.Kind == model.NeuMF && r.err == nil {
		w.Hidden[0] = model.Widen(w.Hidden[0])
	}
	for _, keys := range l.mix {
		w.Mix = append(w.Mix, model.MixLayer{U: r.values(keys.u), C: r.values(keys.c), V: r.values(keys.v), Bias: r.values(keys.bias)})
	}
	for _, keys := range l.cross {
		w.Cross = append(w.Cross, r.linear(keys))
	}
	if r.err != nil {
		return nil, r.err
	}
	var m *model.Model
	if small {
		m, err = model.NewWithEmbedder(l.Architecture, w, c.Compact)
	} else {
		m, err = model.New(l.Architecture, w)
	}
	if err != nil { // for example a weight that folding made infinite
		return nil, fault.Inputf("%s: %w", c.name, err)
	}
	return m, nil
}

// weightReader reads tensors. Its first failure stays in err.
type weightReader struct {
	c               *Checkpoint
	weights, biases []float32 // of the layers that two tensors hold together
	err             error
}

// values returns a tensor's values. For the key "", of a tensor that the model does not
// have, it returns nil.
func (r *weightReader) values(key string) []float32 {
	if r.err != nil || key == "" {
		return nil
	}
	var values []float32
	values, r.err = r.c.floats(key)
	return values
}

// firstOrder returns the first-order weights of all fields, or nil if the model has none.
func (r *weightReader) firstOrder(l *roles) (all []float32) {
	if len(l.firstOrder) == 1 {
		return r.values(l.firstOrder[0])
	}
	for j, key := range l.firstOrder {
		if key == "" {
			all = append(all, make([]float32, l.FieldDims[j])...)
		} else {
			all = append(all, r.values(key)...)
		}
	}
	return all
}

func (r *weightReader) linear(keys linearKeys) model.Linear {
	if keys.weight == "" {
		return model.Linear{}
	}
	shape := r.c.Tensors[keys.weight].Shape
	l := model.Linear{In: shape[len(shape)-1], Out: shape[len(shape)-2]}
	if keys.stacked {
		if keys.layer == 0 {
			r.weights, r.biases = r.values(keys.weight), r.values(keys.bias)
		}
		if r.err == nil {
			l.Weight, l.Bias = r.weights[keys.layer*l.In*l.Out:][:l.In*l.Out], r.biases[keys.layer*l.Out:][:l.Out]
		}
		return l
	}
	l.Weight, l.Bias = r.values(keys.weight), r.values(keys.bias)
	if keys.bias == "" {
		l.Bias = make([]float32, l.Out)
	}
	return l
}

// folded is like linear, with the layer's BatchNorm folded into it.
func (r *weightReader) folded(keys linearKeys) model.Linear {
	l, n := r.linear(keys), r.norm(keys)
	if r.err != nil || n == nil {
		return l
	}
	return model.FoldBatchNorm(l, n.Gamma, n.Beta, n.Mean, n.Variance)
}

// norm returns the layer's BatchNorm without the number of its batches, or nil if it has
// none.
func (r *weightReader) norm(keys linearKeys) *model.Norm {
	if !keys.norm {
		return nil
	}
	n := &model.Norm{Gamma: r.values(keys.gamma), Beta: r.values(keys.beta), Mean: r.values(keys.mean), Variance: r.values(keys.variance)}
	for i, v := range n.Variance {
		if v < 0 && r.err == nil {
			r.err = r.c.inputf("tensor %s has the value %v at position %s: expected a variance of at least 0", keys.variance, v, fmt.Sprintf("[%d]", i))
		}
	}
	return n
}
