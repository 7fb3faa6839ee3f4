package checkpoint

import (
	"maps"
	"math"

	"shaver/internal/model"
)

// Calibrated returns a checkpoint whose logits are scale*z + offset where c's are
// z, up to rounding, and by which its embedding table was multiplied for that, as a
// baseline then must be. scale is above 0. It is an ordinary checkpoint of the same
// architecture: who loads it need not know.
//
// Where the logit is the last layer's output (DCN-Mix, DCNv2), that layer takes
// both numbers, and table is 1. FM's pairwise term has no weights: there the table
// is multiplied by the root of scale, the first hidden layer, which reads it too,
// by the inverse, and first-order weights, bias and output layer by scale.
func (c *Checkpoint) Calibrated(scale, offset float64) (calibrated *Checkpoint, table float32, err error) {
	if !(scale > 0) || math.IsInf(scale, 0) || math.IsNaN(offset) || math.IsInf(offset, 0) {
		panic("checkpoint: Calibrated: scale or offset out of range")
	}
	s, err := c.seek()
	if err != nil {
		return nil, 0, err
	}
	l, err := s.layout(c.Architecture.FieldDims)
	if err != nil {
		return nil, 0, err
	}
	changed := *c
	changed.Tensors, changed.Compact = maps.Clone(c.Tensors), nil
	f := folder{from: c, to: &changed}
	table = 1
	f.affine(l.output.weight, scale, 0)
	if l.Kind == model.FM || l.Kind == model.DeepFM {
		table = float32(math.Sqrt(scale))
		f.affine(l.embedding, float64(table), 0)
		if len(l.hidden) > 0 {
			f.affine(l.hidden[0].weight, 1/float64(table), 0)
		}
		f.affine(l.firstOrder, scale, 0)
		f.affine(l.bias, scale, offset)
		offset = 0
	}
	f.affine(l.output.bias, scale, offset)
	return &changed, table, f.err
}

// folder replaces tensors; its first failure stays in err.
type folder struct {
	from, to *Checkpoint
	err      error
}

// affine replaces each value v of a tensor by scale*v + offset, as float32. A model
// that lacks the tensor has the key "".
func (f *folder) affine(key string, scale, offset float64) {
	if f.err != nil || key == "" {
		return
	}
	var values []float32
	if values, f.err = f.from.floats(key); f.err != nil {
		return
	}
	mapped := make([]float32, len(values))
	for i, v := range values {
		mapped[i] = float32(float64(scale*float64(v)) + offset)
		if !finite(mapped[i]) {
			f.err = f.from.inputf("tensor %s leaves the range of float32 when it is calibrated by %g and %g", key, scale, offset)
			return
		}
	}
	f.to.Tensors[key] = float32Tensor(f.from.Tensors[key].Shape, mapped)
}
