// Package slice removes whole fields from a model. What is left is an ordinary smaller model: it
// reads fewer ids, and its table and its layers have no weights for the fields that went.
package slice

import (
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
)

// Options say what to remove from a model.
type Options struct {
	Model, ModelOutput string
	Dataset            []string // folders of the dataset of the training, or none
	Fields             []string // names of the fields to remove
	Out                string   // file to write
}

// Cost is what a row costs in a model.
type Cost struct {
	Fields          int   `json:"fields"`
	LookUps         int   `json:"look_ups"`        // rows of the table that a row of data reads
	Entries         int   `json:"entries"`         // of the table
	Multiplications int   `json:"multiplications"` // in the layers that read the embedding, and in the cross layers
	Bytes           int64 `json:"bytes"`           // of the dense file
}

// Result says what Write wrote.
type Result struct {
	Out     string   `json:"out"`
	Removed []string `json:"removed"` // names of fields
	Before  Cost     `json:"before"`
	After   Cost     `json:"after"`
}

// Write removes the fields and writes the model. A field that is removed reads zeros, and its
// first-order weights are 0, so the logits are those of the whole model with such a field.
func (o *Options) Write() (*Result, error) {
	ck, err := checkpoint.ReadOutput(o.Model, o.ModelOutput)
	if err != nil {
		return nil, err
	}
	names, err := o.names(ck)
	if err != nil {
		return nil, err
	}
	s, err := o.slice(names, ck.Architecture.Dim)
	if err != nil {
		return nil, err
	}
	small, err := ck.Sliced(*s)
	if err != nil {
		return nil, err
	}
	if _, err := small.Model(); err != nil { // which checks that every tensor is finite
		return nil, err
	}
	small.Origins = append(slices.Clone(ck.Origins), ck.Digest())
	r := &Result{Out: o.Out, Removed: o.Fields, Before: costOf(ck), After: costOf(small)}
	r.After.Bytes, err = checkpoint.WriteDense(o.Out, small)
	return r, err
}

// names returns the names of the model's fields. If there is a dataset, ck gets its identities.
func (o *Options) names(ck *checkpoint.Checkpoint) ([]string, error) {
	if len(o.Dataset) > 0 {
		d, err := dataset.OpenAll(o.Dataset)
		if err != nil {
			return nil, err
		}
		if d, err = d.For(&ck.Architecture); err != nil {
			return nil, err
		}
		if err := d.CheckKnown(ck.Known()); err != nil {
			return nil, err
		}
		ck.Identities = d.Identities()
		return d.Fields(), nil
	}
	known := ck.Known()
	names := known.FieldNames()
	if names == nil {
		return nil, fault.Inputf("%s does not name its fields: give --dataset with the dataset of its training", o.Model)
	}
	return names, nil
}

// slice returns what stays of a model whose fields have the given names.
func (o *Options) slice(names []string, columns int) (*checkpoint.Slice, error) {
	s := &checkpoint.Slice{}
	for i, name := range o.Fields {
		switch {
		case !slices.Contains(names, name):
			return nil, fault.Usagef("there is no field %q to remove: expected one of %s", name, strings.Join(names, ", "))
		case slices.Contains(o.Fields[:i], name):
			return nil, fault.Usagef("the field %q is to be removed twice", name)
		}
	}
	for j, name := range names {
		if !slices.Contains(o.Fields, name) {
			s.Fields = append(s.Fields, j)
		}
	}
	if s.Fields == nil {
		return nil, fault.Usagef("all %d fields are to be removed, but a model needs at least one", len(names))
	}
	for c := range columns {
		s.Columns = append(s.Columns, c)
	}
	return s, nil
}

func costOf(ck *checkpoint.Checkpoint) Cost {
	a := &ck.Architecture
	return Cost{a.Fields(), len(a.Lengths()), a.Parameters(), multiplications(a), ck.Size()}
}

// multiplications returns the number of multiplications that a row takes in the layers that read
// the embedding, and in the cross layers.
func multiplications(a *model.Architecture) int {
	elements := a.Players()
	read := 0 // outputs that read each element
	if len(a.Hidden) > 0 {
		read = a.Hidden[0]
	}
	switch a.Kind {
	case model.NeuMF:
		read /= 2 // the MLP reads half of the columns
	case model.DCNv2:
		read += a.CrossLayers * elements
	case model.DCNMix:
		read += a.CrossLayers * a.Experts * (2*a.Rank + 1)
	}
	return elements * read
}
