package execute

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"shaver/internal/num/kernel"
	"shaver/internal/onnx/graph"
)

// compiler builds a program. Its instructions name rows by numbers that are never used
// again, so each row has one value. place maps these numbers to the rows of the arena.
type compiler struct {
	g         *graph.Graph
	p         *Program
	values    [][]int32        // by graph.Value: the rows; nil = not computed yet, or constant
	uses      []int            // by graph.Value: how often the current and later nodes read it
	readers   []int            // by graph.Value: the last node that reads it, -1 = none
	fused     []bool           // by node: whether an earlier node's instruction computes it
	regions   []region         // in the order of their rows
	region    []int32          // by row: its region
	constants map[uint32]int32 // rows of constants by their bits
	once      []instruction    // those whose results depend on no player
	each      []instruction    // those whose results depend on a player
	weights   int              // number of weights that linear layers may still copy
	err       error            // the first failure
}

// region is a span of rows that were allocated together.
type region struct {
	span
	varies bool // whether the rows depend on a player
	kept   bool // whether nothing may overwrite the rows; so are all rows that do not vary
}

// span is the rows first to first+n-1.
type span struct{ first, n int32 }

func newCompiler(g *graph.Graph, players []graph.Value) (*compiler, error) {
	c := &compiler{
		g: g, p: new(Program), values: make([][]int32, len(g.Values)), uses: make([]int, len(g.Values)),
		readers: make([]int, len(g.Values)), fused: make([]bool, len(g.Nodes)), constants: map[uint32]int32{},
	}
	for v := range c.readers {
		c.readers[v] = -1
	}
	c.weights = maxShared
	for v := range g.Values {
		if t := g.Values[v].Constant; t != nil {
			c.weights += len(t.Floats)
		}
	}
	for i := range g.Nodes {
		for _, v := range g.Nodes[i].Inputs {
			if v != graph.Absent {
				c.uses[v]++
				c.readers[v] = i
			}
		}
	}
	c.uses[g.Output]++
	if out := &g.Values[g.Output]; out.Type != graph.Float || elements(out.Shape) != 1 {
		return nil, fmt.Errorf("output %s has shape %v, expected one number for each row", out.Name, out.Shape)
	}
	for _, v := range players {
		if !slices.Contains(g.Inputs, v) {
			return nil, fmt.Errorf("value %s is not an input of the graph", g.Values[v].Name)
		}
		if err := c.input(v, true); err != nil {
			return nil, err
		}
	}
	c.p.players = len(c.region)
	for _, v := range g.Inputs {
		if slices.Contains(players, v) {
			continue
		}
		if err := c.input(v, false); err != nil {
			return nil, err
		}
	}
	c.p.others = len(c.region) - c.p.players
	return c, nil
}

// input allocates the rows of an input.
func (c *compiler) input(v graph.Value, player bool) error {
	info := &c.g.Values[v]
	switch {
	case c.values[v] != nil:
		return fmt.Errorf("input %s is listed twice", info.Name)
	case info.Type != graph.Float:
		return fmt.Errorf("input %s has type %v, expected %v", info.Name, info.Type, graph.Float)
	}
	rows := c.extend(elements(info.Shape), player)
	if c.err != nil {
		return fmt.Errorf("input %s: %w", info.Name, c.err)
	}
	c.regions[len(c.regions)-1].kept = true
	c.values[v] = rows
	return nil
}

// node compiles node i.
func (c *compiler) node(i int) error {
	n := &c.g.Nodes[i]
	if !c.fused[i] {
		if err := c.compile(n); err != nil {
			return err
		}
	}
	for _, v := range n.Inputs {
		if v != graph.Absent {
			c.uses[v]--
		}
	}
	return c.err
}

// compile compiles a node that is not fused with an earlier one.
func (c *compiler) compile(n *graph.Node) error {
	if moved, err := c.relabel(n); moved || err != nil {
		return err
	}
	compile, ok := operators[n.Op]
	if !ok {
		return errors.New("the operator is not supported if it depends on the row")
	}
	return compile(c, n)
}

// finish returns the program after all nodes are compiled.
func (c *compiler) finish(o options) (*Program, error) {
	output := c.read(c.g.Output)
	if c.err != nil {
		return nil, c.err
	}
	c.p.jumps = slices.ContainsFunc(c.each, jumps)
	kinks := &kinks{compiler: c}
	if o.gradient {
		kinks = c.findKinks()
	}
	forward := len(c.each)
	var slopes []int32
	if o.gradient {
		if slopes = c.differentiate(output[0], kinks); c.err != nil {
			return nil, fmt.Errorf("with derivatives: %w", c.err)
		}
	}
	p := c.place(output[0], forward, append(kinks.rows(), slopes...), !o.apart)
	if c.err != nil {
		return nil, c.err
	}
	c.p.rows, c.p.output = p.rows, p.at(output)[0]
	if len(slopes) > 0 {
		c.p.slopes = p.at(slopes)[0]
	}
	kinks.finish(p.at)
	for bits, row := range c.constants {
		c.p.constants = append(c.p.constants, constant{p.at([]int32{row})[0], math.Float32frombits(bits)})
	}
	for _, in := range c.once {
		c.p.once = append(c.p.once, in.step(p.at))
	}
	for i, in := range c.each {
		if s := in.step(p.at); i < forward {
			c.p.each = append(c.p.each, s)
		} else {
			c.p.back = append(c.p.back, s)
		}
	}
	if !o.gradient {
		c.update(o.eager)
	}
	return c.p, nil
}

// jumps reports whether the result of an instruction may jump where an operand changes.
func jumps(in instruction) bool {
	switch o := in.(type) {
	case *rankOp:
		return true
	case *combineOp:
		same := o.op == kernel.Equal && slices.Equal(o.x, o.y) // a test for NaN
		return o.op == kernel.Equal && !same || o.op == kernel.Less || o.op == kernel.LessOrEqual
	case *slowOp:
		return o.jumps
	}
	return false
}

// constant returns the tensor of a constant, or nil if v is absent or not constant.
func (c *compiler) constant(v graph.Value) *graph.Tensor {
	if v == graph.Absent {
		return nil
	}
	return c.g.Values[v].Constant
}

// shape returns the shape of v.
func (c *compiler) shape(v graph.Value) []int { return c.g.Values[v].Shape }

// read returns the rows of v. NewRunner sets the rows of constants.
func (c *compiler) read(v graph.Value) []int32 {
	if t := c.constant(v); t != nil {
		rows := make([]int32, elements(t.Shape))
		for i := range rows {
			rows[i] = c.splat(number(t, i))
		}
		return rows
	}
	if c.values[v] == nil {
		if c.err == nil {
			c.err = fmt.Errorf("value %s is read before it is computed", c.g.Values[v].Name)
		}
		return make([]int32, elements(c.shape(v)))
	}
	return c.values[v]
}

// readAs returns the rows of v, broadcast to shape.
func (c *compiler) readAs(v graph.Value, shape []int) []int32 {
	if t := c.constant(v); t != nil && elements(t.Shape) == 1 {
		return slices.Repeat([]int32{c.splat(number(t, 0))}, elements(shape))
	}
	return pick(c.read(v), broadcast(c.shape(v), shape))
}

// numbers returns the elements of a constant, broadcast to shape.
func numbers(t *graph.Tensor, shape []int) []float32 {
	at := broadcast(t.Shape, shape)
	all := make([]float32, len(at))
	for i, p := range at {
		all[i] = number(t, int(p))
	}
	return all
}

// number returns element i of t. A bool is 0 or 1.
func number(t *graph.Tensor, i int) float32 {
	switch {
	case t.Type == graph.Float:
		return t.Floats[i]
	case t.Type == graph.Int:
		return float32(t.Ints[i])
	case t.Bools[i]:
		return 1
	}
	return 0
}

// splat returns a row that has the value x in all states.
func (c *compiler) splat(x float32) int32 {
	bits := math.Float32bits(x)
	row, ok := c.constants[bits]
	if !ok {
		row = c.extend(1, false)[0]
		c.constants[bits] = row
	}
	return row
}

// set makes rows the elements of v.
func (c *compiler) set(v graph.Value, rows []int32) {
	if v != graph.Absent {
		c.values[v] = append([]int32{}, rows...) // not nil, even if there are no rows
	}
}

// depends reports whether one of the rows depends on a player.
func (c *compiler) depends(lists ...[]int32) bool {
	for _, rows := range lists {
		for _, row := range rows {
			if c.err == nil && c.regions[c.region[row]].varies {
				return true
			}
		}
	}
	return false
}

// allocate returns n adjacent rows for the results of an instruction that reads the rows
// from.
func (c *compiler) allocate(n int, from ...[]int32) []int32 { return c.extend(n, c.depends(from...)) }

// extend returns n new rows.
func (c *compiler) extend(n int, varies bool) []int32 {
	first := len(c.region)
	if n > maxNumbers-first {
		c.fail()
		return make([]int32, n)
	}
	c.regions = append(c.regions, region{span: span{int32(first), int32(n)}, varies: varies})
	for range n {
		c.region = append(c.region, int32(len(c.regions)-1))
	}
	return c.regions[len(c.regions)-1].list()
}

// maxNumbers bounds the rows that a compiler names.
const maxNumbers = 1 << 22

// maxShared bounds the weights that linear layers copy, in addition to one copy of all
// constants. A small file may have many nodes that read the same large matrix.
const maxShared = 1 << 26

// fail records that the arena is too large.
func (c *compiler) fail() {
	if c.err == nil {
		c.err = fmt.Errorf("the values of a row have more than %d elements", maxRows)
	}
}

// list returns the numbers of the rows.
func (s span) list() []int32 {
	rows := make([]int32, s.n)
	for i := range rows {
		rows[i] = s.first + int32(i)
	}
	return rows
}

// relabel compiles a node that only moves elements, and reports whether n is one.
func (c *compiler) relabel(n *graph.Node) (moved bool, err error) {
	outputs := make([][]int32, len(n.Outputs))
	inputs := make([][]int32, len(n.Inputs))
	moved = c.g.Relabel(n, func(output, input, element int) {
		if input == graph.Nothing {
			outputs[output] = append(outputs[output], c.splat(0))
			return
		}
		if inputs[input] == nil {
			inputs[input] = c.read(n.Inputs[input])
		}
		outputs[output] = append(outputs[output], inputs[input][element])
	})
	if moved && c.err == nil {
		for i, v := range n.Outputs {
			c.set(v, outputs[i])
		}
	}
	return moved, c.err
}

// elements returns the number of elements of a shape.
func elements(shape []int) int {
	n := 1
	for _, size := range shape {
		n *= size
	}
	return n
}

// contiguous reports whether the rows follow each other in the arena.
func (c *compiler) contiguous(rows []int32) bool {
	for i, r := range rows {
		if r != rows[0]+int32(i) || c.region[r] != c.region[rows[0]] && int(r) >= c.p.players+c.p.others {
			return false
		}
	}
	return true
}

// pick returns the elements of list at the given positions.
func pick[E any, P int | int32](list []E, positions []P) []E {
	picked := make([]E, len(positions))
	for i, p := range positions {
		picked[i] = list[p]
	}
	return picked
}

// broadcast returns, for each element of shape to, the position of the element of shape
// from that ONNX's broadcasting reads.
func broadcast(from, to []int) []int32 {
	strides := make([]int, len(to))
	stride := 1
	for a := len(from) - 1; a >= 0; a-- {
		if from[a] != 1 {
			strides[a+len(to)-len(from)] = stride
		}
		stride *= from[a]
	}
	return walk(to, strides)
}

// walk returns, for each element of shape, the sum over the axes of index times stride.
func walk(shape, strides []int) []int32 {
	positions := make([]int32, elements(shape))
	index := make([]int, len(shape))
	at := 0
	for i := range positions {
		positions[i] = int32(at)
		for a := len(shape) - 1; a >= 0; a-- {
			index[a]++
			at += strides[a]
			if index[a] < shape[a] {
				break
			}
			at -= strides[a] * shape[a]
			index[a] = 0
		}
	}
	return positions
}

// stridesOf returns the strides of a row-major array.
func stridesOf(shape []int) []int {
	strides := make([]int, len(shape))
	stride := 1
	for a := len(shape) - 1; a >= 0; a-- {
		strides[a] = stride
		stride *= shape[a]
	}
	return strides
}
