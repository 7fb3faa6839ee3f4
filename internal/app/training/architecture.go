package training

import (
	"slices"

	"shaver/internal/click/model"
)

// The initialisations of a new model.
const (
	InitialDefault   = "zero-first"
	InitialReference = "reference"
)

// The widths of the hidden layers of a new model. Those of a NeuMF are the reference's.
var (
	DefaultHidden = []int{400, 400, 400}
	NeuMFHidden   = []int{64, 32, 16}
)

// parts lists what only some kinds of models have, by the names of the flags of shaver train.
var parts = map[string][]model.Kind{
	"hidden":       {model.DeepFM, model.WideDeep, model.DCNMix, model.DCNv2, model.NeuMF},
	"batch-norm":   {model.DeepFM, model.WideDeep, model.DCNMix, model.DCNv2},
	"cross-layers": {model.DCNMix, model.DCNv2},
	"experts":      {model.DCNMix}, "rank": {model.DCNMix},
	"structure": {model.DCNv2},
}

// Has reports whether models of a kind have a part, which has the name of a flag of shaver train. All
// kinds have what is not a part of some.
func Has(kind model.Kind, part string) bool {
	kinds := parts[part]
	return kinds == nil || slices.Contains(kinds, kind)
}

// Trim removes from an architecture what its kind does not have.
func Trim(a *model.Architecture) {
	if !Has(a.Kind, "hidden") {
		a.Hidden = nil
	}
	if !Has(a.Kind, "cross-layers") {
		a.CrossLayers = 0
	}
	if !Has(a.Kind, "experts") {
		a.Experts, a.Rank = 0, 0
	}
	if !Has(a.Kind, "structure") {
		a.Structure = ""
	}
}
