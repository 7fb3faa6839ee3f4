package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// Parameters returns a copy of the weights of c as training changes them. Dropped entries of a
// compact file have the values of the baseline. A model that training cannot change is an
// input error.
func (c *Checkpoint) Parameters() (*model.Parameters, error) {
	l, err := c.trainable()
	if err != nil {
		return nil, err
	}
	r := &weightReader{c: c}
	p := &model.Parameters{
		Embedding: r.values(l.Embedding), FirstOrder: r.firstOrder(l), Bias: r.values(l.Bias), Product: r.values(l.Product),
		Output: r.linear(l.Output), Gates: r.values(l.Gates),
	}
	for _, keys := range l.Layers {
		n := r.norm(keys)
		if t, ok := c.Tensors[batchesKey(keys)]; ok && n != nil && r.err == nil {
			if batches, err := t.Ints(); err == nil && len(batches) == 1 {
				n.Batches = int64(batches[0])
			}
		}
		p.Hidden, p.Norms = append(p.Hidden, r.linear(keys)), append(p.Norms, n)
	}
	for _, keys := range l.Mix {
		p.Mix = append(p.Mix, model.MixLayer{U: r.values(keys.U), C: r.values(keys.C), V: r.values(keys.V), Bias: r.values(keys.Bias)})
	}
	for _, keys := range l.Cross {
		p.Cross = append(p.Cross, r.linear(keys))
	}
	if r.err != nil {
		return nil, r.err
	}
	return p.Clone(), nil
}

// CheckTrainable returns an error if training cannot change the model.
func (c *Checkpoint) CheckTrainable() error {
	_, err := c.trainable()
	return err
}

// trainable returns the roles of the tensors of a model that training can change.
func (c *Checkpoint) trainable() (*family.Roles, error) {
	if c.Architecture.Kind == model.Graph || c.origin != nil {
		return nil, c.inputf("the model comes from an .onnx file, whose graph cannot be trained: train it in its framework, or a new model with shaver train")
	}
	l, err := c.state().Roles()
	if err != nil {
		return nil, err
	}
	plain := len(l.FirstOrder) <= 1 && l.Linear == ""
	for _, keys := range slices.Concat(l.Layers, l.Cross, []family.LinearKeys{l.Output}) {
		plain = plain && !keys.Stacked && (keys.Weight == "" || keys.Bias != "")
	}
	if !plain {
		return nil, c.inputf("a %s from %s cannot be trained, because its first-order weights or its layers are stored in another way than ours: train it there (shaver model convert --dense writes its state dict), or a new model with shaver train", l.Kind, c.Family)
	}
	return l, nil
}

// batchesKey returns the key of the number of batches of a layer's BatchNorm.
func batchesKey(keys family.LinearKeys) string {
	return strings.TrimSuffix(keys.Variance, "running_var") + "num_batches_tracked"
}

// WithParameters returns a checkpoint whose weights are copies of those of p, of type F32. p
// must have the shapes of c.Parameters. The new checkpoint shares everything else with c.
func (c *Checkpoint) WithParameters(p *model.Parameters) (*Checkpoint, error) {
	l, err := c.trainable()
	if err != nil {
		return nil, err
	}
	changed := c.WithEmbedding(p.Embedding)
	set := func(key string, values []float32) {
		if key == "" {
			return
		}
		old := changed.Tensors[key]
		if len(values) != old.Elements() {
			panic(fmt.Sprintf("checkpoint: WithParameters: tensor %s of %d values, expected shape %s", key, len(values), tensor.ShapeText(old.Shape)))
		}
		changed.Tensors[key] = tensor.FromFloat32s(old.Shape, values)
	}
	if len(l.FirstOrder) == 1 {
		set(l.FirstOrder[0], p.FirstOrder)
	}
	set(l.Bias, p.Bias)
	set(l.Product, p.Product)
	set(l.Gates, p.Gates)
	linear := func(keys family.LinearKeys, w model.Linear) {
		set(keys.Weight, w.Weight)
		set(keys.Bias, w.Bias)
	}
	linear(l.Output, p.Output)
	for i, keys := range l.Layers {
		linear(keys, p.Hidden[i])
		if n := p.Norms[i]; n != nil {
			set(keys.Gamma, n.Gamma)
			set(keys.Beta, n.Beta)
			set(keys.Mean, n.Mean)
			set(keys.Variance, n.Variance)
			if key := batchesKey(keys); changed.has(key) {
				changed.Tensors[key] = tensor.FromInt64s(changed.Tensors[key].Shape, n.Batches)
			}
		}
	}
	for i, keys := range l.Mix {
		m := p.Mix[i]
		set(keys.U, m.U)
		set(keys.C, m.C)
		set(keys.V, m.V)
		set(keys.Bias, m.Bias)
	}
	for i, keys := range l.Cross {
		linear(keys, p.Cross[i])
	}
	return changed, nil
}

func (c *Checkpoint) has(key string) bool {
	_, ok := c.Tensors[key]
	return ok
}

// New returns a checkpoint with copies of the weights p of a model with the architecture a.
// Its keys and shapes are those of the reference models in PyTorch, so that
// load_state_dict(strict=True) accepts them. Where a hidden layer has a BatchNorm, all must
// have one. p must fit a.
func New(a model.Architecture, p *model.Parameters) *Checkpoint {
	c := &Checkpoint{Architecture: a, Tensors: map[string]Tensor{}, EmbeddingKey: "embedding.weight", name: "the model"}
	width := a.Players()
	put, linear := c.addFloats, c.addLinear
	if a.Kind == model.NeuMF {
		c.EmbeddingKey = family.TowerTable
	}
	put(c.EmbeddingKey, p.Embedding, a.Features(), a.Dim)
	if a.Kind == model.NeuMF {
		put("_gmf.gmf_fc.weight", p.Product, 1, a.Dim/2)
		put("_gmf.gmf_fc.bias", p.Bias, 1)
		c.addLayers("_mlp.mlp", p)
		c.addLinear("_mlp.mlp_fc", p.Output)
		return c
	}
	if p.FirstOrder != nil {
		put("fc.weight", p.FirstOrder, a.Features(), 1)
	}
	if p.Bias != nil {
		put("_bias", p.Bias, 1)
	}
	var offsets []int64
	for _, first := range a.Offsets() {
		offsets = append(offsets, int64(first))
	}
	c.add("offsets", tensor.FromInt64s([]int{1, a.Fields()}, offsets...))
	for i, m := range p.Mix {
		put(fmt.Sprintf("cross_head.U.%d", i), m.U, a.Experts, a.Rank, width)
		put(fmt.Sprintf("cross_head.C.%d", i), m.C, a.Experts, a.Rank, a.Rank)
		put(fmt.Sprintf("cross_head.V.%d", i), m.V, a.Experts, width, a.Rank)
		put(fmt.Sprintf("cross_head.biases.%d", i), m.Bias, 1, width)
	}
	if p.Gates != nil {
		put("cross_head.gates", p.Gates, a.Experts, width, 1)
	}
	for i, l := range p.Cross {
		linear(fmt.Sprintf("cross_head.layers.%d", i), l)
	}
	branch := "_dnn"
	if a.Wide() {
		branch = "_deep_branch"
		if a.Kind != model.FM { // the reference model has this layer and does not use it
			linear("linear_layer", model.Linear{In: 1, Out: 1, Weight: []float32{0}, Bias: []float32{0}})
		}
	}
	at := c.addLayers(branch, p)
	switch a.Kind {
	case model.DeepFM, model.WideDeep, model.DCNMix:
		linear(fmt.Sprintf("%s.%d", branch, at), p.Output)
	case model.DCNv2:
		linear("_last_fc", p.Output)
	}
	return c
}

// addFloats appends a tensor of type F32 under a new key.
func (c *Checkpoint) addFloats(key string, values []float32, shape ...int) {
	c.add(key, tensor.FromFloat32s(shape, values))
}

// addLinear appends the weight and the bias of a layer.
func (c *Checkpoint) addLinear(name string, l model.Linear) {
	c.addFloats(name+".weight", l.Weight, l.Out, l.In)
	c.addFloats(name+".bias", l.Bias, l.Out)
}

// addLayers appends the hidden layers of p, whose tensors have their positions in an
// nn.Sequential in their names. It returns the next position.
func (c *Checkpoint) addLayers(name string, p *model.Parameters) (at int) {
	for i, l := range p.Hidden {
		c.addLinear(fmt.Sprintf("%s.%d", name, at), l)
		at += 3 // linear, ReLU, dropout
		if n := p.Norms[i]; n != nil {
			name := fmt.Sprintf("%s.%d", name, at-2)
			c.addFloats(name+".weight", n.Gamma, l.Out)
			c.addFloats(name+".bias", n.Beta, l.Out)
			c.addFloats(name+".running_mean", n.Mean, l.Out)
			c.addFloats(name+".running_var", n.Variance, l.Out)
			c.add(name+".num_batches_tracked", tensor.FromInt64s(nil, n.Batches))
			at++
		}
	}
	return at
}

// tableOf says for an error which field has the first value of a tensor that is not finite, if the
// tensor joins the tables of fields with names. Otherwise it returns "".
func (c *Checkpoint) tableOf(key string) string {
	values, err := c.Tensors[key].AnyFloat32s()
	i := slices.IndexFunc(values, func(v float32) bool { return !tensor.Finite(v) })
	if err != nil || i < 0 || key != c.EmbeddingKey || c.Fields == nil {
		return ""
	}
	for _, s := range c.Architecture.Spans() {
		if at := i - s.Entry; at >= 0 && at < s.Rows*s.Dim {
			return fmt.Sprintf("; this is row %d, column %d of the table of field %s", at/s.Dim, at%s.Dim, tensor.Quote(c.Fields[s.Field]))
		}
	}
	return ""
}
