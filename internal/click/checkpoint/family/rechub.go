package family

import "shaver/internal/click/model"

// torchRechub is torch-rechub. The linear part of its DeepFM and WideDeep reads the
// embeddings, not the ids, and the two have the same names. The cross layers of its DCNv2
// add the bias outside the product, x' = x + x_0 * W x + b.
var torchRechub = family{
	name: "torch-rechub", guide: "torch-rechub", table: "embedding.embed_dict.*.weight",
	wide: []wideNames{{
		linear: "linear.fc.weight", bias: "linear.fc.bias",
		kinds: []model.Kind{model.DeepFM, model.WideDeep},
	}},
	mlps: []mlpNames{{linear: "mlp.mlp.", logit: true}},
	foreign: []foreignName{
		{"crossnet.u_list.", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"crossnet.b.", "cross layers that add the bias outside the product"},
		{"cin.", "an xDeepFM"},
	},
}
