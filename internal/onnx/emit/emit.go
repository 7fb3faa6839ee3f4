// Package emit writes the graph of a row as nodes of an .onnx file, which compute a batch of rows. Every value
// of the row gets a first axis, which is that of the rows.
package emit

import (
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// Part is a tensor of a file, or consecutive positions of one of its axes.
type Part struct {
	Name           string
	Axis           int
	From, Size, Of int // the first position, and the numbers of positions and of those of the axis; Size = Of for the whole tensor
}

// Batch adds the nodes of g to d and returns the name of their result. The result has the axis of the rows
// before those of the output of g. inputs has each input of g, with an axis of the rows before its own axes.
// rows is the name of a tensor of one whole number, the number of rows.
//
// A node whose indices depend on the row in a way that has no form for a batch is an input error.
func Batch(d *wire.Draft, g *graph.Graph, inputs []Part, rows string) (string, error) {
	e := &emitter{d: d, g: g, rows: rows, parts: make([]Part, len(g.Values)), constants: map[*graph.Tensor]string{}, whole: map[Part]string{}, lists: map[string]string{}}
	for i, v := range g.Inputs {
		e.parts[v] = inputs[i]
	}
	for i := range g.Nodes {
		e.n = &g.Nodes[i]
		if err := e.emit(); err != nil {
			return "", fault.Inputf("node %s (%s) has no form for several rows: %w: write a safetensors file", wire.Quote(e.n.Name), e.n.Op, err)
		}
	}
	return e.name(g.Output), nil
}

// emitter is the state of Batch.
type emitter struct {
	d         *wire.Draft
	g         *graph.Graph
	rows      string
	parts     []Part                   // by value of g
	constants map[*graph.Tensor]string // names of tensors
	whole     map[Part]string          // names of what parts became
	lists     map[string]string        // names of lists of whole numbers
	n         *graph.Node              // current one
}

// rank returns the number of axes of a value of the row.
func (e *emitter) rank(v graph.Value) int { return len(e.g.Values[v].Shape) }

func (e *emitter) shape(v graph.Value) []int { return e.g.Values[v].Shape }

func (e *emitter) constant(v graph.Value) *graph.Tensor { return e.g.Values[v].Constant }

// in returns an input of the current node, or Absent.
func (e *emitter) in(i int) graph.Value {
	if i >= len(e.n.Inputs) {
		return graph.Absent
	}
	return e.n.Inputs[i]
}

// int returns an attribute of the current node.
func (e *emitter) int(name string, otherwise int64) int64 {
	if v, ok := e.n.Attributes[name].(int64); ok {
		return v
	}
	return otherwise
}

// node adds a node with one output.
func (e *emitter) node(op string, attributes map[string]any, inputs ...string) string {
	out := e.d.Name(e.n.Name)
	e.d.Node(op, attributes, inputs, []string{out})
	return out
}

// set sets the output of the current node.
func (e *emitter) set(name string) { e.parts[e.n.Outputs[0]] = Part{Name: name} }

// ints returns the name of a list of whole numbers.
func (e *emitter) ints(list ...int) string {
	key := fmt.Sprint(list)
	if e.lists[key] == "" {
		numbers := make([]int64, len(list))
		for i, n := range list {
			numbers[i] = int64(n)
		}
		e.lists[key] = e.d.Name("shaver.list")
		e.d.Ints(e.lists[key], numbers, len(list))
	}
	return e.lists[key]
}

// name returns the name of a value. A constant has no axis of the rows.
func (e *emitter) name(v graph.Value) string {
	if t := e.constant(v); t != nil {
		return e.tensor(t)
	}
	p := e.parts[v]
	if p.Size == p.Of {
		return p.Name
	}
	if e.whole[p] == "" {
		e.whole[p] = e.d.Name(p.Name + ".part")
		e.d.Node("Slice", nil, []string{p.Name, e.ints(p.From), e.ints(p.From + p.Size), e.ints(p.Axis)}, []string{e.whole[p]})
	}
	return e.whole[p]
}

// tensor returns the name of a constant.
func (e *emitter) tensor(t *graph.Tensor) string {
	if name, ok := e.constants[t]; ok {
		return name
	}
	name := t.Name
	if name == "" {
		name = e.n.Name + ".constant"
	}
	name = e.d.Name(name)
	switch e.constants[t] = name; t.Type {
	case graph.Float:
		e.d.Floats(name, t.Floats, t.Shape...)
	case graph.Int:
		e.d.Ints(name, t.Ints, t.Shape...)
	case graph.Bool:
		e.d.Bools(name, t.Bools, t.Shape...)
	}
	return name
}

// batched returns the name of a value with an axis of the rows.
func (e *emitter) batched(v graph.Value) string {
	if e.constant(v) == nil {
		return e.name(v)
	}
	shape := e.node("Concat", map[string]any{"axis": int64(0)}, e.rows, e.ints(e.shape(v)...))
	return e.node("Expand", nil, e.name(v), shape)
}

// padded returns the name of a value, which has axes of size 1 after that of the rows until it has the given
// number of axes of the row.
func (e *emitter) padded(v graph.Value, rank int) string {
	name := e.name(v)
	if e.constant(v) != nil || e.rank(v) >= rank {
		return name
	}
	axes := make([]int, rank-e.rank(v))
	for i := range axes {
		axes[i] = 1 + i
	}
	return e.node("Unsqueeze", nil, name, e.ints(axes...))
}

// reshape returns a tensor with an axis of the rows before the given ones.
func (e *emitter) reshape(name string, shape ...int) string {
	return e.node("Reshape", nil, name, e.ints(append([]int{-1}, shape...)...))
}

// shifted returns the attributes of the current node with the axis, which is otherwise the given one, after that of the rows.
func (e *emitter) shifted(otherwise int64) map[string]any {
	attributes := map[string]any(cloned(e.n.Attributes))
	axis := e.int("axis", otherwise)
	if axis >= 0 {
		axis++
	}
	attributes["axis"] = axis
	return attributes
}

func cloned(attributes graph.Attributes) graph.Attributes {
	out := graph.Attributes{}
	for name, v := range attributes {
		out[name] = v
	}
	return out
}

// axes returns the list of axes in an input, after that of the rows. Without the input they are all axes.
func (e *emitter) axes(i, rank int) string {
	var list []int
	if v := e.in(i); v != graph.Absent && len(e.constant(v).Ints) > 0 {
		for _, a := range e.constant(v).Ints {
			if a >= 0 {
				a++
			}
			list = append(list, int(a))
		}
	} else {
		for a := range rank {
			list = append(list, 1+a)
		}
	}
	return e.ints(list...)
}

// concat adds a Concat. Parts of a tensor that follow each other stay in it.
func (e *emitter) concat() {
	rank := e.rank(e.n.Outputs[0])
	axis := int(e.int("axis", 0))
	if axis < 0 {
		axis += rank
	}
	first := e.parts[e.n.Inputs[0]]
	total := 0
	if !slices.ContainsFunc(e.n.Inputs, func(v graph.Value) bool {
		p := e.parts[v]
		follows := e.constant(v) == nil && p.Size < p.Of && p.Name == first.Name && p.Axis == axis+1 && p.From == first.From+total
		total += p.Size
		return !follows
	}) {
		first.Size = total
		e.parts[e.n.Outputs[0]] = first
		return
	}
	var names []string
	for _, v := range e.n.Inputs {
		names = append(names, e.batched(v))
	}
	e.set(e.node("Concat", map[string]any{"axis": int64(axis + 1)}, names...))
}
