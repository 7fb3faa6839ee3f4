package execute

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/graph"
)

// compiler builds a program.
type compiler struct {
	g         *graph.Graph
	p         *Program
	values    []*value       // by graph.Value; nil = not computed yet, or a constant
	uses      []int          // number of inputs of later nodes that are the value
	readers   []int          // number of a node that reads the value, -1 = none
	fused     []bool         // by node: computed together with an earlier node
	constants map[uint32]int32 // rows of constants by their bits
	free      []span         // free rows, ascending
}

// value says where the elements of a value are.
type value struct {
	rows    []int32 // row of each element, in row-major order
	each    bool    // whether it depends on a player
	regions []*region
}

// region is rows of the arena that were allocated together. They become free when no value
// that may be read later has elements in them.
type region struct {
	span
	values int // number of such values
}

// span is n rows from row first on.
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
		return nil, fmt.Errorf("output %s has shape %v: expected one number for each row", out.Name, out.Shape)
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

// input allocates the rows of an input, which are never freed.
func (c *compiler) input(v graph.Value, player bool) error {
	info := &c.g.Values[v]
	switch {
	case c.values[v] != nil:
		return fmt.Errorf("input %s is listed twice", info.Name)
	case info.Type != graph.Float:
		return fmt.Errorf("input %s does not have floating-point numbers", info.Name)
	}
	r, err := c.extend(elements(info.Shape))
	if err != nil {
		return fmt.Errorf("input %s: %w", info.Name, err)
	}
	c.values[v] = &value{rows: r.list(), each: player}
	return nil
}

// node compiles node i.
func (c *compiler) node(i int) error {
	n := &c.g.Nodes[i]
	if !c.fused[i] {
		compile, ok := operators[n.Op]
		if !ok {
			return fmt.Errorf("the operator is not supported where it depends on a row")
		}
		if err := compile(c, n); err != nil {
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
	return nil
}

// release frees the rows of a value that is not read any more.
func (c *compiler) release(v graph.Value) {
	if c.uses[v] > 0 || c.values[v] == nil {
		return
	}
	for _, r := range c.values[v].regions {
		if r.values--; r.values == 0 {
			c.insert(r.span)
		}
	}
	c.values[v] = nil
}

func (c *compiler) finish() (*Program, error) {
	out := c.g.Output
	rows, err := c.read(out)
	if err != nil {
		return nil, err
	}
	c.p.output = rows.rows[0]
	return c.p, nil
}

// constant returns the tensor of a constant, or nil if v is not one.
func (c *compiler) constant(v graph.Value) *graph.Tensor {
	if v == graph.Absent {
		return nil
	}
	return c.g.Values[v].Constant
}

// dynamic reports whether v is there and depends on the row.
func (c *compiler) dynamic(v graph.Value) bool { return v != graph.Absent && c.constant(v) == nil }

// each reports whether one of the values depends on a player.
func (c *compiler) each(values ...graph.Value) bool {
	return slices.ContainsFunc(values, func(v graph.Value) bool {
		return c.dynamic(v) && c.values[v] != nil && c.values[v].each
	})
}

// shape returns the shape of v.
func (c *compiler) shape(v graph.Value) []int { return c.g.Values[v].Shape }

// read returns where the elements of v are. Those of a constant are rows that NewRunner
// sets.
func (c *compiler) read(v graph.Value) (*value, error) {
	if t := c.constant(v); t != nil {
		rows := make([]int32, elements(t.Shape))
		for i := range rows {
			var err error
			if rows[i], err = c.splat(number(t, i)); err != nil {
				return nil, err
			}
		}
		return &value{rows: rows}, nil
	}
	if c.values[v] == nil {
		return nil, fmt.Errorf("value %s is read before it is computed", c.g.Values[v].Name)
	}
	return c.values[v], nil
}

// splat returns the row that has the value x in all states.
func (c *compiler) splat(x float32) (int32, error) {
	bits := math.Float32bits(x)
	if row, ok := c.constants[bits]; ok {
		return row, nil
	}
	r, err := c.extend(1)
	if err != nil {
		return 0, err
	}
	c.constants[bits] = r.first
	c.p.constants = append(c.p.constants, constant{r.first, x})
	return r.first, nil
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

// allocate returns rows for n elements. Rows for a value that depends on a player may have
// been in use before.
func (c *compiler) allocate(n int, each bool) (span, error) {
	if each {
		for i, s := range c.free {
			if int(s.n) >= n {
				if c.free[i].first, c.free[i].n = s.first+int32(n), s.n-int32(n); c.free[i].n == 0 {
					c.free = slices.Delete(c.free, i, i+1)
				}
				return span{s.first, int32(n)}, nil
			}
		}
	}
	return c.extend(n)
}

// extend returns new rows at the end of the arena.
func (c *compiler) extend(n int) (span, error) {
	if n > maxRows-c.p.rows {
		return span{}, fmt.Errorf("the values of a row have more than %d elements", maxRows)
	}
	s := span{int32(c.p.rows), int32(n)}
	c.p.rows += n
	return s, nil
}

// insert adds rows to the free ones.
func (c *compiler) insert(s span) {
	if s.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(c.free, s.first, func(f span, first int32) int { return int(f.first - first) })
	c.free = slices.Insert(c.free, i, s)
	for i = max(0, i-1); i+1 < len(c.free) && i < len(c.free); {
		if a, b := c.free[i], c.free[i+1]; a.first+a.n == b.first {
			c.free[i].n += b.n
			c.free = slices.Delete(c.free, i+1, i+2)
		} else if b.first > s.first {
			break
		} else {
			i++
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

// define allocates rows for n elements that become v, and returns them.
func (c *compiler) define(v graph.Value, n int, each bool) (span, error) {
	s, err := c.allocate(n, each)
	if err == nil {
		c.set(v, s.list(), each, s)
	}
	return s, err
}

// set makes rows the elements of v. If each is set, s has been allocated for them.
func (c *compiler) set(v graph.Value, rows []int32, each bool, s span) {
	c.values[v] = &value{rows: rows, each: each}
	if each {
		c.values[v].regions = []*region{{s, 1}}
	}
}

// scratch allocates rows that are free again after the current step.
func (c *compiler) scratch(n int, each bool) (s span, free func(), err error) {
	s, err = c.allocate(n, each)
	return s, func() {
		if each && err == nil {
			c.insert(s)
		}
	}, err
}

// emit appends a step.
func (c *compiler) emit(s step, each bool) {
	if each {
		c.p.each = append(c.p.each, s)
	} else {
		c.p.once = append(c.p.once, s)
	}
}

// elements returns the product of shape.
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

// pick returns the elements of list with the given positions.
func pick[E any](list []E, positions []int32) []E {
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
