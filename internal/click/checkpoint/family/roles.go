package family

import "shaver/internal/click/model"

// Roles says what each tensor of a model is. It holds the keys of tensors; "" stands for a
// tensor that the model does not have.
type Roles struct {
	model.Architecture
	Embedding, Bias string
	Linear          string       // weights of the entries themselves
	Product         string       // weights of the products of the GMF columns
	FirstOrder      []string     // nil, one tensor, or one for each field, in which "" stands for zeros
	Layers          []LinearKeys // hidden layers, of the sizes Hidden
	Output          LinearKeys
	Gates           string
	Mix             []MixKeys
	Cross           []LinearKeys
}

// LinearKeys are the keys of a linear layer.
type LinearKeys struct {
	Weight, Bias                string
	Norm                        bool // whether a BatchNorm with the following tensors comes after the layer
	Gamma, Beta, Mean, Variance string
	// Stacked is true if Weight and Bias hold all layers. Layer is then the number of this
	// one.
	Stacked bool
	Layer   int
}

// MixKeys are the keys of a layer of DCN-Mix.
type MixKeys struct{ U, C, V, Bias string }
