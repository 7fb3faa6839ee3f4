package wire

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
)

// A weight of the network may be stored in 8 bits. A node Cast makes float32 of its codes, and a node Mul multiplies them by scales, one for each position of
// an axis. Both read constants only, so that a runtime computes them once. DequantizeLinear would not do: onnxruntime then multiplies
// in 8 bits, and rounds what the weight is multiplied by.

// int8Key is the key of the metadata that name the weights in 8 bits, a JSON array of weight8.
const int8Key = MetadataPrefix + "int8"

// leastInt8 is the least number of elements of a weight in 8 bits, and also the least of those that share a scale.
const (
	leastInt8   = 256
	leastShared = 16
)

// Weight8 is a tensor in 8 bits. Element i has the value Codes[i] * Scales[its position along Axis], rounded to float32.
type Weight8 struct {
	Tensor *Tensor
	Axis   int
	Codes  []int8
	Scales []float32
}

// weight8 describes the constants of a weight in 8 bits.
type weight8 struct {
	Tensor string `json:"tensor"` // its name
	Prefix string `json:"prefix"` // of the names of its constants and the first node
	Axis   int    `json:"axis"`
}

// NewWeight8 returns t in 8 bits, along the axis for which the sum of squared errors is least. It returns nil if t is not a constant of the graph of float32 with two
// axes or more, is too small, or is an input.
func (m *Model) NewWeight8(t *Tensor) (*Weight8, error) {
	if t.Type != Float || t.form != fixed || t.input || len(t.Dims) < 2 || t.Elements() < leastInt8 || m.IR < compactIR || !slices.Contains(m.Graph.Initializers, t) {
		return nil, nil
	}
	values, err := t.Floats()
	if err != nil {
		return nil, err
	}
	var best *Weight8
	least := math.Inf(1)
	for axis, size := range t.Dims {
		if len(values)/size < leastShared {
			continue
		}
		q := &Weight8{Tensor: t, Axis: axis, Codes: make([]int8, len(values)), Scales: make([]float32, size)}
		if lost := q.round(values); lost < least {
			best, least = q, lost
		}
	}
	return best, nil
}

// position returns the position of element i along the axis.
func (q *Weight8) position(i int) int {
	for _, size := range q.Tensor.Dims[q.Axis+1:] {
		i /= size
	}
	return i % q.Tensor.Dims[q.Axis]
}

// round sets the codes and scales, and returns the sum of squared errors.
func (q *Weight8) round(values []float32) (lost float64) {
	for i, v := range values {
		s := &q.Scales[q.position(i)]
		*s = max(*s, v/127, -v/127)
	}
	for i, v := range values {
		if s := q.Scales[q.position(i)]; s > 0 {
			q.Codes[i] = int8(min(max(math.RoundToEven(float64(v)/float64(s)), -127), 127))
		}
		e := float64(q.value(i)) - float64(v)
		lost += e * e
	}
	return lost
}

func (q *Weight8) value(i int) float32 { return float32(q.Codes[i]) * q.Scales[q.position(i)] }

// Values returns the values that a reader gets.
func (q *Weight8) Values() []float32 {
	values := make([]float32, len(q.Codes))
	for i := range values {
		values[i] = q.value(i)
	}
	return values
}

// Saved returns about how many bytes a file has less than with float32.
func (q *Weight8) Saved() int64 {
	return 3*int64(len(q.Codes)) - 4*int64(len(q.Scales)) - 200
}

// shape returns the shape in which the scales meet the codes.
func (q *Weight8) shape() []int {
	dims := slices.Repeat([]int{1}, len(q.Tensor.Dims))
	dims[q.Axis] = len(q.Scales)
	return dims
}

// nodes returns the nodes that compute the weight.
func (w *weight8) nodes() []Node {
	return []Node{
		{Op: "Cast", Inputs: []string{w.Prefix + ".codes"}, Outputs: []string{w.Prefix + ".0"}, Attributes: numbers(map[string]int64{"to": int64(Float)})},
		{Op: "Mul", Inputs: []string{w.Prefix + ".0", w.Prefix + ".scales"}, Outputs: []string{w.Tensor}, Attributes: map[string]*Attribute{}},
	}
}

// planWeights8 names the weights that are stored in 8 bits. taken are the names that the file has.
func (w *writer) planWeights8(taken map[string]bool, next int) {
	for _, q := range w.options.Weights8 {
		own := weight8{Tensor: q.Tensor.Name, Axis: q.Axis}
		own.Prefix, next = freePrefix(taken, next)
		w.weights8 = append(w.weights8, own)
	}
}

// writeWeight8 plans the edits for a weight in 8 bits.
func (w *writer) writeWeight8(q *Weight8, own *weight8) {
	codes := make([]byte, len(q.Codes))
	for i, c := range q.Codes {
		codes[i] = byte(c)
	}
	graph, t := w.model.Graph.place, &table{Tensor: q.Tensor}
	w.edits.replace(graph, q.Tensor.place.tag, q.Tensor.place.end, slices.Concat(
		initialiser(w.tensor(t, own.Prefix+".codes", Int8, q.Tensor.Dims, contentOf(codes))),
		initialiser(inline(own.Prefix+".scales", Float, q.shape(), contentOf(floatBytes(q.Scales)))))...)
	w.edits.insert(graph, graph.at, encodeNodes(own.nodes()))
}

// encodeNodes returns nodes as fields of a GraphProto.
func encodeNodes(nodes []Node) (b []byte) {
	for i := range nodes {
		b = appendBytes(b, 1, nodes[i].encode())
	}
	return b
}

// initialiser returns the fields of a tensor as a field of a GraphProto.
func initialiser(fields []content) []content {
	size := int64(0)
	for _, c := range fields {
		size += c.size
	}
	return append([]content{contentOf(header(5, size))}, fields...)
}

// int8 replaces the constants and nodes of weights in 8 bits by the weights.
func (p *parser) weights8(m *Model) error {
	text, ok := m.Metadata[int8Key]
	if !ok {
		return nil
	}
	var all []weight8
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all) > len(m.Graph.Initializers) {
		return fault.Inputf("the metadata %s are not those of weights in 8 bits: expected the file as shaver wrote it", int8Key)
	}
	constants, nodes := map[string]*Tensor{}, map[string]*Node{}
	for _, t := range m.Graph.Initializers {
		constants[t.Name] = t
	}
	for i := range m.Graph.Nodes {
		n := &m.Graph.Nodes[i]
		if len(n.Outputs) == 1 {
			nodes[n.Outputs[0]] = n
		}
	}
	gone := map[string]bool{}
	for i := range all {
		w := &all[i]
		codes, scales := constants[w.Prefix+".codes"], constants[w.Prefix+".scales"]
		if codes == nil || scales == nil || codes.Type != Int8 || scales.Type != Float || codes.form != fixed || scales.form != fixed || codes.input || scales.input {
			return changed(w.Prefix)
		}
		for _, n := range w.nodes() {
			if have := nodes[n.Outputs[0]]; have == nil || !have.like(&n) {
				return changed(n.Outputs[0])
			}
			gone[n.Outputs[0]] = true
		}
		flat := *scales
		flat.Dims = []int{scales.Elements()}
		s := &scaled{codes: whole(codes), scales: &flat}
		if w.Axis < 0 || len(scales.Dims) != len(codes.Dims) || s.along(codes.Dims, int64(w.Axis), 0) != nil || scales.Dims[w.Axis] != scales.Elements() {
			return changed(scales.Name)
		}
		delete(constants, codes.Name)
		delete(constants, scales.Name)
		gone[codes.Name], gone[scales.Name] = true, true
		m.Graph.Initializers = append(m.Graph.Initializers, &Tensor{Name: w.Tensor, Type: Float, Dims: codes.Dims, form: computed, scaled: s, source: codes.source, file: codes.file, place: codes.place})
	}
	m.Graph.Initializers = slices.DeleteFunc(m.Graph.Initializers, func(t *Tensor) bool { return gone[t.Name] && t.form != computed })
	m.Graph.Nodes = slices.DeleteFunc(m.Graph.Nodes, func(n Node) bool { return len(n.Outputs) == 1 && gone[n.Outputs[0]] })
	for i := range all { // the weight itself stays
		delete(gone, all[i].Tensor)
	}
	m.weights8 = all
	return readsNone(m.Graph, gone)
}

// readsNone returns an error if a node or an output of g reads one of the names.
func readsNone(g *Graph, gone map[string]bool) (err error) {
	visit := func(name string) {
		if gone[name] && err == nil {
			err = changed(name)
		}
	}
	for i := range g.Nodes {
		g.Nodes[i].Reads(visit)
	}
	for _, v := range g.Outputs {
		visit(v.Name)
	}
	return err
}

// freePrefix returns the first prefix from a number on that begins none of the names, and the next number.
func freePrefix(names map[string]bool, from int) (string, int) {
	for ; ; from++ {
		free := prefix + strconv.Itoa(from)
		used := false
		for name := range names {
			used = used || strings.HasPrefix(name, free+".")
		}
		if !used {
			return free, from + 1
		}
	}
}
