package wire

import (
	"bufio"
	"encoding/binary"
	"hash/maphash"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

// A compact table is stored by its distinct rows. A second initialiser, named after the
// table, lists for each row of the table the number of the distinct row, as int32. Before
// each look-up of the table there is a node Gather that reads this list.
const (
	rowsSuffix = ".shaver.rows" // of the list's name
	rowSuffix  = ".shaver.row"  // of the names of what the nodes compute, followed by .2, .3, ...
)

// maxInflation is the largest ratio between the bytes of a table and those of its compact
// form. It bounds the memory that the table of a hostile file takes.
const maxInflation = 1024

// small is the compact form of a table.
type small struct {
	rows    []int32  // number of the distinct row, for each row
	first   []int32  // a row of the table, for each distinct row
	lookUps []lookUp // what reads the table
	dims    []*message
	input   *message // the table among the inputs of the graph; nil = it is not one
	list    string   // name of the list of rows
}

// lookUp is a node that reads a compact table.
type lookUp struct {
	node  *Node
	index field  // name of its second input
	row   string // new name of its second input
}

// bytes returns the size of the elements. length is the number of elements of a row.
func (s *small) bytes(length int) int64 {
	return 4 * (int64(len(s.rows)) + int64(len(s.first))*int64(length))
}

// rowLength returns the number of elements of a row of t.
func (t *Tensor) rowLength() int {
	n := 1
	for _, size := range t.Dims[1:] {
		n *= size
	}
	return n
}

// newSmall returns the compact form of a table of float32, or nil if that is not smaller.
func newSmall(values []float32, length int) *small {
	count := len(values) / length
	if count > math.MaxInt32 {
		return nil
	}
	s := &small{rows: make([]int32, count)}
	seed := maphash.MakeSeed()
	slots := 1
	for slots < 2*count {
		slots *= 2
	}
	known := make([]int32, slots) // number of a distinct row, plus 1
	row := make([]byte, 4*length)
	for i := range count {
		of := values[i*length : (i+1)*length]
		for c, v := range of {
			binary.LittleEndian.PutUint32(row[4*c:], math.Float32bits(v))
		}
		at := int(maphash.Bytes(seed, row) & uint64(slots-1))
		for known[at] != 0 {
			first := int(s.first[known[at]-1]) * length
			if slices.EqualFunc(of, values[first:first+length], same) {
				break
			}
			at = (at + 1) & (slots - 1)
		}
		if known[at] == 0 {
			s.first = append(s.first, int32(i))
			known[at] = int32(len(s.first))
		}
		s.rows[i] = known[at] - 1
	}
	table := 4 * int64(len(values))
	if size := s.bytes(length); size >= table || table > maxInflation*size {
		return nil
	}
	return s
}

// shrink finds the tables that become compact.
func (w *writer) shrink() error {
	g := w.model.Graph
	readers := map[string]*small{}
	for _, t := range w.order {
		initial := slices.ContainsFunc(g.Initializers, func(i *Tensor) bool { return i.place == t.place })
		if !initial || t.Type != Float || t.form != fixed || len(t.Dims) == 0 {
			continue
		}
		if t.small = newSmall(t.values, t.rowLength()); t.small != nil {
			readers[t.Name] = t.small
		}
	}
	if len(readers) == 0 {
		return nil
	}
	taken := map[string]bool{} // names that the file has
	refuse := func(name string) { delete(readers, name) }
	takeNames(g, readers, taken, refuse, true)
	for _, t := range w.order {
		s := t.small
		if s == nil {
			continue
		}
		s.list = t.Name + rowsSuffix
		fits := readers[t.Name] == s && len(s.lookUps) > 0 && !taken[s.list] && len(s.list) < maxName-16
		taken[s.list] = true
		extra := 128 + 2*len(s.list) // at most what the names and the nodes add
		for i := range s.lookUps {
			l := &s.lookUps[i]
			if l.row = t.Name + rowSuffix; i > 0 {
				l.row += "." + strconv.Itoa(i+1)
			}
			fits = fits && !taken[l.row]
			taken[l.row] = true
			extra += 64 + len(s.list) + len(l.node.Inputs[1]) + 3*len(l.row)
		}
		if !fits || s.bytes(t.rowLength())+int64(extra) >= 4*int64(len(t.values)) {
			t.small = nil
			refuse(t.Name)
		}
	}
	return w.positions(readers)
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
				s.lookUps = append(s.lookUps, lookUp{node: n})
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

// gathersRows reports whether n is a Gather along the first axis.
func (n *Node) gathersRows() bool {
	if n.Op != "Gather" || len(n.Inputs) != 2 || len(n.Outputs) != 1 {
		return false
	}
	axis := n.Attributes["axis"]
	return axis == nil && len(n.Attributes) == 0 || axis != nil && len(n.Attributes) == 1 && axis.Kind == KindInt && axis.Int == 0
}

// positions finds where the file describes the tables of readers, besides their tensors.
func (w *writer) positions(readers map[string]*small) error {
	m := w.model
	r := &reader{source: m.source, size: m.size, open: m.Graph.place}
	for _, s := range readers {
		for i := range s.lookUps {
			l := &s.lookUps[i]
			inputs := 0
			err := r.fields(l.node.place.at, l.node.place.end, func(number protowire.Number, v field) error {
				if number == 1 {
					if inputs++; inputs == 2 {
						l.index = v
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return r.fields(m.Graph.place.at, m.Graph.place.end, func(number protowire.Number, v field) error {
		const input, info = 11, 13
		if number != input && number != info {
			return nil
		}
		var name string
		var value, dim *message
		path := []protowire.Number{2, 1, 2, 1} // to the first axis of the shape of a tensor's type
		axes := 0
		var walk func(v field, depth int) error
		walk = func(v field, depth int) error {
			return r.message(v, func(number protowire.Number, v field) error {
				switch {
				case depth == 0:
					value = r.open
				case depth == len(path):
					dim = r.open
				}
				if depth == 0 && number == 1 {
					return r.name(v, &name)
				}
				if depth == len(path) || number != path[depth] {
					return nil
				}
				if depth == len(path)-1 {
					if axes++; axes > 1 {
						return nil
					}
				}
				return walk(v, depth+1)
			})
		}
		r.meter = meter{} // what is read here is not kept
		if err := walk(v, 0); err != nil {
			return err
		}
		s := readers[name]
		if s == nil {
			return nil
		}
		if dim != nil {
			s.dims = append(s.dims, dim)
		}
		if number == input {
			s.input = value
		}
		return nil
	})
}

// writeSmall plans the edits for a table that becomes compact.
func (w *writer) writeSmall(t *table) {
	s, length := t.small, t.rowLength()
	dims := slices.Clone(t.Dims)
	dims[0] = len(s.first)
	w.edits.replace(t.place, t.place.at, t.place.end, w.tensor(t, t.Name, Float, dims, s.distinct(t.values, length))...)
	list := w.tensor(t, s.list, Int32, []int{len(s.rows)}, s.numbers())
	size := int64(0)
	for _, c := range list {
		size += c.size
	}
	graph := w.model.Graph.place
	w.edits.replace(graph, t.place.end, t.place.end, append([]content{contentOf(header(5, size))}, list...)...)
	for _, d := range s.dims {
		w.edits.replace(d, d.at, d.end, contentOf(appendInt(nil, 1, int64(len(s.first)))))
	}
	if s.input != nil { // an initialiser of an old file must be an input
		shape := appendBytes(nil, 1, appendInt(nil, 1, int64(len(s.rows))))
		kind := appendBytes(nil, 1, appendBytes(appendInt(nil, 1, int64(Int32)), 2, shape))
		w.edits.insert(graph, s.input.end, appendBytes(nil, 11, appendBytes(appendText(nil, 1, s.list), 2, kind)))
	}
	for _, l := range s.lookUps {
		place := l.node.place
		node := appendText(appendText(nil, 1, s.list), 1, l.node.Inputs[1])
		node = appendText(appendText(appendText(node, 2, l.row), 3, l.row), 4, "Gather")
		w.edits.insert(place.outer, place.tag, appendBytes(nil, 1, node))
		name := protowire.AppendString(nil, l.row)
		w.edits.replace(place, l.index.length, l.index.end, contentOf(name))
	}
}

// tensor returns the fields of a tensor that is stored where t is.
func (w *writer) tensor(t *table, name string, kind Type, dims []int, elements content) []content {
	var b []byte
	for _, size := range dims {
		b = appendInt(b, 1, int64(size))
	}
	b = appendText(appendInt(b, 2, int64(kind)), 8, name)
	if t.Tensor.outside != nil || w.outside {
		return []content{contentOf(append(b, w.entries(w.add(elements), elements.size, nil)...))}
	}
	return []content{contentOf(append(b, header(9, elements.size)...)), elements}
}

// distinct returns the distinct rows of a table.
func (s *small) distinct(values []float32, length int) content {
	return content{4 * int64(len(s.first)) * int64(length), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, chunk)
		var element [4]byte
		for _, row := range s.first {
			for _, v := range values[int(row)*length : (int(row)+1)*length] {
				binary.LittleEndian.PutUint32(element[:], math.Float32bits(v))
				if _, err := b.Write(element[:]); err != nil {
					return err
				}
			}
		}
		return b.Flush()
	}}
}

// numbers returns the list of rows.
func (s *small) numbers() content {
	return content{4 * int64(len(s.rows)), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, chunk)
		var element [4]byte
		for _, row := range s.rows {
			binary.LittleEndian.PutUint32(element[:], uint32(row))
			if _, err := b.Write(element[:]); err != nil {
				return err
			}
		}
		return b.Flush()
	}}
}

// expansion is a compact table of a file that is read.
type expansion struct {
	table, list *Tensor
	bad         bool // whether something other than look-ups reads it
	uses        int
}

// row is what a node reads from the list of a compact table.
type row struct {
	of    *expansion
	ids   string // second input of the node
	graph *Graph // graph of the node
}

// expandTables replaces the compact tables in g by tables with all rows, which share the
// elements in the file, and removes the nodes that read their lists. It leaves a table as it
// is if the graph is not as Rewrite writes it.
func expandTables(g *Graph) error {
	tables, lists := map[string]*expansion{}, map[string]*expansion{}
	byName := map[string]*Tensor{}
	for _, t := range g.Initializers {
		byName[t.Name] = t
	}
	for _, list := range g.Initializers {
		name, ok := strings.CutSuffix(list.Name, rowsSuffix)
		table := byName[name]
		if !ok || table == nil || table.Type != Float || table.form != fixed || list.Type != Int32 || list.form != fixed || len(list.Dims) != 1 {
			continue
		}
		e := &expansion{table: table, list: list}
		tables[name], lists[list.Name] = e, e
	}
	if len(tables) == 0 {
		return nil
	}
	rows := map[string]row{}
	var find, check func(g *Graph, top bool)
	spoil := func(name string) {
		for _, e := range []*expansion{tables[name], lists[name], rows[name].of} {
			if e != nil {
				e.bad = true
			}
		}
	}
	bodies := func(n *Node, visit func(*Graph, bool)) {
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				visit(body, false)
			}
		}
	}
	find = func(g *Graph, _ bool) { // the nodes that read lists
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if e := lists[first(n.Inputs)]; e != nil && n.gathersRows() && lists[n.Inputs[1]] == nil {
				if _, ok := rows[n.Outputs[0]]; ok {
					e.bad = true
					spoil(n.Outputs[0])
				}
				rows[n.Outputs[0]] = row{e, n.Inputs[1], g}
			} else {
				for _, name := range n.Inputs {
					if lists[name] != nil {
						spoil(name)
					}
				}
			}
			bodies(n, find)
		}
	}
	check = func(g *Graph, top bool) { // the nodes that read tables
		if !top {
			for _, v := range g.Inputs {
				spoil(v.Name)
			}
			for _, t := range g.Initializers {
				spoil(t.Name)
			}
		}
		for _, v := range g.Outputs {
			spoil(v.Name)
		}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			looksUp := n.gathersRows() && tables[n.Inputs[0]] != nil && rows[n.Inputs[1]].of == tables[n.Inputs[0]] && rows[n.Inputs[1]].graph == g
			for _, name := range n.Inputs {
				switch {
				case looksUp:
					tables[n.Inputs[0]].uses++
				case lists[name] == nil:
					spoil(name)
				}
			}
			for _, name := range n.Outputs {
				if r, ok := rows[name]; !ok || r.graph != g || lists[first(n.Inputs)] != r.of {
					spoil(name)
				}
			}
			bodies(n, check)
		}
	}
	find(g, true)
	check(g, true)
	for _, list := range g.Initializers {
		if e := lists[list.Name]; e != nil && !e.bad && e.uses > 0 {
			if err := e.expand(); err != nil {
				return err
			}
		} else if e != nil {
			e.bad = true
		}
	}
	removeLists(g, lists, rows)
	return nil
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// expand gives the table all its rows.
func (e *expansion) expand() error {
	t, count := e.table, e.list.Dims[0]
	if len(t.Dims) == 0 || t.Elements() == 0 || count == 0 {
		return fault.Inputf("the compact table %s has no rows", Quote(t.Name))
	}
	length := t.rowLength()
	if stored := count + t.Elements(); length > maxElements/count || length*count > maxInflation*stored {
		return fault.Inputf("the compact table %s has %d rows of %d elements, expected at most %d times what the file has", Quote(t.Name), count, length, maxInflation)
	}
	base := *t
	t.form, t.base, t.rows = indexed, &base, e.list
	t.Dims = slices.Clone(t.Dims)
	t.Dims[0] = count
	return nil
}

// removeLists removes the lists of the tables that were expanded, and the nodes that read
// them.
func removeLists(g *Graph, lists map[string]*expansion, rows map[string]row) {
	g.Initializers = slices.DeleteFunc(g.Initializers, func(t *Tensor) bool {
		e := lists[t.Name]
		return e != nil && !e.bad && e.list == t
	})
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n Node) bool {
		e := lists[first(n.Inputs)]
		return e != nil && !e.bad
	})
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if len(n.Inputs) == 2 {
			if r := rows[n.Inputs[1]]; r.of != nil && !r.of.bad {
				n.Inputs = []string{n.Inputs[0], r.ids}
			}
		}
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				removeLists(body, lists, rows)
			}
		}
	}
}

// eachIndexed is each for a table that was compact in the file.
func (t *Tensor) eachIndexed(from, count int, f func(i int, bits uint64) error) error {
	length := t.rowLength()
	done := 0
	for done < count {
		begin := (from + done) / length
		rows := make([]int64, min((from+count-1)/length-begin+1, chunk/8))
		err := t.rows.each(begin, len(rows), func(i int, bits uint64) error {
			rows[i] = int64(bits)
			return nil
		})
		if err != nil {
			return err
		}
		for i, row := range rows {
			if row < 0 || row >= int64(t.base.Dims[0]) {
				return fault.Inputf("%s: row %d of table %s is its distinct row %d, of %d", t.file, begin+i, Quote(t.Name), row, t.base.Dims[0])
			}
			skip := from + done - (begin+i)*length // only in the first row
			part := min(length-skip, count-done)
			start := done
			err := t.base.each(int(row)*length+skip, part, func(i int, bits uint64) error { return f(start+i, bits) })
			if err != nil {
				return err
			}
			done += part
		}
	}
	return nil
}
