package familytest

import (
	"fmt"
	"strings"

	"shaver/internal/click/tensor"
)

// Entry is a tensor with its key.
type Entry struct {
	Key string
	tensor.Tensor
}

// Kinds are the kinds of samples.
var Kinds = []string{"fm", "deepfm", "dcn-mix", "dcnv2-stacked", "dcnv2-parallel"}

// Dims are the field sizes of all samples. Their tables have 9 rows and 2 columns.
var Dims = []int{2, 3, 4}

// Sample returns a small state dict of one of Kinds.
func Sample(kind string) []Entry {
	const n, d, players, hidden = 9, 2, 6, 5
	var entries []Entry
	add := func(key string, shape ...int) {
		size, _ := tensor.Count(shape)
		values := make([]float32, size)
		for i := range values {
			values[i] = float32((len(entries)+5*i)%17-8) / 4
			if strings.HasSuffix(key, "running_var") {
				values[i] *= values[i]
			}
		}
		entries = append(entries, Entry{key, tensor.FromFloat32s(shape, values)})
	}
	linear := func(prefix string, in, out int) {
		add(prefix+".weight", out, in)
		add(prefix+".bias", out)
	}
	norm := func(prefix string) {
		for _, name := range []string{"weight", "bias", "running_mean", "running_var"} {
			add(prefix+"."+name, hidden)
		}
		entries = append(entries, Entry{prefix + ".num_batches_tracked", tensor.Tensor{DType: tensor.I64, Shape: nil, Data: make([]byte, 8)}})
	}
	add("embedding.weight", n, d)
	switch kind {
	case "fm", "deepfm":
		add("fc.weight", n, 1)
		add("_bias", 1)
		linear("linear_layer", 1, 1)
		if kind == "deepfm" {
			linear("_deep_branch.0", players, hidden)
			norm("_deep_branch.1")
			linear("_deep_branch.4", hidden, 1)
		}
	case "dcn-mix":
		for l := range 2 {
			add(fmt.Sprintf("cross_head.U.%d", l), 4, 3, players)
			add(fmt.Sprintf("cross_head.C.%d", l), 4, 3, 3)
			add(fmt.Sprintf("cross_head.V.%d", l), 4, players, 3)
			add(fmt.Sprintf("cross_head.biases.%d", l), 1, players)
		}
		add("cross_head.gates", 4, players, 1)
		linear("_dnn.0", players, hidden)
		norm("_dnn.1")
		linear("_dnn.4", hidden, 1)
	default:
		linear("cross_head.layers.0", players, players)
		linear("_dnn.0", players, hidden)
		linear("_dnn.3", hidden, hidden)
		last := hidden
		if kind == "dcnv2-parallel" {
			last += players
		}
		linear("_last_fc", last, 1)
	}
	return entries
}
