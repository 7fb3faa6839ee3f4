package match

import (
	"errors"
	"fmt"

	"shaver/internal/onnx/graph"
)

// atom is an element of a source. Atoms are numbered from 1.
type atom int32

// place is an element of a source.
type place struct {
	source  *source
	element int
}

// source is a value whose elements are atoms. Exactly one of its parts is in use.
type source struct {
	lookUp int     // number of the look-up, if there are no inputs
	linear *linear // a linear layer
	norm   *norm   // a BatchNorm
	relu   bool
	inputs []polynomial
}

// linear is the layer y = x W' + b.
type linear struct {
	out    int
	weight []float32 // [out, len(inputs)]
	bias   []float32 // [out]; nil = none
}

// norm is a BatchNorm in evaluation mode.
type norm struct {
	gamma, beta, mean, variance []float32
	epsilon                     float32
}

// maxTerms bounds the terms and the elements of all values, together.
const maxTerms = 1 << 22

var errLarge = errors.New("the graph is too large to compare")

// reader reads a graph as polynomials in the elements of its inputs and layers.
type reader struct {
	g      *graph.Graph
	values map[graph.Value][]polynomial // elements
	places []place                      // of each atom
	used   map[*graph.Tensor]bool       // matrices of layers
	terms  int
}

// spend counts terms and elements.
func (r *reader) spend(n int) error {
	if n > maxTerms-r.terms {
		return errLarge
	}
	r.terms += n
	return nil
}

// atoms returns n new atoms, of s.
func (r *reader) atoms(s *source, n int) ([]polynomial, error) {
	if err := r.spend(2 * n); err != nil {
		return nil, err
	}
	out := make([]polynomial, n)
	terms := make([]term, n)
	for i := range out {
		terms[i] = term{monomial(len(r.places)), 1}
		r.places = append(r.places, place{s, i})
		out[i] = terms[i : i+1 : i+1]
	}
	if len(r.places) > maxAtom {
		return nil, errLarge
	}
	return out, nil
}

// elements returns the elements of a value.
func (r *reader) elements(v graph.Value) ([]polynomial, error) {
	if known, ok := r.values[v]; ok {
		return known, nil
	}
	if v == graph.Absent {
		return nil, errors.New("an input is missing")
	}
	t := r.g.Values[v].Constant
	if t == nil || t.Type != graph.Float {
		return nil, fmt.Errorf("it reads %.100q, which is neither an input nor a constant number", r.g.Values[v].Name)
	}
	if err := r.spend(2 * t.Len()); err != nil {
		return nil, err
	}
	out := make([]polynomial, t.Len())
	for i, f := range t.Floats {
		out[i] = number(float64(f))
	}
	r.values[v] = out
	return out, nil
}

// read reads all nodes.
func (r *reader) read() error {
	for i := range r.g.Nodes {
		n := &r.g.Nodes[i]
		if err := r.node(n); err != nil {
			return fmt.Errorf("node %.100q (%.100s): %w", n.Name, n.Op, err)
		}
	}
	return nil
}

func (r *reader) node(n *graph.Node) error {
	size := 0
	for _, v := range n.Outputs {
		count, err := graph.Count(r.g.Values[v].Shape)
		if err != nil {
			return err
		}
		size += count
	}
	if err := r.spend(size); err != nil {
		return err
	}
	if moved, err := r.relabel(n); moved || err != nil {
		return err
	}
	read := operators[n.Op]
	if read == nil || len(n.Outputs) != 1 {
		return errors.New("no kind has such an operator")
	}
	out, err := read(r, n)
	if err != nil {
		return err
	}
	if len(out) != size {
		return fmt.Errorf("%d elements, expected %d", len(out), size)
	}
	r.values[n.Outputs[0]] = out
	return nil
}

// relabel reads a node that only moves elements.
func (r *reader) relabel(n *graph.Node) (moved bool, err error) {
	inputs := make([][]polynomial, len(n.Inputs))
	out := make([][]polynomial, len(n.Outputs))
	moved = r.g.Relabel(n, func(output, input, element int) {
		var p polynomial
		if input != graph.Nothing && err == nil {
			if inputs[input] == nil {
				inputs[input], err = r.elements(n.Inputs[input])
			}
			if err == nil {
				p = inputs[input][element]
			}
		}
		out[output] = append(out[output], p)
	})
	if !moved || err != nil {
		return false, err
	}
	for i, v := range n.Outputs {
		r.values[v] = out[i]
	}
	return true, nil
}
