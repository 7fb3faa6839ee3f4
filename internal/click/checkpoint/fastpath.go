package checkpoint

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"

	"shaver/internal/click/checkpoint/family"
	"shaver/internal/click/match"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
)

// Recognize returns the architecture of n if n is a model of another kind than
// model.Graph. Otherwise the error says why not. It does not mean that n is invalid.
func Recognize(n *dissect.Network) (*model.Architecture, error) {
	found, dims, err := findKind(n)
	if err != nil {
		return nil, err
	}
	a := found.Architecture(dims)
	return &a, nil
}

// findKind finds the model that n is, and the sizes of its fields.
func findKind(n *dissect.Network) (*match.Network, []int, error) {
	if len(n.Dense) > 0 {
		return nil, nil, errors.New("it has dense inputs")
	}
	if len(n.IDs) > 0 || slices.ContainsFunc(n.Fields, func(f dissect.Field) bool { return f.Length > 1 }) {
		return nil, nil, errors.New("it has lists, or reads ids as numbers")
	}
	if slices.ContainsFunc(n.Fields, func(f dissect.Field) bool { return f.Computed != nil }) {
		return nil, nil, errors.New("it computes ids from others")
	}
	var dims []int
	rows := 0 // which fields read, minus those that the tables with players have
	for _, f := range n.Fields {
		dims = append(dims, f.Rows)
		rows += f.Rows
	}
	counted := make([]bool, len(n.Tables))
	var lookUps []match.LookUp
	for _, l := range n.LookUps {
		t := &n.Tables[l.Table]
		if l.Player && !counted[l.Table] {
			counted[l.Table] = true
			rows -= t.Rows
		}
		found := match.LookUp{Field: l.Field, Player: l.Player, Value: l.Value, Sample: make([]float32, match.Samples*t.Dim)}
		for i := range match.Samples {
			id := i * (dims[l.Field] - 1) / (match.Samples - 1)
			if err := t.Read(found.Sample[i*t.Dim:(i+1)*t.Dim], l.Offset+id); err != nil {
				return nil, nil, err
			}
		}
		lookUps = append(lookUps, found)
	}
	if rows != 0 {
		return nil, nil, errors.New("its tables have rows that no field reads, or that several look-ups read")
	}
	found, err := match.Find(n.Head, len(n.Fields), lookUps)
	return found, dims, err
}

// takeKnown makes c the model that n is, with our names of the tensors.
func (c *Checkpoint) takeKnown(n *dissect.Network, found *match.Network, dims []int) error {
	features := 0
	for _, size := range dims {
		features += size
	}
	table := Tensor{DType: F32, Shape: []int{features, found.Dim}, Data: make([]byte, 0, features*found.Dim*F32.Size())}
	for j, k := range found.Embedding {
		c.origin.take(n, k)
		values, err := lookUpRows(n, k, dims[j])
		if err != nil {
			return err
		}
		for _, v := range values {
			table.Data = binary.LittleEndian.AppendUint32(table.Data, math.Float32bits(v))
		}
	}
	c.add("embedding.weight", table)
	if found.FirstOrder != nil {
		var all []float32
		for j, size := range dims {
			sums := make([]float32, size)
			for k, f := range found.FirstOrder {
				if n.LookUps[k].Field != j || f == 0 {
					continue
				}
				values, err := lookUpRows(n, k, size)
				if err != nil {
					return err
				}
				for i, v := range values {
					sums[i] += float32(f * float64(v))
				}
			}
			all = append(all, sums...)
		}
		c.add("fc.weight", tensor.FromFloat32s([]int{features, 1}, all))
	}
	if found.Linear != nil {
		c.add("_linear.weight", tensor.FromFloat32s([]int{1, len(found.Linear)}, found.Linear))
	}
	if found.Kind != model.DCNv2 || found.FirstOrder != nil || found.Linear != nil || found.Bias != 0 {
		c.add("_bias", tensor.FromFloat32s([]int{1}, []float32{found.Bias}))
	}
	linear := func(prefix string, l *model.Linear) {
		c.add(prefix+"weight", tensor.FromFloat32s([]int{l.Out, l.In}, l.Weight))
		c.add(prefix+"bias", tensor.FromFloat32s([]int{l.Out}, l.Bias))
	}
	for l := range found.Cross {
		linear("cross_head.layers."+strconv.Itoa(l)+".", &found.Cross[l])
	}
	mlp, output := "_deep_branch.", ""
	if found.Kind == model.DCNv2 {
		mlp, output = "_dnn.", "_last_fc."
	}
	at := 0 // position in the nn.Sequential
	for i := range found.Hidden {
		l := &found.Hidden[i]
		linear(mlp+strconv.Itoa(at)+".", &l.Linear)
		if at++; l.Norm != nil {
			norm := mlp + strconv.Itoa(at) + "."
			c.add(norm+"weight", tensor.FromFloat32s([]int{l.Out}, l.Norm.Gamma))
			c.add(norm+"bias", tensor.FromFloat32s([]int{l.Out}, l.Norm.Beta))
			c.add(norm+"running_mean", tensor.FromFloat32s([]int{l.Out}, l.Norm.Mean))
			c.add(norm+"running_var", tensor.FromFloat32s([]int{l.Out}, l.Norm.Variance))
			at++
		}
		at++ // ReLU
	}
	if found.Kind != model.FM {
		if output == "" {
			output = mlp + strconv.Itoa(at) + "."
		}
		linear(output, &found.Output)
	}
	said := family.Statement{From: "the graph", Kind: &found.Kind, FieldDims: dims}
	if err := c.recognise([]family.Statement{said}, nil, noSidecar); err != nil {
		return err
	}
	for _, f := range n.Fields {
		c.Fields = append(c.Fields, f.Name)
	}
	c.Recognized = true
	return nil
}

// lookUpRows reads the first rows of look-up k.
func lookUpRows(n *dissect.Network, k, rows int) ([]float32, error) {
	l := &n.LookUps[k]
	t := &n.Tables[l.Table]
	values := make([]float32, rows*t.Dim)
	return values, t.Read(values, l.Offset)
}
