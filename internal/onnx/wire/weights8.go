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
// an axis. Both read constants only, so that a runtime computes them once. DequantizeLinear would not do: with
// it, onnxruntime may round what the weight is multiplied by.

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
// axes or more, is too small, is an input, or has the scales of a quantised tensor, which a node must read from a constant.
func (m *Model) NewWeight8(t *Tensor) (*Weight8, error) {
	if t.Type != Float || t.form != fixed || t.input || len(t.Dims) < 2 || t.Elements() < leastInt8 || !slices.Contains(m.Graph.Initializers, t) {
		return nil, nil
	}
	if slices.ContainsFunc(m.Graph.Initializers, func(o *Tensor) bool { return o.scaled != nil && o.scaled.scales.place == t.place }) {
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

// program returns the constants and nodes of a weight of the given shape.
func (w *weight8) program(dims []int) *program {
	p := &program{compactTable: &compactTable{Prefix: w.Prefix}, shared: map[string]string{}}
	scales := slices.Repeat([]int{1}, len(dims))
	scales[w.Axis] = dims[w.Axis]
	p.node("Mul", nil, p.cast(p.stored("codes", Int8, dims...), Float), p.stored("scales", Float, scales...))
	p.nodes[1].Outputs[0] = w.Tensor
	return p
}

// planWeights8 names the weights that are stored in 8 bits. taken are the names that the file has.
func (w *writer) planWeights8(taken map[string]bool, next int) {
	for _, q := range w.options.Weights8 {
		own := weight8{Tensor: q.Tensor.Name, Axis: q.Axis}
		own.Prefix, next = freePrefix(taken, next)
		w.weights8 = append(w.weights8, own)
	}
}

// data returns the bytes of the constants of q, by their names.
func (q *Weight8) data() map[string][]byte {
	codes := make([]byte, len(q.Codes))
	for i, c := range q.Codes {
		codes[i] = byte(c)
	}
	return map[string][]byte{"codes": codes, "scales": floatBytes(q.Scales)}
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

// takeWeights8 replaces the constants and nodes of weights in 8 bits by the weights.
func (m *Model) takeWeights8() error {
	text, ok := m.Metadata[int8Key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &m.weights8); err != nil || len(m.weights8) > len(m.Graph.Initializers) {
		return fault.Inputf("the metadata %s are not those of weights in 8 bits: expected the file as shaver wrote it", int8Key)
	}
	for _, w := range m.weights8 {
		at := slices.IndexFunc(m.Graph.Initializers, func(t *Tensor) bool { return t.Name == w.Prefix+".codes" })
		if at < 0 || w.Axis < 0 || w.Axis >= len(m.Graph.Initializers[at].Dims) || m.Graph.Initializers[at].Elements() == 0 {
			return changed(w.Prefix + ".codes")
		}
		err := m.restore(w.program(m.Graph.Initializers[at].Dims), func(constants map[string]*Tensor) (*Tensor, error) {
			scales := *constants["scales"]
			scales.Dims = []int{scales.Elements()}
			t := &Tensor{Name: w.Tensor, Type: Float, Dims: constants["codes"].Dims, form: computed, scaled: &scaled{codes: whole(constants["codes"]), scales: &scales}}
			return t, t.scaled.along(t.Dims, int64(w.Axis), 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
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
