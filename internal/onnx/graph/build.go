package graph

import (
	"errors"
	"fmt"
	"slices"
)

// Limits of a graph. They bound the memory and the time that a hostile description costs.
const (
	// maxFolded bounds the elements of the tensors that folding makes, in addition to
	// four times the elements of the tensors that the file has.
	maxFolded = 1 << 23

	// maxWork bounds the multiplications of folding, in addition to 64 for each element of
	// the tensors that the file has.
	maxWork = 1 << 26

	// maxRowWork bounds the multiplications of a row.
	maxRowWork = 1 << 36

	// maxVaried bounds the elements of all values that are computed for a row, together.
	maxVaried = 1 << 24

	// maxValues bounds the number of values.
	maxValues = 1 << 20
)

// AddInput adds a value that depends on the row. If the value has a batch axis, that axis
// has size 1. Add refuses a node that reads an input with an invalid shape.
func (g *Graph) AddInput(name string, t Type, shape []int) Value {
	v := g.value(Info{Name: name, Type: t, Shape: slices.Clone(shape)})
	g.Inputs = append(g.Inputs, v)
	return v
}

// AddConstant adds a tensor, which is not copied. Add refuses a node that reads an invalid
// tensor (Tensor.Check).
func (g *Graph) AddConstant(t *Tensor) Value {
	g.given += int64(t.Len())
	return g.value(Info{Name: t.Name, Type: t.Type, Shape: t.Shape, Constant: t})
}

func (g *Graph) value(info Info) Value {
	g.Values = append(g.Values, info)
	return Value(len(g.Values) - 1)
}

// Add checks a node, adds it, and returns its outputs. It ignores n.Outputs. If the outputs
// do not depend on the row, they become constants, and no node is added. The first output
// has the name of the node. An error names the node.
//
// Add refuses a node with which the graph would need too much memory or time.
func (g *Graph) Add(n Node) ([]Value, error) {
	out, err := g.add(n)
	if err != nil {
		return nil, fmt.Errorf("node %.100q (%.100s): %w", n.Name, n.Op, err)
	}
	return out, nil
}

func (g *Graph) add(n Node) ([]Value, error) {
	constant := true
	for i, v := range n.Inputs {
		if v == Absent {
			continue
		}
		if v < 0 || int(v) >= len(g.Values) {
			return nil, fmt.Errorf("input %d is value %d, and there are %d values", i+1, v, len(g.Values))
		}
		info := g.Values[v]
		if info.Constant == nil {
			if _, err := Count(info.Shape); err != nil {
				return nil, fmt.Errorf("input %d (%.100q): %w", i+1, info.Name, err)
			}
		} else if err := info.Constant.Check(); err != nil {
			return nil, fmt.Errorf("input %d: %w", i+1, err)
		}
		constant = constant && info.Constant != nil
	}
	c, err := newCall(n.Op, n.Attributes, g.infos(n.Inputs))
	if err != nil {
		return nil, err
	}
	infos, elements, err := c.infer()
	if err != nil {
		return nil, err
	}
	if len(g.Values)+len(infos) > maxValues {
		return nil, fmt.Errorf("the graph has more than %d values", maxValues)
	}
	for i := range infos {
		infos[i].Name = n.Name
		if i > 0 {
			infos[i].Name = fmt.Sprintf("%s:%d", n.Name, i)
		}
	}
	if constant || c.op.static {
		if err := g.fold(c, infos, elements); err != nil {
			return nil, err
		}
	} else {
		if !spend(&g.varied, elements, maxVaried) {
			return nil, fmt.Errorf("the result has %d elements, so the values of a row have more than %d", elements, maxVaried)
		}
		if !spend(&g.rowWork, c.cost(infos, elements), maxRowWork) {
			return nil, fmt.Errorf("a row takes more than %d multiplications", int64(maxRowWork))
		}
	}
	n.Inputs, n.Outputs = slices.Clone(n.Inputs), make([]Value, len(infos))
	for i, info := range infos {
		n.Outputs[i] = g.value(info)
	}
	if !constant && !c.op.static {
		g.Nodes = append(g.Nodes, n)
	}
	return slices.Clone(n.Outputs), nil
}

// spend adds an amount to a total, if the total stays within a limit.
func spend(total *int64, amount, limit int64) bool {
	if amount > limit-*total {
		return false
	}
	*total += amount
	return true
}

// fold computes outputs that do not depend on the row.
func (g *Graph) fold(c *call, infos []Info, elements int64) error {
	switch {
	case c.op.same: // the output shares the elements of the input
	case c.op.given:
		g.given += elements
	default:
		if !spend(&g.folded, elements, maxFolded+4*g.given) {
			return fmt.Errorf("the result has %d elements, so the constants that are computed have more than %d", elements, maxFolded+4*g.given)
		}
		if !spend(&g.work, c.cost(infos, elements), maxWork+64*g.given) {
			return fmt.Errorf("the constants take more than %d multiplications to compute", maxWork+64*g.given)
		}
	}
	out, err := c.evaluate(infos, elements)
	if err != nil {
		return err
	}
	for i, t := range out {
		infos[i].Constant = t
	}
	return nil
}

// Evaluate computes an operator. It defines what the operator means. An absent input is
// nil. Sums are computed in float64 where ONNX leaves the order open, and each result is
// rounded to float32 once. The outputs may share memory with the inputs.
func Evaluate(op string, attributes Attributes, inputs []*Tensor) ([]*Tensor, error) {
	infos := make([]Info, len(inputs))
	for i, t := range inputs {
		if t == nil {
			continue
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("%.100s: input %d: %w", op, i+1, err)
		}
		infos[i] = Info{Name: t.Name, Type: t.Type, Shape: t.Shape, Constant: t}
	}
	out, err := evaluate(op, attributes, infos)
	if err != nil {
		return nil, fmt.Errorf("%.100s: %w", op, err)
	}
	return out, nil
}

func evaluate(op string, attributes Attributes, in []Info) ([]*Tensor, error) {
	c, err := newCall(op, attributes, in)
	if err != nil {
		return nil, err
	}
	infos, elements, err := c.infer()
	if err != nil {
		return nil, err
	}
	if elements > maxVaried && !c.op.same {
		return nil, fmt.Errorf("the result has %d elements, expected at most %d", elements, maxVaried)
	}
	return c.evaluate(infos, elements)
}

// Run computes the output for a row with Evaluate. The inputs are in the order of g.Inputs.
func (g *Graph) Run(inputs []*Tensor) (*Tensor, error) {
	if len(inputs) != len(g.Inputs) {
		return nil, fmt.Errorf("%d inputs, expected %d", len(inputs), len(g.Inputs))
	}
	if g.Output < 0 || int(g.Output) >= len(g.Values) {
		return nil, errors.New("the graph has no output")
	}
	values := make([]*Tensor, len(g.Values))
	for i, t := range inputs {
		info := g.Values[g.Inputs[i]]
		if t == nil {
			return nil, fmt.Errorf("input %.100q is missing", info.Name)
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("input %.100q: %w", info.Name, err)
		}
		if t.Type != info.Type || !slices.Equal(t.Shape, info.Shape) {
			return nil, fmt.Errorf("input %.100q is %v%v, expected %v%v", info.Name, t.Type, t.Shape, info.Type, info.Shape)
		}
		values[g.Inputs[i]] = t
	}
	for _, n := range g.Nodes {
		in := g.infos(n.Inputs)
		for i, v := range n.Inputs {
			if v != Absent && in[i].Constant == nil {
				in[i].Constant = values[v]
			}
		}
		out, err := evaluate(n.Op, n.Attributes, in)
		if err != nil {
			return nil, fmt.Errorf("node %.100q (%s): %w", n.Name, n.Op, err)
		}
		for i, v := range n.Outputs {
			values[v] = out[i]
		}
	}
	if c := g.Values[g.Output].Constant; c != nil {
		return c, nil
	}
	return values[g.Output], nil
}

// Trim removes the nodes that the output does not need, and releases the constants that
// nothing reads. The inputs stay. Values keep their numbers; those of removed nodes have
// no meaning.
func (g *Graph) Trim() {
	needed := make([]bool, len(g.Values))
	needed[g.Output] = true
	kept := len(g.Nodes)
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !slices.ContainsFunc(n.Outputs, func(v Value) bool { return needed[v] }) {
			continue
		}
		for _, v := range n.Inputs {
			if v != Absent {
				needed[v] = true
			}
		}
		kept--
		g.Nodes[kept] = n
	}
	g.Nodes = slices.Delete(g.Nodes, 0, kept)
	for i := range g.Values {
		if !needed[i] {
			g.Values[i].Constant = nil
		}
	}
}
