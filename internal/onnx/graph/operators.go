package graph

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// operator defines an operator. Unless same is set, either evaluate or relabel is set.
type operator struct {
	// One word for each input. Its first letter is the type: f, i and b are a float, an
	// int and a bool, n is a number, and x is any type. All inputs with the letter N have
	// the same type, which is a number. All inputs with the letter A have the same type.
	// The letter may be followed by marks:
	//
	//	?  the input may be absent
	//	!  the input must be constant
	//	~  Relabel supports the operator only if the input is constant
	//	*  there are one or more such inputs
	inputs string

	// Names and types of the attributes. The types are i, f, s, is, fs and t: int64,
	// float32, string, []int64, []float32 and *Tensor.
	attributes string

	// infer checks the use of the operator and returns the outputs' types and shapes. It
	// also checks what evaluate and relabel rely on, if the inputs are constant.
	infer func(c *call) ([]Info, error)

	// evaluate fills the outputs. All inputs are constant.
	evaluate func(c *call, out []*Tensor) error

	// relabel emits for each element of each output, in row-major order, the input and
	// the element that it equals. The input Nothing means 0.
	relabel func(c *call, emit func(output, input, element int))

	// work returns the number of multiplications. If it is nil, cost counts elements.
	work func(c *call, out []Info) int64

	same   bool // the output has the elements of the first input, in the same order
	given  bool // the output is in the attributes
	static bool // the first input's elements do not matter, only its shape does
}

// Nothing is the input that Relabel emits for an element that is 0.
const Nothing = -1

// operators has all operators by name. Each group of operators has a file.
var operators = func() map[string]operator {
	all := map[string]operator{}
	for _, group := range []map[string]operator{free, indexing, products, elementwise, reductions, composed, choices} {
		maps.Copy(all, group)
	}
	return all
}()

// Operators returns the names of all operators, in order.
func Operators() []string { return slices.Sorted(maps.Keys(operators)) }

// call is one use of an operator, whose inputs and attributes have the right types.
type call struct {
	op         operator
	in         []Info // an absent input has the type 0
	attributes Attributes
}

// newCall checks the types of inputs and attributes.
func newCall(name string, attributes Attributes, in []Info) (*call, error) {
	op, ok := operators[name]
	if !ok {
		return nil, errors.New("the operator is not supported")
	}
	c := &call{op: op, in: in, attributes: attributes}
	words := strings.Fields(op.inputs)
	many := len(words) > 0 && strings.Contains(words[len(words)-1], "*")
	if len(in) > len(words) && !many {
		return nil, fmt.Errorf("%d inputs, expected at most %d", len(in), len(words))
	}
	group := map[byte]Type{}
	for i := range max(len(in), len(words)) {
		word := words[min(i, len(words)-1)]
		if !c.has(i) {
			if !strings.Contains(word, "?") {
				return nil, fmt.Errorf("input %d is missing", i+1)
			}
			continue
		}
		t := in[i].Type
		if err := checkType(word[0], t, group); err != nil {
			return nil, fmt.Errorf("input %d (%.100q): %w", i+1, in[i].Name, err)
		}
		if strings.Contains(word, "!") && in[i].Constant == nil {
			return nil, fmt.Errorf("input %d (%.100q) depends on the row, expected a constant", i+1, in[i].Name)
		}
	}
	return c, c.checkAttributes()
}

// checkType checks the type of an input against a letter of operator.inputs.
func checkType(letter byte, t Type, group map[byte]Type) error {
	want := map[byte]Type{'f': Float, 'i': Int, 'b': Bool}[letter]
	switch letter {
	case 'N', 'A':
		if want = group[letter]; want == 0 {
			want = t
			group[letter] = t
		}
	case 'n', 'x':
		want = t
	}
	if (letter == 'N' || letter == 'n') && t == Bool {
		return errors.New("bool, expected a number")
	}
	if t != want {
		return fmt.Errorf("%v, expected %v", t, want)
	}
	return nil
}

// checkAttributes checks the names and types of the attributes.
func (c *call) checkAttributes() error {
	words := strings.Fields(c.op.attributes)
	for name, value := range c.attributes {
		i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, name+":") })
		if i < 0 {
			return fmt.Errorf("unknown attribute %.100q", name)
		}
		var have string
		switch v := value.(type) {
		case int64:
			have = "i"
		case float32:
			have = "f"
		case string:
			have = "s"
		case []int64:
			have = "is"
		case []float32:
			have = "fs"
		case *Tensor:
			have = "t"
			if v == nil {
				return fmt.Errorf("attribute %q has no tensor", name)
			}
			if err := v.Check(); err != nil {
				return fmt.Errorf("attribute %q: %w", name, err)
			}
		}
		if want := words[i][len(name)+1:]; have != want {
			return fmt.Errorf("attribute %q is a %T, expected type %s", name, value, want)
		}
	}
	return nil
}

func (c *call) has(i int) bool { return i < len(c.in) && c.in[i].Type != 0 }

// tensor returns a constant input.
func (c *call) tensor(i int) *Tensor { return c.in[i].Constant }

func (c *call) shape(i int) []int { return c.in[i].Shape }

func (c *call) int(name string, otherwise int64) int64 {
	if v, ok := c.attributes[name]; ok {
		return v.(int64)
	}
	return otherwise
}

func (c *call) float(name string, otherwise float32) float64 {
	if v, ok := c.attributes[name]; ok {
		return float64(v.(float32))
	}
	return float64(otherwise)
}

func (c *call) string(name, otherwise string) string {
	if v, ok := c.attributes[name]; ok {
		return v.(string)
	}
	return otherwise
}

// axis returns the attribute axis.
func (c *call) axis(otherwise int64, rank int) (int, error) {
	return axis(c.int("axis", otherwise), rank)
}

// list returns a constant input of ints with at most one axis. It is nil if the input is
// absent.
func (c *call) list(i int) ([]int64, error) {
	if !c.has(i) {
		return nil, nil
	}
	if len(c.shape(i)) > 1 {
		return nil, fmt.Errorf("input %d has the shape %v, expected a list", i+1, c.shape(i))
	}
	return c.tensor(i).Ints, nil
}

// one returns the only element of a constant input of ints.
func (c *call) one(i int) (int64, error) {
	if t := c.tensor(i); t.Len() == 1 {
		return t.Ints[0], nil
	}
	return 0, fmt.Errorf("input %d has the shape %v, expected one number", i+1, c.shape(i))
}

// one describes the output of an operator that has one output.
func one(t Type, shape []int) []Info { return []Info{{Type: t, Shape: shape}} }

// infer returns the outputs' types and shapes, and the number of their elements.
func (c *call) infer() ([]Info, int64, error) {
	out, err := c.op.infer(c)
	if err != nil {
		return nil, 0, err
	}
	total := int64(0)
	for _, o := range out {
		n, err := Count(o.Shape)
		if err != nil {
			return nil, 0, fmt.Errorf("the result: %w", err)
		}
		total += int64(n)
	}
	return out, total, nil
}

// cost returns how many multiplications evaluate does, or more.
func (c *call) cost(out []Info, elements int64) int64 {
	switch {
	case c.op.static:
		return elements
	case c.op.work != nil:
		return c.op.work(c, out)
	}
	for _, in := range c.in {
		if in.Type != 0 {
			elements += int64(count(in.Shape))
		}
	}
	return elements
}

// evaluate computes the outputs. infos and elements are the results of infer. All inputs are
// constant, except those whose elements do not matter.
func (c *call) evaluate(infos []Info, elements int64) ([]*Tensor, error) {
	out := make([]*Tensor, len(infos))
	if c.op.same {
		t := *c.tensor(0)
		t.Name, t.Shape = "", infos[0].Shape
		out[0] = &t
		return out, nil
	}
	precise := slices.ContainsFunc(c.in, func(in Info) bool { return in.Constant != nil && in.Constant.doubles != nil })
	for i, info := range infos {
		if !c.op.given {
			if out[i] = newTensor(info.Type, info.Shape); precise && info.Type == Float {
				out[i].doubles = make([]float64, len(out[i].Floats))
			}
		}
	}
	switch {
	case elements == 0 && !c.op.given:
		return out, nil
	case c.op.relabel == nil:
		return out, c.op.evaluate(c, out)
	}
	next := make([]int, len(out))
	c.op.relabel(c, func(output, input, element int) {
		if input != Nothing {
			out[output].set(next[output], c.tensor(input), element)
		}
		next[output]++
	})
	return out, nil
}

// Relabel emits where each element of the outputs of a node comes from, if the node only
// moves elements. It emits an input of the node and an element of that input, or Nothing and
// 0 for an element that is 0. The elements of an output are in row-major order. ok is false
// if the node computes something, or if its indices depend on the row.
func (g *Graph) Relabel(n *Node, emit func(output, input, element int)) (ok bool) {
	c, err := newCall(n.Op, n.Attributes, g.infos(n.Inputs))
	if err != nil || !c.op.same && c.op.relabel == nil {
		return false
	}
	if c.op.same {
		for i := range count(c.shape(0)) {
			emit(0, 0, i)
		}
		return true
	}
	for i, word := range strings.Fields(c.op.inputs) {
		if strings.Contains(word, "~") && c.has(i) && c.tensor(i) == nil {
			return false
		}
	}
	if _, elements, err := c.infer(); err != nil || elements == 0 {
		return err == nil
	}
	c.op.relabel(c, emit)
	return true
}

// infos returns the descriptions of some values. Absent has the zero Info.
func (g *Graph) infos(values []Value) []Info {
	out := make([]Info, len(values))
	for i, v := range values {
		if v != Absent {
			out[i] = g.Values[v]
		}
	}
	return out
}
