package dissect

import (
	"slices"

	"shaver/internal/onnx/graph"
)

// operators applies operators one after the other for a rewrite, and keeps the first error.
type operators struct {
	*call
	err error
}

// do applies an operator that has one output.
func (o *operators) do(op string, attributes graph.Attributes, inputs ...*value) *value {
	if o.err != nil {
		return nil
	}
	if !o.step(1) {
		o.err = o.refuse("the graph takes more than %d operators with its layers unrolled", maxSteps)
		return nil
	}
	out, err := o.apply(o.name(), op, attributes, inputs...)
	if err != nil {
		o.err = err
		return nil
	}
	return out[0]
}

// joined stacks values along a new axis.
func (o *operators) joined(list []*value, axis int64) *value {
	if o.err != nil {
		return nil
	}
	v, err := o.stack(o.node, list, axis, true)
	o.err = err
	return v
}

// part returns the elements from and up to to of an axis.
func (o *operators) part(v *value, axis, from, to int) *value {
	return o.do("Slice", nil, v, o.ints(int64(from)), o.ints(int64(to)), o.ints(int64(axis)))
}

// at returns the element i of the first axis, without that axis.
func (o *operators) at(v *value, i int) *value {
	return o.do("Squeeze", nil, o.part(v, 0, i, i+1), o.ints(0))
}

// zeros returns a constant of zeros.
func (o *operators) zeros(shape ...int) *value {
	n, err := graph.Count(shape)
	if err != nil || n > maxTraces {
		if o.err == nil {
			o.err = o.refuse("its state has the shape %v, which is too large", shape)
		}
		return nil
	}
	type key struct{ rows, size int }
	return inHead(o.addConstant(key{shape[0], n}, graph.NewFloats(make([]float32, n), shape...)))
}

// recurrent is a GRU, an LSTM or an RNN. It is unrolled, so its sequence has a fixed length.
type recurrent struct {
	operators
	gates                     int // of the operator: 3 for a GRU, 4 for an LSTM, 1 for an RNN
	length, rows, hidden      int
	directions                int
	x                         *value // [length, rows, inputs]
	lengths                   *value // [rows], or nil: all positions are in the sequence
	linear                    bool   // of a GRU: the attribute linear_before_reset
	functions                 []string
	weights, states, bias, to [2]*value // by direction: W and R, transposed, the bias of both, and R's own part of it
	peepholes                 [2]*value
}

// activations are the functions that a recurrent layer may have. Their parameters are those
// that ONNX takes if the layer does not give any.
var activations = []string{"Relu", "Tanh", "Sigmoid", "Softplus", "LeakyRelu", "HardSigmoid", "Elu"}

// rewriteRecurrent unrolls a GRU, an LSTM or an RNN.
func rewriteRecurrent(c *call) ([]*value, error) {
	r := &recurrent{operators: operators{call: c}}
	first, last, err := r.prepare()
	if err != nil {
		return nil, err
	}
	var all, ends, cells []*value // by direction
	for d := range r.directions {
		back := d == 1 || c.attributes["direction"] == "reverse"
		steps, h, cell := r.unroll(d, back, first[d], last[d])
		all, ends, cells = append(all, r.joined(steps, 0)), append(ends, h), append(cells, cell)
	}
	out := []*value{r.joined(all, 1), r.joined(ends, 0)}
	if c.op == "LSTM" {
		out = append(out, r.joined(cells, 0))
	}
	if c.integer("layout", 0) == 1 {
		out[0] = r.do("Transpose", graph.Attributes{"perm": []int64{2, 0, 1, 3}}, out[0])
		for i := range out[1:] {
			out[i+1] = r.do("Transpose", graph.Attributes{"perm": []int64{1, 0, 2}}, out[i+1])
		}
	}
	return out, r.err
}

// prepare checks the layer and returns the initial states and cells by direction. The cells
// are nil unless the layer is an LSTM.
func (r *recurrent) prepare() (states, cells [2]*value, err error) {
	c := r.call
	r.gates = map[string]int{"GRU": 3, "LSTM": 4, "RNN": 1}[c.op]
	r.linear = c.integer("linear_before_reset", 0) != 0
	r.directions = 1
	switch d, _ := c.attributes["direction"].(string); d {
	case "", "forward", "reverse":
	case "bidirectional":
		r.directions = 2
	default:
		return states, cells, c.refuse("direction %.100q, expected forward, reverse or bidirectional", d)
	}
	for _, name := range []string{"activation_alpha", "activation_beta"} {
		if list, _ := c.attributes[name].([]float32); len(list) > 0 {
			return states, cells, c.refuse("the attribute %s is not supported: export the layer with the activations of PyTorch or Keras", name)
		}
	}
	if c.integer("input_forget", 0) != 0 {
		return states, cells, c.refuse("the attribute input_forget is not supported: export the layer with a forget gate of its own")
	}
	kinds := map[string][]string{"GRU": {"Sigmoid", "Tanh"}, "LSTM": {"Sigmoid", "Tanh", "Tanh"}, "RNN": {"Tanh"}}[c.op]
	if r.functions = slices.Concat(kinds, kinds)[:len(kinds)*r.directions]; c.attributes["activations"] != nil {
		list, _ := c.attributes["activations"].([]string)
		if len(list) != len(r.functions) {
			return states, cells, c.refuse("%d activations, expected %d", len(list), len(r.functions))
		}
		r.functions = list
	}
	for _, f := range r.functions {
		if !slices.Contains(activations, f) {
			return states, cells, c.refuse("the activation %.100q is not supported, expected one of %v", f, activations)
		}
	}
	shapes := make([][]int, 3)
	for i := range shapes {
		var kind graph.Type
		if kind, shapes[i], err = c.shape(i); err != nil {
			return states, cells, err
		}
		if len(shapes[i]) != 3 || kind != graph.Float {
			return states, cells, c.refuse("input %d is %v%v, expected floats with three axes", i+1, kind, shapes[i])
		}
	}
	r.x = c.in[0]
	x, w, h := shapes[0], shapes[1], shapes[2]
	early := c.integer("layout", 0) == 1 // the rows are the first axis
	if early {
		r.x = r.do("Transpose", graph.Attributes{"perm": []int64{1, 0, 2}}, r.x)
		x = []int{x[1], x[0], x[2]}
	}
	r.length, r.rows, r.hidden = x[0], x[1], h[2]
	if r.length < 1 || r.hidden < 1 || !slices.Equal(w, []int{r.directions, r.gates * r.hidden, x[2]}) || !slices.Equal(h, []int{r.directions, r.gates * r.hidden, r.hidden}) {
		return states, cells, c.refuse("a sequence of the shape %v and weights of the shapes %v and %v, expected [length rows n], [%d %d*k n] and [%d %d*k k]", x, w, h, r.directions, r.gates, r.directions, r.gates)
	}
	given := func(i int, shape ...int) *value {
		if r.err != nil || i >= len(c.in) || c.in[i] == nil {
			return nil
		}
		_, have, err := c.shape(i)
		if r.err = err; err == nil && !slices.Equal(have, shape) {
			r.err = c.refuse("input %d has the shape %v, expected %v", i+1, have, shape)
		}
		return c.in[i]
	}
	state := func(i int) (out [2]*value) {
		shape := []int{r.directions, r.rows, r.hidden}
		if early {
			shape = []int{r.rows, r.directions, r.hidden}
		}
		v := given(i, shape...)
		if v != nil && early {
			v = r.do("Transpose", graph.Attributes{"perm": []int64{1, 0, 2}}, v)
		}
		for d := range r.directions {
			if out[d] = r.zeros(r.rows, r.hidden); v != nil {
				out[d] = r.at(v, d)
			}
		}
		return out
	}
	bias := given(3, r.directions, 2*r.gates*r.hidden)
	if r.lengths = given(4, r.rows); r.lengths != nil {
		r.lengths = r.do("Unsqueeze", nil, r.lengths, r.ints(1))
	}
	states = state(5)
	var peepholes *value
	if c.op == "LSTM" {
		cells = state(6)
		peepholes = given(7, r.directions, 3*r.hidden)
	}
	for d := range r.directions {
		r.weights[d] = r.do("Transpose", graph.Attributes{"perm": []int64{1, 0}}, r.at(c.in[1], d))
		r.states[d] = r.do("Transpose", graph.Attributes{"perm": []int64{1, 0}}, r.at(c.in[2], d))
		if bias != nil {
			r.biases(d, r.at(bias, d))
		}
		if peepholes != nil {
			r.peepholes[d] = r.at(peepholes, d)
		}
	}
	return states, cells, r.err
}

// biases splits the bias of direction d. What is added before everything else is added to the
// products of the sequence, for all positions at once. A GRU that multiplies its state by the
// reset gate after the product adds a part of the bias before it does so.
func (r *recurrent) biases(d int, bias *value) {
	n := r.gates * r.hidden
	of, to := r.part(bias, 0, 0, n), r.part(bias, 0, n, 2*n)
	if r.op == "GRU" && r.linear {
		early, late := r.part(to, 0, 0, 2*r.hidden), r.part(to, 0, 2*r.hidden, n)
		r.to[d] = late
		to = r.do("Concat", graph.Attributes{"axis": int64(0)}, early, r.zeros(r.hidden))
	}
	r.bias[d] = r.do("Add", nil, of, to)
}

// unroll returns the results at all positions, the last state and the last cell of direction d.
func (r *recurrent) unroll(d int, back bool, h, cell *value) (steps []*value, _, _ *value) {
	all := r.do("MatMul", nil, r.x, r.weights[d])
	if r.bias[d] != nil {
		all = r.do("Add", nil, all, r.bias[d])
	}
	steps = make([]*value, r.length)
	for i := range r.length {
		t := i
		if back {
			t = r.length - 1 - i
		}
		x := r.at(all, t)
		next, other := (*value)(nil), cell
		switch r.op {
		case "GRU":
			next = r.gru(d, x, h)
		case "LSTM":
			next, other = r.lstm(d, x, h, cell)
		default:
			next = r.activate(d, 0, r.do("Add", nil, x, r.do("MatMul", nil, h, r.states[d])))
		}
		if steps[t] = next; r.lengths != nil { // positions behind the end of a row change nothing
			inside := r.do("Less", nil, r.ints(int64(t)), r.lengths)
			steps[t] = r.do("Where", nil, inside, next, r.zeros(r.rows, r.hidden))
			next = r.do("Where", nil, inside, next, h)
			if cell != nil {
				other = r.do("Where", nil, inside, other, cell)
			}
		}
		h, cell = next, other
	}
	return steps, h, cell
}

// activate applies function i of direction d.
func (r *recurrent) activate(d, i int, x *value) *value {
	if limit, ok := r.attributes["clip"].(float32); ok {
		bound := func(x float32) *value { return inHead(r.head.AddConstant(graph.NewFloats([]float32{x}))) }
		x = r.do("Clip", nil, x, bound(-limit), bound(limit))
	}
	return r.do(r.functions[d*len(r.functions)/r.directions+i], nil, x)
}

// gate returns the columns of gate i, or of the gates i to j-1.
func (r *recurrent) gate(v *value, i, j int) *value { return r.part(v, 1, i*r.hidden, j*r.hidden) }

// gru returns the next state of a GRU, whose gates are update, reset and candidate.
func (r *recurrent) gru(d int, x, h *value) *value {
	add := func(x, y *value) *value { return r.do("Add", nil, x, y) }
	if r.linear {
		product := r.do("MatMul", nil, h, r.states[d])
		gates := r.activate(d, 0, add(r.gate(x, 0, 2), r.gate(product, 0, 2)))
		last := r.gate(product, 2, 3)
		if r.to[d] != nil {
			last = add(last, r.to[d])
		}
		return r.mix(add(r.do("Mul", nil, r.gate(gates, 1, 2), last), r.gate(x, 2, 3)), gates, d, h)
	}
	gates := r.activate(d, 0, add(r.gate(x, 0, 2), r.do("MatMul", nil, h, r.gate(r.states[d], 0, 2))))
	last := r.do("MatMul", nil, r.do("Mul", nil, r.gate(gates, 1, 2), h), r.gate(r.states[d], 2, 3))
	return r.mix(add(last, r.gate(x, 2, 3)), gates, d, h)
}

// mix returns the state of a GRU between the old one and its candidate.
func (r *recurrent) mix(candidate, gates *value, d int, h *value) *value {
	candidate = r.activate(d, 1, candidate)
	return r.do("Add", nil, r.do("Mul", nil, r.gate(gates, 0, 1), r.do("Sub", nil, h, candidate)), candidate)
}

// lstm returns the next state and cell of an LSTM, whose gates are input, output, forget and
// cell.
func (r *recurrent) lstm(d int, x, h, cell *value) (next, nextCell *value) {
	x = r.do("Add", nil, x, r.do("MatMul", nil, h, r.states[d]))
	input, output, forget := r.gate(x, 0, 1), r.gate(x, 1, 2), r.gate(x, 2, 3)
	if p := r.peepholes[d]; p != nil {
		seen := func(v *value, i int, cell *value) *value {
			return r.do("Add", nil, v, r.do("Mul", nil, cell, r.part(p, 0, i*r.hidden, (i+1)*r.hidden)))
		}
		input, forget = r.activate(d, 0, seen(input, 0, cell)), r.activate(d, 0, seen(forget, 2, cell))
		nextCell = r.cell(d, x, input, forget, cell)
		output = r.activate(d, 0, seen(output, 1, nextCell))
	} else {
		gates := r.activate(d, 0, r.gate(x, 0, 3))
		output = r.gate(gates, 1, 2)
		nextCell = r.cell(d, x, r.gate(gates, 0, 1), r.gate(gates, 2, 3), cell)
	}
	return r.do("Mul", nil, output, r.do(r.functions[d*len(r.functions)/r.directions+2], nil, nextCell)), nextCell
}

// cell returns the next cell of an LSTM.
func (r *recurrent) cell(d int, x, input, forget, cell *value) *value {
	fresh := r.do("Mul", nil, input, r.activate(d, 1, r.gate(x, 3, 4)))
	return r.do("Add", nil, r.do("Mul", nil, forget, cell), fresh)
}
