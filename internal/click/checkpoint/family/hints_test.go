package family

import (
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint/family/familytest"
	"shaver/internal/click/tensor"
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
		"two prefixes": {"dcn-mix", []string{"^", "net.ctr."}, []string{`without the prefix net.ctr. they are those of a DCN-Mix: save {k.removeprefix("net.ctr.")`}},
		"NeuMF":        {"fm", []string{"^", "ctr.", "embedding.weight", "_gmf.user_emb_table._emb_module.weight", "fc.weight", "_gmf.gmf_fc.weight"}, []string{`without the prefix ctr. they are those of a NeuMF: save {k.removeprefix("ctr.")`}},
		"pytorch-fm": {"deepfm", []string{"embedding.weight", "ctr.embedding.embedding.weight", "fc.weight", "ctr.linear.fc.weight", "_bias", "ctr.linear.bias", "_deep_branch.", "ctr.mlp.mlp.", "linear_layer.", "ctr.x.", "offsets", "ctr.offsets"}, []string{
			`without the prefix ctr. they are those of a model of pytorch-fm: save {k.removeprefix("ctr."): v for k, v in model.state_dict().items()}`,
		}},
		"FuxiCTR": {"deepfm", []string{"^", "ctr.", "embedding.weight", "embedding_layer.embedding_layer.embedding_layers.a.weight", "fc.weight", "fm.lr_layer.embedding_layer.embedding_layer.embedding_layers.a.weight"}, []string{
			`without the prefix ctr. they are those of a model of fuxictr: save {k.removeprefix("ctr.")`,
		}},
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
				key = test.rename[1] + key
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

// A state dict of two models, such as one and its moving average, leaves the choice to the user, and names both.
func TestHintsOfTwoModels(t *testing.T) {
	const choose = ": save only those of the model to score, as in {k.removeprefix(p): v for k, v in model.state_dict().items() if k.startswith(p)} with its prefix p"
	for _, test := range []struct{ first, second, want string }{
		{"ema_model.", "model.", "those with the prefix ema_model. are those of a DeepFM, and those with the prefix model. are those of a DeepFM"},
		{"ema.", "", "those with the prefix ema. are those of a DeepFM, and the others are those of a DeepFM"},
	} {
		var entries []familytest.Entry
		for _, prefix := range []string{test.first, test.second} {
			for _, e := range familytest.Sample("deepfm") {
				entries = append(entries, familytest.Entry{Key: prefix + e.Key, Tensor: e.Tensor})
			}
		}
		_, err := recognised(t, entries, `{"field_dims":[2,3,4]}`)
		wantError(t, err, test.want+choose)
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
