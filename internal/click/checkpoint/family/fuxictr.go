package family

import (
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

const (
	// FuxiCTR is the name of the framework, and FeatureMap of the file in which it keeps the
	// order and the types of the fields.
	FuxiCTR    = "fuxictr"
	FeatureMap = "feature_map.json"

	fuxiTables = "embedding_layer.embedding_layer.embedding_layers.*.weight"
)

// fuxiCTR is FuxiCTR 2 with PyTorch. Its models are in the model zoo. A numeric feature is
// a Linear(1, d), whose weight has the name of a table and the shape [d, 1].
var fuxiCTR = family{
	name: FuxiCTR, guide: "fuxictr", table: fuxiTables,
	wide: []wideNames{
		{firstOrder: "fm.lr_layer." + fuxiTables, bias: "fm.lr_layer.bias", kinds: []model.Kind{model.FM, model.DeepFM}},
		{firstOrder: "lr_layer." + fuxiTables, bias: "lr_layer.bias", kinds: []model.Kind{model.WideDeep}},
	},
	cross: crossNames{weight: "crossnet.cross_layers.#.weight", bias: "crossnet.cross_layers.#.bias"},
	mlps: []mlpNames{
		{linear: "mlp.mlp.", logit: true},
		{linear: "dnn.mlp.", logit: true},
		{linear: "stacked_dnn.mlp.", structure: model.Stacked},
		{linear: "parallel_dnn.mlp.", structure: model.Parallel},
	},
	crossOutput: "fc.",
	foreign: []foreignName{
		{"crossnet.U_list.", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"crossnet.gating.", "a mixture of low-rank cross layers, whose gates are a softmax"},
		{"crossnet.cross_net.", "the cross layers of the first DCN"},
		{"cin.", "an xDeepFM"},
		{"self_attention.", "an AutoInt"},
		{"embedding_layer.embedding_layer.feature_encoders.", "an encoder of a sequence or of a pretrained embedding"},
	},
}

// Feature is what FuxiCTR's feature_map.json says about a feature.
type Feature struct {
	Name  string `json:"-"`
	Type  string `json:"type"`
	Size  *int   `json:"vocab_size"`
	Share string `json:"share_embedding"`
}

// mapped takes the order of the fields from feature_map.json, and checks that each of them
// has one id in a row. The map may have features that the model does not use.
func (a *asked) mapped(found []string) error {
	c := a.s.state
	mapped := map[string]bool{}
	for _, f := range a.features {
		key, ok := a.s.keys[forField(a.f.table, f.Name)]
		if !ok {
			continue
		}
		switch {
		case mapped[f.Name]:
			return c.inputf("%s has the feature %s twice", FeatureMap, tensor.Quote(f.Name))
		case f.Type != "categorical":
			return c.inputf("%s says that feature %s, with tensor %s, is of type %s: only categorical features are supported in a state dict; %s",
				FeatureMap, tensor.Quote(f.Name), key, tensor.Quote(f.Type), a.f.advice())
		case f.Share != "" && f.Share != f.Name:
			return c.inputf("%s says that feature %s shares the table of %s, which is not supported yet", FeatureMap, tensor.Quote(f.Name), tensor.Quote(f.Share))
		case f.Size != nil && len(c.Tensors[key].Shape) == 2 && *f.Size != c.Tensors[key].Shape[0]:
			return c.inputf("%s says that feature %s has %d ids, but tensor %s has shape %s", FeatureMap, tensor.Quote(f.Name), *f.Size, key, tensor.ShapeText(c.Tensors[key].Shape))
		}
		a.fields, mapped[f.Name] = append(a.fields, f.Name), true
	}
	for _, field := range found {
		if !mapped[field] {
			return c.inputf("%s has no feature %s, which has the tensor %s", FeatureMap, tensor.Quote(field), a.s.keys[forField(a.f.table, field)])
		}
	}
	return nil
}
