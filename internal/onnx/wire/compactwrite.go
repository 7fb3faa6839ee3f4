package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// prefix begins the names of what compact tables add.
const prefix = "shv"

// small is a table that becomes compact.
type small struct {
	*program
	numbers []int   // of the quantizers of Compact in the file
	lookUps []*Node // what reads the table
	bytes   int64   // of the constants, the nodes and the metadata
}

// describe returns what c has for a table of the given size, and the numbers of its quantizers in the file. Quantizers that no kept
// entry has are left out.
func (c *Compact) describe(rows, columns int) (t *compactTable, numbers []int) {
	t, numbers = &compactTable{Rows: rows, Columns: columns, Spans: c.Spans}, make([]int, len(c.Quantizers))
	kept := make([]int, len(c.Quantizers))
	listed, entries := c.marked(rows, columns)
	t.Listed, t.Kept = newMarks(listed, rowGroup), newMarks(entries, entryGroup)
	for row := range rows {
		if listed[row] {
			for _, gone := range c.Dropped[row*columns : (row+1)*columns] {
				if !gone {
					kept[c.Rows[row]]++
				}
			}
		}
	}
	order := make([]int, len(c.Quantizers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return c.Quantizers[i].Bits - c.Quantizers[j].Bits })
	for _, i := range order {
		if kept[i] > 0 {
			numbers[i] = len(t.Quantizers)
			q := c.Quantizers[i]
			q.Origin += 0 // the metadata have no -0, and the values are the same
			t.Quantizers = append(t.Quantizers, usedQuantizer{q, kept[i]})
		}
	}
	return t, numbers
}

// marked returns which rows keep an entry, and which entries of these rows are kept.
func (c *Compact) marked(rows, columns int) (listed, entries []bool) {
	listed = make([]bool, rows)
	for row := range rows {
		if dropped := c.Dropped[row*columns : (row+1)*columns]; slices.Contains(dropped, false) {
			listed[row] = true
			for _, gone := range dropped {
				entries = append(entries, !gone)
			}
		}
	}
	return listed, entries
}

// size returns the bytes of all that p adds to a file, with the nodes of the given look-ups but without the names of their ids and outputs.
func (p *program) size(lookUps int) int64 {
	n := int64(len(jsonText(p.compactTable)))
	for _, c := range p.constants {
		elements := content{size: int64(c.elements() * c.kind.width())}
		for _, part := range initialiser(inline(c.name, c.kind, c.dims, elements)) {
			n += part.size
		}
	}
	n += int64(len(encodeNodes(p.nodes)))
	for k := range lookUps {
		n += int64(len(encodeNodes(p.lookUp(k, "", ""))))
	}
	return n
}

// fill sets Filled.
func (t *compactTable) fill() {
	all, most := t.wordCount()
	stored := 4 * all * t.Columns
	if t.Listed.Marked > 0 {
		stored += t.Listed.bytes(t.Rows, rowGroup) + t.Kept.bytes(t.Listed.Marked*t.Columns, entryGroup)
	}
	if most > 1 {
		stored += packedBytes(t.Rows, bitsOf(most))
	}
	t.Filled = max(0, 4*t.Rows*t.Columns/maxInflation+1-stored)
}

// CompactBytes returns how many bytes a table takes if it is compact, the given one of all compact tables. lookUps is that of LookUps, and not 0.
func (m *Model) CompactBytes(c *Compact, of *Tensor, number, lookUps int) int64 {
	t, _ := c.describe(of.Dims[0], of.Dims[1])
	t.Table, t.Prefix = of.Name, prefix+strconv.Itoa(number)
	t.fill()
	return newProgram(t, m.Opset).size(lookUps)
}

// LookUps returns how many nodes look up rows of each of some tables, or 0 if Rewrite cannot make it compact.
func (m *Model) LookUps(tables []*Tensor) []int {
	all, _ := m.smalls(tables)
	n := make([]int, len(all))
	for i, s := range all {
		if s != nil {
			n[i] = len(s.lookUps)
		}
	}
	return n
}

// smalls returns what reads each of some tables, or nil if it cannot become compact, and the names that the file has.
func (m *Model) smalls(tables []*Tensor) (all []*small, taken map[string]bool) {
	all, taken = make([]*small, len(tables)), map[string]bool{}
	readers := map[string]*small{}
	for i, t := range tables {
		initial := slices.ContainsFunc(m.Graph.Initializers, func(i *Tensor) bool { return i.place == t.place })
		if initial && t.Type == Float && t.form == fixed && len(t.Dims) == 2 && !t.input && int64(t.Elements()) <= math.MaxInt32/8 {
			all[i] = &small{}
			readers[t.Name] = all[i]
		}
	}
	if m.Opset < compactOpset {
		clear(readers)
	}
	for _, t := range m.compact {
		taken[t.Prefix+".0"] = true
	}
	for _, t := range m.weights8 {
		taken[t.Prefix+".0"] = true
	}
	refuse := func(name string) { delete(readers, name) }
	takeNames(m.Graph, readers, taken, refuse, true)
	for i, t := range tables {
		if s := all[i]; s != nil && (readers[t.Name] != s || len(s.lookUps) == 0) {
			all[i] = nil
		}
	}
	return all, taken
}

// shrink finds the tables that become compact.
func (w *writer) shrink() {
	var tables []*Tensor
	for _, t := range w.order {
		tables = append(tables, t.Tensor)
	}
	all, taken := w.model.smalls(tables)
	next := 0
	for i, t := range w.order {
		s := all[i]
		if s == nil || t.compact == nil {
			continue
		}
		described, numbers := t.compact.describe(t.Dims[0], t.Dims[1])
		described.Table = t.Name
		described.Prefix, next = freePrefix(taken, next)
		described.fill()
		s.numbers, s.program = numbers, newProgram(described, w.model.Opset)
		if s.bytes = s.size(len(s.lookUps)); s.bytes < 4*int64(len(t.values)) {
			t.small = s
		}
	}
	w.planWeights8(taken, next)
}

// gathersRows reports whether n is a Gather along the first axis.
func (n *Node) gathersRows() bool {
	if n.Op != "Gather" || len(n.Inputs) != 2 || len(n.Outputs) != 1 {
		return false
	}
	axis := n.Attributes["axis"]
	return axis == nil && len(n.Attributes) == 0 || axis != nil && len(n.Attributes) == 1 && axis.Kind == KindInt && axis.Int == 0
}

// takeNames adds the names that g defines to taken, and the nodes that look up rows to the
// tables of readers. It refuses tables that are read in other ways.
func takeNames(g *Graph, readers map[string]*small, taken map[string]bool, refuse func(string), top bool) {
	define := func(name string) {
		taken[name] = true
		if !top { // another value with the name of a table
			refuse(name)
		}
	}
	for _, v := range g.Inputs {
		define(v.Name)
	}
	for _, t := range g.Initializers {
		define(t.Name)
	}
	for _, v := range g.Outputs {
		refuse(v.Name)
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for k, name := range n.Inputs {
			if s := readers[name]; s == nil {
				continue
			} else if k == 0 && n.gathersRows() && n.Inputs[1] != name && n.place != nil {
				s.lookUps = append(s.lookUps, n)
			} else {
				refuse(name)
			}
		}
		for _, name := range n.Outputs {
			define(name)
		}
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				takeNames(body, readers, taken, refuse, false)
			}
		}
	}
}

// writeSmall plans the edits for a table that becomes compact.
func (w *writer) writeSmall(t *table) {
	s := t.small
	w.writeProgram(t.Tensor, s.program, t.compact.data(s.compactTable, s.numbers))
	for k, n := range s.lookUps {
		nodes := s.lookUp(k, n.Inputs[1], n.Outputs[0])
		nodes[len(nodes)-1].Name = n.Name
		w.edits.replace(n.place.outer, n.place.tag, n.place.end, contentOf(encodeNodes(nodes)))
	}
}

// writeProgram plans the edits that replace a tensor by the constants and nodes of p. data has the constants of the tensor, by their names without the
// prefix.
func (w *writer) writeProgram(t *Tensor, p *program, data map[string][]byte) {
	var constants []content
	for _, c := range p.constants {
		if c.data != nil {
			constants = append(constants, initialiser(inline(c.name, c.kind, c.dims, contentOf(c.data)))...)
			continue
		}
		elements := data[c.name[len(p.Prefix)+1:]]
		if want := c.elements() * c.kind.width(); len(elements) != want {
			panic(fmt.Sprintf("wire: Rewrite: constant %s of %d bytes, expected %d", c.name, len(elements), want))
		}
		constants = append(constants, initialiser(w.tensor(t, c.name, c.kind, c.dims, contentOf(elements)))...)
	}
	graph := w.model.Graph.place
	w.edits.replace(graph, t.place.tag, t.place.end, constants...)
	w.edits.insert(graph, graph.at, encodeNodes(p.nodes))
}

// elements returns the number of elements of c.
func (c *constant) elements() int {
	t := Tensor{Dims: c.dims}
	return t.Elements()
}

// data returns the bytes of the constants of a table, by their names. numbers are those of describe.
func (c *Compact) data(t *compactTable, numbers []int) map[string][]byte {
	listed, entries := c.marked(t.Rows, t.Columns)
	streams := make([][]uint32, len(t.Quantizers))
	var quantizers []uint32
	next := 0
	for row := range t.Rows {
		if !listed[row] {
			continue
		}
		q := numbers[c.Rows[row]]
		quantizers = append(quantizers, uint32(q))
		for _, gone := range c.Dropped[row*t.Columns : (row+1)*t.Columns] {
			if !gone {
				streams[q] = append(streams[q], c.Numbers[next])
				next++
			}
		}
	}
	all, most := t.wordCount()
	data := map[string][]byte{"words": floatBytes(c.Words[:all*t.Columns]), "filled": make([]byte, t.Filled)}
	if t.Listed.Marked > 0 {
		t.Listed.pack(data, "listed", listed, rowGroup)
		t.Kept.pack(data, "kept", entries, entryGroup)
	}
	if len(t.Quantizers) > 1 {
		data["quantizers"] = pack(quantizers, bitsOf(len(t.Quantizers)))
	}
	if most > 1 {
		words := make([]uint32, t.Rows)
		for i, n := range c.Word {
			words[i] = uint32(n)
		}
		data["word"] = pack(words, bitsOf(most))
	}
	byBits := map[int][]uint32{}
	for i, q := range t.Quantizers {
		byBits[q.Bits] = append(byBits[q.Bits], streams[i]...)
	}
	for bits, list := range byBits {
		switch bits {
		case 16:
			for _, n := range list {
				data["float16"] = binary.LittleEndian.AppendUint16(data["float16"], uint16(n))
			}
		case 32:
			for _, n := range list {
				data["float32"] = binary.LittleEndian.AppendUint32(data["float32"], n)
			}
		default:
			data["codes"+strconv.Itoa(bits)] = pack(list, bits)
		}
	}
	return data
}

// tensor returns the fields of a tensor that is stored where t is.
func (w *writer) tensor(t *Tensor, name string, kind Type, dims []int, elements content) []content {
	if t.outside != nil || w.outside {
		b := w.entries(w.add(elements), elements.size, nil)
		return []content{contentOf(append(described(name, kind, dims), b...))}
	}
	return inline(name, kind, dims, elements)
}

// inline returns the fields of a tensor that has its elements.
func inline(name string, kind Type, dims []int, elements content) []content {
	return []content{contentOf(append(described(name, kind, dims), header(9, elements.size)...)), elements}
}

// described returns the fields of a tensor besides its elements.
func described(name string, kind Type, dims []int) (b []byte) {
	for _, size := range dims {
		b = appendInt(b, 1, int64(size))
	}
	return appendText(appendInt(b, 2, int64(kind)), 8, name)
}
