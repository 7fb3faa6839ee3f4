package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
)

// Calibration replaces the logit z of a model by Scale*z + Offset. Two nodes, a Mul and an
// Add, compute it at the end of the graph. Everything else stays the same.
type Calibration struct {
	End           End
	Scale, Offset float32 // finite
}

// End says where the logit of a model is in its graph.
type End struct {
	Output string // name of the graph's output
	// Op is the operator that makes the output from the logit: Sigmoid or Softmax. It is "" if
	// the output is the logit, and another operator if it computes the output from other
	// probabilities, or the logit from other outputs.
	Op string
	// Shape is that of the input of Op, or of the output without Op, for one row.
	Shape []int
	// Axis is the axis of the two classes of a Softmax, and Class the one whose probability
	// is the output.
	Axis, Class int
}

// calibrationPrefix begins the names that a calibration adds to a graph. If a graph has a
// name already, .2 or a higher number follows.
const calibrationPrefix = "shaver.calibration."

// calibration is a planned Calibration.
type calibration struct {
	Calibration
	node   *Node // the Sigmoid or Softmax, or what computes the output
	name   field // its first input, or the output
	kind   Type
	values newNames
}

// newNames are names that a graph does not have yet: of the two constants, of the result of
// the Mul, and of the result of the Add or, without Op, of the logit before it is calibrated.
type newNames struct{ scale, offset, scaled, logit string }

// CheckEnd returns bad input if a Calibration cannot change the logit at e.
func (m *Model) CheckEnd(e End) error {
	if _, err := m.planCalibration(Calibration{End: e}); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return nil
}

// planCalibration finds where c changes the graph.
func (m *Model) planCalibration(c Calibration) (*calibration, error) {
	cannot := func(format string, args ...any) error {
		return fault.Inputf("the graph cannot be calibrated: %s", fmt.Sprintf(format, args...))
	}
	if op := c.End.Op; op != "" && op != "Sigmoid" && op != "Softmax" {
		return nil, cannot("its output %s is computed from others, so that no node has its logit", Quote(c.End.Output))
	}
	most := 1
	if c.End.Op == "Softmax" {
		most = 2
	}
	count := 1
	for _, size := range c.End.Shape {
		count *= size
	}
	if count != most {
		what := "its output " + Quote(c.End.Output)
		if c.End.Op != "" {
			what = "the " + c.End.Op + " before its output " + Quote(c.End.Output)
		}
		return nil, cannot("%s has the shape %v for one row, expected the logit of one output", what, c.End.Shape)
	}
	p := &calibration{Calibration: c}
	at := slices.IndexFunc(m.Graph.Outputs, func(v Value) bool { return v.Name == c.End.Output })
	if at < 0 {
		return nil, cannot("it has no output %s", Quote(c.End.Output))
	}
	p.kind = m.Graph.Outputs[at].Type
	producers := map[string]*Node{}
	for i := range m.Graph.Nodes {
		for _, name := range m.Graph.Nodes[i].Outputs {
			producers[name] = &m.Graph.Nodes[i]
		}
	}
	name, reader := c.End.Output, (*Node)(nil)
	for p.node == nil {
		n, other := producers[name], m.otherReader(name, reader, c.End.Output)
		switch {
		case n == nil:
			return nil, cannot("its output %s comes from no node", Quote(c.End.Output))
		case other != "":
			return nil, cannot("%s, so that a calibration would change more than the output %s", other, Quote(c.End.Output))
		case n.Op == c.End.Op || c.End.Op == "":
			p.node = n
		case slices.Contains(moves, n.Op) && len(n.Outputs) == 1:
			if n.Op == "Cast" {
				p.kind = Undefined
			}
			name, reader = n.Inputs[0], n
		default:
			return nil, cannot("node %s (%s) is between the %s and the output %s", n.Label(), Quote(n.Op), c.End.Op, Quote(c.End.Output))
		}
	}
	if p.node.place == nil || p.node.place.outer != m.Graph.place {
		return nil, cannot("node %s (%s) is in a local function; export the model without functions", p.node.Label(), Quote(p.node.Op))
	}
	if p.kind != Float && p.kind != Double {
		return nil, cannot("its logit is of type %s, expected float32 or float64", p.kind)
	}
	number, which := protowire.Number(1), 0
	if c.End.Op == "" {
		number, which = 2, slices.Index(p.node.Outputs, c.End.Output)
	}
	var err error
	if p.name, err = m.nameOf(p.node, number, which); err != nil {
		return nil, err
	}
	p.values = m.freeNames()
	return p, nil
}

// moves are operators that only move the elements of their first input.
var moves = []string{"Cast", "Dropout", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}

// otherReader says what reads the value with the given name in addition to the node reader
// and, as an output of the graph, the one called output. It returns "" if nothing does.
func (m *Model) otherReader(name string, reader *Node, output string) string {
	for _, v := range m.Graph.Outputs {
		if v.Name == name && name != output {
			return "the output " + Quote(name) + " has the same value"
		}
	}
	var find func(g *Graph) string
	find = func(g *Graph) string {
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if n != reader && slices.Contains(n.Inputs, name) {
				return fmt.Sprintf("node %s (%s) reads %s too", n.Label(), Quote(n.Op), Quote(name))
			}
			for _, key := range sortedNames(n.Attributes) {
				if body := n.Attributes[key].Graph; body != nil {
					if text := find(body); text != "" {
						return text
					}
					for _, v := range body.Outputs {
						if v.Name == name {
							return fmt.Sprintf("node %s (%s) reads %s too", n.Label(), Quote(n.Op), Quote(name))
						}
					}
				}
			}
		}
		return ""
	}
	return find(m.Graph)
}

// nameOf returns the position of a name of a node: that of an input (field number 1) or an
// output (2).
func (m *Model) nameOf(n *Node, number protowire.Number, which int) (name field, err error) {
	r := &reader{source: m.source, size: m.size}
	err = r.fields(n.place.at, n.place.end, func(found protowire.Number, v field) error {
		if found == number {
			if which == 0 {
				name = v
			}
			which--
		}
		return nil
	})
	return name, err
}

// freeNames returns names that the graph does not have.
func (m *Model) freeNames() newNames {
	taken := map[string]bool{}
	takeNames(m.Graph, nil, taken, func(string) {}, true)
	choose := func(name string) string {
		name = calibrationPrefix + name
		free := name
		for i := 2; taken[free]; i++ {
			free = name + "." + strconv.Itoa(i)
		}
		return free
	}
	return newNames{choose("scale"), choose("offset"), choose("scaled"), choose("logit")}
}

// edit plans the edits of the calibration.
func (p *calibration) edit(w *writer) {
	graph, place := w.model.Graph.place, p.node.place
	input, to, at := p.values.logit, p.End.Output, place.end
	if p.End.Op != "" {
		input, to, at = p.node.Inputs[0], p.values.logit, place.tag
	}
	node := func(op, left, right, out string) {
		text := appendText(appendText(appendText(nil, 1, left), 1, right), 2, out)
		w.edits.insert(graph, at, appendBytes(nil, 1, appendText(appendText(text, 3, out), 4, op)))
	}
	node("Mul", input, p.values.scale, p.values.scaled)
	node("Add", p.values.scaled, p.values.offset, to)
	w.edits.replace(place, p.name.length, p.name.end, contentOf(protowire.AppendString(nil, p.values.logit)))
	shape, offsets := []int(nil), []float32{p.Offset}
	if p.End.Op == "Softmax" { // only the difference of the two classes counts
		shape, offsets = p.End.Shape[p.End.Axis:], make([]float32, 2)
		offsets[p.End.Class] = p.Offset
	}
	p.constant(w, p.values.scale, nil, []float32{p.Scale})
	p.constant(w, p.values.offset, shape, offsets)
}

// constant adds an initialiser at the end of the graph.
func (p *calibration) constant(w *writer, name string, shape []int, values []float32) {
	graph := w.model.Graph.place
	var tensor, axes, data []byte
	for _, size := range shape {
		tensor = appendInt(tensor, 1, int64(size))
		axes = appendBytes(axes, 1, appendInt(nil, 1, int64(size)))
	}
	for _, v := range values {
		if p.kind == Double {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(v)))
		} else {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	tensor = appendBytes(appendText(appendInt(tensor, 2, int64(p.kind)), 8, name), 9, data)
	w.edits.insert(graph, graph.end, appendBytes(nil, 5, tensor))
	if w.model.IR < 4 { // an initialiser of an old file must be an input
		kind := appendBytes(nil, 1, appendBytes(appendInt(nil, 1, int64(p.kind)), 2, axes))
		w.edits.insert(graph, graph.end, appendBytes(nil, 11, appendBytes(appendText(nil, 1, name), 2, kind)))
	}
}
