package execute

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"shaver/internal/graph"
)

// compiler builds a program.
type compiler struct {
	g         *graph.Graph
	p         *Program
	values    []*value         // by graph.Value; nil = not computed yet, not needed any more, or constant
	uses      []int            // by graph.Value: how often the current and later nodes read it
	readers   []int            // by graph.Value: the last node that reads it, -1 = none
	fused     []bool           // by node: whether an earlier node's step computes it
	varies    []bool           // by row: whether it depends on a player
	owner     []*region        // by row; nil = the row is never freed
	made      []*region        // regions of the current node
	free      []span           // free rows, ascending, none adjacent
	constants map[uint32]int32 // rows of constants by their bits
	err       error            // the first failure
}

// value says where the elements of a value are.
type value struct {
	rows    []int32   // row of each element, in row-major order
	regions []*region // the regions of these rows
}

// region is a span of rows that were allocated together. It becomes free when no value that
// a later node reads has elements in it.
type region struct {
	span
	values int // number of values with elements in it
}

// span is the rows first to first+n-1.
type span struct{ first, n int32 }

func newCompiler(g *graph.Graph, players []graph.Value) (*compiler, error) {
	c := &compiler{
		g: g, p: new(Program), values: make([]*value, len(g.Values)), uses: make([]int, len(g.Values)),
		readers: make([]int, len(g.Values)), fused: make([]bool, len(g.Nodes)), constants: map[uint32]int32{},
	}
	for v := range c.readers {
		c.readers[v] = -1
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
	c.p.players = c.p.rows
	for _, v := range g.Inputs {
		if slices.Contains(players, v) {
			continue
		}
		if err := c.input(v, false); err != nil {
			return nil, err
		}
	}
	c.p.others = c.p.rows - c.p.players
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
	c.values[v] = &value{rows: rows}
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
			c.release(v)
		}
	}
	for _, v := range n.Outputs {
		if v != graph.Absent {
			c.release(v)
		}
	}
	for _, r := range c.made {
		if r.values == 0 {
			c.insert(r.span)
		}
	}
	c.made = c.made[:0]
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

// release frees the rows of a value that is not read any more.
func (c *compiler) release(v graph.Value) {
	if c.uses[v] > 0 || c.values[v] == nil {
		return
	}
	for _, r := range c.values[v].regions {
		if r.values--; r.values == 0 && !slices.Contains(c.made, r) {
			c.insert(r.span)
		}
	}
	c.values[v] = nil
}

// finish returns the program after all nodes are compiled.
func (c *compiler) finish() (*Program, error) {
	rows := c.read(c.g.Output)
	if c.err != nil {
		return nil, c.err
	}
	c.p.output = rows[0]
	return c.p, nil
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
	return c.values[v].rows
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
		c.p.constants = append(c.p.constants, constant{row, x})
	}
	return row
}

// set makes rows the elements of v.
func (c *compiler) set(v graph.Value, rows []int32) {
	if v == graph.Absent {
		return
	}
	at := &value{rows: rows}
	for _, row := range rows {
		if r := c.owner[row]; r != nil && !slices.Contains(at.regions, r) {
			at.regions = append(at.regions, r)
			r.values++
		}
	}
	c.values[v] = at
}

// take returns the rows of v. The caller then calls set with other rows.
func (c *compiler) take(v graph.Value) []int32 {
	old := c.values[v]
	for _, r := range old.regions {
		r.values--
	}
	return old.rows
}

// depends reports whether one of the rows depends on a player.
func (c *compiler) depends(lists ...[]int32) bool {
	for _, rows := range lists {
		for _, row := range rows {
			if c.varies[row] {
				return true
			}
		}
	}
	return false
}

// allocate returns n adjacent rows for the results of a step that reads the rows from. If
// these depend on a player, the result may contain rows that an earlier value has freed.
// Otherwise it has new rows, because Run must not overwrite what Prepare computes.
func (c *compiler) allocate(n int, from ...[]int32) []int32 {
	if !c.depends(from...) {
		return c.extend(n, false)
	}
	r := &region{}
	for i, s := range c.free {
		if int(s.n) >= n {
			r.span = span{s.first, int32(n)}
			if c.free[i] = (span{s.first + int32(n), s.n - int32(n)}); c.free[i].n == 0 {
				c.free = slices.Delete(c.free, i, i+1)
			}
			break
		}
	}
	rows := r.list()
	if int(r.n) < n {
		rows = c.extend(n, true)
		if c.err != nil {
			return rows
		}
		r.span = span{int32(c.p.rows - n), int32(n)}
	}
	for _, row := range rows {
		c.owner[row] = r
	}
	c.made = append(c.made, r)
	return rows
}

// target returns rows for the results of a step that computes one row from each of rows,
// which are elements of v. from are its other operands. If nothing reads rows later, target
// returns rows themselves.
func (c *compiler) target(v graph.Value, rows []int32, from ...[]int32) []int32 {
	if c.last(v, rows) {
		return rows
	}
	return c.allocate(len(rows), append(from, rows)...)
}

// last reports whether the current node may overwrite rows, which are elements of v. It may
// if only this node still reads v, no other value has elements in the regions of v, and no
// row occurs twice.
func (c *compiler) last(v graph.Value, rows []int32) bool {
	if c.constant(v) != nil || c.uses[v] != 1 || c.values[v] == nil || len(c.values[v].rows) != len(rows) {
		return false
	}
	for _, r := range c.values[v].regions {
		if r.values != 1 {
			return false
		}
	}
	seen := make(map[int32]bool, len(rows))
	for _, row := range rows {
		if c.owner[row] == nil || seen[row] {
			return false
		}
		seen[row] = true
	}
	return true
}

// extend returns n new rows at the end of the arena.
func (c *compiler) extend(n int, varies bool) []int32 {
	if n > maxRows-c.p.rows {
		if c.err == nil {
			c.err = fmt.Errorf("the values of a row have more than %d elements", maxRows)
		}
		return make([]int32, n)
	}
	s := span{int32(c.p.rows), int32(n)}
	c.p.rows += n
	for range n {
		c.varies, c.owner = append(c.varies, varies), append(c.owner, nil)
	}
	return s.list()
}

// insert adds s to the free rows.
func (c *compiler) insert(s span) {
	if s.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(c.free, s.first, func(f span, first int32) int { return int(f.first - first) })
	c.free = slices.Insert(c.free, i, s)
	for _, k := range [...]int{i, i - 1} { // join with the next, then with the one before
		if k >= 0 && k+1 < len(c.free) && c.free[k].first+c.free[k].n == c.free[k+1].first {
			c.free[k].n += c.free[k+1].n
			c.free = slices.Delete(c.free, k+1, k+2)
		}
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

// contiguous reports whether the rows follow each other.
func contiguous(rows []int32) bool {
	for i, r := range rows {
		if r != rows[0]+int32(i) {
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
