package dissect

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// unbounded lists operators whose result can be any number. If the output of a click model
// is such a result, it is a logit and not a probability.
var unbounded = []string{"Gemm", "MatMul", "Add", "Sub", "Sum", "ReduceSum", "ReduceMean", "Neg", "Einsum", "Conv"}

// severalError says that the output has several numbers. count is the size of its first
// axis.
type severalError struct {
	error
	count int
}

func (e *severalError) Unwrap() error { return e.error }

// Forms of Network.Logit if the output of the file is a probability.
const (
	ofSigmoid  = "the input of Sigmoid "
	ofSoftmax  = "input %d of Softmax %s minus the other one"
	ofCombined = "log(p) - log(1-p) of the output p, which is computed from other probabilities"
)

// IsProbability reports whether a Network.Logit is that of a file whose output is a probability.
func IsProbability(logit string) bool {
	for _, text := range []string{ofSigmoid, ofSoftmax, ofCombined} {
		if text, _, _ = strings.Cut(text, "%"); strings.HasPrefix(logit, text) {
			return true
		}
	}
	return false
}

// logit sets the output of the head to the logit, and b.end. It describes how the logit
// follows from v, the output of the file.
func (b *builder) logit(v *value, o Options) (string, error) {
	name := wire.Quote(b.output)
	if err := b.materialise(v, &step{name: b.output, op: "output"}); err != nil {
		return "", err
	}
	info := b.head.Values[v.head]
	count, err := graph.Count(info.Shape)
	switch {
	case err != nil:
		return "", fault.Inputf("output %s: %w", name, err)
	case info.Constant != nil:
		return "", fault.Inputf("output %s is the same for every row", name)
	case info.Type != graph.Float:
		return "", fault.Setting(fault.Inputf("output %s is of type %v, expected a probability or a logit", name, info.Type), OutputSetting)
	}
	b.end = wire.End{Output: b.output, Shape: info.Shape}
	at := trail{b, v.head, 0}
	several := func(element int, why string) error {
		return &severalError{fault.Setting(fault.Inputf("output %s has the shape %v for one row, expected one number: choose one of them, such as %s[%d]%s, or export the model with a dynamic batch axis",
			name, info.Shape, name, element, why), OutputSetting), info.Shape[0]}
	}
	if b.element >= count {
		return "", fault.Setting(fault.Inputf("output %s has the shape %v for one row, so there is no %s[%d]", name, info.Shape, name, b.element), OutputSetting)
	}
	if b.element >= 0 {
		at.element, count = b.element, 1
	}
	if count == 2 && !o.Logit {
		at.element = 1 // of the probabilities of two classes
	} else if count != 1 {
		return "", several(0, "")
	}
	probability := at.probability()
	if o.Logit {
		b.head.Output, err = at.pick()
		if probability {
			return "the output as it is, which is always between 0 and 1: right only if it predicts labels that are numbers", err
		}
		return "the output as it is", err
	}
	node, err := at.back()
	if err != nil {
		return "", fault.Inputf("output %s: %w", name, err)
	}
	op := "an input"
	if node != nil {
		op = node.Op
	}
	var p chance
	combined, left := false, maxChances
	if op == "Mul" || op == "ReduceSum" || op == "MatMul" {
		if p, combined, err = at.chance(node, &left); err != nil {
			return "", err
		}
	}
	switch {
	case count == 2 && op != "Softmax":
		first := trail{b, v.head, 0}
		other, err := first.back()
		const why = ", which comes from a Sigmoid" // unlike the other one, which may be its complement
		switch {
		case err != nil:
			return "", fault.Inputf("output %s: %w", name, err)
		case op != "Sigmoid" && (other == nil || other.Op != "Sigmoid"):
			return "", several(0, fmt.Sprintf(" if each is a logit of its own, or export their difference, %[1]s[1] - %[1]s[0], if a Softmax makes the probabilities of two classes of them", name))
		case op == "Sigmoid" && other != nil && other.Op == "Sigmoid":
			return "", several(0, "")
		case op == "Sigmoid":
			return "", several(1, why)
		}
		return "", several(0, why)
	case op == "Sigmoid":
		label := wire.Quote(node.Name)
		at.value = node.Inputs[0]
		b.end.Op, b.end.Shape = op, b.head.Values[at.value].Shape
		b.head.Output, err = at.pick()
		return ofSigmoid + label, err
	case op == "Softmax":
		axis, class, ok, err := at.difference(node)
		if ok || err != nil {
			b.end.Op, b.end.Shape, b.end.Axis, b.end.Class = op, b.head.Values[node.Inputs[0]].Shape, axis, class
			b.head.Output = at.value
			return fmt.Sprintf(ofSoftmax, class, wire.Quote(node.Name)), err
		}
	case combined:
		b.end.Op = op
		b.head.Output, err = b.compute("Sub", nil, p.yes, p.no)
		return ofCombined, err
	case count == 1 && !probability && at.unbounded(node):
		b.head.Output, err = at.pick()
		return "the output, which has no Sigmoid", err
	}
	return "", b.refuse(info.Shape, op, probability)
}

// refuse returns the error that the logit of the output, which has the given shape and comes
// from op, is not known.
func (b *builder) refuse(shape []int, op string, probability bool) error {
	text := fmt.Sprintf("output %s has the shape %v and comes from %s, expected a Sigmoid, a Softmax of two classes, a product of these, or a logit", wire.Quote(b.output), shape, op)
	if probability {
		text += ". It is always between 0 and 1, as a probability is"
	}
	text += ": export the logit, which is the value before the Sigmoid, or end the graph with the Sigmoid"
	var settings []string
	if several, _ := graph.Count(shape); several > 1 || len(b.model.Graph.Outputs) > 1 {
		text += ", or choose another output"
		settings = append(settings, OutputSetting)
	}
	if !probability {
		text += ", or say that it is a logit"
		settings = append(settings, LogitSetting)
	}
	return fault.Setting(fault.Inputf("%s", text), settings...)
}

// trail follows an element of a value back to the operator that computed it.
type trail struct {
	*builder
	value   graph.Value
	element int
}

// back follows the element over operators that only move elements, and returns the node
// that computed it. It returns nil if the element is one of an input.
func (t *trail) back() (*graph.Node, error) {
	producers := map[graph.Value]int{}
	for i, n := range t.head.Nodes {
		for _, v := range n.Outputs {
			producers[v] = i
		}
	}
	for {
		i, ok := producers[t.value]
		if !ok {
			return nil, nil
		}
		n := &t.head.Nodes[i]
		from, found := t.value, false
		if n.Op == "Cast" && t.head.Values[n.Inputs[0]].Type == graph.Float {
			t.value = n.Inputs[0]
			continue
		}
		which, seen := slices.Index(n.Outputs, from), 0
		element := t.element
		moved := t.head.Relabel(n, func(output, input, at int) {
			if output != which {
				return
			}
			if seen == element && input != graph.Nothing {
				t.value, t.element, found = n.Inputs[input], at, true
			}
			seen++
		})
		if !moved {
			return n, nil
		}
		if !found {
			return nil, fmt.Errorf("node %s sets it to 0 in every row", wire.Quote(n.Name))
		}
	}
}

// probability reports whether the element is always in [0, 1], and not the same for all
// rows. Then it is no logit, which would give no probability below one half.
func (t *trail) probability() bool {
	const rounding = 1e-6
	x := t.head.Bounds(t.value, t.element)
	return x.Low >= -rounding && x.High <= 1+rounding && x.Low < x.High
}

// unbounded reports whether the result of n can be any number. It takes the product with a
// constant for what it multiplies, and the largest of several for the first of them.
func (t *trail) unbounded(n *graph.Node) bool {
	at := *t
	for n != nil && !slices.Contains(unbounded, n.Op) {
		from, to := t.head.Values[n.Inputs[0]].Shape, t.head.Values[at.value].Shape
		before, err := graph.Count(from)
		if err != nil {
			return false
		}
		count, err := graph.Count(to)
		if err != nil {
			return false
		}
		switch {
		case before == 1, (n.Op == "ReduceMax" || n.Op == "ReduceMin") && count == 1:
			at.element = 0
		case !slices.Equal(from, to):
			return false
		}
		scaled := (n.Op == "Div" || n.Op == "Mul") && t.head.Values[n.Inputs[1]].Constant != nil
		if !scaled && n.Op != "ReduceMax" && n.Op != "ReduceMin" {
			return false
		}
		at.value = n.Inputs[0]
		if n, err = at.back(); err != nil {
			return false
		}
	}
	return n != nil
}

// pick returns the element as a value of one element.
func (t *trail) pick() (graph.Value, error) {
	if count, _ := graph.Count(t.head.Values[t.value].Shape); count == 1 {
		return t.value, nil
	}
	flat, err := t.compute("Reshape", nil, t.value, t.head.AddConstant(graph.NewInts([]int64{-1}, 1)))
	if err != nil {
		return 0, err
	}
	return t.compute("Gather", graph.Attributes{"axis": int64(0)}, flat, t.head.AddConstant(graph.NewInts([]int64{int64(t.element)}, 1)))
}

// difference makes t the logit of the element of n, a Softmax of two classes, which is the
// difference of its inputs. It returns the axis of the classes and the class of the element. ok
// is false if the number of classes is not two.
func (t *trail) difference(n *graph.Node) (axis, class int, ok bool, err error) {
	shape := t.head.Values[n.Inputs[0]].Shape
	axis = -1
	if a, given := n.Attributes["axis"].(int64); given {
		axis = int(a)
	}
	if axis < 0 {
		axis += len(shape)
	}
	if axis < 0 || axis >= len(shape) || shape[axis] != 2 {
		return 0, 0, false, nil
	}
	inner := 1
	for _, size := range shape[axis+1:] {
		inner *= size
	}
	t.value = n.Inputs[0]
	class = t.element / inner % 2
	other := *t
	other.element += inner * (1 - 2*class)
	positive, err := t.pick()
	if err != nil {
		return 0, 0, true, err
	}
	negative, err := other.pick()
	if err != nil {
		return 0, 0, true, err
	}
	t.value, err = t.compute("Sub", nil, positive, negative)
	return axis, class, true, err
}

// compute adds a node with one output to the head, and returns the output.
func (b *builder) compute(op string, attributes graph.Attributes, inputs ...graph.Value) (graph.Value, error) {
	out, err := b.head.Add(graph.Node{Name: b.output, Op: op, Inputs: inputs, Attributes: attributes})
	if err != nil {
		return 0, fault.Inputf("%w", err)
	}
	return out[0], nil
}
