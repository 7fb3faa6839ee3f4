package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"shaver/internal/base/fault"
)

// maxQuantizers is the largest number of quantizers of a compact table.
const maxQuantizers = 256

// check returns an error unless t describes constants that a file of this many nodes may have.
func (t *compactTable) check(nodes int) error {
	rows, kept := 0, 0
	for _, s := range t.Spans {
		if s.Rows < 1 || s.Rows > t.Rows-rows || s.Words < 1 || s.Words > math.MaxUint8+1 {
			return fault.Inputf("a span has %d rows and %d words, expected 1 to %d rows and 1 to 256 words", s.Rows, s.Words, t.Rows-rows)
		}
		rows += s.Rows
	}
	for i, q := range t.Quantizers {
		if !slices.Contains([]int{2, 3, 4, 8, 16, 32}, q.Bits) || i > 0 && q.Bits < t.Quantizers[i-1].Bits || q.Kept < 1 || q.Kept > math.MaxInt32-kept {
			return fault.Inputf("quantizer %d has %d bits and %d entries, expected 2, 3, 4, 8, 16 or 32 bits, ascending, and at least 1 entry", i, q.Bits, q.Kept)
		}
		kept += q.Kept
	}
	switch {
	case t.Rows < 1 || t.Columns < 1 || t.Rows > math.MaxInt32/t.Columns || rows != t.Rows || len(t.Spans) > nodes:
		return fault.Inputf("it has %d rows and %d columns, and its %d spans %d rows", t.Rows, t.Columns, len(t.Spans), rows)
	case !t.Listed.valid(t.Rows, rowGroup) || !t.Kept.valid(t.Listed.Marked*t.Columns, entryGroup) || t.Kept.Marked != kept || kept < t.Listed.Marked || len(t.Quantizers) > maxQuantizers:
		return fault.Inputf("it has %d listed rows of %d, and %d kept entries, of which its %d quantizers have %d", t.Listed.Marked, t.Rows, t.Kept.Marked, len(t.Quantizers), kept)
	case t.Filled < 0 || t.Filled > math.MaxInt32:
		return fault.Inputf("it is filled by %d bytes, expected at least 0", t.Filled)
	}
	return nil
}

// valid reports whether m may be the marks of n items.
func (m marks) valid(n, size int) bool {
	return m.Marked >= 0 && m.Marked <= n && m.Groups >= 0 && m.Groups <= min(m.Marked, (n+size-1)/size)
}

// compact replaces the nodes and constants of compact tables by the tables.
func (p *parser) compact(m *Model) error {
	for _, t := range m.Graph.Initializers {
		if name, old := strings.CutSuffix(t.Name, ".shaver.rows"); old {
			return fault.Inputf("table %s is compact in the form of an older program: prune the model again", Quote(name))
		}
	}
	text, ok := m.Metadata[compactKey]
	if !ok {
		return nil
	}
	var all []*compactTable
	if err := json.Unmarshal([]byte(text), &all); err != nil || slices.Contains(all, nil) || len(all) > len(m.Graph.Initializers) {
		return fault.Inputf("the metadata %s are not those of compact tables: expected the file as shaver wrote it", compactKey)
	}
	for _, t := range all {
		err := t.check(len(m.Graph.Nodes))
		if err == nil {
			err = p.meter.take(nodeCost * (100 + len(t.Spans)))
		}
		words := slices.IndexFunc(m.Graph.Initializers, func(c *Tensor) bool {
			return c.Name == t.Prefix+".words" && c.Type == Float && len(c.Dims) == 2 && c.Dims[1] == t.Columns
		})
		if err == nil && words < 0 { // or else the program may be larger than the file
			err = changed(t.Prefix + ".words")
		}
		if err == nil {
			own := newProgram(t, m.Opset)
			err = m.restore(own, func(constants map[string]*Tensor) (*Tensor, error) { return t.table(own, constants) })
		}
		if err != nil {
			return fmt.Errorf("compact table %s: %w", Quote(t.Table), err)
		}
	}
	m.compact = all
	return nil
}

// changed is the error for a file in which something else than what shaver writes has the names of a compact table.
func changed(name string) error {
	return fault.Inputf("%s is not as shaver writes it: expected the file as it was written, or the model before it was pruned", Quote(name))
}

// table returns the table of a program, which has the given constants.
func (t *compactTable) table(own *program, constants map[string]*Tensor) (*Tensor, error) {
	e := &entries{compactTable: t, constants: constants}
	for _, c := range constants {
		e.bytes += c.size
	}
	if size := int64(t.Rows) * int64(t.Columns) * 4; size > maxInflation*max(e.bytes, 1) {
		return nil, fault.Inputf("it has %d bytes, and %d in the file, expected at most %d times as many", size, e.bytes, maxInflation)
	}
	e.bytes = own.size(own.found)
	return &Tensor{Name: t.Table, Type: Float, Dims: []int{t.Rows, t.Columns}, form: compacted, entries: e}, nil
}

// restore replaces the constants and nodes of own in m by the tensor that of returns for the constants of the tensor, by their names without the prefix.
func (m *Model) restore(own *program, of func(constants map[string]*Tensor) (*Tensor, error)) error {
	g, all, stored := m.Graph, map[string]*Tensor{}, map[string]*Tensor{}
	for _, c := range g.Initializers {
		if strings.HasPrefix(c.Name, own.Prefix+".") {
			all[c.Name] = c
		}
	}
	if len(all) != len(own.constants) {
		return changed(own.Prefix)
	}
	gone := map[string]bool{}
	for _, want := range own.constants {
		c := all[want.name]
		if c == nil || c.Type != want.kind || c.form != fixed && c.Elements() > 0 || !slices.Equal(c.Dims, want.dims) || c.input {
			return changed(want.name)
		}
		gone[c.Name] = true
		if want.data == nil {
			stored[want.name[len(own.Prefix)+1:]] = c
			continue
		}
		have := make([]byte, len(want.data))
		if err := c.read(have, 0); err != nil {
			return err
		}
		if !slices.Equal(have, want.data) {
			return changed(want.name)
		}
	}
	if err := own.take(g, gone); err != nil {
		return err
	}
	made, err := of(stored)
	if err != nil {
		return err
	}
	delete(gone, made.Name)
	at := slices.IndexFunc(g.Initializers, func(c *Tensor) bool { return all[c.Name] != nil })
	first := g.Initializers[at]
	made.source, made.file, made.place = first.source, first.file, first.place
	g.Initializers = slices.DeleteFunc(g.Initializers, func(c *Tensor) bool { return all[c.Name] != nil })
	if made.Name == "" || g.defines(made.Name) {
		return changed(own.Prefix)
	}
	g.Initializers = slices.Insert(g.Initializers, at, made)
	return readsNone(g, gone)
}

// defines reports whether an input, a tensor or a node of g or its bodies has a name.
func (g *Graph) defines(name string) bool {
	return slices.ContainsFunc(g.Inputs, func(v Value) bool { return v.Name == name }) ||
		slices.ContainsFunc(g.Initializers, func(t *Tensor) bool { return t.Name == name }) ||
		slices.ContainsFunc(g.Nodes, func(n Node) bool {
			for _, a := range n.Attributes {
				if a.Graph != nil && a.Graph.defines(name) {
					return true
				}
			}
			return slices.Contains(n.Outputs, name)
		})
}

// take removes the nodes of p from g, replaces each look-up in g and its bodies by one of the table, and adds what is removed to gone.
func (p *program) take(g *Graph, gone map[string]bool) error {
	want := map[string]*Node{}
	for i := range p.nodes {
		want[p.nodes[i].Outputs[0]] = &p.nodes[i]
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if len(n.Outputs) == 0 || want[n.Outputs[0]] == nil {
			continue
		}
		if !n.like(want[n.Outputs[0]]) {
			return changed(n.Outputs[0])
		}
		delete(want, n.Outputs[0])
		for _, name := range n.Outputs {
			gone[name] = true
		}
	}
	if len(want) > 0 {
		return changed(sortedNames(want)[0])
	}
	return p.takeLookUps(g, gone)
}

// readsNone returns an error if a node or an output of g reads one of the names.
func readsNone(g *Graph, gone map[string]bool) (err error) {
	visit := func(name string) {
		if gone[name] && err == nil {
			err = changed(name)
		}
	}
	for i := range g.Nodes {
		g.Nodes[i].Reads(visit)
	}
	for _, v := range g.Outputs {
		visit(v.Name)
	}
	return err
}

// takeLookUps removes the nodes in gone from g, and replaces the look-ups.
func (p *program) takeLookUps(g *Graph, gone map[string]bool) error {
	ids := map[string]string{} // what nodes look up in block, by their outputs
	var nodes []Node
	for i := range g.Nodes {
		n := &g.Nodes[i]
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				if err := p.takeLookUps(body, gone); err != nil {
					return err
				}
			}
		}
		switch {
		case len(n.Outputs) > 0 && gone[n.Outputs[0]]:
		case p.block == "" || len(n.Inputs) == 0:
			nodes = append(nodes, *n)
		case n.Inputs[0] == p.block:
			if !n.gathersRows() {
				return changed(p.block)
			}
			ids[n.Outputs[0]], gone[n.Outputs[0]] = n.Inputs[1], true
		case n.Inputs[0] == p.blocks:
			if !n.gathersRows() || ids[n.Inputs[1]] == "" {
				return changed(p.blocks)
			}
			look := *n
			look.Inputs, look.place = []string{p.Table, ids[n.Inputs[1]]}, nil
			nodes = append(nodes, look)
			p.found++
		default:
			nodes = append(nodes, *n)
		}
	}
	g.Nodes = nodes
	return nil
}

// entries is the kept entries and the words of a compact table.
type entries struct {
	*compactTable
	constants map[string]*Tensor // by their names without the prefix
	bytes     int64

	once      sync.Once
	err       error
	listed    []byte  // a bit for each row
	before    []int32 // number of listed rows before each 64
	columns   []byte  // a bit for each entry of a listed row
	start     []int32 // number of values before those of each listed row
	values    []float32
	words     []float32
	word      []byte // of a few bits each; nil = 0
	wordBits  int
	firstRow  []int // of each span
	firstWord []int
}

// bit returns bit i.
func bit(data []byte, i int) int { return int(data[i/8]>>(i%8)) & 1 }

// number returns number i of those that pack returns.
func number(data []byte, i, bits int) (n uint32) {
	for b := range bits {
		n |= uint32(bit(data, i*bits+b)) << b
	}
	return n
}

// load reads the constants and makes the index.
func (e *entries) load() error {
	bytes := map[string][]byte{}
	for name, c := range e.constants {
		if c.Type == Uint8 {
			data := make([]byte, c.size)
			if err := c.read(data, 0); err != nil {
				return err
			}
			bytes[name] = data
		}
	}
	words := e.constants["words"]
	e.words = make([]float32, words.Elements())
	if err := words.ReadFloats(e.words, 0); err != nil {
		return err
	}
	_, most := e.wordCount()
	e.word, e.wordBits = bytes["word"], bitsOf(most)
	if e.Listed.Marked > 0 {
		e.listed = e.Listed.unpack(bytes, "listed", e.Rows, rowGroup)
		e.columns = e.Kept.unpack(bytes, "kept", e.Listed.Marked*e.Columns, entryGroup)
	}
	row, word := 0, 0
	for _, s := range e.Spans {
		e.firstRow, e.firstWord = append(e.firstRow, row), append(e.firstWord, word)
		for i := range s.Rows {
			if e.word != nil && int(number(e.word, row+i, e.wordBits)) >= s.Words {
				return fault.Inputf("row %d has the word %d, of %d", row+i, number(e.word, row+i, e.wordBits), s.Words)
			}
		}
		row, word = row+s.Rows, word+s.Words
	}
	if e.Listed.Marked == 0 {
		return nil
	}
	return e.index(bytes)
}

// index makes the index of the values.
func (e *entries) index(bytes map[string][]byte) error {
	listed := int32(0)
	for row := range e.Rows {
		if row%64 == 0 {
			e.before = append(e.before, listed)
		}
		listed += int32(bit(e.listed, row))
	}
	if int(listed) != e.Listed.Marked {
		return fault.Inputf("%d rows are listed, expected %d", listed, e.Listed.Marked)
	}
	quantizers := bytes["quantizers"]
	next, ends := make([]int, len(e.Quantizers)), make([]int, len(e.Quantizers))
	streams := map[int]string{2: "codes2", 3: "codes3", 4: "codes4", 8: "codes8", 16: "float16", 32: "float32"}
	sum := 0
	var data []byte
	var floats []float32
	for i, q := range e.Quantizers {
		if i == 0 || q.Bits != e.Quantizers[i-1].Bits {
			floats, data = nil, nil
			if q.Bits > 8 {
				c := e.constants[streams[q.Bits]]
				floats = make([]float32, c.Elements())
				if err := c.ReadFloats(floats, 0); err != nil {
					return err
				}
			} else {
				data = bytes[streams[q.Bits]]
			}
			sum = len(e.values)
		}
		next[i] = len(e.values)
		for range q.Kept {
			at := len(e.values) - sum
			if floats != nil {
				e.values = append(e.values, floats[at])
			} else {
				e.values = append(e.values, q.Origin+float32(q.Step*float32(number(data, at, q.Bits))))
			}
		}
		ends[i] = len(e.values)
	}
	for i := range e.Listed.Marked {
		q := 0
		if quantizers != nil {
			q = int(number(quantizers, i, bitsOf(len(e.Quantizers))))
		}
		if q >= len(next) {
			return fault.Inputf("listed row %d has quantizer %d, of %d", i, q, len(next))
		}
		e.start = append(e.start, int32(next[q]))
		for c := range e.Columns {
			next[q] += bit(e.columns, i*e.Columns+c)
		}
	}
	if !slices.Equal(next, ends) {
		return fault.Inputf("the rows keep other numbers of entries than the quantizers have")
	}
	return nil
}

// eachKept is each for a compact table.
func (t *Tensor) eachKept(first, count int, f func(i int, bits uint64) error) error {
	e := t.entries
	e.once.Do(func() { e.err = e.load() })
	if e.err != nil {
		return fmt.Errorf("%s: compact table %s: %w", t.file, Quote(t.Name), e.err)
	}
	columns := e.Columns
	for i := first; i < first+count; {
		row, from := i/columns, i%columns
		to := min(columns, from+first+count-i)
		span := sort.SearchInts(e.firstRow, row+1) - 1
		word := e.firstWord[span]
		if e.word != nil {
			word += int(number(e.word, row, e.wordBits))
		}
		words := e.words[word*columns : (word+1)*columns]
		at, marks := -1, 0
		if e.listed != nil && bit(e.listed, row) == 1 {
			listed := int(e.before[row/64])
			for r := row / 64 * 64; r < row; r++ {
				listed += bit(e.listed, r)
			}
			at, marks = int(e.start[listed]), listed*columns
		}
		for c := range to {
			v := words[c]
			if at >= 0 && bit(e.columns, marks+c) == 1 {
				v = e.values[at]
				at++
			}
			if c < from {
				continue
			}
			if err := f(i-first, uint64(math.Float32bits(v))); err != nil {
				return err
			}
			i++
		}
	}
	return nil
}
