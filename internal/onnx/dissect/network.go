package dissect

import (
	"cmp"
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// network describes what b has built and checks the ids.
func (b *builder) network() (*Network, error) {
	n := &Network{Head: &b.head, Output: b.names(), End: b.end, Tasks: len(b.selector)}
	b.trim()
	if err := b.checkConstants(); err != nil {
		return nil, err
	}
	if len(b.lookUps) == 0 {
		return nil, fault.Inputf("output %s: no input chooses the rows of a table, expected a click model with embeddings", wire.Quote(b.output))
	}
	lists := b.lists()
	if err := b.joinLookUps(lists); err != nil {
		return nil, err
	}
	slices.SortFunc(b.lookUps, func(x, y *lookUp) int {
		return cmp.Or(cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column))
	})
	b.shift()
	fields, err := b.fields(n, lists)
	if err != nil {
		return nil, err
	}
	if err := b.readNumbers(n, fields, lists); err != nil {
		return nil, err
	}
	for t, v := range b.selector {
		n.Dense = append(n.Dense, Dense{Name: TaskInput(t), Value: v})
	}
	widest := 0
	for _, l := range b.lookUps {
		widest = max(widest, l.dim)
	}
	tables := map[*wire.Tensor]int{}
	slices.SortStableFunc(b.lookUps, func(x, y *lookUp) int { return cmp.Compare(min(y.dim, 2), min(x.dim, 2)) }) // players first
	for _, l := range b.lookUps {
		if _, ok := tables[l.tensor]; !ok {
			tables[l.tensor] = len(n.Tables)
			t := Table{Name: l.tensor.Name, Rows: l.tensor.Dims[0] / l.stride, Dim: l.dim, tensor: l.tensor}
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
	if err := b.checkRows(n, fields); err != nil {
		return nil, err
	}
	for _, l := range b.lookUps {
		j := fields[l.place]
		if f := &n.Fields[j]; f.Computed == nil && !slices.ContainsFunc(n.IDs, func(d IDs) bool { return d.Field == j }) {
			if f.Guard, err = b.guard(l, f.Rows); err != nil {
				return nil, err
			}
		}
	}
	b.findPads(n, fields, lists)
	b.rewire()
	b.head.Inputs = nil
	for _, l := range b.lookUps {
		n.LookUps = append(n.LookUps, LookUp{Field: fields[l.place], Table: tables[l.tensor], Offset: l.offset, Player: l.dim > 1 || widest == 1, Value: l.value})
		b.head.Inputs = append(b.head.Inputs, l.value)
	}
	for _, d := range n.Dense {
		b.head.Inputs = append(b.head.Inputs, d.Value)
	}
	for _, d := range n.IDs {
		b.head.Inputs = append(b.head.Inputs, d.Value)
	}
	for _, in := range b.inputs {
		if b.bound[in.Name] {
			n.Bound = append(n.Bound, in.Name)
		}
	}
	if n.Ignored = b.ignored(n); n.Ignored != "" {
		n.Notes = append(n.Notes, n.Ignored)
	}
	half := func(t wire.Type) bool { return t == wire.Float16 || t == wire.Bfloat16 }
	if slices.ContainsFunc(b.inputs, func(in input) bool { return half(in.Type) }) || half(b.model.Graph.Outputs[0].Type) || slices.ContainsFunc(b.model.Graph.Nodes, func(n wire.Node) bool {
		return n.Op == "Cast" && b.needed[n.Outputs[0]] && n.Attributes["to"] != nil && half(wire.Type(n.Attributes["to"].Int))
	}) {
		n.Notes = append(n.Notes, "the file computes in floats of 16 bits, and shaver computes it in float32: the logits differ from the third digit on")
	}
	copies, err := b.copies(n)
	if err != nil {
		return nil, err
	}
	n.Notes = append(n.Notes, copies...)
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

// checkConstants refuses constants that graph.Graph.CheckConstants refuses.
func (b *builder) checkConstants() error {
	n, err := b.head.CheckConstants()
	if err == nil {
		return nil
	}
	err = fault.Inputf("%w", err)
	for i := range b.model.Graph.Nodes {
		if o := &b.model.Graph.Nodes[i]; o.NameOrOutput() == n.Name && o.Scope != "" {
			return &moduleError{err, o.Scope}
		}
	}
	return err
}

// ignored returns a note on the inputs of the file that n does not have, or "". Exporters of
// PyTorch take two inputs for one if they were given the same tensor for both.
func (b *builder) ignored(n *Network) string {
	var names []string
	for _, in := range b.model.Graph.Inputs {
		if !b.bound[in.Name] &&
			!slices.ContainsFunc(n.Fields, func(f Field) bool {
				return f.Input == in.Name || f.Computed != nil && slices.ContainsFunc(f.Computed.Sources, func(s Source) bool { return s.Input == in.Name })
			}) &&
			!slices.ContainsFunc(n.Dense, func(d Dense) bool { return d.Input == in.Name }) {
			names = append(names, in.Name)
		}
	}
	what := "input"
	switch len(names) {
	case 0:
		return ""
	case 1:
	default:
		what = "inputs"
	}
	return fmt.Sprintf("the output does not depend on the %s %s: if it should, export the model with a tensor of its own for each input", what, quoteAll(names))
}

// copies returns a note for each constant that has the values of a table with players, or of the transposed
// table. Exporters store a tensor twice if the model looks up its rows and also multiplies by it.
func (b *builder) copies(n *Network) (notes []string, err error) {
	seen := map[*graph.Tensor]bool{}
	for _, node := range b.head.Nodes {
		for _, v := range node.Inputs {
			if v == graph.Absent || b.head.Values[v].Constant == nil || seen[b.head.Values[v].Constant] {
				continue
			}
			c := b.head.Values[v].Constant
			seen[c] = true
			for i := range n.Tables {
				same, err := n.Tables[i].copied(c)
				if err != nil {
					return nil, err
				}
				if same && slices.ContainsFunc(n.LookUps, func(l LookUp) bool { return l.Table == i && l.Player }) {
					notes = append(notes, fmt.Sprintf("the constant %s has the values of table %s, but scores and pruning leave it as it is: if both are one tensor of the model, the pruned table belongs into this graph only",
						wire.Quote(c.Name), wire.Quote(n.Tables[i].Name)))
				}
			}
		}
	}
	return notes, nil
}

// copied reports whether c has the values of t, or of t transposed.
func (t *Table) copied(c *graph.Tensor) (bool, error) {
	if c.Type != graph.Float || t.Rows < 2 || t.Dim < 2 || len(c.Floats) != t.Rows*t.Dim {
		return false, nil
	}
	same, transposed := true, true
	values := make([]float32, t.Dim)
	for row := 0; row < t.Rows && (same || transposed); row++ {
		if err := t.Read(values, row); err != nil {
			return false, err
		}
		for k, x := range values {
			same = same && c.Floats[row*t.Dim+k] == x
			transposed = transposed && c.Floats[k*t.Rows+row] == x
		}
	}
	return same || transposed, nil
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

// fields appends the fields of b's look-ups to n, and returns their positions by the places
// of their first columns.
func (b *builder) fields(n *Network, lists *lists) (map[place]int, error) {
	limits, err := b.limits()
	if err != nil {
		return nil, err
	}
	fields := map[place]int{}
	for _, l := range b.lookUps {
		j, ok := fields[l.place]
		if !ok {
			in := b.at(l.input)
			j = len(n.Fields)
			fields[l.place] = j
			f := Field{
				Name: b.name(l), Input: in.Name, Column: l.column, Length: l.length,
				Rows: limits[l], Float: in.Type.Floating(), Pad: -1,
			}
			if l.input >= len(b.inputs) {
				if f.Computed, err = b.describe(b.computed[l.input-len(b.inputs)], l.column); err != nil {
					return nil, err
				}
				f.Input, f.Column = f.Computed.Sources[0].Input, f.Computed.Sources[0].Column
			}
			n.Fields = append(n.Fields, f)
		}
		n.Fields[j].Rows = min(n.Fields[j].Rows, limits[l])
	}
	type rows struct {
		tensor *wire.Tensor
		offset int
	}
	first := map[rows]int{} // field of the first look-up that reads some rows
	for _, l := range b.lookUps {
		j := fields[l.place]
		i, ok := first[rows{l.tensor, l.offset}]
		if !ok {
			first[rows{l.tensor, l.offset}] = j
		} else if n.Fields[i].Rows != n.Fields[j].Rows {
			return nil, fault.Inputf("node %s: %s chooses from %d rows of table %s and %s from %d, which other tables limit: expected that fields share all rows that they read, or none",
				wire.Quote(l.node), wire.Quote(n.Fields[i].Name), n.Fields[i].Rows, wire.Quote(l.tensor.Name), wire.Quote(n.Fields[j].Name), n.Fields[j].Rows)
		}
	}
	return fields, nil
}

// limits returns how many rows of its table each look-up can read. They end at the first
// row of the next look-ups of the table. Look-ups with the same first row share their rows.
// limits refuses tables that are read in other ways.
func (b *builder) limits() (map[*lookUp]int, error) {
	tables := map[*wire.Tensor][]*lookUp{}
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
			end := ""
			if len(first.tensor.Dims) == 1 {
				end = "; if it holds the edges of a bucketize, export the module with (x.unsqueeze(-1) > edges).sum(-1) in its place"
			}
			return nil, fault.Inputf("node %s reads table %s other than by a look-up, expected look-ups only: an entry would count in every row%s",
				wire.Quote(reader), wire.Quote(first.tensor.Name), end)
		}
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(x, y *lookUp) int { return cmp.Compare(y.offset, x.offset) })
		rows := first.tensor.Dims[0] / first.stride
		end, next := rows, rows // of the rows at l's offset, and at the offset before it
		for i, l := range list {
			if i > 0 && l.offset != list[i-1].offset {
				end = next
			}
			limits[l], next = end-l.offset, l.offset
		}
	}
	return limits, nil
}

// checkRows verifies that the ids of all fields choose the rows of their tables in order.
// Look-ups that share rows are checked once if they compute them in the same way.
func (b *builder) checkRows(n *Network, fields map[place]int) error {
	const most = 4         // ways to compute the same rows that are remembered
	var checked []*element // for the rows of the current look-up
	free := freeOperators
	for i, l := range b.lookUps {
		f := &n.Fields[fields[l.place]]
		if i == 0 || l.tensor != b.lookUps[i-1].tensor || l.offset != b.lookUps[i-1].offset {
			checked, free = nil, freeOperators
		}
		for _, e := range l.elements {
			if slices.ContainsFunc(checked, func(o *element) bool { return e.source.kind == o.source.kind && e.same(o) }) {
				continue
			}
			offset, err := l.offset, error(nil)
			if l.stride > 1 {
				offset, err = b.start(e)
			}
			if err == nil {
				err = e.check(offset, l.stride, f.Rows, free, &b.checks)
			}
			if err != nil {
				return fault.Inputf("node %s: field %s and table %s: %w", wire.Quote(l.node), wire.Quote(f.Name), wire.Quote(l.tensor.Name), err)
			}
			if !e.plain() {
				free = 0
			}
			if len(checked) < most {
				checked = append(checked, e)
			}
		}
	}
	return nil
}
