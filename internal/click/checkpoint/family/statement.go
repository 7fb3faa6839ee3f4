package family

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// Statement is what a source besides the tensors says about the architecture: a JSON
// file, our metadata, or the model_config of a .pth file. It has the JSON fields of
// model.Architecture. A field that the source leaves out is nil.
type Statement struct {
	From        string      `json:"-"` // name of the source, for errors
	Kind        *model.Kind `json:"kind"`
	FieldDims   []int       `json:"field_dims"`
	Dim         *int        `json:"dim"`
	Hidden      []int       `json:"hidden"`
	CrossLayers *int        `json:"cross_layers"`
	Experts     *int        `json:"experts"`
	Rank        *int        `json:"rank"`
	Structure   *string     `json:"structure"`
	// Activation and FieldNames are not part of an architecture.
	Activation *string   `json:"activation"`  // of the hidden layers
	FieldNames []string  `json:"field_names"` // in the order of the fields
	Features   []Feature `json:"-"`           // of FuxiCTR; nil if its feature_map.json does not exist
	File       string    `json:"-"`           // name of the JSON file next to a state dict, if it is the source
	BatchNorm  *bool     `json:"-"`           // whether each hidden layer has one
	// Classes are the classes of the modules in a pickled module, by their paths, such as
	// "dnn.dropout". That of the whole module is "". They are nil for a state dict.
	Classes map[string]string `json:"-"`
	Forward string            `json:"-"` // the outermost of these classes that belongs neither to torch nor to a framework, or ""
	Differs map[string]string `json:"-"` // what is unusual about these modules, such as "eps the float 0.001"; "" if nothing is
}

// Lookup looks for a statement outside the file, about a state dict of the given framework.
// "" stands for our own names. It returns nil if it finds nothing. With an error, it may return the part that it could read.
type Lookup func(framework string) (*Statement, error)

// Configuration returns what the model_config of a file says about a model of the given kind.
// It is nil if the file has none.
type Configuration func(kind model.Kind) (*Statement, error)

// check returns an error for the first part of s that contradicts the recognised roles. f is the
// family of the model, or nil.
func (s *Statement) check(l *Roles, f *family) error {
	a := &l.Architecture
	differ := func(what string, said, found any) error {
		return fmt.Errorf("%s says %s %v, the tensors have %v", s.From, what, said, found)
	}
	if s.Activation != nil && normal(*s.Activation) != relu && len(a.Hidden) > 0 {
		return fmt.Errorf("%s says that the activation is %s, but only relu is supported in a state dict: %s", s.From, tensor.Quote(*s.Activation), f.advice())
	}
	if err := s.checkModules(l); err != nil {
		return fmt.Errorf("%s: %w; %s", s.From, err, f.advice())
	}
	if s.Kind != nil && normal(string(*s.Kind)) != string(a.Kind) {
		err := differ("kind", tensor.Quote(string(*s.Kind)), a.Kind)
		if f != nil {
			err = fmt.Errorf("%w; %s", err, f.otherwise())
		}
		return err
	}
	if s.FieldDims != nil && !slices.Equal(s.FieldDims, a.FieldDims) {
		return fmt.Errorf("%s says field_dims %s, the file %s", s.From, sizesText(s.FieldDims), sizesText(a.FieldDims))
	}
	if s.Hidden != nil && !slices.Equal(s.Hidden, a.Hidden) {
		return differ("hidden sizes", tensor.ShapeText(s.Hidden), tensor.ShapeText(a.Hidden))
	}
	for _, n := range []struct {
		what  string
		said  *int
		found int
	}{
		{"embedding columns", s.Dim, a.Dim}, {"cross layers", s.CrossLayers, a.CrossLayers},
		{"experts", s.Experts, a.Experts}, {"rank", s.Rank, a.Rank},
	} {
		if n.said != nil && *n.said != n.found {
			return differ(n.what, *n.said, n.found)
		}
	}
	if s.Structure != nil && normal(*s.Structure) != a.Structure {
		return differ("structure", tensor.Quote(*s.Structure), a.Structure)
	}
	if s.BatchNorm != nil {
		for i := range l.Layers {
			if l.Layers[i].Norm != *s.BatchNorm {
				return differ("use_batchnorm", *s.BatchNorm, fmt.Sprintf("%v in hidden layer %d", !*s.BatchNorm, i))
			}
		}
	}
	return nil
}

// hint returns what the JSON file of a state dict adds that does not need it: a kind that shaver has, the sizes of the fields and the
// activation. The file may be about something else. s may be nil, and so is the result without any of them.
func (s *Statement) hint() *Statement {
	if s == nil {
		return nil
	}
	h := Statement{From: s.From, File: s.File, FieldDims: s.FieldDims, Activation: s.Activation}
	if s.Kind != nil && titles[model.Kind(normal(string(*s.Kind)))] != "" {
		h.Kind = s.Kind
	}
	if h.Kind == nil && h.FieldDims == nil && h.Activation == nil {
		return nil
	}
	return &h
}

// normal converts a name to the spelling of our constants.
func normal(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// sizesText is like shapeText, but shortens long lists.
func sizesText(sizes []int) string {
	const most = 12
	if len(sizes) <= most {
		return tensor.ShapeText(sizes)
	}
	return strings.TrimSuffix(tensor.ShapeText(sizes[:most]), "]") + fmt.Sprintf(", ...] of %d", len(sizes))
}
