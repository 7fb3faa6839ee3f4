package checkpoint

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/graph"
)

// Calibrated returns a checkpoint whose logits are scale*z + offset, up to rounding,
// where z are those of c. The second result is the factor by which the embedding table
// was multiplied, and a baseline has to be multiplied by it too. scale must be above 0.
// The result is an ordinary checkpoint of the same architecture, so programs that load it
// need no change.
//
// If the logit is the output of the last layer (DCN-Mix, DCNv2), that layer takes both
// numbers, and the table's factor is 1. FM's pairwise term has no weights, so for FM and
// DeepFM the table is multiplied by the square root of scale. The first hidden layer,
// which reads the table too, is divided by that root. First-order weights, bias and
// output layer are multiplied by scale. Weights of the entries are multiplied by scale and divided
// by the table's factor. WideDeep has no pairwise term, so that factor is 1.
// It is 1 for NeuMF too, whose products have weights, which are multiplied by scale.
//
// The head of a model of Kind Graph gets a multiplication and an addition at its end, and
// the table's factor is 1.
func (c *Checkpoint) Calibrated(scale, offset float64) (calibrated *Checkpoint, table float32, err error) {
	if !(scale > 0) || math.IsInf(scale, 0) || math.IsNaN(offset) || math.IsInf(offset, 0) {
		panic("checkpoint: Calibrated: scale or offset out of range")
	}
	if c.graph != nil {
		calibrated, err = c.calibratedGraph(float32(scale), float32(offset))
		return calibrated, 1, err
	}
	l, err := c.state().Roles()
	if err != nil {
		return nil, 0, err
	}
	changed := *c
	changed.Tensors, changed.Compact, changed.Composed = maps.Clone(c.Tensors), nil, nil
	f := folder{from: c, to: &changed}
	table = 1
	f.affine(l.Output.Weight, scale, 0)
	if l.Kind == model.FM || l.Kind == model.DeepFM {
		table = float32(math.Sqrt(scale))
		if c.Compact == nil || c.Tensors[l.Embedding].Data != nil { // else the caller has the table
			f.affine(l.Embedding, float64(table), 0)
		}
		if len(l.Layers) > 0 {
			f.affine(l.Layers[0].Weight, 1/float64(table), 0)
		}
	}
	for _, key := range l.FirstOrder {
		f.affine(key, scale, 0)
	}
	f.affine(l.Linear, scale/float64(table), 0)
	f.affine(l.Product, scale, 0)
	if l.Bias != "" {
		f.affine(l.Bias, scale, offset)
		offset = 0
	}
	f.affine(l.Output.Bias, scale, offset)
	return &changed, table, f.err
}

// calibratedGraph is Calibrated for Kind Graph.
func (c *Checkpoint) calibratedGraph(scale, offset float32) (*Checkpoint, error) {
	head, err := c.head()
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		op    string
		value float32
	}{{"Mul", scale}, {"Add", offset}} {
		if !tensor.Finite(step.value) {
			return nil, c.inputf("the calibration by scale %g and offset %g exceeds the range of float32", scale, offset)
		}
		name := "calibration." + step.op
		constant := head.AddConstant(&graph.Tensor{Name: name, Type: graph.Float, Shape: []int{}, Floats: []float32{step.value}})
		out, err := head.Add(graph.Node{Name: name, Op: step.op, Inputs: []graph.Value{head.Output, constant}})
		if err != nil {
			return nil, c.inputf("%w", err)
		}
		head.Output = out[0]
	}
	changed, form := *c, *c.graph
	text, weights := graph.Encode(head)
	form.Head = json.RawMessage(text)
	changed.graph, changed.Compact, changed.Tensors, changed.Keys = &form, nil, maps.Clone(c.Tensors), slices.Clone(c.Keys)
	for _, w := range weights {
		key := graphKey(graphHead, w.Name)
		if _, known := c.Tensors[key]; !known {
			changed.Keys = append(changed.Keys, key)
		}
		changed.Tensors[key] = tensor.FromFloat32s(w.Shape, w.Floats)
	}
	return &changed, nil
}

// folder replaces tensors. Its first failure stays in err.
type folder struct {
	from, to *Checkpoint
	err      error
}

// affine replaces each value v of a tensor by scale*v + offset, as float32. The key is ""
// for a tensor that the model does not have.
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
		if !tensor.Finite(mapped[i]) {
			f.err = f.from.inputf("tensor %s exceeds the range of float32 after calibration by scale %g and offset %g", key, scale, offset)
			return
		}
	}
	f.to.Tensors[key] = tensor.FromFloat32s(f.from.Tensors[key].Shape, mapped)
}
