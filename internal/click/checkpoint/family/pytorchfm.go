package family

import "shaver/internal/click/model"

// pytorchFM is pytorch-fm (the package torchfm). Its DeepFM and its wide and deep model
// have the same names. The sizes of the fields are not among the tensors.
var pytorchFM = family{
	name: "pytorch-fm", guide: "pytorch", table: "embedding.embedding.weight",
	wide: []wideNames{{
		firstOrder: "linear.fc.weight", bias: "linear.bias",
		kinds: []model.Kind{model.FM, model.DeepFM, model.WideDeep},
	}},
	mlps:     []mlpNames{{linear: "mlp.mlp.", logit: true}},
	onlyReLU: true,
	foreign: []foreignName{
		{"cn.", "the cross layers of the first DCN"},
		{"cin.", "an xDeepFM"},
		{"afm.", "an AFM"},
		{"fm.", "an NFM"},
	},
}
