package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"shaver/internal/base/fault"
)

// Draft is a new .onnx file. Its nodes are those of operator set DraftOpset.
type Draft struct {
	// Metadata has keys that begin with MetadataPrefix.
	Metadata map[string]string

	names   map[string]bool
	nodes   []byte
	weights []content
	ends    []byte // inputs and outputs
}

// DraftOpset is the version of ONNX's operator set of a Draft. Gelu needs it.
const DraftOpset = 20

// NewDraft returns a file without nodes.
func NewDraft() *Draft { return &Draft{names: map[string]bool{}} }

// Name returns a new name that begins like name.
func (d *Draft) Name(name string) string {
	free := name
	for i := 2; free == "" || d.names[free]; i++ {
		free = name + "." + strconv.Itoa(i)
	}
	d.names[free] = true
	return free
}

// Input adds an input. Its name must be from Name.
func (d *Draft) Input(v Value) { d.ends = appendBytes(d.ends, 11, v.encode()) }

// Output adds an output. Its name must be from Name.
func (d *Draft) Output(v Value) { d.ends = appendBytes(d.ends, 12, v.encode()) }

// encode returns v as a ValueInfoProto.
func (v *Value) encode() []byte {
	var axes []byte
	for _, size := range v.Dims {
		dim := appendInt(nil, 1, size.Size)
		if size.Size < 0 {
			dim = appendText(nil, 2, size.Name)
		}
		axes = appendBytes(axes, 1, dim)
	}
	kind := appendBytes(appendInt(nil, 1, int64(v.Type)), 2, axes)
	return appendBytes(appendText(nil, 1, v.Name), 2, appendBytes(nil, 1, kind))
}

// Node adds a node. attributes has values of the types int64, float32, string, []int64 and []float32. Inputs are
// names of earlier outputs, inputs and tensors, or "". Outputs must be from Name.
func (d *Draft) Node(op string, attributes map[string]any, inputs, outputs []string) {
	n := Node{Name: outputs[0], Op: op, Inputs: inputs, Outputs: outputs, Attributes: map[string]*Attribute{}}
	for name, v := range attributes {
		a := &Attribute{}
		switch v := v.(type) {
		case int64:
			a.Kind, a.Int = KindInt, v
		case float32:
			a.Kind, a.Float = KindFloat, v
		case string:
			a.Kind, a.String = KindString, v
		case []int64:
			a.Kind, a.Ints = KindInts, v
		case []float32:
			a.Kind, a.Floats = KindFloats, v
		default:
			panic(fmt.Sprintf("wire: Node: attribute %s of %s is a %T", name, op, v))
		}
		n.Attributes[name] = a
	}
	d.nodes = appendBytes(d.nodes, 1, n.encode())
}

// Floats adds a tensor, which it keeps. Its name must be from Name.
func (d *Draft) Floats(name string, values []float32, shape ...int) {
	d.weight(name, Float, shape, content{4 * int64(len(values)), func(w io.Writer) error {
		b := bufio.NewWriterSize(w, chunk)
		for _, v := range values {
			var bits [4]byte
			binary.LittleEndian.PutUint32(bits[:], math.Float32bits(v))
			if _, err := b.Write(bits[:]); err != nil {
				return err
			}
		}
		return b.Flush()
	}})
}

// Ints adds a tensor. Its name must be from Name.
func (d *Draft) Ints(name string, values []int64, shape ...int) {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	d.weight(name, Int64, shape, contentOf(b))
}

// Bools adds a tensor. Its name must be from Name.
func (d *Draft) Bools(name string, values []bool, shape ...int) {
	b := make([]byte, len(values))
	for i, v := range values {
		if v {
			b[i] = 1
		}
	}
	d.weight(name, Bool, shape, contentOf(b))
}

func (d *Draft) weight(name string, kind Type, shape []int, elements content) {
	var t []byte
	for _, size := range shape {
		t = appendInt(t, 1, int64(size))
	}
	t = append(appendText(appendInt(t, 2, int64(kind)), 8, name), header(9, elements.size)...)
	d.weights = append(d.weights, contentOf(append(header(5, int64(len(t))+elements.size), t...)), elements)
}

// WriteTo writes the file. It refuses one of more than MaxFile bytes.
func (d *Draft) WriteTo(w io.Writer) (int64, error) {
	graph := append(appendText(d.nodes, 2, "shaver"), d.ends...)
	size := int64(len(graph))
	for _, c := range d.weights {
		size += c.size
	}
	model := appendText(appendInt(nil, 1, 9), 2, "shaver")
	model = appendBytes(model, 8, appendInt(appendText(nil, 1, ""), 2, DraftOpset))
	for _, key := range slices.Sorted(maps.Keys(d.Metadata)) {
		model = appendBytes(model, 14, appendText(appendText(nil, 1, key), 2, d.Metadata[key]))
	}
	model = append(model, header(7, size)...)
	if total := int64(len(model)) + size; total > MaxFile {
		return 0, fault.Inputf("the .onnx file would have %d bytes, expected at most %d: write a safetensors file", total, int64(MaxFile))
	}
	return writeAll(w, slices.Concat([]content{contentOf(model), contentOf(graph)}, d.weights))
}
