package family

import "shaver/internal/click/model"

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
	foreign: []foreignName{
		{"linear_model.weight", "dense inputs"},
		{"crossnet.U_list", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"dnn.activation_layers.", "an activation with parameters"},
		{"cin.", "an xDeepFM"},
	},
}
