package dissect

import (
	"math"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/wire/onnxtest"
)

// An error about a node names its module, which PyTorch's exporter writes. So does one about
// a constant that is not finite, unless it is a mask.
func TestModules(t *testing.T) {
	of := func(n onnxtest.Message) onnxtest.Message {
		return n.Sub(9, onnxtest.Message(nil).Text(1, "pkg.torch.onnx.fx_node").Text(2, "%x")).
			Sub(9, onnxtest.Message(nil).Text(1, "namespace").Text(2, ": m.Rank/encoder: m.Encoder/encoder.attention: torch.nn.modules.activation.MultiheadAttention/add_3: aten.add.Tensor"))
	}
	const module = `, in the module encoder.encoder.attention (MultiheadAttention)`
	infinity, nan := float32(math.Inf(-1)), float32(math.NaN())
	for name, c := range map[string]struct {
		node onnxtest.Message
		want string
	}{
		"operator": {node("Unique", names{"h"}, names{"h2"}), `node "n_h2" (Unique): the operator is not supported`},
		"weight":   {node("MatMul", names{"h", "infinite"}, names{"h2"}), `node "n_h2" (MatMul) has the weight -Inf at position 2: weights must be finite, check that the training did not diverge`},
		"NaN":      {node("Add", names{"h", "nan"}, names{"h2"}), `node "n_h2" (Add) reads a constant that is NaN at position 0: check that the training did not diverge, and mask with torch.where`},
		"mask":     {node("Max", names{"h", "infinity"}, names{"h2"}), ""},
	} {
		s := newSample()
		square := make([]float32, 25)
		square[2] = infinity
		s.initializers = append(s.initializers, onnxtest.Floats("infinite", square, 5, 5), onnxtest.Floats("infinity", []float32{infinity}), onnxtest.Floats("nan", []float32{nan}))
		s.after = []onnxtest.Message{of(c.node), node("MatMul", names{"h2", "w"}, names{"z"}), node("Sigmoid", names{"z"}, names{"y"})}
		_, err := s.dissect(t, Options{})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) || !strings.HasSuffix(err.Error(), module) || strings.Contains(err.Error(), "description") {
			t.Errorf("%s: error %v, expected %q%s", name, err, c.want, module)
		}
	}
}
