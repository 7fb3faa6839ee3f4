package family

import (
	"maps"
	"slices"
	"strings"

	"shaver/internal/click/model"
)

// deepCTRTorch is DeepCTR-Torch. A DeepFM without hidden layers is an FM. The state dicts
// of DeepFM and WDL have the same names. DCN with a matrix has first-order weights.
var deepCTRTorch = family{
	name: "deepctr-torch", guide: "deepctr-torch", table: "embedding_dict.*.weight",
	wide: []wideNames{{
		firstOrder: "linear_model.embedding_dict.*.weight", bias: "out.bias",
		kinds: []model.Kind{model.FM, model.DeepFM, model.WideDeep}, unsure: true, partial: true,
	}},
	cross:  crossNames{weight: "crossnet.kernels", bias: "crossnet.bias", stacked: true},
	mlps:   []mlpNames{{linear: "dnn.linears.", norm: "dnn.bn."}},
	output: "dnn_linear.", crossOutput: "dnn_linear.",
	classes: deepCTRClasses,
	foreign: []foreignName{
		{"linear_model.weight", "dense inputs"},
		{"crossnet.U_list", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"dnn.activation_layers.", "an activation with parameters"},
		{"cin.", "an xDeepFM"},
		{"SE.", "a FiBiNET"},
		{"Bilinear.", "a FiBiNET"},
		{"int_layers.", "an AutoInt"},
		{"fm.attention_W", "an AFM"},
		{"conv_layer.", "a CCPM"},
		{"second_order_embedding_dict.", "an ONN"},
		{"factor_estimating_net.", "an IFM"},
		{"vector_wise_net.", "a DIFM"},
		{"ltl.", "an AFN"},
		{"region_linear_model.", "an MLR"},
	},
}

// deepCTRClasses is family.classes. A DeepFM with use_fm=False has no module fm, and is a WDL.
func deepCTRClasses(classes map[string]string) (kind model.Kind, activation string) {
	_, deep := classes["dnn"]
	_, pairs := classes["fm"]
	switch class := classes[""]; {
	case class == "deepctr_torch.models.deepfm.DeepFM" && deep && pairs:
		kind = model.DeepFM
	case class == "deepctr_torch.models.deepfm.DeepFM" && pairs:
		kind = model.FM
	case class == "deepctr_torch.models.deepfm.DeepFM" && deep, class == "deepctr_torch.models.wdl.WDL" && deep:
		kind = model.WideDeep
	case class == "deepctr_torch.models.nfm.NFM": // which has no tensor of its own
		kind = "nfm"
	}
	for _, path := range slices.Sorted(maps.Keys(classes)) {
		if strings.HasPrefix(path, "dnn.activation_layers.") && (activation == "" || activation == relu) {
			activation = strings.ToLower(short(classes[path]))
		}
	}
	return kind, activation
}
