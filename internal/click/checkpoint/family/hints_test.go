package family

import (
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/checkpoint/tensor"
)

// If the tensors of a refused file only have other names, the error says how to rename them.
func TestHints(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		rename []string // pairs of strings.NewReplacer
		want   []string
	}{
		"prefix": {"deepfm", []string{"^", "ctr."}, []string{
			"m: tensor embedding.weight is missing, expected shape [*, *]; the file has 14 tensors (ctr.", "10 more)",
			`without the prefix ctr. they are those of a DeepFM: save {k.removeprefix("ctr."): v for k, v in model.state_dict().items()}`,
		}},
		"two prefixes": {"dcn-mix", []string{"^", "net.ctr."}, []string{`without the prefix ctr. they are those of a DCN-Mix`}},
		"own names": {"deepfm", []string{"embedding.weight", "tables.embedding.weight", "fc.weight", "linear.fc.weight", "_bias", "linear.bias", "_deep_branch.", "mlp.mlp."}, []string{
			"they are those of a DeepFM if you rename tables.embedding.weight to embedding.weight, linear.bias to _bias, linear.fc.weight to fc.weight, mlp.mlp.* to _deep_branch.* when you save the state dict",
		}},
		"cross layers": {"dcnv2-parallel", []string{"cross_head.layers.", "crossnet.kernels.", "_dnn.", "tower.", "_last_fc.", "out."}, []string{
			"those of a DCNv2 if you rename crossnet.kernels.* to cross_head.layers.*, out.* to _last_fc.*, tower.* to _dnn.*",
		}},
		"mixture": {"dcn-mix", []string{"_dnn.", "tower."}, []string{"they are those of a DCN-Mix if you rename tower.* to _dnn.*"}},
	} {
		var entries []familytest.Entry
		replacer := strings.NewReplacer(test.rename...)
		for _, e := range familytest.Sample(test.kind) {
			key := replacer.Replace(e.Key)
			if test.rename[0] == "^" {
				key = test.rename[1] + e.Key
			}
			entries = append(entries, familytest.Entry{Key: key, Tensor: e.Tensor})
		}
		_, err := recognised(t, entries, `{"field_dims":[2,3,4]}`)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		wantError(t, err, test.want...)
		if strings.Contains(err.Error(), namesHelp) {
			t.Errorf("%s: the error gives the names and also says where to find them: %v", name, err)
		}
	}
}

// If the tensors are not those of a known model, the advice is short for any number of
// tensors.
func TestHintsAreShort(t *testing.T) {
	for _, n := range []int{0, 1, 5, 5000} {
		var entries []familytest.Entry
		for i := range n {
			entries = append(entries, familytest.Entry{Key: strings.Repeat("x", 900) + strconv.Itoa(i), Tensor: tensor.FromFloat32s([]int{1}, []float32{1})})
		}
		_, err := recognised(t, entries, `{"field_dims":[2,3,4]}`)
		if !fault.IsInput(err) || len(err.Error()) > 800 || !strings.Contains(err.Error(), "the file has "+strconv.Itoa(n)+" tensors") {
			t.Errorf("%d tensors: %v", n, err)
		}
		if more := strconv.Itoa(n-4) + " more)"; n > 4 && !strings.Contains(err.Error(), more) {
			t.Errorf("%d tensors: %v lacks %q", n, err, more)
		}
	}
}
