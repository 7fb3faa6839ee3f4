package checkpoint

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// slicedGraph is Sliced for a model of Kind Graph.
func (c *Checkpoint) slicedGraph(s *Slice) (*Checkpoint, error) {
	head, err := c.head()
	if err != nil {
		return nil, err
	}
	if _, err := c.graphModel(); err != nil { // which checks the description of the head
		return nil, err
	}
	k := &graphKnife{from: c, s: s, head: head, field: make([]int, c.Architecture.Fields())}
	for j := range k.field {
		k.field[j] = slices.Index(s.Fields, j)
	}
	small, err := k.cutHead()
	if err != nil {
		return nil, err
	}
	return k.checkpoint(small)
}

// graphKnife cuts a model of Kind Graph.
type graphKnife struct {
	from   *Checkpoint
	s      *Slice
	head   *graph.Graph
	field  []int // new number of each field, or -1
	inputs []int // new number of each input of the head, or -1
}

// cutHead returns the head without what goes.
func (k *graphKnife) cutHead() (*graph.Graph, error) {
	c, a := k.from, &k.from.Architecture
	parts := make([]graph.Part, len(k.head.Inputs))
	k.inputs = make([]int, len(parts))
	drop := func(i int, id float32) {
		shape := k.head.Values[k.head.Inputs[i]].Shape
		n, _ := graph.Count(shape) // which graphModel has checked
		k.inputs[i] = -1
		if id != 0 || len(shape) == 0 {
			parts[i].Constant = graph.NewFloats(slices.Repeat([]float32{id}, n), shape...)
			return
		}
		parts[i].Axes = make([][]int, len(shape))
		parts[i].Axes[0] = []int{}
	}
	for i, input := range c.graph.LookUps {
		shape := k.head.Values[k.head.Inputs[input]].Shape
		last := len(shape) - 1
		switch {
		case k.field[lookUpField(a, i)] < 0:
			drop(input, 0)
		case len(k.s.Columns) == a.TableColumns():
		case last < 0 || shape[last] != a.TableColumns():
			return nil, c.inputf("the head reads look-up %d as the shape %v, expected rows of %d columns", i, shape, a.TableColumns())
		default:
			parts[input].Axes = make([][]int, len(shape))
			parts[input].Axes[last] = k.s.Columns
		}
	}
	for _, l := range c.graph.Constants {
		if k.field[l.Field] < 0 {
			drop(l.Input, 0)
		}
	}
	for _, d := range c.graph.IDs {
		if k.field[d.Field] >= 0 {
			continue
		}
		id := float32(0)
		for _, l := range a.Lists {
			if l.Field == d.Field && l.Pad == 0 && a.FieldDims[d.Field] > 1 {
				id = 1
			}
		}
		drop(d.Input, id)
	}
	next := 0
	for i := range k.inputs {
		if k.inputs[i] == 0 {
			k.inputs[i] = next
			next++
		}
	}
	small, err := k.head.Cut(parts)
	if err != nil {
		return nil, c.inputf("the model cannot be cut to %d fields%s and %d columns: %w", len(k.s.Fields), k.without(), len(k.s.Columns), err)
	}
	return small, k.checkRead(small)
}

// without names the fields that go.
func (k *graphKnife) without() string {
	var gone []string
	for j, to := range k.field {
		if to < 0 {
			gone = append(gone, k.name(j))
		}
	}
	if gone == nil {
		return ""
	}
	return " (without " + strings.Join(gone, ", ") + ")"
}

// name returns the name of a field.
func (k *graphKnife) name(field int) string {
	if names := k.from.Known().FieldNames(); names != nil {
		return wire.Quote(names[field])
	}
	return strconv.Itoa(field)
}

// checkRead returns an error if a head does not read a field that stays.
func (k *graphKnife) checkRead(head *graph.Graph) error {
	form := k.from.graph
	var read []int
	for i, v := range head.Inputs {
		if slices.ContainsFunc(head.Nodes, func(n graph.Node) bool { return slices.Contains(n.Inputs, v) }) {
			read = append(read, i)
		}
	}
	fields := make([]bool, len(k.field))
	see := func(field, input int) {
		fields[field] = fields[field] || slices.Contains(read, k.inputs[input])
	}
	for i, input := range form.LookUps {
		see(lookUpField(&k.from.Architecture, i), input)
	}
	for _, l := range form.Constants {
		see(l.Field, l.Input)
	}
	for _, d := range form.IDs {
		see(d.Field, d.Input)
	}
	for _, j := range k.s.Fields {
		if !fields[j] {
			return k.from.inputf("the logit does not depend on the field %s%s: remove that field too, or keep one of the others", k.name(j), k.without())
		}
	}
	return nil
}

// lookUpField returns the field of a look-up of a.
func lookUpField(a *model.Architecture, lookUp int) int {
	if a.Plain() {
		return lookUp
	}
	return a.LookUps[lookUp].Field
}

// checkpoint returns the checkpoint with the given head.
func (k *graphKnife) checkpoint(head *graph.Graph) (*Checkpoint, error) {
	c, form := k.from, k.from.graph
	text, weights := graph.Encode(head)
	changed := &Checkpoint{
		Tensors: map[string]Tensor{}, EmbeddingKey: graphEmbedding, Ignored: c.Ignored, Origins: c.Origins, Scored: c.Scored, Tasks: c.Tasks, Standards: c.Standards, name: c.name,
		graph: &graphForm{Head: json.RawMessage(text), Output: form.Output, Tasks: form.Tasks},
	}
	to := changed.graph
	if c.Fields != nil {
		changed.Fields = at(c.Fields, k.s.Fields)
		to.Fields = changed.Fields
	}
	if c.Identities != nil {
		changed.Identities = at(c.Identities, k.s.Fields)
	}
	if c.signature != nil {
		signature := *c.signature
		signature.fields = at(signature.fields, k.s.Fields)
		changed.signature = &signature
	}
	a := &changed.Architecture
	*a = model.Architecture{Kind: model.Graph, FieldDims: at(c.Architecture.FieldDims, k.s.Fields), Dense: c.Architecture.Dense}
	for i, l := range c.Architecture.Lists {
		if l.Field = k.field[l.Field]; l.Field >= 0 {
			a.Lists, to.Pads = append(a.Lists, l), append(to.Pads, form.Pads[i])
		}
	}
	for i, input := range form.LookUps {
		if k.field[lookUpField(&c.Architecture, i)] >= 0 {
			to.LookUps = append(to.LookUps, k.inputs[input])
		}
	}
	for _, input := range form.Dense {
		to.Dense = append(to.Dense, k.inputs[input])
	}
	for _, d := range form.IDs {
		if j := k.field[d.Field]; j >= 0 {
			to.IDs = append(to.IDs, graphIDs{Field: j, Input: k.inputs[d.Input]})
		}
	}
	computed := func(list []graphComputed) (kept []graphComputed) {
		for _, f := range list {
			if f.Field = k.field[f.Field]; f.Field >= 0 {
				f.Sources = k.sources(f.Sources)
				kept = append(kept, f)
			}
		}
		return kept
	}
	to.Computed, changed.guards = computed(form.Computed), computed(c.guards)
	k.tables(changed)
	k.constants(changed)
	for _, w := range weights {
		changed.add(graphKey(graphHead, w.Name), tensor.FromFloat32s(w.Shape, w.Floats))
	}
	if err := a.Validate(); err != nil {
		return nil, c.inputf("%w", err)
	}
	return changed, nil
}

// sources returns the sources of a computed field. An id of a field that goes is then a number of its own.
func (k *graphKnife) sources(positions [][]graphComputedInput) [][]graphComputedInput {
	var all [][]graphComputedInput
	for _, position := range positions {
		position = slices.Clone(position)
		for i, s := range position {
			if s.Field == nil {
				continue
			}
			if j := k.field[*s.Field]; j >= 0 {
				position[i].Field = &j
			} else {
				position[i].Field, position[i].Position = nil, 0
			}
		}
		all = append(all, position)
	}
	return all
}

// tables adds the tables with the rows that a field reads.
func (k *graphKnife) tables(to *Checkpoint) {
	a, t := &k.from.Architecture, k.from.Tensors[graphEmbedding]
	if a.Plain() {
		var rows []int
		for _, j := range k.s.Fields {
			for i := range a.FieldDims[j] {
				rows = append(rows, int(a.Offsets()[j])+i)
			}
		}
		to.Architecture.Dim = len(k.s.Columns)
		to.add(graphEmbedding, t.Take(0, rows).Take(1, k.s.Columns))
		return
	}
	joined := Tensor{DType: t.DType}
	var places []map[int]int // by table, as rowsRead
	numbers := make([]int, len(a.Tables))
	for i, table := range a.Tables {
		var read [][2]int
		for _, l := range a.LookUps {
			if l.Table == i && k.field[l.Field] >= 0 {
				read = append(read, [2]int{l.Offset, a.FieldDims[l.Field]})
			}
		}
		rows, place := rowsRead(read, table.Rows)
		places = append(places, place)
		size := table.Rows * table.Dim * t.DType.Size()
		part := Tensor{DType: t.DType, Shape: []int{table.Rows, table.Dim}, Data: t.Data[:size]}
		t.Data = t.Data[size:]
		if len(rows) == 0 {
			continue
		}
		numbers[i] = len(to.Architecture.Tables)
		part = part.Take(0, rows)
		if a.TableColumns() > 0 {
			part = part.Take(1, k.s.Columns)
		}
		to.Architecture.Tables = append(to.Architecture.Tables, model.Table{Name: table.Name, Rows: len(rows), Dim: part.Shape[1]})
		joined.Data = append(joined.Data, part.Data...)
	}
	for _, l := range a.LookUps {
		if j := k.field[l.Field]; j >= 0 {
			to.Architecture.LookUps = append(to.Architecture.LookUps, model.LookUp{Field: j, Table: numbers[l.Table], Offset: places[l.Table][l.Offset]})
		}
	}
	joined.Shape = []int{len(joined.Data) / t.DType.Size()}
	to.add(graphEmbedding, joined)
}

// constants adds the tables without players, with the rows that a field reads.
func (k *graphKnife) constants(to *Checkpoint) {
	a := &k.from.Architecture
	read := map[string][][2]int{}
	for _, l := range k.from.graph.Constants {
		if k.field[l.Field] >= 0 {
			read[l.Table] = append(read[l.Table], [2]int{l.Offset, a.FieldDims[l.Field]})
		}
	}
	places := map[string]map[int]int{}
	for _, l := range k.from.graph.Constants {
		if k.field[l.Field] < 0 {
			continue
		}
		key := graphKey(graphConstants, l.Table)
		if places[l.Table] == nil {
			t := k.from.Tensors[key]
			rows, place := rowsRead(read[l.Table], t.Shape[0])
			places[l.Table] = place
			to.add(key, t.Take(0, rows))
		}
		to.graph.Constants = append(to.graph.Constants, graphConstant{Table: l.Table, Field: k.field[l.Field], Offset: places[l.Table][l.Offset], Input: k.inputs[l.Input]})
	}
}

// rowsRead returns the rows of a table that are read, of which there are size, and the place of the first row of each
// range among them. read has the first row and the number of rows of each range.
func rowsRead(read [][2]int, size int) (rows []int, place map[int]int) {
	is := make([]bool, size)
	for _, r := range read {
		for row := r[0]; row < r[0]+r[1]; row++ {
			is[row] = true
		}
	}
	place = map[int]int{}
	for _, r := range read {
		place[r[0]] = -1
	}
	for row, kept := range is {
		if !kept {
			continue
		}
		if _, first := place[row]; first {
			place[row] = len(rows)
		}
		rows = append(rows, row)
	}
	return rows, place
}
