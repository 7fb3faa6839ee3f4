package wire

import (
	"fmt"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
)

// maxCalls bounds the depth of local functions that call each other.
const maxCalls = 16

// inliner replaces calls of local functions by the nodes of the functions.
type inliner struct {
	*parser
	calls int // number of calls so far
}

// scope renames the values of one call of a function.
type scope struct {
	names      map[string]string // names after inlining by names in the function
	prefix     string            // of the names of values that the caller does not see
	attributes map[string]*Attribute
}

// inline replaces the calls in g, and sets the version of every node.
func (p *parser) inline(g *Graph) error {
	in := &inliner{parser: p}
	nodes, err := in.nodes(g.Nodes, nil, p.opset, 0)
	g.Nodes = nodes
	return err
}

// nodes returns a list without calls. If s is not nil, the nodes are those of a function,
// and the result is a copy with the values renamed.
func (in *inliner) nodes(list []Node, s *scope, opset, depth int) ([]Node, error) {
	var out []Node
	for i := range list {
		n := list[i]
		if s != nil {
			var err error
			if n, err = in.rename(&n, s); err != nil {
				return nil, err
			}
		}
		op, overload, _ := strings.Cut(n.Op, "\x00")
		f := in.functions[key(n.Domain, op, overload)]
		if f != nil {
			expanded, err := in.call(&n, f, opset, depth)
			if err != nil {
				return nil, err
			}
			out = append(out, expanded...)
			continue
		}
		n.Op, n.Opset = op, opset
		if n.Domain != "" && (n.Domain != contribDomain || !contrib[op]) || overload != "" {
			return nil, fault.Inputf("node %s: operator %s of domain %s is not supported, expected ONNX's own operators", n.Label(), Quote(op), Quote(n.Domain))
		}
		for _, name := range sortedNames(n.Attributes) {
			a := n.Attributes[name]
			if a.reference != "" {
				return nil, fault.Inputf("node %s: attribute %s refers to an attribute of a function, but the node is not in a function", n.Label(), Quote(name))
			}
			if a.Graph == nil {
				continue
			}
			body := *a.Graph
			var err error
			if body.Nodes, err = in.nodes(body.Nodes, nil, opset, depth); err != nil {
				return nil, err
			}
			copied := *a
			copied.Graph = &body
			n.Attributes[name] = &copied
		}
		out = append(out, n)
	}
	return out, nil
}

// call returns the nodes of f for the call n.
func (in *inliner) call(n *Node, f *function, opset, depth int) ([]Node, error) {
	if depth == maxCalls {
		return nil, fault.Inputf("node %s: local functions call each other more than %d deep, at %s", n.Label(), maxCalls, Quote(f.name))
	}
	if len(n.Inputs) > len(f.inputs) || len(n.Outputs) > len(f.outputs) {
		return nil, fault.Inputf("node %s: function %s has %d inputs and %d outputs, and the node has %d and %d",
			n.Label(), Quote(f.name), len(f.inputs), len(f.outputs), len(n.Inputs), len(n.Outputs))
	}
	if err := in.meter.take(nodeCost); err != nil {
		return nil, err
	}
	in.calls++
	s := &scope{names: map[string]string{"": ""}, prefix: n.NameOrOutput() + "/" + strconv.Itoa(in.calls) + "/", attributes: map[string]*Attribute{}}
	if len(s.prefix) > maxName {
		s.prefix = strconv.Itoa(in.calls) + "/"
	}
	for i, name := range f.inputs {
		s.names[name] = ""
		if i < len(n.Inputs) {
			s.names[name] = n.Inputs[i]
		}
	}
	for i, name := range f.outputs {
		if _, ok := s.names[name]; ok {
			return nil, fault.Inputf("function %s: output %s is also an input or another output", Quote(f.name), Quote(name))
		}
		if i < len(n.Outputs) && n.Outputs[i] != "" {
			s.names[name] = n.Outputs[i]
		}
	}
	for name, a := range f.defaults {
		s.attributes[name] = a
	}
	for name, a := range n.Attributes {
		s.attributes[name] = a
	}
	if f.opset != 0 {
		opset = f.opset
	}
	nodes, err := in.nodes(f.nodes, s, opset, depth+1)
	if err != nil && depth > 0 { // the names of the nodes say where the calls are
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", Quote(f.name), err)
	}
	return nodes, nil
}

// rename returns a copy of n, a node of a function, for one call.
func (in *inliner) rename(n *Node, s *scope) (Node, error) {
	c := *n
	if err := in.meter.take(nodeCost + len(s.prefix) + len(n.Name)); err != nil {
		return c, err
	}
	c.Name, c.place = s.prefix+n.NameOrOutput(), nil
	var err error
	if c.Inputs, err = in.renameAll(n.Inputs, s); err != nil {
		return c, err
	}
	if c.Outputs, err = in.renameAll(n.Outputs, s); err != nil {
		return c, err
	}
	c.Attributes = make(map[string]*Attribute, len(n.Attributes))
	for _, name := range sortedNames(n.Attributes) {
		a := n.Attributes[name]
		if err := in.meter.take(attributeCost); err != nil {
			return c, err
		}
		if a.reference != "" {
			if given := s.attributes[a.reference]; given != nil {
				c.Attributes[name] = given
			}
			continue // if the caller gives no value, the operator's default holds
		}
		if a.Graph != nil {
			copied := *a
			if copied.Graph, err = in.renameGraph(a.Graph, s); err != nil {
				return c, err
			}
			a = &copied
		}
		c.Attributes[name] = a
	}
	return c, nil
}

func (in *inliner) renameGraph(g *Graph, s *scope) (*Graph, error) {
	c := &Graph{Name: g.Name}
	for i := range g.Nodes {
		n, err := in.rename(&g.Nodes[i], s)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	for _, t := range g.Initializers {
		name, err := in.renamed(t.Name, s)
		if err != nil {
			return nil, err
		}
		copied := *t
		copied.Name = name
		c.Initializers = append(c.Initializers, &copied)
	}
	values := func(list []Value) (out []Value, err error) {
		for _, v := range list {
			if v.Name, err = in.renamed(v.Name, s); err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	var err error
	if c.Inputs, err = values(g.Inputs); err != nil {
		return nil, err
	}
	c.Outputs, err = values(g.Outputs)
	return c, err
}

func (in *inliner) renameAll(names []string, s *scope) ([]string, error) {
	out := make([]string, len(names))
	for i, name := range names {
		var err error
		if out[i], err = in.renamed(name, s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (in *inliner) renamed(name string, s *scope) (string, error) {
	actual, ok := s.names[name]
	if !ok {
		if err := in.meter.take(valueCost + len(s.prefix) + len(name)); err != nil {
			return "", err
		}
		actual = s.prefix + name
		s.names[name] = actual
	}
	return actual, nil
}
