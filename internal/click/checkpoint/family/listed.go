package family

import (
	"cmp"
	"slices"
	"strconv"

	"shaver/internal/click/model"
)

var listedKinds = []model.Kind{model.FM, model.DeepFM, model.WideDeep}

// listed has our own names, but a ModuleList or a ModuleDict of tables, one for each field.
var listed = family{
	name: "pytorch", guide: "pytorch", table: "embedding.*.weight",
	wide:        []wideNames{{firstOrder: "fc.*.weight", bias: "_bias", kinds: listedKinds}, {firstOrder: "fc.weight", bias: "_bias", kinds: listedKinds}},
	cross:       crossNames{weight: "cross_head.layers.#.weight", bias: "cross_head.layers.#.bias"},
	mlps:        []mlpNames{{linear: "_deep_branch.", logit: true}, {linear: "_dnn."}},
	crossOutput: "_last_fc.", onlyReLU: true,
}

// Numbered returns the names of fields in the order of their numbers if all names are numbers from 0, as in a ModuleList.
// Otherwise it returns nil.
func Numbered(fields []string) []string {
	sorted := slices.SortedFunc(slices.Values(fields), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for j, field := range sorted {
		if field != strconv.Itoa(j) {
			return nil
		}
	}
	return sorted
}
