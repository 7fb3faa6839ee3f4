package emit

import (
	"errors"
	"slices"
	"strings"

	"shaver/internal/onnx/graph"
)

// emit adds the current node.
func (e *emitter) emit() error {
	n := e.n
	out := e.shape(n.Outputs[0])
	switch n.Op {
	case "Identity", "Dropout":
		e.parts[n.Outputs[0]] = e.parts[n.Inputs[0]]
	case "Reshape", "Flatten", "Squeeze", "Unsqueeze":
		if slices.Contains(out, 0) {
			return errors.New("its result has no elements")
		}
		e.set(e.reshape(e.name(n.Inputs[0]), out...))
	case "Transpose":
		e.transpose()
	case "Concat":
		e.concat()
	case "Slice":
		e.slice()
	case "Split":
		e.split()
	case "Expand":
		e.set(e.node("Expand", nil, e.padded(n.Inputs[0], len(out)), e.ints(append([]int{1}, out...)...)))
	case "Tile":
		repeats := append([]int64{1}, e.constant(n.Inputs[1]).Ints...)
		e.set(e.node("Tile", nil, e.name(n.Inputs[0]), e.ints(whole(repeats)...)))
	case "Pad":
		e.pad()
	case "Gather":
		return e.gather()
	case "GatherElements", "ScatterElements":
		var names []string
		for _, v := range n.Inputs {
			names = append(names, e.batched(v))
		}
		e.set(e.node(n.Op, e.shifted(0), names...))
	case "GatherND":
		attributes := map[string]any{"batch_dims": e.int("batch_dims", 0) + 1}
		e.set(e.node(n.Op, attributes, e.batched(n.Inputs[0]), e.batched(n.Inputs[1])))
	case "ScatterND":
		return errors.New("its indices have no axis of rows")
	case "MatMul":
		e.set(e.matMul(n.Inputs[0], n.Inputs[1]))
	case "Gemm":
		return e.gemm()
	case "Conv", "BatchNormalization": // the first axis of the row becomes a part of that of the rows
		names := []string{e.reshape(e.name(n.Inputs[0]), e.shape(n.Inputs[0])[1:]...)}
		for _, v := range n.Inputs[1:] {
			if v != graph.Absent && e.constant(v) == nil {
				return errors.New("its weights depend on the row")
			}
			names = append(names, e.optional(v))
		}
		e.set(e.reshape(e.node(n.Op, n.Attributes, names...), out...))
	case "Einsum":
		return e.einsum()
	case "Softmax", "LogSoftmax", "LayerNormalization":
		names := []string{e.name(n.Inputs[0])}
		for _, v := range n.Inputs[1:] {
			if v != graph.Absent && e.constant(v) == nil {
				return errors.New("its weights depend on the row")
			}
			names = append(names, e.optional(v))
		}
		e.set(e.node(n.Op, e.shifted(-1), names...))
	case "TopK":
		names := []string{e.d.Name(n.Name), e.d.Name(n.Name)}
		e.d.Node(n.Op, e.shifted(-1), []string{e.name(n.Inputs[0]), e.name(n.Inputs[1])}, names)
		for i, v := range n.Outputs {
			e.parts[v] = Part{Name: names[i]}
		}
	case "ArgMax", "ArgMin":
		e.set(e.node(n.Op, e.shifted(0), e.name(n.Inputs[0])))
	case "CumSum":
		axis := whole(e.constant(n.Inputs[1]).Ints)[0]
		if axis >= 0 {
			axis++
		}
		e.set(e.node(n.Op, n.Attributes, e.name(n.Inputs[0]), e.ints(axis)))
	case "Trilu":
		e.set(e.node(n.Op, n.Attributes, e.name(n.Inputs[0]), e.optional(e.in(1))))
	case "Cast":
		e.cast()
	default:
		if strings.HasPrefix(n.Op, "Reduce") {
			e.reduce()
			return nil
		}
		return e.elementwise()
	}
	return nil
}

// optional is name for an input that may be absent.
func (e *emitter) optional(v graph.Value) string {
	if v == graph.Absent {
		return ""
	}
	return e.name(v)
}

func whole(list []int64) []int {
	out := make([]int, len(list))
	for i, n := range list {
		out[i] = int(n)
	}
	return out
}

// elementwise adds a node whose inputs broadcast to the output.
func (e *emitter) elementwise() error {
	rank := e.rank(e.n.Outputs[0])
	var names []string
	for i, v := range e.n.Inputs {
		switch {
		case v == graph.Absent:
			names = append(names, "")
			continue
		case e.n.Op == "Clip" && i > 0 && e.constant(v) == nil:
			return errors.New("its limits depend on the row")
		}
		names = append(names, e.padded(v, rank))
	}
	e.set(e.node(e.n.Op, e.n.Attributes, names...))
	return nil
}

// Element types of ONNX.
const (
	float32Type = 1
	int64Type   = 7
	boolType    = 9
)

// cast adds a Cast. Whole numbers that wrap at a smaller width become int64 again.
func (e *emitter) cast() {
	to := map[graph.Type]int64{graph.Float: float32Type, graph.Int: int64Type, graph.Bool: boolType}[e.g.Values[e.n.Outputs[0]].Type]
	name := e.name(e.n.Inputs[0])
	if narrow := e.int("to", to); e.g.Values[e.n.Outputs[0]].Type == graph.Int && narrow != to {
		name = e.node("Cast", map[string]any{"to": narrow}, name)
	}
	e.set(e.node("Cast", map[string]any{"to": to}, name))
}

func (e *emitter) transpose() {
	rank := e.rank(e.n.Inputs[0])
	perm := []int64{0}
	if p, ok := e.n.Attributes["perm"].([]int64); ok {
		for _, a := range p {
			perm = append(perm, a+1)
		}
	} else {
		for a := range rank {
			perm = append(perm, int64(rank-a))
		}
	}
	e.set(e.node("Transpose", map[string]any{"perm": perm}, e.name(e.n.Inputs[0])))
}

func (e *emitter) slice() {
	n := e.n
	starts := e.constant(n.Inputs[1])
	names := []string{e.name(n.Inputs[0]), e.name(n.Inputs[1]), e.name(n.Inputs[2]), e.axes(3, starts.Len())}
	if steps := e.in(4); steps != graph.Absent {
		names = append(names, e.name(steps))
	}
	e.set(e.node("Slice", nil, names...))
}

func (e *emitter) split() {
	n := e.n
	names := make([]string, len(n.Outputs))
	for i, v := range n.Outputs {
		names[i] = e.d.Name(n.Name)
		e.parts[v] = Part{Name: names[i]}
	}
	inputs := []string{e.name(n.Inputs[0])}
	if v := e.in(1); v != graph.Absent {
		inputs = append(inputs, e.name(v))
	}
	e.d.Node("Split", e.shifted(0), inputs, names)
}

func (e *emitter) pad() {
	n := e.n
	pads := whole(e.constant(n.Inputs[1]).Ints)
	names := []string{e.name(n.Inputs[0]), e.ints(pads...), e.optional(e.in(2)), e.axes(3, len(pads)/2)}
	e.set(e.node("Pad", nil, names...))
}

// gather adds a Gather. If both inputs depend on the row, it becomes a GatherND of each row.
func (e *emitter) gather() error {
	data, which, axis := e.n.Inputs[0], e.n.Inputs[1], e.int("axis", 0)
	if axis < 0 {
		axis += int64(e.rank(data))
	}
	switch {
	case e.constant(which) != nil:
		e.set(e.node("Gather", map[string]any{"axis": axis + 1}, e.name(data), e.name(which)))
	case axis != 0:
		return errors.New("the row chooses positions of an axis other than the first one")
	case e.constant(data) != nil:
		e.set(e.node("Gather", nil, e.name(data), e.name(which)))
	default:
		indices := e.node("Unsqueeze", nil, e.name(which), e.ints(-1))
		e.set(e.node("GatherND", map[string]any{"batch_dims": int64(1)}, e.name(data), indices))
	}
	return nil
}

func (e *emitter) reduce() {
	n := e.n
	attributes := map[string]any{"keepdims": e.int("keepdims", 1)}
	v := e.in(1)
	if none := v == graph.Absent || e.constant(v).Len() == 0; none && (e.int("noop_with_empty_axes", 0) != 0 || e.rank(n.Inputs[0]) == 0) {
		e.set(e.node("Identity", nil, e.name(n.Inputs[0])))
		return
	}
	e.set(e.node(n.Op, attributes, e.name(n.Inputs[0]), e.axes(1, e.rank(n.Inputs[0]))))
}

// matMul returns the product of two values. A vector that depends on the row is a matrix for the product.
func (e *emitter) matMul(a, b graph.Value) string {
	if e.constant(a) == nil && e.constant(b) != nil && e.rank(a) > 1 && e.rank(b) > 2 {
		if out, ok := e.matrices(a, b); ok {
			return out
		}
	}
	rank := max(e.rank(a), e.rank(b), 2)
	x, y := e.padded(a, rank), e.padded(b, rank)
	if e.constant(b) == nil && e.rank(b) == 1 { // [rows, ..., 1, n]
		y = e.reshape(e.name(b), append(slices.Repeat([]int{1}, rank-2), e.shape(b)[0], 1)...)
	}
	out := e.node("MatMul", nil, x, y)
	if e.rank(a) == 1 || e.rank(b) == 1 {
		out = e.reshape(out, e.shape(e.n.Outputs[0])...)
	}
	return out
}

// matrices returns the product of a value and several constant matrices, as one product of all rows for each matrix. Without
// it onnxruntime would compute a product for each row. ok is false if a has another number of matrices, of which there are more than one.
func (e *emitter) matrices(a, b graph.Value) (out string, ok bool) {
	left, right := e.shape(a), e.shape(b)
	m, inner, columns := left[len(left)-2], left[len(left)-1], right[len(right)-1]
	n := 1
	for _, size := range right[:len(right)-2] {
		n *= size
	}
	swap := map[string]any{"perm": []int64{1, 0, 2, 3}}
	switch {
	case !slices.ContainsFunc(left[:len(left)-2], func(size int) bool { return size != 1 }): // all read the same
		t := e.constant(b)
		joined := make([]float32, len(t.Floats)) // [inner, n, columns]
		for i := range n {
			for k := range inner {
				copy(joined[(k*n+i)*columns:][:columns], t.Floats[(i*inner+k)*columns:])
			}
		}
		x := e.node("MatMul", nil, e.reshape(e.name(a), m, inner), e.tensor(&graph.Tensor{Name: t.Name, Type: graph.Float, Shape: []int{inner, n * columns}, Floats: joined}))
		if m > 1 {
			x = e.node("Transpose", map[string]any{"perm": []int64{0, 2, 1, 3}}, e.reshape(x, m, n, columns))
		}
		return e.reshape(x, e.shape(e.n.Outputs[0])...), true
	case slices.Equal(left[:len(left)-2], right[:len(right)-2]):
		x := e.node("Transpose", swap, e.reshape(e.name(a), n, m, inner))
		x = e.node("Reshape", nil, x, e.ints(n, -1, inner))
		t := *e.constant(b)
		t.Shape = []int{n, inner, columns}
		x = e.node("Reshape", nil, e.node("MatMul", nil, x, e.tensor(&t)), e.ints(n, -1, m, columns))
		return e.reshape(e.node("Transpose", swap, x), e.shape(e.n.Outputs[0])...), true
	}
	return "", false
}

// gemm adds a Gemm of all rows, if its weights are constant, or else a MatMul and what surrounds it.
func (e *emitter) gemm() error {
	n := e.n
	a, b, c := n.Inputs[0], n.Inputs[1], e.in(2)
	out := e.shape(n.Outputs[0])
	row := c == graph.Absent || e.constant(c) != nil && (e.rank(c) < 2 || e.shape(c)[0] == 1)
	if e.constant(a) == nil && e.constant(b) != nil && row && e.int("transA", 0) == 0 {
		names := []string{e.reshape(e.name(a), e.shape(a)[1]), e.name(b)}
		if c != graph.Absent {
			names = append(names, e.name(c))
		}
		e.set(e.reshape(e.node("Gemm", n.Attributes, names...), out...))
		return nil
	}
	side := func(v graph.Value, swap bool) string {
		name := e.name(v)
		if !swap {
			return name
		}
		perm := []int64{0, 2, 1}
		if e.constant(v) != nil {
			perm = []int64{1, 0}
		}
		return e.node("Transpose", map[string]any{"perm": perm}, name)
	}
	scaled := func(name, attribute string) string {
		k, ok := n.Attributes[attribute].(float32)
		if !ok || k == 1 {
			return name
		}
		return e.node("Mul", nil, name, e.tensor(graph.NewFloats([]float32{k})))
	}
	x := scaled(e.node("MatMul", nil, side(a, e.int("transA", 0) != 0), side(b, e.int("transB", 0) != 0)), "alpha")
	if c != graph.Absent {
		x = e.node("Add", nil, x, scaled(e.padded(c, 2), "beta"))
	}
	e.set(x)
	return nil
}

// einsum adds an Einsum with a label for the rows.
func (e *emitter) einsum() error {
	n := e.n
	equation, _ := n.Attributes["equation"].(string)
	left, right, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	if !explicit || strings.Contains(equation, ".") {
		return errors.New("the equation has no explicit labels")
	}
	label := ""
	for l := 'a'; label == "" && l <= 'z'; l++ {
		if !strings.ContainsRune(equation, l) {
			label = string(l)
		}
	}
	if label == "" {
		return errors.New("the equation has all labels")
	}
	terms := strings.Split(left, ",")
	var names []string
	for i, v := range n.Inputs {
		if e.constant(v) == nil {
			terms[i] = label + terms[i]
		}
		names = append(names, e.name(v))
	}
	e.set(e.node("Einsum", map[string]any{"equation": strings.Join(terms, ",") + "->" + label + right}, names...))
	return nil
}
