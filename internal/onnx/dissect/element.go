package dissect

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
)

// element is an element of a value that does not come from a table. It is an element of an
// input, a constant, or the result of an elementwise operator on other elements. Elements
// stay outside the head until it is known whether they are ids or numbers.
type element struct {
	kind graph.Type

	input, index int // element of an input, if op is "" and constant is nil

	constant *graph.Tensor // scalar

	op         string
	attributes graph.Attributes
	arguments  []*element

	source *element // the only element of an input on which this one depends; nil = none, or several
	mixed  bool     // whether this one depends on several elements of inputs
	size   int      // number of operators that compute it
}

// plain reports whether e is an element of an input.
func (e *element) plain() bool { return e.op == "" && e.constant == nil }

func newInputElement(kind graph.Type, input, index int) *element {
	e := &element{kind: kind, input: input, index: index}
	e.source = e
	return e
}

// newConstantElements returns the elements of t.
func newConstantElements(t *graph.Tensor) []*element {
	list := make([]*element, t.Len())
	for i := range list {
		c := &graph.Tensor{Type: t.Type, Shape: []int{}}
		switch t.Type {
		case graph.Float:
			c.Floats = t.Floats[i : i+1]
		case graph.Int:
			c.Ints = t.Ints[i : i+1]
		case graph.Bool:
			c.Bools = t.Bools[i : i+1]
		}
		list[i] = &element{kind: t.Type, constant: c}
	}
	return list
}

func newComputedElement(kind graph.Type, op string, attributes graph.Attributes, arguments []*element) *element {
	e := &element{kind: kind, op: op, attributes: attributes, arguments: arguments, size: 1}
	for _, a := range arguments {
		if a == nil {
			continue
		}
		e.size = min(e.size+a.size, math.MaxInt32)
		e.mixed = e.mixed || a.mixed || e.source != nil && a.source != nil && a.source != e.source
		if a.source != nil {
			e.source = a.source
		}
	}
	if e.mixed {
		e.source = nil
	}
	return e
}

// evaluate computes e for many values of its source at once. The result is a scalar if e
// does not depend on them.
func (e *element) evaluate(source *graph.Tensor, known map[*element]*graph.Tensor) (*graph.Tensor, error) {
	switch {
	case e.constant != nil:
		return e.constant, nil
	case e.op == "":
		return source, nil
	case known[e] != nil:
		return known[e], nil
	}
	in := make([]*graph.Tensor, len(e.arguments))
	for i, a := range e.arguments {
		if a == nil {
			continue
		}
		var err error
		if in[i], err = a.evaluate(source, known); err != nil {
			return nil, err
		}
	}
	out, err := graph.Evaluate(e.op, e.attributes, in)
	if err != nil {
		return nil, err
	}
	if len(out) != 1 {
		return nil, fmt.Errorf("%s has %d outputs", e.op, len(out))
	}
	known[e] = out[0]
	return out[0], nil
}

const (
	freeOperators = 16  // operators that compute a row number from an id and do not count
	startCost     = 100 // time to evaluate one id alone, in ids that are evaluated together
)

// maxExactFloat is the largest n such that all whole numbers up to n are float32.
const maxExactFloat = 1 << 24

// of returns what e is for each of the given ids of its source.
func (e *element) of(ids []int64) (*graph.Tensor, error) {
	source := &graph.Tensor{Type: e.source.kind, Shape: []int{len(ids)}}
	for _, id := range ids {
		if source.Type == graph.Float {
			source.Floats = append(source.Floats, float32(id))
		} else {
			source.Ints = append(source.Ints, id)
		}
	}
	return e.evaluate(source, map[*element]*graph.Tensor{})
}

// rowsOf returns the row numbers that e gives for count ids, beginning at id first.
func (e *element) rowsOf(first, count int) ([]int64, error) {
	ids := make([]int64, count)
	for i := range ids {
		ids[i] = int64(first + i)
	}
	t, err := e.of(ids)
	if err != nil {
		return nil, err
	}
	if t.Type != graph.Int || len(t.Ints) != count {
		return nil, fault.Inputf("the ids give %d row numbers, expected %d", t.Len(), count)
	}
	return t.Ints, nil
}

// same reports whether e and o compute the same from their sources, which may be different
// elements of inputs. It does not recognize computations of more than freeOperators
// operators.
func (e *element) same(o *element) bool {
	switch {
	case e == nil || o == nil || e == o:
		return e == o
	case e.kind != o.kind || e.op != o.op || e.size != o.size || e.size > freeOperators || len(e.arguments) != len(o.arguments) || (e.constant == nil) != (o.constant == nil):
		return false
	case e.constant != nil:
		x, y := e.constant, o.constant
		return slices.Equal(x.Floats, y.Floats) && slices.Equal(x.Ints, y.Ints) && slices.Equal(x.Bools, y.Bools)
	}
	for i, a := range e.arguments {
		if !a.same(o.arguments[i]) {
			return false
		}
	}
	return reflect.DeepEqual(e.attributes, o.attributes)
}

// constants appends the numbers that e is computed with, if it has at most freeOperators
// operators.
func (e *element) constants(list []int64) []int64 {
	switch {
	case e == nil || e.size > freeOperators:
		return list
	case e.constant != nil && len(e.constant.Ints) == 1:
		return append(list, e.constant.Ints[0])
	case e.constant != nil && len(e.constant.Floats) == 1:
		if f := float64(e.constant.Floats[0]); math.Abs(f) <= maxExactFloat {
			return append(list, int64(f))
		}
		return list
	}
	for _, a := range e.arguments {
		list = a.constants(list)
	}
	return list
}

// check verifies that each id from 0 to rows-1 chooses the row offset + id*stride. work is the product of operators and ids that may still be evaluated, from which
// check subtracts its own. The first free operators do not count. A caller may give
// freeOperators once for each row of a table, because the rows take bytes of the file.
func (e *element) check(offset, stride, rows, free int, work *int64) error {
	if e.source.kind == graph.Float && rows > maxExactFloat+1 {
		return fault.Inputf("the ids are float32, which holds whole numbers up to %d only, but there are %d ids", maxExactFloat, rows)
	}
	if e.plain() {
		return nil
	}
	if *work -= int64(max(0, e.size-free))*int64(rows) + startCost; *work < 0 {
		return fault.Inputf("the way from the ids to the rows takes too many operators (%d) to be checked for all %d ids", e.size, rows)
	}
	const most = 1 << 14
	for first := 0; first < rows; first += most {
		count := min(most, rows-first)
		list, err := e.rowsOf(first, count)
		if err != nil {
			return err
		}
		for i, row := range list {
			want := int64(offset + (first+i)*stride)
			switch {
			case row == want:
			case stride > 1:
				return fault.Inputf("id %d reads row %d, expected row %d, which is the id times %d plus %d: compute the row before the model", first+i, row, want, stride, offset)
			default:
				return fault.Inputf("id %d reads row %d, expected row %d, which is the id plus %d: compute the row before the model", first+i, row, want, offset)
			}
		}
	}
	return nil
}
