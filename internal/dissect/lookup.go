package dissect

import (
	"cmp"
	"fmt"
	"slices"

	"shaver/internal/fault"
	"shaver/internal/graph"
	"shaver/internal/onnx"
)

// lookUp builds a Gather whose indices depend on inputs. Each index becomes a look-up.
func (b *builder) lookUp(s *step) ([]*value, error) {
	refuse := func(format string, args ...any) error {
		return fault.Inputf("node %s (%s): "+format, append([]any{onnx.Quote(s.name), s.op}, args...)...)
	}
	t, index := s.inputs[0].tensor, s.inputs[1].trace
	if t == nil {
		return nil, refuse("the ids choose rows of a table that is computed or is an input, expected a table that the file holds as it is: tied and normalised tables are not supported")
	}
	name := onnx.Quote(t.Name)
	axis := int64(0)
	if a, ok := s.attributes["axis"].(int64); ok {
		axis = a
	}
	switch {
	case len(t.Dims) == 0 || axis != 0 && axis != -int64(len(t.Dims)):
		return nil, refuse("the ids choose parts of table %s along axis %d of the shape %v, expected rows, which are axis 0", name, axis, t.Dims)
	case !t.Type.Floating():
		return nil, refuse("the ids are mapped by table %s of %s, expected ids that are row numbers", name, t.Type)
	case index.kind != graph.Int:
		return nil, refuse("the row numbers of table %s are of type %v, expected whole numbers", name, index.kind)
	case t.Elements() == 0 || t.Elements()/t.Dims[0] > graph.MaxElements:
		return nil, refuse("table %s has the shape %v, expected rows of 1 to %d numbers", name, t.Dims, graph.MaxElements)
	case len(index.elements) == 0:
		return nil, refuse("it reads no row of table %s", name)
	}
	dim := t.Elements() / t.Dims[0]
	var parts []graph.Value
	for _, e := range index.elements {
		if e.mixed || e.source == nil {
			return nil, refuse("a row of table %s is chosen by no input or by several, expected one id for each row: crossed features, bags and sequences are not supported yet", name)
		}
		offset := 0
		if !e.plain() {
			row, err := b.start(e)
			if err != nil {
				return nil, refuse("the row numbers of table %s: %w", name, err)
			}
			if row < 0 || row >= t.Dims[0] {
				return nil, refuse("id 0 reads row %d of table %s, which has %d rows", row, name, t.Dims[0])
			}
			offset = row
		}
		in := &b.inputs[e.source.input]
		row, column := in.place(e.source.index, b.batch)
		key := lookUpKey{t, place{row, e.source.input, column}, offset}
		l := b.found[key]
		if l == nil {
			l = &lookUp{lookUpKey: key, dim: dim, node: s.name, value: b.head.AddInput(t.Name+" of "+in.column(column), graph.Float, []int{1, dim})}
			b.found[key] = l
			b.lookUps = append(b.lookUps, l)
		}
		if !slices.Contains(l.elements, e) {
			if len(l.elements) == 64 {
				return nil, refuse("the row numbers of table %s are computed from the same id in more than %d ways", name, len(l.elements))
			}
			l.elements = append(l.elements, e)
		}
		parts = append(parts, l.value)
	}
	shape := slices.Concat(index.shape, t.Dims[1:])
	v, err := b.join(s.name, parts, dim, 0, shape)
	if err != nil {
		return nil, err
	}
	return []*value{inHead(v)}, nil
}

// start returns the row number that e computes from id 0.
func (b *builder) start(e *element) (int, error) {
	if row, ok := b.starts[e]; ok {
		return row, nil
	}
	if b.checks -= startCost * int64(e.size); b.checks < 0 {
		return 0, fault.Inputf("the row numbers take too many operators to compute from the ids, and this one takes %d", e.size)
	}
	rows, err := e.rowsOf(0, 1)
	if err != nil {
		return 0, err
	}
	b.starts[e] = int(rows[0])
	return int(rows[0]), nil
}

// dense returns the value in the head of an element of an input, which s needs.
func (b *builder) dense(e *element, s *step) graph.Value {
	in := &b.inputs[e.input]
	row, column := in.place(e.index, b.batch)
	key := place{row, e.input, column}
	d := b.columns[key]
	if d == nil {
		d = &number{place: key, node: s.name, value: b.head.AddInput(in.column(column), graph.Float, []int{1, 1})}
		b.columns[key] = d
		b.numbers = append(b.numbers, d)
	}
	return d.value
}

// network describes what b has built and checks the ids.
func (b *builder) network() (*Network, error) {
	n := &Network{Head: &b.head, Output: b.output, End: b.end}
	if b.element >= 0 {
		n.Output = fmt.Sprintf("%s[%d]", b.output, b.element)
	}
	b.trim()
	if len(b.lookUps) == 0 {
		return nil, fault.Inputf("output %s: no input chooses the rows of a table, expected a click model with embeddings", onnx.Quote(b.output))
	}
	slices.SortFunc(b.lookUps, func(x, y *lookUp) int {
		return cmp.Or(cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column))
	})
	slices.SortFunc(b.numbers, func(x, y *number) int {
		return cmp.Or(cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column))
	})
	limits, err := b.limits()
	if err != nil {
		return nil, err
	}
	fields := map[place]int{}
	for _, l := range b.lookUps {
		j, ok := fields[l.place]
		if !ok {
			in := &b.inputs[l.input]
			j = len(n.Fields)
			fields[l.place] = j
			n.Fields = append(n.Fields, Field{Name: in.column(l.column), Input: in.Name, Column: l.column, Rows: limits[l], Float: in.Type.Floating()})
		}
		n.Fields[j].Rows = min(n.Fields[j].Rows, limits[l])
	}
	for _, d := range b.numbers {
		in := &b.inputs[d.input]
		if j, ok := fields[d.place]; ok {
			return nil, fault.Inputf("node %s reads %s as a number, but it is an id of a look-up too, expected one of the two", onnx.Quote(d.node), onnx.Quote(n.Fields[j].Name))
		}
		n.Dense = append(n.Dense, Dense{Name: in.column(d.column), Input: in.Name, Column: d.column, Value: d.value})
	}
	tables := map[*onnx.Tensor]int{}
	slices.SortStableFunc(b.lookUps, func(x, y *lookUp) int { return cmp.Compare(min(y.dim, 2), min(x.dim, 2)) }) // players first
	for _, l := range b.lookUps {
		if _, ok := tables[l.tensor]; !ok {
			tables[l.tensor] = len(n.Tables)
			t := Table{Name: l.tensor.Name, Rows: l.tensor.Dims[0], Dim: l.dim, tensor: l.tensor}
			if !l.tensor.InPlace() { // every read would begin at the first element
				if t.decoded, err = l.tensor.Floats(); err != nil {
					return nil, err
				}
			}
			n.Tables = append(n.Tables, t)
		}
	}
	slices.SortStableFunc(b.lookUps, func(x, y *lookUp) int {
		return cmp.Or(cmp.Compare(tables[x.tensor], tables[y.tensor]), cmp.Compare(x.offset, y.offset))
	})
	checked := map[*element]int{} // number of ids that are checked
	for _, l := range b.lookUps {
		j := fields[l.place]
		for _, e := range l.elements {
			if checked[e] >= n.Fields[j].Rows {
				continue
			}
			checked[e] = n.Fields[j].Rows
			if err := e.check(l.offset, n.Fields[j].Rows, &b.checks); err != nil {
				return nil, fault.Inputf("node %s: field %s and table %s: %w", onnx.Quote(l.node), onnx.Quote(n.Fields[j].Name), onnx.Quote(l.tensor.Name), err)
			}
		}
		n.LookUps = append(n.LookUps, LookUp{Field: j, Table: tables[l.tensor], Offset: l.offset, Player: l.dim > 1, Value: l.value})
	}
	b.head.Inputs = nil
	for _, l := range n.LookUps {
		b.head.Inputs = append(b.head.Inputs, l.Value)
	}
	for _, d := range n.Dense {
		b.head.Inputs = append(b.head.Inputs, d.Value)
	}
	for _, in := range b.inputs {
		if b.bound[in.Name] {
			n.Bound = append(n.Bound, in.Name)
		}
	}
	n.Notes = append(n.Notes, b.ignored(n)...)
	counts := map[string]int{}
	for _, node := range b.head.Nodes {
		counts[node.Op]++
	}
	for name, count := range counts {
		n.Operators = append(n.Operators, Operator{name, count})
	}
	slices.SortFunc(n.Operators, func(x, y Operator) int { return cmp.Compare(x.Name, y.Name) })
	return n, nil
}

// ignored returns a note for each input of the file that n does not have. Exporters of
// PyTorch take two inputs for one if they were given the same tensor for both.
func (b *builder) ignored(n *Network) (notes []string) {
	for _, in := range b.model.Graph.Inputs {
		if !b.bound[in.Name] &&
			!slices.ContainsFunc(n.Fields, func(f Field) bool { return f.Input == in.Name }) &&
			!slices.ContainsFunc(n.Dense, func(d Dense) bool { return d.Input == in.Name }) {
			notes = append(notes, fmt.Sprintf("the output does not depend on the input %s: if it should, export the model with a tensor of its own for each input", onnx.Quote(in.Name)))
		}
	}
	return notes
}

// trim removes nodes, look-ups and dense inputs that the output does not need.
func (b *builder) trim() {
	b.head.Trim()
	used := map[graph.Value]bool{b.head.Output: true}
	for _, n := range b.head.Nodes {
		for _, v := range n.Inputs {
			used[v] = true
		}
	}
	b.lookUps = slices.DeleteFunc(b.lookUps, func(l *lookUp) bool { return !used[l.value] })
	b.numbers = slices.DeleteFunc(b.numbers, func(d *number) bool { return !used[d.value] })
}

// limits returns how many rows of its table each look-up can read. They end at the first
// row of the next look-up of the table. limits refuses tables that are read in other ways.
func (b *builder) limits() (map[*lookUp]int, error) {
	tables := map[*onnx.Tensor][]*lookUp{}
	for _, l := range b.lookUps {
		tables[l.tensor] = append(tables[l.tensor], l)
	}
	limits := map[*lookUp]int{}
	for _, first := range b.lookUps { // in an order that does not depend on the map
		list := tables[first.tensor]
		if list[0] != first {
			continue
		}
		if reader, ok := b.readers[first.tensor]; ok {
			return nil, fault.Inputf("node %s reads table %s other than by a look-up, expected look-ups only: an entry would count in every row",
				onnx.Quote(reader), onnx.Quote(first.tensor.Name))
		}
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(x, y *lookUp) int { return cmp.Compare(x.offset, y.offset) })
		for i, l := range list {
			end := l.tensor.Dims[0]
			if i+1 < len(list) {
				end = list[i+1].offset
			}
			if limits[l] = end - l.offset; end == l.offset {
				next := list[i+1]
				return nil, fault.Inputf("node %s: %s and %s choose from the same rows of table %s: bags, sequences and tables that fields share are not supported yet",
					onnx.Quote(next.node), onnx.Quote(b.inputs[l.input].column(l.column)), onnx.Quote(b.inputs[next.input].column(next.column)), onnx.Quote(l.tensor.Name))
			}
		}
	}
	return limits, nil
}
