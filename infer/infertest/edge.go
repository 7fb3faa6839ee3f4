package infertest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
)

// KDD returns a DCN-Mix with the size of KDD: 6,019,761 features in 11 fields. The paper
// does not give the sizes of the fields, so these are assumed.
func KDD() model.Architecture {
	return model.Architecture{
		Kind: model.DCNMix, Dim: 16, Hidden: []int{400, 400, 400}, CrossLayers: 3, Experts: 4, Rank: 64,
		FieldDims: []int{100, 20_000, 300_000, 14_000, 4, 4, 1_200_000, 500_000, 800_000, 700_000, 2_485_653},
	}
}

// Random returns a checkpoint of a DCN-Mix with random weights.
func Random(a model.Architecture) *checkpoint.Checkpoint {
	r := rand.New(rand.NewPCG(5, 6))
	c := &checkpoint.Checkpoint{Architecture: a, Tensors: map[string]checkpoint.Tensor{}, EmbeddingKey: "embedding.weight"}
	add := func(key string, scale float64, shape ...int) {
		n := 1
		for _, size := range shape {
			n *= size
		}
		data := make([]byte, 0, 4*n)
		for range n {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(scale*r.NormFloat64())))
		}
		c.Keys = append(c.Keys, key)
		c.Tensors[key] = checkpoint.Tensor{DType: checkpoint.F32, Shape: shape, Data: data}
	}
	d := a.Players()
	add("embedding.weight", 0.1, a.Features(), a.Dim)
	for l := range a.CrossLayers {
		add(fmt.Sprintf("cross_head.U.%d", l), 0.1, a.Experts, a.Rank, d)
		add(fmt.Sprintf("cross_head.C.%d", l), 0.1, a.Experts, a.Rank, a.Rank)
		add(fmt.Sprintf("cross_head.V.%d", l), 0.1, a.Experts, d, a.Rank)
		add(fmt.Sprintf("cross_head.biases.%d", l), 0.1, 1, d)
	}
	add("cross_head.gates", 0.1, a.Experts, d, 1)
	in := d
	for i, out := range append(slices.Clone(a.Hidden), 1) {
		add(fmt.Sprintf("_dnn.%d.weight", 3*i), 1/math.Sqrt(float64(in)), out, in)
		add(fmt.Sprintf("_dnn.%d.bias", 3*i), 0.1, out)
		in = out
	}
	return c
}
