package family

import "shaver/internal/click/model"

// recBole is RecBole. Every context-aware model has the first-order weights, but DCNV2
// does not use them. LR has the tensors of an FM, and DeepFM those of WideDeep. The sizes
// of the fields are not among the tensors.
var recBole = family{
	name: "recbole", guide: "recbole", table: "token_embedding_table.embedding.weight",
	wide: []wideNames{{
		firstOrder: "first_order_linear.token_embedding_table.embedding.weight", bias: "first_order_linear.bias",
		kinds: []model.Kind{model.FM, model.DeepFM, model.WideDeep}, unsure: true,
	}},
	cross:  crossNames{weight: "cross_layer_w.#", bias: "bias.#"},
	mlps:   []mlpNames{{linear: "mlp_layers.mlp_layers."}},
	output: "deep_predict_layer.", crossOutput: "predict_layer.", // FNN has predict_layer without cross layers
	onlyReLU:       true,
	crossIsNotWide: true,
	foreign: []foreignName{
		{"float_embedding_table.", "numeric fields"},
		{"token_seq_embedding_table.", "sequences"},
		{"float_seq_embedding_table.", "sequences"},
		{"cross_layer_u.", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"cross_layer_b.", "the cross layers of the first DCN"},
	},
}
