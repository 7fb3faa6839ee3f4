// Package model evaluates click models: FM, DeepFM, DCN-Mix, DCNv2, WideDeep, NeuMF, and any
// head that is a graph of operators. A model is an embedding table, whose entries are the
// players, and a head that maps one row's embedding to a logit. A [Scorer] evaluates
// batches of rows. A [Probe] evaluates one row while its entries appear one by one. A
// [Gradient] computes derivatives.
//
// The whole project uses the same conventions: m fields, d columns, n features over all
// fields, and D = m*d elements of a row's embedding, which are its players. Player j*d+c is
// column c of field j. A feature's global id is its local id plus the sizes of all fields
// before its own. The network computes in float32; FM sums, logits and losses are float64.
//
// A model of Kind Graph may instead have several tables, each with its own number of
// columns, and look-ups, each of which reads one row of a table for each id of its field.
// The elements of a row's embedding are then the columns of its look-ups, in the order of
// the look-ups. The rows of the tables are numbered on from table to table. Global ids
// remain those of features, and a [Roster] maps a row to the rows of the tables and to its
// players.
package model

import (
	"errors"
	"fmt"
	"math"
)

// Kind names what computes a model's logit.
type Kind string

// The kinds of the paper's experiments, and three more.
const (
	FM     Kind = "fm"      // first order and pairwise terms, no network
	DeepFM Kind = "deepfm"  // FM and an MLP side by side
	DCNMix Kind = "dcn-mix" // mixture of low-rank cross experts, then an MLP
	DCNv2  Kind = "dcnv2"   // full-matrix cross layers, with an MLP after them or in parallel

	WideDeep Kind = "widedeep" // first order and an MLP side by side: a DeepFM without pairwise terms
	NeuMF    Kind = "neumf"    // an MLP and a weighted product of two fields side by side, on columns of their own
	Graph    Kind = "graph"    // any head, as a graph of operators
)

// Structures of DCNv2.
const (
	Stacked  = "stacked"  // the MLP reads the cross layers' output
	Parallel = "parallel" // the MLP reads the embedding; both outputs are concatenated, cross first
)

// Architecture describes everything about a model except its weights. Its JSON form is
// stored next to a bare state dict and in the metadata of our files, and "shaver model
// inspect" prints it.
type Architecture struct {
	Kind        Kind     `json:"kind"`
	FieldDims   []int    `json:"field_dims"`             // number of features of each field, each at least 1
	Dim         int      `json:"dim"`                    // d, the number of columns of the embedding table; 0 if there are Tables
	Tables      []Table  `json:"tables,omitempty"`       // the tables whose entries are players; empty if there is a single one, [Features, Dim]
	LookUps     []LookUp `json:"look_ups,omitempty"`     // how fields read Tables, in the order of the elements; they read either the same rows of a table or none in common
	Lists       []List   `json:"lists,omitempty"`        // fields that are lists of ids, by field; a look-up of a list reads one row for each position
	Hidden      []int    `json:"hidden,omitempty"`       // widths of the MLP's hidden layers; empty for FM
	CrossLayers int      `json:"cross_layers,omitempty"` // number of cross layers; DCN-Mix and DCNv2 only
	Experts     int      `json:"experts,omitempty"`      // number of experts per cross layer; DCN-Mix only
	Rank        int      `json:"rank,omitempty"`         // rank of each expert; DCN-Mix only
	Structure   string   `json:"structure,omitempty"`    // Stacked or Parallel; DCNv2 only
	Dense       []string `json:"dense,omitempty"`        // names of the dense inputs that the model reads, in its order; nil without any
	Frozen      []int    `json:"-"`                      // fields whose entries are no players, ascending; a job decides it, so no model file has it
}

// Fields returns m, the number of fields.
func (a *Architecture) Fields() int { return len(a.FieldDims) }

// Features returns n, the number of features over all fields.
func (a *Architecture) Features() int {
	n := 0
	for _, size := range a.FieldDims {
		n += size
	}
	return n
}

// Players returns D, the number of elements of a row's embedding. It is m*d if there is a
// single table, and otherwise the sum over the look-ups of their columns, once for each
// position of a list.
func (a *Architecture) Players() int {
	players, lengths := a.Fields()*a.Dim, a.Lengths()
	for _, l := range a.LookUps {
		players += lengths[l.Field] * a.Tables[l.Table].Dim
	}
	return players
}

// Parameters returns the number of entries of all embedding tables, which is n*d if there
// is a single table.
func (a *Architecture) Parameters() int {
	entries := a.Features() * a.Dim
	for _, t := range a.Tables {
		entries += t.Rows * t.Dim
	}
	return entries
}

// Wide reports whether the models of a's kind have first-order weights.
func (a *Architecture) Wide() bool { return a.Kind == FM || a.Kind == DeepFM || a.Kind == WideDeep }

// Offsets returns the global id of each field's first feature.
func (a *Architecture) Offsets() []int32 { return Offsets(a.FieldDims) }

// Offsets returns the running sums of sizes, starting at 0. If sizes are those of the
// fields, the sums are the global ids of each field's first feature.
func Offsets(sizes []int) []int32 {
	offsets := make([]int32, len(sizes))
	sum := 0
	for j, size := range sizes {
		offsets[j] = int32(sum)
		sum += size
	}
	return offsets
}

// CheckSizes returns an error for the first field whose size is below 1, or at which the
// running sum of the sizes reaches 2^31, because global ids are int32. The error has the
// position of the field and, unless names is nil, its name.
func CheckSizes(names []string, sizes []int) error {
	features := 0
	for j, size := range sizes {
		if size < 1 || size > math.MaxInt32-features {
			field := fmt.Sprintf("field %d", j)
			if names != nil {
				field += fmt.Sprintf(" (%s)", names[j])
			}
			return fmt.Errorf("%s has size %d after %d features: expected sizes of at least 1 that sum to less than 2^31", field, size, features)
		}
		features += size
	}
	return nil
}

// Validate returns an error that names the first invalid value of a.
func (a *Architecture) Validate() error {
	if err := a.ValidateLayout(); err != nil {
		return err
	}
	for l, width := range a.Hidden {
		if width < 1 {
			return fmt.Errorf("hidden[%d] is %d: a layer needs at least 1 unit", l, width)
		}
	}
	if a.CrossLayers < 0 || a.Experts < 0 || a.Rank < 0 {
		return errors.New("cross_layers, experts and rank must not be negative")
	}
	hidden, cross, experts := len(a.Hidden) > 0, a.CrossLayers > 0, a.Experts > 0 || a.Rank > 0
	switch a.Kind {
	case FM:
		if hidden || cross || experts {
			return errors.New("an fm must have neither hidden nor cross layers")
		}
	case DeepFM, WideDeep:
		if !hidden || cross || experts {
			return fmt.Errorf("a %s needs hidden layers and must have no cross layers", a.Kind)
		}
	case DCNMix:
		if !hidden || !cross || a.Experts == 0 || a.Rank == 0 {
			return errors.New("a dcn-mix needs hidden layers, cross layers, experts and a rank")
		}
	case DCNv2:
		if !hidden || !cross || experts {
			return errors.New("a dcnv2 needs hidden layers and cross layers, and must have no experts")
		}
		if a.Structure != Stacked && a.Structure != Parallel {
			return fmt.Errorf("structure is %q: a dcnv2 must be %s or %s", a.Structure, Stacked, Parallel)
		}
	case NeuMF:
		if !hidden || cross || experts {
			return errors.New("a neumf needs hidden layers and must have no cross layers")
		}
		if len(a.FieldDims) != 2 {
			return fmt.Errorf("field_dims has %d fields: a neumf has 2, the user and the item", len(a.FieldDims))
		}
		if a.Dim%2 != 0 {
			return fmt.Errorf("dim is %d: a neumf needs an even number of columns, of which the MLP and the product each read half", a.Dim)
		}
	case Graph:
		if hidden || cross || experts {
			return errors.New("a graph must have neither hidden nor cross layers, because its head describes itself")
		}
	default:
		return fmt.Errorf("kind is %q: expected %s, %s, %s, %s, %s, %s or %s", a.Kind, FM, DeepFM, DCNMix, DCNv2, WideDeep, NeuMF, Graph)
	}
	if !a.Plain() && a.Kind != Graph {
		return fmt.Errorf("kind is %s, which has a single table: expected neither tables nor look_ups", a.Kind)
	}
	if err := a.validateDense(); err != nil {
		return err
	}
	if a.Kind != DCNv2 && a.Structure != "" {
		return fmt.Errorf("structure is %q: only a dcnv2 has a structure", a.Structure)
	}
	return nil
}
