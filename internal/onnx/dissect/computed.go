package dissect

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// Computed says how the ids of a field follow from elements of the inputs of a row.
type Computed struct {
	// Graph computes the id from Sources. Its inputs and its output are scalars: an input is an
	// Int or a Float, and the output is an Int. An id below 0 or above the last one makes the
	// row invalid, as it does in the file.
	Graph   *graph.Graph
	Sources []Source // for a list, of its first position
}

// At returns the sources of position i of a list. Each position reads the next column.
func (c *Computed) At(i int) []Source {
	if i == 0 {
		return c.Sources
	}
	var sources []Source
	for _, s := range c.Sources {
		column := s.Column + i
		sources = append(sources, Source{s.Input + "[" + strconv.Itoa(column) + "]", s.Input, column})
	}
	return sources
}

// Source is an element of an input.
type Source struct {
	Name   string // as a dense input would be called
	Input  string
	Column int
}

// computedFrom begins the names of fields that follow from their sources in any other way than
// by a remainder or a quotient.
const computedFrom = "computed from "

// maxComputed bounds the operators that compute the ids of a field.
const maxComputed = 1 << 12

// computed is a field whose ids the graph computes from those of a row. It takes the place of an
// input.
type computed struct {
	input   input
	of      *input   // of the only source of element; nil if there are several
	element *element // of the first row that reads it
}

// summary describes an element.
type summary struct {
	sources []*element        // elements of inputs on which it depends, without duplicates
	nodes   int               // number of operators and constants, without duplicates as far as they are known
	sum     [sha256.Size]byte // of the computation; the columns of sources count if there are several
}

// hashing reports whether an operator may map many ids to one row.
func hashing(op string, kind graph.Type) bool {
	return op == "Mod" || op == "Gather" || functions[op] || op == "Div" && kind == graph.Int
}

// computes reports whether the row number e has to be computed when a row is imported, because
// it is not the id plus a constant.
func (b *builder) computes(e *element, rows int) bool {
	if e.mixed {
		return true
	}
	if e.plain() {
		return false
	}
	if is, ok := b.computing[e]; ok {
		return is
	}
	is := b.contains(e, map[*element]bool{})
	if first, err := b.start(e); !is && err == nil && first >= 0 && first < rows {
		const most = 256 // ids that are tried; check tries them all
		count := min(most, rows)
		b.checks -= int64(e.size)
		list, err := e.rowsOf(0, count)
		moved := 0
		for i, row := range list {
			if row != int64(first+i) {
				moved++
			}
		}
		// A graph that reads a single id elsewhere, such as one that it does not know, is refused.
		is = err == nil && moved > 1
	}
	b.computing[e] = is
	return is
}

func (b *builder) contains(e *element, seen map[*element]bool) bool {
	if e == nil || seen[e] {
		return false
	}
	seen[e] = true
	return hashing(e.op, e.kind) || slices.ContainsFunc(e.arguments, func(a *element) bool { return b.contains(a, seen) })
}

// computedAt returns the place of the ids that e computes, and the offset that is added to
// them.
func (b *builder) computedAt(e *element) (at place, offset int, err error) {
	if e.op == "Cast" && e.arguments[0].op == "Add" && e.arguments[0].arguments[0].op == "Mod" {
		e = e.arguments[0] // a remainder and the number of a row do not wrap
	}
	if e.op == "Add" && len(e.arguments) == 2 {
		for i, c := range e.arguments {
			if c.constant != nil && c.kind == graph.Int && c.constant.Ints[0] >= 0 && c.constant.Ints[0] <= math.MaxInt32 {
				e, offset = e.arguments[1-i], int(c.constant.Ints[0])
				break
			}
		}
	}
	s := b.summary(e)
	if s.nodes > maxComputed {
		return at, 0, fault.Inputf("an id is computed by more than %d operators: compute it before the model", maxComputed)
	}
	row, column := -1, 0
	for _, source := range s.sources {
		r, c := b.inputs[source.input].place(source.index, b.batch)
		if row >= 0 && r != row {
			return at, 0, fault.Inputf("an id is computed from several rows of the batch: expected independent rows")
		}
		row, column = r, c
	}
	if row < 0 {
		return at, 0, fault.Inputf("an id does not depend on the row")
	}
	single := len(s.sources) == 1
	key := s.sum
	k, ok := b.fieldOf[key]
	if !ok {
		k = len(b.computed)
		b.fieldOf[key] = k
		c := &computed{element: e, input: input{axis: -1, columns: 1}}
		if single {
			c.of = &b.inputs[s.sources[0].input]
			c.input.columns = c.of.columns
		}
		c.input.Name = b.computedName(e, s)
		b.computed = append(b.computed, c)
	}
	at = place{row: row, input: len(b.inputs) + k}
	if single {
		at.column = column
	}
	return at, offset, nil
}

// computedName returns a name for the ids that e computes, which no other input has.
func (b *builder) computedName(e *element, s *summary) string {
	var names []string
	for _, source := range s.sources {
		name := b.inputs[source.input].Name
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := computedFrom + strings.Join(names, " and ")
	for sign, op := range map[string]string{"%": "Mod", "/": "Div"} {
		if e.op != op || len(e.arguments) != 2 {
			continue
		}
		x, c := e.arguments[0], e.arguments[1]
		for x.op == "Cast" {
			x = x.arguments[0]
		}
		if x.plain() && c.constant != nil && len(c.constant.Ints) == 1 {
			name = fmt.Sprintf("%s %s %d", names[0], sign, c.constant.Ints[0])
		}
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(b.inputs, func(in input) bool { return in.Name == name }) || slices.ContainsFunc(b.computed, func(c *computed) bool { return c.input.Name == name })
	}
	for i, base := 2, name; taken(name); i++ {
		name = fmt.Sprintf("%s (%d)", base, i)
	}
	return name
}

// summary describes e. The same computation of the same columns of another row has the same
// sum, and so has that of another column if there is only one source.
func (b *builder) summary(e *element) *summary {
	if s := b.summaries[e]; s != nil {
		return s
	}
	s := &summary{nodes: 1}
	h := sha256.New()
	fmt.Fprint(h, e.kind, e.op)
	switch {
	case e.constant != nil:
		fmt.Fprint(h, "constant", e.constant.Floats, e.constant.Ints, e.constant.Bools)
	case e.op == "":
		s.sources = []*element{e}
		fmt.Fprint(h, "input", e.input)
	default:
		for _, name := range slices.Sorted(maps.Keys(e.attributes)) {
			fmt.Fprint(h, name, e.attributes[name])
		}
		for _, a := range e.arguments {
			if a == nil {
				fmt.Fprint(h, "absent")
				continue
			}
			of := b.summary(a)
			s.nodes = min(s.nodes+of.nodes, math.MaxInt32)
			for _, source := range of.sources {
				if !slices.Contains(s.sources, source) {
					s.sources = append(s.sources, source)
				}
			}
			h.Write(of.sum[:])
		}
		if e.mixed { // now the columns count
			for _, a := range e.arguments {
				if a == nil || a.source == nil {
					continue
				}
				_, column := b.inputs[a.source.input].place(a.source.index, b.batch)
				fmt.Fprint(h, "column", column)
			}
		}
	}
	h.Sum(s.sum[:0])
	b.summaries[e] = s
	return s
}

// name returns the name of the field that some columns of an input are.
func (b *builder) name(l *lookUp) string {
	in := b.at(l.input)
	if l.input >= len(b.inputs) {
		if of := b.computed[l.input-len(b.inputs)].of; of != nil { // user[3] % 5 and not user % 5[3]
			at := 0
			if strings.HasPrefix(in.Name, computedFrom+of.Name) {
				at = len(computedFrom)
			}
			return in.Name[:at] + of.columnRange(l.column, l.length) + in.Name[at+len(of.Name):]
		}
	}
	return in.columnRange(l.column, l.length)
}

// at returns the input of a place, or what takes its place.
func (b *builder) at(i int) *input {
	if i < len(b.inputs) {
		return &b.inputs[i]
	}
	return &b.computed[i-len(b.inputs)].input
}

// shift lets the ids of a computed field begin at the first row of its tables, if no look-up of another
// reads the rows before them, as in id % 19 + 1.
func (b *builder) shift() {
	for k, c := range b.computed {
		own := slices.DeleteFunc(slices.Clone(b.lookUps), func(l *lookUp) bool { return l.input != len(b.inputs)+k })
		before := func(o *lookUp) bool {
			return slices.ContainsFunc(own, func(l *lookUp) bool {
				return o.offset < own[0].offset && o.tensor == l.tensor || l.offset != own[0].offset
			})
		}
		if len(own) == 0 || own[0].offset == 0 || slices.ContainsFunc(b.lookUps, before) {
			continue
		}
		first := own[0].offset
		c.element = newComputedElement(graph.Int, "Add", nil, []*element{c.element, {kind: graph.Int, constant: graph.NewInts([]int64{int64(first)})}})
		c.input.Name += fmt.Sprintf(" + %d", first)
		for _, l := range own {
			l.offset = 0
		}
	}
}

// guard returns how the file replaces ids of a field that are below 0 or at least rows, or nil if it
// does not replace them. Other look-ups of the field must compute the same rows.
func (b *builder) guard(l *lookUp, rows int) (*Computed, error) {
	e, guarded := l.elements[0], false
	if e.plain() || e.source.kind != graph.Int || l.stride > 1 {
		return nil, nil
	}
	n, first := int64(rows), int64(l.offset)
	for _, id := range []int64{n, n + 1, 2*n + 7, 1 << 30, -n - 1, -2*n - 7} { // the last id may be -1
		t, err := e.of([]int64{id})
		guarded = guarded || err == nil && t.Ints[0] >= first && t.Ints[0] < first+n
	}
	for _, o := range b.lookUps {
		guarded = guarded && (o.place != l.place || o.offset == l.offset && !slices.ContainsFunc(o.elements, func(x *element) bool { return !x.same(e) }))
	}
	if !guarded {
		return nil, nil
	}
	e = newComputedElement(graph.Int, "Sub", nil, []*element{e, {kind: graph.Int, constant: graph.NewInts([]int64{first})}})
	return b.describe(&computed{element: e, input: b.inputs[l.input]}, l.column)
}

// describe returns the computation of c, of which a single source is in the given column.
func (b *builder) describe(c *computed, at int) (*Computed, error) {
	out := &Computed{Graph: &graph.Graph{}}
	known := map[*element]graph.Value{}
	var add func(e *element) (graph.Value, error)
	add = func(e *element) (graph.Value, error) {
		if v, ok := known[e]; ok {
			return v, nil
		}
		v := graph.Absent
		switch {
		case e.constant != nil:
			v = out.Graph.AddConstant(e.constant)
		case e.op == "":
			in := &b.inputs[e.input]
			_, column := in.place(e.index, b.batch)
			if !c.element.mixed && c.input.columns > 1 {
				column = at
			}
			v = out.Graph.AddInput(in.column(column), e.kind, nil)
			out.Sources = append(out.Sources, Source{in.column(column), in.Name, column})
		default:
			n := graph.Node{Name: e.op, Op: e.op, Attributes: e.attributes}
			for _, a := range e.arguments {
				from := graph.Absent
				if a != nil {
					var err error
					if from, err = add(a); err != nil {
						return v, err
					}
				}
				n.Inputs = append(n.Inputs, from)
			}
			values, err := out.Graph.Add(n)
			if err != nil {
				return v, err
			}
			v = values[0]
		}
		known[e] = v
		return v, nil
	}
	v, err := add(c.element)
	if err != nil {
		return nil, fault.Inputf("field %s: %w", wire.Quote(c.input.Name), err)
	}
	out.Graph.Output = v
	if info := out.Graph.Values[v]; info.Type != graph.Int || info.Constant != nil || len(info.Shape) > 0 {
		return nil, fault.Inputf("field %s: its ids are of type %v and shape %v, expected one whole number", wire.Quote(c.input.Name), info.Type, info.Shape)
	}
	return out, nil
}
