package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/graph"
)

// graphComputed describes a field whose ids follow from other elements of a row.
type graphComputed struct {
	Field   int                    `json:"field"`
	Graph   json.RawMessage        `json:"graph"`             // description by graph.Encode
	Weights map[string][]float32   `json:"weights,omitempty"` // float constants of the graph, which are scalars
	Sources [][]graphComputedInput `json:"sources"`           // by position of the field: what the inputs of the graph are
}

// graphComputedInput is an id of another field, if Field is set, or else a number.
type graphComputedInput struct {
	Name     string `json:"name"`
	Field    *int   `json:"field,omitempty"`
	Position int    `json:"position,omitempty"` // in a list
}

// Computed is a field of a model whose ids follow from other elements of a row, such as
// id % 5000 or the last item of a history. If the source is the field itself, only ids outside
// the field are replaced, as by a Clip.
type Computed struct {
	Field   int
	Sources [][]ComputedSource // by position of the field

	graph *graph.Graph
}

// ComputedSource is an element of a row.
type ComputedSource struct {
	Name     string // of the number, as a dense input is called
	Field    int    // whose id it is, or -1
	Position int    // in the field, if that is a list
}

// ID returns the id that follows from the values of the sources of a position. A value that is a whole number is in
// whole too, where it is exact.
func (c *Computed) ID(values []float64, whole []int64) (int64, error) {
	if c.graph == nil {
		return 0, errors.New("the model also reads the ids of this field as numbers, for example in a mask, so no other id can replace this one, even if the graph clips it: change the ids in the data")
	}
	var in []*graph.Tensor
	for i, v := range c.graph.Inputs {
		info := &c.graph.Values[v]
		t := &graph.Tensor{Type: info.Type, Shape: []int{}}
		switch {
		case info.Type == graph.Float:
			t.Floats = []float32{float32(values[i])}
		case float64(whole[i]) != values[i]:
			return 0, fmt.Errorf("%s is %v, expected a whole number of at most 2^63-1", info.Name, values[i])
		case info.Type == graph.Int:
			t.Ints = whole[i : i+1 : i+1]
		default:
			t.Bools = []bool{whole[i] != 0}
		}
		in = append(in, t)
	}
	out, err := c.graph.Run(in)
	if err != nil {
		return 0, err
	}
	return out.Ints[0], nil
}

// describeComputed describes how the ids of the fields of n follow from a row by what of returns.
func (c *Checkpoint) describeComputed(n *dissect.Network, of func(f *dissect.Field) *dissect.Computed) (all []graphComputed, err error) {
	for j := range n.Fields {
		f := &n.Fields[j]
		from := of(f)
		if from == nil {
			continue
		}
		text, weights := graph.Encode(from.Graph)
		out := graphComputed{Field: j, Graph: text}
		for _, w := range weights {
			if out.Weights == nil {
				out.Weights = map[string][]float32{}
			}
			for _, v := range w.Floats {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					return nil, c.inputf("field %s is computed with the constant %v, expected finite constants: compute the id before the model", tensor.Quote(f.Name), v)
				}
			}
			out.Weights[w.Name] = w.Floats
		}
		for i := range f.Length {
			var sources []graphComputedInput
			for _, s := range from.At(i) {
				in := graphComputedInput{Name: s.Name}
				for k := range n.Fields {
					if o := &n.Fields[k]; o.Computed == nil && o.Input == s.Input && s.Column >= o.Column && s.Column < o.Column+o.Length {
						in.Field, in.Position = &k, s.Column-o.Column
					}
				}
				sources = append(sources, in)
			}
			out.Sources = append(out.Sources, sources)
		}
		all = append(all, out)
	}
	return all, nil
}

// Computed returns the fields whose ids an import computes from the row, or replaces if they are outside the field.
// Only models of Kind Graph have others than the latter. If the network reads the ids of a field as numbers, ID replaces none.
func (c *Checkpoint) Computed() (all []Computed, err error) {
	computed := c.guards
	if c.graph != nil {
		computed = slices.Concat(c.graph.Computed, c.guards)
		for _, id := range c.graph.IDs {
			if id.Field >= 0 && id.Field < c.Architecture.Fields() {
				all = append(all, Computed{Field: id.Field, Sources: [][]ComputedSource{{{Field: id.Field}}}})
			}
		}
	}
	lengths := c.Architecture.Lengths()
	for _, f := range computed {
		bad := func(format string, args ...any) error {
			return c.inputf("metadata %s: computed field %d: %w", metaGraph, f.Field, fault.Inputf(format, args...))
		}
		if f.Field < 0 || f.Field >= len(lengths) || len(f.Sources) != lengths[f.Field] {
			return nil, bad("it has %d positions, expected those of one of %d fields", len(f.Sources), len(lengths))
		}
		g, err := graph.Decode(f.Graph, func(name string) (*graph.Tensor, error) {
			values, ok := f.Weights[name]
			if !ok || len(values) != 1 {
				return nil, fault.Inputf("constant %s has %d values, expected one", tensor.Quote(name), len(values))
			}
			return &graph.Tensor{Name: name, Type: graph.Float, Shape: []int{}, Floats: values}, nil
		})
		if err != nil {
			return nil, bad("%w", err)
		}
		if info := &g.Values[g.Output]; info.Type != graph.Int || len(info.Shape) != 0 {
			return nil, bad("it is of type %v with the shape %v, expected one whole number", info.Type, info.Shape)
		}
		for _, v := range g.Inputs {
			if info := &g.Values[v]; len(info.Shape) != 0 {
				return nil, bad("input %s has the shape %v, expected one number", tensor.Quote(info.Name), info.Shape)
			}
		}
		out := Computed{Field: f.Field, graph: g}
		for _, position := range f.Sources {
			if len(position) != len(g.Inputs) || len(position) == 0 {
				return nil, bad("it has %d sources, expected %d and at least 1", len(position), len(g.Inputs))
			}
			var sources []ComputedSource
			for _, s := range position {
				source := ComputedSource{s.Name, -1, s.Position}
				if s.Field != nil {
					source.Field = *s.Field
					if source.Field < 0 || source.Field >= len(lengths) || s.Position < 0 || s.Position >= lengths[source.Field] || source.Field == f.Field && len(position) > 1 {
						return nil, bad("it reads position %d of field %d, which there is not, or which is itself", s.Position, source.Field)
					}
				}
				sources = append(sources, source)
			}
			out.Sources = append(out.Sources, sources)
		}
		all = append(all, out)
	}
	return all, nil
}
