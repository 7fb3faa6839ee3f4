package checkpoint

import (
	"fmt"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family"
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
	l, err := c.state().Roles()
	if err != nil {
		return nil, err
	}
	l.Frozen = c.Architecture.Frozen // the state dict does not say it
	r := &weightReader{c: c}
	w := model.Weights{
		FirstOrder: r.firstOrder(l), Linear: r.values(l.Linear), Product: r.values(l.Product),
		Output: r.linear(l.Output), Gates: r.values(l.Gates),
	}
	small := c.Compact != nil && c.Tensors[l.Embedding].Data == nil
	if !small {
		w.Embedding = r.values(l.Embedding)
	}
	if bias := r.values(l.Bias); len(bias) == 1 {
		w.Bias = bias[0]
	}
	for _, keys := range l.Layers {
		w.Hidden = append(w.Hidden, r.folded(keys))
	}
	if l.Kind == model.NeuMF && r.err == nil {
		w.Hidden[0] = model.Widen(w.Hidden[0])
	}
	for _, keys := range l.Mix {
		w.Mix = append(w.Mix, model.MixLayer{U: r.values(keys.U), C: r.values(keys.C), V: r.values(keys.V), Bias: r.values(keys.Bias)})
	}
	for _, keys := range l.Cross {
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
func (r *weightReader) firstOrder(l *family.Roles) (all []float32) {
	if len(l.FirstOrder) == 1 {
		return r.values(l.FirstOrder[0])
	}
	for j, key := range l.FirstOrder {
		if key == "" {
			all = append(all, make([]float32, l.FieldDims[j])...)
		} else {
			all = append(all, r.values(key)...)
		}
	}
	return all
}

func (r *weightReader) linear(keys family.LinearKeys) model.Linear {
	if keys.Weight == "" {
		return model.Linear{}
	}
	shape := r.c.Tensors[keys.Weight].Shape
	l := model.Linear{In: shape[len(shape)-1], Out: shape[len(shape)-2]}
	if keys.Stacked {
		if keys.Layer == 0 {
			r.weights, r.biases = r.values(keys.Weight), r.values(keys.Bias)
		}
		if r.err == nil {
			l.Weight, l.Bias = r.weights[keys.Layer*l.In*l.Out:][:l.In*l.Out], r.biases[keys.Layer*l.Out:][:l.Out]
		}
		return l
	}
	l.Weight, l.Bias = r.values(keys.Weight), r.values(keys.Bias)
	if keys.Bias == "" {
		l.Bias = make([]float32, l.Out)
	}
	return l
}

// folded is like linear, with the layer's BatchNorm folded into it.
func (r *weightReader) folded(keys family.LinearKeys) model.Linear {
	l, n := r.linear(keys), r.norm(keys)
	if r.err != nil || n == nil {
		return l
	}
	return model.FoldBatchNorm(l, n.Gamma, n.Beta, n.Mean, n.Variance)
}

// norm returns the layer's BatchNorm without the number of its batches, or nil if it has
// none.
func (r *weightReader) norm(keys family.LinearKeys) *model.Norm {
	if !keys.Norm {
		return nil
	}
	n := &model.Norm{Gamma: r.values(keys.Gamma), Beta: r.values(keys.Beta), Mean: r.values(keys.Mean), Variance: r.values(keys.Variance)}
	for i, v := range n.Variance {
		if v < 0 && r.err == nil {
			r.err = r.c.inputf("tensor %s has the value %v at position %s: expected a variance of at least 0", keys.Variance, v, fmt.Sprintf("[%d]", i))
		}
	}
	return n
}
