package dissect

import (
	"cmp"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// runsOf returns the runs of at least two columns in the row numbers of a node.
func runsOf(keys []lookUpKey) []run {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(x, y lookUpKey) int {
		return cmp.Or(cmp.Compare(x.row, y.row), cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column), cmp.Compare(x.offset, y.offset))
	})
	keys = slices.Compact(keys)
	var runs []run
	for i := 0; i < len(keys); {
		r := run{keys[i], keys[i].column + 1}
		for i++; i < len(keys); i++ {
			next := r.lookUpKey
			if next.column = r.to; keys[i] != next {
				break
			}
			r.to++
		}
		if r.to-r.column > 1 {
			runs = append(runs, r)
		}
	}
	return runs
}

// lists is the fields of a network that are lists.
type lists struct {
	runs []run // by input and column; the tensors and offsets mean nothing
	of   map[place]int
}

// lists returns the lists that the look-ups of b read. Runs of columns that overlap belong
// to one list.
func (b *builder) lists() *lists {
	needed := map[lookUpKey]bool{}
	for _, l := range b.lookUps {
		needed[l.lookUpKey] = true
	}
	runs := slices.DeleteFunc(slices.Clone(b.runs), func(r run) bool { return !needed[r.lookUpKey] })
	slices.SortStableFunc(runs, func(x, y run) int {
		return cmp.Or(cmp.Compare(x.row, y.row), cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column))
	})
	all := &lists{of: map[place]int{}}
	for _, r := range runs {
		if k := len(all.runs) - 1; k >= 0 && all.runs[k].row == r.row && all.runs[k].input == r.input && r.column < all.runs[k].to {
			all.runs[k].to = max(all.runs[k].to, r.to)
			continue
		}
		all.runs = append(all.runs, r)
	}
	for k, r := range all.runs {
		for at := r.place; at.column < r.to; at.column++ {
			all.of[at] = k
		}
	}
	return all
}

// joinLookUps replaces the look-ups of the columns of each list by one look-up of the list.
// It refuses look-ups that read only some columns of a list.
func (b *builder) joinLookUps(lists *lists) error {
	joined := map[lookUpKey][]*lookUp{} // by their list, table and offset: look-ups by column, nil = missing
	var order []lookUpKey
	var rest []*lookUp
	for _, l := range b.lookUps {
		k, ok := lists.of[l.place]
		if !ok {
			rest = append(rest, l)
			continue
		}
		r := &lists.runs[k]
		key := lookUpKey{l.tensor, r.place, l.offset}
		if joined[key] == nil {
			joined[key] = make([]*lookUp, r.to-r.column)
			order = append(order, key)
		}
		joined[key][l.column-r.column] = l
	}
	for _, key := range order {
		parts := joined[key]
		in := b.at(key.input)
		at := slices.IndexFunc(parts, func(l *lookUp) bool { return l != nil })
		all := &lookUp{lookUpKey: key, length: len(parts), dim: parts[at].dim, stride: parts[at].stride, node: parts[at].node}
		values := make([]graph.Value, len(parts))
		for i, l := range parts {
			if l == nil {
				return fault.Inputf("node %s: %s is a list, but table %s is read from row %d on for some of its positions and not for position %d: expected that all positions of a list read the same rows",
					wire.Quote(all.node), wire.Quote(in.columnRange(key.column, len(parts))), wire.Quote(key.tensor.Name), key.offset, i)
			}
			all.elements = append(all.elements, l.elements...)
			values[i] = l.value
		}
		all.value = b.joinInputs(key.tensor.Name+" of "+in.columnRange(key.column, len(parts)), values, all.dim, 0)
		rest = append(rest, all)
	}
	b.lookUps = rest
	return nil
}

// joint is an input of the head that takes the place of several inputs of shape [1, width].
// These follow each other along an axis.
type joint struct {
	name   string
	value  graph.Value
	parts  []graph.Value
	axis   int
	needed bool // whether a node reads some of the parts alone
}

// joinInputs adds an input to the head that takes the place of parts. rewire makes the
// nodes read it.
func (b *builder) joinInputs(name string, parts []graph.Value, width, axis int) graph.Value {
	shape := []int{1, width}
	shape[axis] *= len(parts)
	v := b.head.AddInput(name, graph.Float, shape)
	b.joints = append(b.joints, &joint{name: name, value: v, parts: parts, axis: axis})
	return v
}

// rewire makes the nodes of the head read the inputs of joinInputs. A node that joins all
// parts disappears. For other nodes, a Split comes first.
func (b *builder) rewire() {
	parts := map[graph.Value]*joint{}
	for _, j := range b.joints {
		for _, v := range j.parts {
			parts[v] = j
		}
	}
	joined := map[graph.Value]graph.Value{} // outputs of the nodes that disappear
	var rest []graph.Node
	for _, n := range b.head.Nodes {
		if j := parts[n.Inputs[0]]; j != nil && n.Op == "Concat" && n.Attributes["axis"] == int64(j.axis) && slices.Equal(n.Inputs, j.parts) {
			joined[n.Outputs[0]] = j.value
			continue
		}
		n.Inputs = slices.Clone(n.Inputs)
		for i, v := range n.Inputs {
			if all, ok := joined[v]; ok {
				n.Inputs[i] = all
			}
			if j := parts[v]; j != nil {
				j.needed = true
			}
		}
		rest = append(rest, n)
	}
	if all, ok := joined[b.head.Output]; ok {
		b.head.Output = all
	}
	if j := parts[b.head.Output]; j != nil {
		j.needed = true
	}
	b.head.Nodes = nil
	for _, j := range b.joints {
		if j.needed {
			b.head.Nodes = append(b.head.Nodes, graph.Node{
				Name: j.name, Op: "Split", Inputs: []graph.Value{j.value}, Outputs: j.parts,
				Attributes: graph.Attributes{"axis": int64(j.axis), "num_outputs": int64(len(j.parts))},
			})
		}
	}
	b.head.Nodes = append(b.head.Nodes, rest...)
}

// readNumbers appends the dense inputs and the ids that the head reads as numbers to n.
// fields has the positions of n's fields by the places of their first columns.
func (b *builder) readNumbers(n *Network, fields map[place]int, lists *lists) error {
	slices.SortFunc(b.numbers, func(x, y *number) int {
		return cmp.Or(cmp.Compare(x.input, y.input), cmp.Compare(x.column, y.column))
	})
	byField := map[int][]*number{}
	for _, d := range b.numbers {
		at := d.place
		if k, ok := lists.of[at]; ok {
			at = lists.runs[k].place
		}
		if j, ok := fields[at]; ok {
			byField[j] = append(byField[j], d)
			continue
		}
		in := &b.inputs[d.input]
		n.Dense = append(n.Dense, Dense{Name: in.column(d.column), Input: in.Name, Column: d.column, Value: d.value})
	}
	for j := range n.Fields {
		list, f := byField[j], &n.Fields[j]
		if len(list) == 0 {
			continue
		}
		if f.Rows > maxExactFloat {
			return fault.Inputf("node %s reads the ids %s as numbers, of which there are %d: expected at most %d, because the numbers are float32", wire.Quote(list[0].node), wire.Quote(f.Name), f.Rows, maxExactFloat)
		}
		value := list[0].value
		if f.Length > 1 {
			parts := make([]graph.Value, f.Length)
			for i := range parts {
				parts[i] = graph.Absent
			}
			for _, d := range list {
				parts[d.column-f.Column] = d.value
			}
			for i, v := range parts {
				if v == graph.Absent {
					parts[i] = b.head.AddInput("", graph.Float, []int{1, 1})
				}
			}
			value = b.joinInputs("ids "+f.Name, parts, 1, 1)
		}
		n.IDs = append(n.IDs, IDs{j, value})
	}
	return nil
}

// findPads sets the pads of lists. If the graph compares the ids of a list with a constant
// that one id differs by, this id is the pad. Otherwise the pad is 0, unless the head reads
// the ids and only those below 0 differ.
func (b *builder) findPads(n *Network, fields map[place]int, lists *lists) {
	const most = 8 // comparisons of a list that are examined
	seen := make([][]*element, len(lists.runs))
	for k := range lists.runs {
		if j, ok := fields[lists.runs[k].place]; ok {
			n.Fields[j].Pad = 0
		}
	}
	for _, e := range b.comparisons {
		in := &b.inputs[e.source.input]
		row, column := in.place(e.source.index, b.batch)
		k, ok := lists.of[place{row, e.source.input, column}]
		if !ok || len(seen[k]) == most || slices.ContainsFunc(seen[k], e.same) {
			continue
		}
		seen[k] = append(seen[k], e)
		j := fields[lists.runs[k].place]
		f := &n.Fields[j]
		switch pad, ok := b.outlier(e, f.Rows); {
		case !ok || f.PadFound:
		case pad >= 0:
			f.Pad, f.PadFound, f.PadBelow = pad, true, false
		default:
			// Some exporters compare ids with 0 to choose rows from the end of a table. That is no mask.
			f.PadBelow = slices.ContainsFunc(n.IDs, func(d IDs) bool { return d.Field == j })
		}
	}
}

// outlier returns the only id, of the ids 0 to rows-1, for which e is not what it is for the
// others, or -1 if e is the same for all of them and differs for id -1. It examines the first
// and the last ids, and those next to the constants of e.
func (b *builder) outlier(e *element, rows int) (id int, ok bool) {
	if b.checks -= startCost * int64(e.size); b.checks < 0 {
		return 0, false
	}
	ids := []int64{0, 1, 2, int64(rows) / 2, int64(rows) - 3, int64(rows) - 2, int64(rows) - 1}
	for _, c := range e.constants(nil) {
		ids = append(ids, c-1, c, c+1)
	}
	ids = slices.DeleteFunc(ids, func(id int64) bool { return id < 0 || id >= int64(rows) })
	ids = append(ids, -1)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	t, err := e.of(ids)
	if err != nil || t.Len() != len(ids) {
		return 0, false
	}
	below, of := t.Number(0), map[float64]int{} // how many of the ids of rows have a value
	for i := range ids[1:] {
		of[t.Number(i+1)]++
	}
	if len(of) == 1 {
		return -1, of[below] == 0
	}
	for i, id := range ids[1:] {
		if v := t.Number(i + 1); len(of) == 2 && of[v] == 1 && (len(ids) > 3 || len(ids) == 3 && v == 1 && e.op == "Equal") {
			return int(id), true
		}
	}
	return 0, false
}
