package dissect

import (
	"errors"
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// node builds a node of the file. An error about it says of which module it is.
func (b *builder) node(n *wire.Node, s *scope, path string) ([]*value, error) {
	out, err := b.convert(n, s, path)
	if err == nil || n.Scope == "" {
		return out, err
	}
	if inner := new(moduleError); errors.As(err, &inner) {
		return nil, err
	}
	return nil, &moduleError{err, n.Scope}
}

// moduleError is an error about a node of a module.
type moduleError struct {
	error
	module string
}

func (e *moduleError) Error() string {
	return e.error.Error() + ", in the module " + wire.Quote(e.module)
}
func (e *moduleError) Unwrap() error { return e.error }

// convert builds a node of the file. It converts the node to the newest form of its operator.
func (b *builder) convert(n *wire.Node, s *scope, path string) ([]*value, error) {
	if !b.step(1 + (len(n.Inputs)+len(n.Outputs))/8) {
		return nil, fault.Inputf("node %s: the graph takes more than %d operators with its loops unrolled", n.Label(), maxSteps)
	}
	in := make([]*value, len(n.Inputs))
	for i, name := range n.Inputs {
		if name == "" {
			continue
		}
		if in[i] = s.find(name); in[i] == nil {
			return nil, fault.Inputf("node %s (%s) reads %s, which is not computed", n.Label(), wire.Quote(n.Op), wire.Quote(name))
		}
	}
	switch n.Op {
	case "If":
		return b.branch(n, s, path, in)
	case "Loop":
		return b.loop(n, s, path, in)
	case "Identity":
		if len(in) == 1 && in[0] != nil {
			return in, nil
		}
	case "Constant":
		return b.constantNode(n)
	case "SequenceEmpty":
		return []*value{{head: graph.Absent, list: true}}, nil
	case "SequenceConstruct", "SequenceInsert", "SequenceAt", "SequenceLength", "ConcatFromSequence":
		return b.sequenceNode(n, in)
	}
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	call := &call{builder: b, node: n, path: path, in: in}
	if err := call.convert(); err != nil {
		return nil, err
	}
	if rewrite, ok := rewrites[n.Op]; ok {
		out, err := rewrite(call)
		if err != nil || out != nil {
			return out, err
		}
	}
	return b.apply(call.name(), call.op, call.attributes, call.in...)
}

func (b *builder) constantNode(n *wire.Node) ([]*value, error) {
	if len(n.Attributes) != 1 {
		return nil, fault.Inputf("node %s (Constant) has %d attributes, expected one", n.Label(), len(n.Attributes))
	}
	for _, a := range n.Attributes {
		t := &graph.Tensor{Type: graph.Int, Shape: []int{}}
		switch a.Kind {
		case wire.KindTensor:
			named := *a.Tensor
			if named.Name == "" && len(n.Outputs) > 0 {
				named.Name = n.Outputs[0]
			}
			v := b.constants[a.Tensor]
			if v == nil {
				v = &named
				b.constants[a.Tensor] = v
			}
			return []*value{{head: graph.Absent, tensor: v}}, nil
		case wire.KindFloat:
			t.Type, t.Floats = graph.Float, []float32{a.Float}
		case wire.KindFloats:
			t.Type, t.Floats, t.Shape = graph.Float, a.Floats, []int{len(a.Floats)}
		case wire.KindInt:
			t.Ints = []int64{a.Int}
		case wire.KindInts:
			t.Ints, t.Shape = a.Ints, []int{len(a.Ints)}
		default:
			return nil, fault.Inputf("node %s (Constant) is neither a number nor a tensor", n.Label())
		}
		return []*value{inHead(b.addConstant(a, t))}, nil
	}
	return nil, nil
}

// sequenceNode builds an operator of sequences, which are lists of values.
func (b *builder) sequenceNode(n *wire.Node, in []*value) ([]*value, error) {
	bad := fault.Inputf("node %s (%s): its inputs are not supported", n.Label(), n.Op)
	if len(in) == 0 || slices.Contains(in, nil) {
		return nil, bad
	}
	if n.Op == "SequenceConstruct" {
		if b.listed += len(in); b.listed > maxListed {
			return nil, b.tooLong(n)
		}
		return []*value{{head: graph.Absent, list: true, sequence: in}}, nil
	}
	if !in[0].list || len(in[0].sequence) > maxIterations {
		return nil, bad
	}
	list := in[0].sequence
	position := func(i, most int) (int, error) {
		t, err := b.constant(in[i], n)
		if err != nil {
			return 0, err
		}
		if t.Type != graph.Int || len(t.Ints) != 1 {
			return 0, bad
		}
		at := t.Ints[0]
		if at < 0 {
			at += int64(len(list))
		}
		if at < 0 || at > int64(most) {
			return 0, fault.Inputf("node %s (%s): position %d of a sequence of %d values, expected at most %d", n.Label(), n.Op, t.Ints[0], len(list), most)
		}
		return int(at), nil
	}
	switch n.Op {
	case "SequenceInsert":
		at := len(list)
		if len(in) == 3 {
			var err error
			if at, err = position(2, len(list)); err != nil {
				return nil, err
			}
		}
		if len(in) < 2 || in[1].list {
			return nil, bad
		}
		if b.listed += len(list) + 1; b.listed > maxListed {
			return nil, b.tooLong(n)
		}
		return []*value{{head: graph.Absent, list: true, sequence: slices.Insert(slices.Clone(list), at, in[1])}}, nil
	case "SequenceAt":
		if len(in) != 2 {
			return nil, bad
		}
		at, err := position(1, len(list)-1)
		if err != nil {
			return nil, err
		}
		return []*value{list[at]}, nil
	case "SequenceLength":
		return []*value{inHead(b.head.AddConstant(graph.NewInts([]int64{int64(len(list))})))}, nil
	}
	axis, fresh := int64(0), false
	if a := attribute(n, "axis"); a != nil {
		axis = a.Int
	}
	if a := attribute(n, "new_axis"); a != nil {
		fresh = a.Int != 0
	}
	v, err := b.stack(n, list, axis, fresh)
	return []*value{v}, err
}

// tooLong returns the error for a graph that exceeds maxListed.
func (b *builder) tooLong(n *wire.Node) error {
	return fault.Inputf("node %s (%s): the sequences of the graph have more than %d values together", n.Label(), n.Op, maxListed)
}

// call is a node that is being converted to the newest form of its operator.
type call struct {
	*builder
	node       *wire.Node
	path       string
	op         string
	in         []*value
	attributes graph.Attributes
}

func (c *call) name() string { return c.node.NameOrOutput() }

func (c *call) refuse(format string, args ...any) error {
	return fault.Inputf("node %s (%s): %w", c.node.Label(), wire.Quote(c.node.Op), fmt.Errorf(format, args...))
}

// without lists attributes that have no effect in inference.
var without = map[string][]string{
	"BatchNormalization": {"momentum", "spatial"}, "Dropout": {"ratio", "seed"}, "LayerNormalization": {"stash_type"},
	"Cast": {"saturate", "round_mode"}, // for 8-bit floats
}

// convert sets c.op and c.attributes from the node.
func (c *call) convert() error {
	c.op = c.node.Op
	c.attributes = graph.Attributes{}
	for name, a := range c.node.Attributes {
		if slices.Contains(without[c.op], name) && !(name == "spatial" && a.Int == 0) {
			continue
		}
		switch a.Kind {
		case wire.KindFloat:
			c.attributes[name] = a.Float
		case wire.KindInt:
			c.attributes[name] = a.Int
		case wire.KindString:
			c.attributes[name] = a.String
		case wire.KindFloats:
			c.attributes[name] = a.Floats
		case wire.KindInts:
			c.attributes[name] = a.Ints
		case wire.KindStrings:
			c.attributes[name] = a.Strings
		case wire.KindTensor:
			t, err := load(a.Tensor)
			if err != nil {
				return c.refuse("attribute %s: %w", wire.Quote(name), err)
			}
			c.attributes[name] = t
		default:
			return c.refuse("the operator or its attribute %s is not supported", wire.Quote(name))
		}
	}
	return nil
}

// take removes an attribute that is a list, and returns it.
func (c *call) take(name string) ([]int64, bool) {
	list, ok := c.attributes[name].([]int64)
	delete(c.attributes, name)
	return list, ok
}

// integer returns the attribute name, or otherwise if the node has no whole number with
// that name.
func (c *call) integer(name string, otherwise int64) int64 {
	if n, ok := c.attributes[name].(int64); ok {
		return n
	}
	return otherwise
}

// input sets input i to v. Inputs that it adds before input i are absent.
func (c *call) input(i int, v *value) {
	for len(c.in) <= i {
		c.in = append(c.in, nil)
	}
	c.in[i] = v
}

// moved turns the attribute name, which is a list, into input i, if the operator set of the
// node is older than version. Since that version the operator has the input.
func (c *call) moved(version int, name string, i int) {
	if c.node.Opset < version {
		if list, ok := c.take(name); ok {
			c.input(i, c.ints(list...))
		}
	}
}

// shape returns the type and the shape of an input.
func (c *call) shape(i int) (graph.Type, []int, error) {
	if i >= len(c.in) || c.in[i] == nil || c.in[i].list {
		return 0, nil, c.refuse("input %d is missing", i+1)
	}
	v := c.in[i]
	switch {
	case v.trace != nil:
		return v.trace.kind, v.trace.shape, nil
	case v.head == graph.Absent:
		if err := c.load(v, c.node.Label()); err != nil {
			return 0, nil, err
		}
	}
	info := c.head.Values[v.head]
	return info.Type, info.Shape, nil
}

// rewrites convert nodes to the newest form of their operators. If a function returns no
// values, the caller applies the converted operator.
var rewrites map[string]func(c *call) ([]*value, error)

func init() {
	rewrites = map[string]func(c *call) ([]*value, error){
		"Squeeze": rewriteSqueeze, "Softmax": rewriteSoftmax, "LogSoftmax": rewriteSoftmax, "Clip": rewriteClip,
		"Dropout": rewriteDropout, "Slice": rewriteSlice, "Pad": rewritePad, "Split": rewriteSplit, "CastLike": rewriteCastLike,
		"Pow": rewritePow, "Cast": rewriteCast, "BatchNormalization": rewriteNormalization, "LayerNormalization": rewriteNormalization, "OneHot": rewriteOneHot,
		"Unsqueeze": func(c *call) ([]*value, error) {
			c.moved(13, "axes", 1)
			return nil, nil
		},
	}
	for name, rewrite := range map[string]func(c *call) ([]*value, error){
		"GRU": rewriteRecurrent, "LSTM": rewriteRecurrent, "RNN": rewriteRecurrent, "InstanceNormalization": rewriteInstanceNormalization,
		"Conv": rewriteConv, "MaxPool": rewritePool, "AveragePool": rewritePool, "GlobalMaxPool": rewriteGlobalPool, "GlobalAveragePool": rewriteGlobalPool,
	} {
		rewrites[name] = rewrite
	}
	for name, version := range map[string]int{
		"ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18, "ReduceProd": 18, "ReduceL1": 18, "ReduceL2": 18,
		"ReduceLogSum": 18, "ReduceLogSumExp": 18, "ReduceSumSquare": 18,
	} {
		rewrites[name] = func(c *call) ([]*value, error) {
			c.moved(version, "axes", 1)
			return nil, nil
		}
	}
}

// rewriteSqueeze gives axes to a Squeeze without axes. These are the axes that have size 1
// for every number of rows.
func rewriteSqueeze(c *call) ([]*value, error) {
	c.moved(13, "axes", 1)
	if len(c.in) != 1 {
		return nil, nil
	}
	_, shape, err := c.shape(0)
	if err != nil {
		return nil, err
	}
	axes := []int64{}
	for i, size := range shape {
		if size == 1 {
			axes = append(axes, int64(i))
		}
	}
	if axes, err = c.decide(c.path, axes); err != nil {
		return nil, c.refuse("%w", err)
	}
	c.input(1, c.ints(axes...))
	return nil, nil
}

// rewriteSoftmax converts a Softmax over several axes to one over a single axis. Before
// operator set 13 a Softmax is over the axes from the attribute axis to the last.
func rewriteSoftmax(c *call) ([]*value, error) {
	if c.node.Opset >= 13 {
		return nil, nil
	}
	_, shape, err := c.shape(0)
	if err != nil {
		return nil, err
	}
	axis := c.integer("axis", 1)
	if axis == -1 || axis == int64(len(shape)-1) {
		c.attributes["axis"] = int64(-1)
		return nil, nil
	}
	flat, err := c.apply(c.name(), "Flatten", graph.Attributes{"axis": axis}, c.in...)
	if err != nil {
		return nil, err
	}
	soft, err := c.apply(c.name(), c.op, graph.Attributes{"axis": int64(-1)}, flat...)
	if err != nil {
		return nil, err
	}
	target := make([]int64, len(shape))
	for i, size := range shape {
		target[i] = int64(size)
	}
	return c.apply(c.name(), "Reshape", nil, soft[0], c.ints(target...))
}

func rewriteClip(c *call) ([]*value, error) {
	if c.node.Opset >= 11 {
		return nil, nil
	}
	for i, name := range []string{"min", "max"} {
		if limit, ok := c.attributes[name].(float32); ok {
			c.input(i+1, inHead(c.head.AddConstant(graph.NewFloats([]float32{limit}))))
		}
		delete(c.attributes, name)
	}
	return nil, nil
}

// rewriteDropout replaces a Dropout by its input, which it does not change in inference.
func rewriteDropout(c *call) ([]*value, error) {
	if len(c.in) > 2 && c.in[2] != nil {
		if training, err := c.condition(c.in[2], c.node); err != nil || training {
			return nil, c.refuse("it is in training mode: export the model after model.eval()")
		}
	}
	if len(c.in) == 0 || c.in[0] == nil {
		return nil, c.refuse("input 1 is missing")
	}
	return c.in[:1], nil
}

func rewriteSlice(c *call) ([]*value, error) {
	c.moved(10, "starts", 1)
	c.moved(10, "ends", 2)
	c.moved(10, "axes", 3)
	return nil, nil
}

func rewritePad(c *call) ([]*value, error) {
	c.moved(11, "pads", 1)
	if v, ok := c.attributes["value"].(float32); ok {
		c.input(2, inHead(c.head.AddConstant(graph.NewFloats([]float32{v}))))
		delete(c.attributes, "value")
	}
	return nil, nil
}

func rewriteSplit(c *call) ([]*value, error) {
	c.moved(13, "split", 1)
	if len(c.in) == 1 {
		c.attributes["num_outputs"] = int64(len(c.node.Outputs))
	}
	return nil, nil
}

// rewriteCastLike converts a CastLike to a Cast to the type of the second input.
func rewriteCastLike(c *call) ([]*value, error) {
	kind, _, err := c.shape(1)
	if err != nil {
		return nil, err
	}
	to := map[graph.Type]wire.Type{graph.Float: wire.Float, graph.Int: wire.Int64, graph.Bool: wire.Bool}[kind]
	c.op, c.in, c.attributes = "Cast", c.in[:1], graph.Attributes{"to": int64(to)}
	return nil, nil
}

// rewriteCast omits the cast of a tensor between floating-point types, so that look-ups can
// read the tensor as a table.
func rewriteCast(c *call) ([]*value, error) {
	to := wire.Type(c.integer("to", 0))
	if len(c.in) == 1 && c.in[0] != nil && c.in[0].tensor != nil && c.in[0].head == graph.Absent && c.in[0].tensor.Type.Floating() && to.Floating() {
		return c.in, nil
	}
	return nil, nil
}

// rewritePow casts an exponent of whole numbers if the base is a float.
func rewritePow(c *call) ([]*value, error) {
	base, _, err := c.shape(0)
	if err != nil {
		return nil, err
	}
	exponent, _, err := c.shape(1)
	if err != nil {
		return nil, err
	}
	if base == graph.Float && exponent == graph.Int {
		out, err := c.apply(c.name(), "Cast", graph.Attributes{"to": int64(wire.Float)}, c.in[1])
		if err != nil {
			return nil, err
		}
		c.in = []*value{c.in[0], out[0]}
	}
	return nil, nil
}

// rewriteNormalization refuses attributes that no model for inference has.
func rewriteNormalization(c *call) ([]*value, error) {
	if c.integer("training_mode", 0) != 0 {
		return nil, c.refuse("it is in training mode, in which rows depend on each other: export the model after model.eval()")
	}
	delete(c.attributes, "training_mode")
	if c.op == "BatchNormalization" && c.integer("spatial", 1) == 0 {
		return nil, c.refuse("the attribute spatial is 0, which is not supported")
	}
	return nil, nil
}
