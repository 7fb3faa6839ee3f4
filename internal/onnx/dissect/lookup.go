package dissect

import (
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// lookUp builds a Gather whose indices depend on inputs. Each index becomes a look-up.
func (b *builder) lookUp(s *step) ([]*value, error) {
	refuse := func(format string, args ...any) error {
		return fault.Inputf("node %s (%s): "+format, append([]any{wire.Quote(s.name), s.op}, args...)...)
	}
	t, index := s.inputs[0].tensor, s.inputs[1].trace
	if t == nil {
		t = s.inputs[0].reshaped
	}
	if t == nil {
		return nil, refuse("the ids choose rows of a table that is computed or is an input, expected a table that the file holds as it is: tied and normalised tables are not supported")
	}
	name := wire.Quote(t.Name)
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
	stride := b.stride(index.elements, t.Dims[0], dim)
	if b.strides[t] == 0 {
		b.strides[t] = stride
	} else if b.strides[t] != stride {
		return nil, refuse("it reads table %s by the row numbers id*%d + k, and another node by id*%d + k: expected the same", name, stride, b.strides[t])
	}
	var parts []graph.Value
	var keys []lookUpKey
	for i := 0; i < len(index.elements); i += stride {
		e := index.elements[i]
		if e.source == nil && !e.mixed {
			return nil, refuse("a row of table %s is chosen by no input, expected an id of the row", name)
		}
		var key lookUpKey
		if stride == 1 && b.computes(e, t.Dims[0]) {
			at, offset, err := b.computedAt(e)
			if err != nil {
				return nil, refuse("the row numbers of table %s: %w", name, err)
			}
			if offset >= t.Dims[0] {
				return nil, refuse("it reads row %d of table %s, which has %d rows", offset, name, t.Dims[0])
			}
			key = lookUpKey{t, at, offset}
		} else {
			offset := 0
			if !e.plain() && stride == 1 {
				row, err := b.start(e)
				if err != nil {
					return nil, refuse("the row numbers of table %s: %w", name, err)
				}
				if row < 0 {
					rows := "a row"
					if row < -1 {
						rows = fmt.Sprint(-row, " rows")
					}
					return nil, refuse("id 0 reads row %d of table %s: the ids of a dataset begin at 0, so put %s in front of the table, and export the module without what it subtracts from the ids", row, name, rows)
				}
				if row >= t.Dims[0] {
					return nil, refuse("id 0 reads row %d of table %s, which has %d rows", row, name, t.Dims[0])
				}
				offset = row
			}
			row, column := b.inputs[e.source.input].place(e.source.index, b.batch)
			key = lookUpKey{t, place{row, e.source.input, column}, offset}
		}
		in, column := b.at(key.input), key.column
		l := b.found[key]
		if l == nil {
			l = &lookUp{lookUpKey: key, length: 1, dim: dim * stride, stride: stride, node: s.name, value: b.head.AddInput(t.Name+" of "+in.column(column), graph.Float, []int{1, dim * stride})}
			b.found[key] = l
			b.lookUps = append(b.lookUps, l)
		}
		for _, e := range index.elements[i : i+stride] {
			if key.input < len(b.inputs) && !slices.Contains(l.elements, e) {
				if len(l.elements) >= 64*stride {
					return nil, refuse("the row numbers of table %s are computed from the same id in more than %d ways", name, 64)
				}
				l.elements = append(l.elements, e)
			}
		}
		parts, keys = append(parts, l.value), append(keys, key)
	}
	b.runs = append(b.runs, runsOf(keys)...)
	shape := slices.Concat(index.shape, t.Dims[1:])
	v, err := b.join(s.name, parts, dim*stride, 0, shape)
	if err != nil {
		return nil, err
	}
	return []*value{inHead(v)}, nil
}

// mapIDs sets the elements of out, a Gather of a constant by ids, such as that of the codes of items.
func (b *builder) mapIDs(m *graph.Tensor, index, out *trace) {
	width := m.Len() / max(1, m.Shape[0])
	if b.maps[m] == nil {
		for k := range width {
			column := graph.NewInts(make([]int64, m.Shape[0]), m.Shape[0])
			for i := range column.Ints {
				column.Ints[i] = m.Ints[i*width+k]
			}
			b.maps[m] = append(b.maps[m], &element{kind: graph.Int, constant: column})
		}
	}
	for _, e := range index.elements {
		for _, column := range b.maps[m] {
			out.elements = append(out.elements, newComputedElement(graph.Int, "Gather", nil, []*element{column, e}))
		}
	}
}

// maxStride bounds the columns of the rows that a stride joins.
const maxStride = 1 << 12

// stride returns m if the row numbers are id*m, id*m + 1, ... id*m + m-1 of one id after another, as
// in field-aware models. The table then counts as one of m times as many columns, in which each id
// reads one row. Otherwise stride returns 1.
func (b *builder) stride(list []*element, rows, dim int) int {
	line := func(e *element) (first, step int) { // row numbers of the ids 0 and 1
		if b.checks -= startCost * int64(e.size); b.checks < 0 || e.source == nil || e.plain() {
			return 0, 1
		}
		at, err := e.rowsOf(0, 2)
		if err != nil {
			return 0, 1
		}
		return int(at[0]), int(at[1] - at[0])
	}
	first, m := line(list[0])
	if first != 0 || m < 2 || m > maxStride/dim || len(list)%m != 0 || rows%m != 0 {
		return 1
	}
	for i, e := range list {
		if first, step := line(e); first != i%m || step != m || e.source != list[i-i%m].source {
			return 1
		}
	}
	return m
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
		d = &number{place: key, node: s.name, value: b.head.AddInput(in.column(column), graph.Float, []int{1, 1}), element: e}
		b.columns[key] = d
		b.numbers = append(b.numbers, d)
	}
	return d.value
}
