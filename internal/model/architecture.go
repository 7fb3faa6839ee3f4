// Package model holds click models (FM, DeepFM, DCN-Mix, DCNv2) as the
// attribution needs them: an embedding table whose entries are the players, and
// a head that maps one row's embedding to a logit. A Scorer evaluates batches,
// a Probe evaluates one row while its entries appear one by one.
//
// Conventions, everywhere in the project: m fields, d columns, n features over
// all fields, D = m*d entries (players) a row. Player j*d+c is column c of
// field j. A feature's global id is the sum of the sizes of the fields before
// its own, plus its local id. Arithmetic is float32 in the network, float64 for
// FM sums, logits and losses.
package model

import (
	"errors"
	"fmt"
	"math"
)

// Kind names a model family.
type Kind string

// The families (REFERENCE: the method).
const (
	FM     Kind = "fm"      // first order and pairwise terms, no network
	DeepFM Kind = "deepfm"  // FM and an MLP side by side
	DCNMix Kind = "dcn-mix" // mixture of low-rank cross experts, then an MLP
	DCNv2  Kind = "dcnv2"   // full-matrix cross layers, an MLP after or beside them
)

// Structures of DCNv2.
const (
	Stacked  = "stacked"  // the MLP reads the cross layers' output
	Parallel = "parallel" // the MLP reads the embedding; both outputs are concatenated, cross first
)

// Architecture is everything about a model but its numbers. Its JSON form is
// what lies beside a bare state dict, in our files' metadata, and in the output
// of "shaver model inspect".
type Architecture struct {
	Kind        Kind   `json:"kind"`
	FieldDims   []int  `json:"field_dims"`             // features of each field, each at least 1
	Dim         int    `json:"dim"`                    // d, columns of the embedding table
	Hidden      []int  `json:"hidden,omitempty"`       // widths of the MLP's hidden layers; none for FM
	CrossLayers int    `json:"cross_layers,omitempty"` // DCN-Mix, DCNv2
	Experts     int    `json:"experts,omitempty"`      // DCN-Mix
	Rank        int    `json:"rank,omitempty"`         // DCN-Mix
	Structure   string `json:"structure,omitempty"`    // DCNv2: Stacked or Parallel
}

// Fields returns m.
func (a *Architecture) Fields() int { return len(a.FieldDims) }

// Features returns n, the number of features over all fields.
func (a *Architecture) Features() int {
	n := 0
	for _, size := range a.FieldDims {
		n += size
	}
	return n
}

// Players returns D = m*d, the entries that one row activates.
func (a *Architecture) Players() int { return a.Fields() * a.Dim }

// Parameters returns n*d, the entries of the embedding table.
func (a *Architecture) Parameters() int { return a.Features() * a.Dim }

// Offsets returns the global id of each field's first feature.
func (a *Architecture) Offsets() []int32 { return Offsets(a.FieldDims) }

// Offsets returns the running sums of sizes, starting at 0: the global id of
// the first feature of each field.
func Offsets(sizes []int) []int32 {
	offsets := make([]int32, len(sizes))
	sum := 0
	for j, size := range sizes {
		offsets[j] = int32(sum)
		sum += size
	}
	return offsets
}

// CheckSizes reports the first field whose size is below 1, or with which the sizes
// sum to 2^31 or more, as global ids are int32. The error has the field's position
// and, unless names is nil, its name.
func CheckSizes(names []string, sizes []int) error {
	features := 0
	for j, size := range sizes {
		if size < 1 || size > math.MaxInt32-features {
			field := fmt.Sprintf("field %d", j)
			if names != nil {
				field += fmt.Sprintf(" (%s)", names[j])
			}
			return fmt.Errorf("%s has size %d after %d features: sizes are at least 1 and sum to less than 2^31", field, size, features)
		}
		features += size
	}
	return nil
}

// Validate reports the first thing in a that no model of its kind can have.
func (a *Architecture) Validate() error {
	if len(a.FieldDims) == 0 {
		return errors.New("field_dims is empty: a model has at least one field")
	}
	if err := CheckSizes(nil, a.FieldDims); err != nil {
		return fmt.Errorf("field_dims: %w", err)
	}
	if a.Dim < 1 || a.Dim > 1<<16 {
		return fmt.Errorf("dim is %d: an embedding has 1 to 65536 columns", a.Dim)
	}
	for l, width := range a.Hidden {
		if width < 1 {
			return fmt.Errorf("hidden[%d] is %d: a layer has at least 1 unit", l, width)
		}
	}
	if a.CrossLayers < 0 || a.Experts < 0 || a.Rank < 0 {
		return errors.New("cross_layers, experts and rank are not negative")
	}
	hidden, cross, experts := len(a.Hidden) > 0, a.CrossLayers > 0, a.Experts > 0 || a.Rank > 0
	switch a.Kind {
	case FM:
		if hidden || cross || experts {
			return errors.New("an fm has neither hidden nor cross layers")
		}
	case DeepFM:
		if !hidden || cross || experts {
			return errors.New("a deepfm has hidden layers and no cross layers")
		}
	case DCNMix:
		if !hidden || !cross || a.Experts == 0 || a.Rank == 0 {
			return errors.New("a dcn-mix has hidden layers, cross layers, experts and a rank")
		}
	case DCNv2:
		if !hidden || !cross || experts {
			return errors.New("a dcnv2 has hidden layers and cross layers, and no experts")
		}
		if a.Structure != Stacked && a.Structure != Parallel {
			return fmt.Errorf("structure is %q: a dcnv2 is %s or %s", a.Structure, Stacked, Parallel)
		}
	default:
		return fmt.Errorf("kind is %q: the kinds are %s, %s, %s, %s", a.Kind, FM, DeepFM, DCNMix, DCNv2)
	}
	if a.Kind != DCNv2 && a.Structure != "" {
		return fmt.Errorf("structure is %q: only a dcnv2 has one", a.Structure)
	}
	return nil
}
