package dissect

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

const (
	maxSteps      = 1 << 15 // nodes of the file, with loops unrolled
	maxAll        = 1 << 18 // nodes of all builds of the file
	maxIterations = 1 << 12 // iterations of all loops, and values of a sequence
	maxColumns    = 1 << 14 // elements of a row of an input
	maxListed     = 1 << 22 // values of all sequences

	// maxFolding bounds the multiplications of folding in all builds, in addition to 256 for
	// each element of the tensors that the file has.
	maxFolding = 1 << 28

	// maxChecks bounds the product of operators and ids that are evaluated in all builds.
	maxChecks = 1 << 27
)

// input is an input of the file on which the output depends.
type input struct {
	wire.Value
	axis    int // batch axis; -1 = none
	columns int // number of elements of a row
}

// place returns the row and the column of an element of the input in a batch of the given
// number of rows.
func (in *input) place(index, batch int) (row, column int) {
	if in.axis < 0 {
		return 0, index
	}
	inner := 1
	for _, d := range in.Dims[in.axis+1:] {
		inner *= int(max(d.Size, 1))
	}
	return index / inner % batch, index/inner/batch*inner + index%inner
}

// fix makes the first axis of all inputs the batch axis, if that axis has size n in all of
// them. It reports whether it did and n is more than one row.
func (p *plan) fix(n int) bool {
	for i := range p.inputs {
		if in := &p.inputs[i]; in.axis >= 0 || len(in.Dims) == 0 || in.Dims[0].Size != int64(n) {
			return false
		}
	}
	for i := range p.inputs {
		p.inputs[i].axis = 0
		p.inputs[i].columns /= n
	}
	p.fixed = n
	return n > 1
}

// column returns the name of a column of the input.
func (in *input) column(column int) string {
	if in.columns == 1 {
		return in.Name
	}
	return in.Name + "[" + strconv.Itoa(column) + "]"
}

// columnRange returns the name of some columns of the input.
func (in *input) columnRange(first, count int) string {
	switch {
	case count == in.columns:
		return in.Name
	case count == 1:
		return in.column(first)
	}
	return in.Name + "[" + strconv.Itoa(first) + ":" + strconv.Itoa(first+count) + "]"
}

// bindError says that an input holds the offsets of bags.
type bindError struct{ input string }

func (e *bindError) Error() string {
	return "input " + wire.Quote(e.input) + " chooses parts of other values"
}

// plan is what all builds of a file share.
type plan struct {
	model     *wire.Model
	outputs   []output
	output    string // name of the one of outputs that is at work
	element   int    // of that one
	inputs    []input
	needed    map[string]bool    // names on which the output depends
	bound     map[string]bool    // inputs that are the offsets of bags
	decisions map[string][]int64 // what a graph does with several rows, by place in the graph
	fixed     int                // number of rows for which the file was exported; 0 = any, or one
	*common
}

// output is an output of the file.
type output struct {
	name    string
	element int // of a row of the output; -1 = it has only one, or two for two classes
}

// take sets the output that is at work.
func (p *plan) take(i int) { p.output, p.element = p.outputs[i].name, p.outputs[i].element }

// names returns the names of the outputs, as Options.Output has them.
func (p *plan) names() string {
	var all []string
	for _, o := range p.outputs {
		name := o.name
		if o.element >= 0 {
			name = fmt.Sprintf("%s[%d]", name, o.element)
		}
		all = append(all, name)
	}
	return strings.Join(all, ",")
}

// common is what all attempts to take a file apart share.
type common struct {
	loaded    map[*wire.Tensor]*graph.Tensor
	constants map[*wire.Tensor]*wire.Tensor // the tensors of Constant nodes, with names
	reshaped  map[*wire.Tensor]*wire.Tensor // see builder.reshape
	maps      map[*graph.Tensor][]*element  // the columns of maps of ids; see builder.mapIDs
	steps     int                           // number of nodes that may still be built
	folding   int64                         // multiplications of folding so far
	given     int64                         // elements of constants in the build that had most
	checks    int64                         // see element.check
}

func newCommon() *common {
	return &common{map[*wire.Tensor]*graph.Tensor{}, map[*wire.Tensor]*wire.Tensor{}, map[*wire.Tensor]*wire.Tensor{}, map[*graph.Tensor][]*element{}, maxAll, 0, 0, maxChecks}
}

// builder builds the head for a number of rows.
type builder struct {
	*plan
	batch   int // number of rows
	head    graph.Graph
	end     wire.End                // where the file has the logit; see logit
	readers map[*wire.Tensor]string // first node that reads a tensor other than by a look-up
	added   map[any]graph.Value     // constants of head, by their *onnx.Tensor or *onnx.Attribute
	starts  map[*element]int        // see builder.start
	strides map[*wire.Tensor]int    // see builder.stride
	lookUps []*lookUp
	found   map[lookUpKey]*lookUp
	runs    []run
	joints  []*joint
	numbers []*number
	columns map[place]*number

	computed  []*computed
	fieldOf   map[[sha256.Size]byte]int // index into computed, by summary.sum
	summaries map[*element]*summary
	computing map[*element]bool // see builder.computes

	retraced  map[graph.Value]*trace // see builder.retrace
	producers map[graph.Value]int    // node of the head that computes a value, for the first indexed nodes
	indexed   int

	comparisons []*element    // see compared
	selector    []graph.Value // inputs of the tasks; see joinTasks

	built      int // nodes so far
	iterations int // iterations of loops so far
	listed     int // values of sequences so far
	windowed   int // elements of windows so far
	traced     int // elements of traces so far; a computed element counts four times
	loops      int // loops around the current node
}

// place is an element of an input in a row.
type place struct{ row, input, column int }

type lookUpKey struct {
	tensor *wire.Tensor
	place
	offset int
}

// lookUp is a look-up of one row, and later of one row for each column of a list.
type lookUp struct {
	lookUpKey
	length   int // number of columns
	dim      int
	stride   int        // number of rows of the tensor that a row of the table has
	node     string     // first node that reads the row
	elements []*element // the row numbers that the file computes, for check
	value    graph.Value
}

// run is consecutive columns of an input that a node looks up in the same rows.
type run struct {
	lookUpKey     // with the first column
	to        int // column after the last one
}

// number is a dense input, or an id that the head reads as a number.
type number struct {
	place
	node    string // first node that reads it
	value   graph.Value
	element *element
}

// scope holds the values of a graph by name. outer has those of the graph around it.
type scope struct {
	values map[string]*value
	outer  *scope
}

func (s *scope) find(name string) *value {
	for ; s != nil; s = s.outer {
		if v := s.values[name]; v != nil {
			return v
		}
	}
	return nil
}

func newPlan(m *wire.Model, o Options, bound map[string]bool, all *common) (*plan, error) {
	p := &plan{model: m, bound: bound, needed: map[string]bool{}, decisions: map[string][]int64{}, common: all}
	var names []string
	for _, v := range m.Graph.Outputs {
		names = append(names, v.Name)
	}
	chosen := []string{o.Output}
	if !slices.Contains(names, o.Output) {
		chosen = strings.Split(o.Output, ",")
	}
	for _, text := range chosen {
		switch found := splitOutput(text, names); {
		case found.name != "" && !slices.Contains(names, found.name):
			return nil, fault.Setting(fault.Inputf("there is no output %s, expected one of: %s", wire.Quote(found.name), quoteAll(names)), OutputSetting)
		case found.name != "":
			p.outputs = append(p.outputs, found)
		case len(names) == 1:
			p.outputs = append(p.outputs, output{names[0], -1})
		default:
			return nil, fault.Setting(fault.Inputf("it has %d outputs: choose one of: %s", len(names), quoteAll(names)), OutputSetting)
		}
		p.need(m.Graph, p.outputs[len(p.outputs)-1].name)
	}
	p.take(0)
	for _, v := range m.Graph.Inputs {
		if !p.needed[v.Name] {
			continue
		}
		in, err := newInput(v)
		if err != nil {
			return nil, err
		}
		p.inputs = append(p.inputs, in)
	}
	return p, nil
}

// splitOutput splits NAME[3] into the name and the element. The element is -1 if text has
// no such form, or if text as a whole is a name.
func splitOutput(text string, names []string) output {
	if name, rest, ok := strings.Cut(strings.TrimSuffix(text, "]"), "["); ok && !slices.Contains(names, text) && strings.HasSuffix(text, "]") {
		if n, err := strconv.Atoi(rest); err == nil && n >= 0 {
			return output{name, n}
		}
	}
	return output{text, -1}
}

func quoteAll(names []string) string {
	const most = 20
	text := ""
	for i, name := range names {
		if i == most {
			return text + ", ..."
		}
		if i > 0 {
			text += ", "
		}
		text += wire.Quote(name)
	}
	return text
}

// need marks the names on which output depends. A name that a body defines may also
// be a name of the graph around it, which is then marked too. This is harmless.
func (p *plan) need(g *wire.Graph, output string) {
	p.needed[output] = true
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := &g.Nodes[i]
		if slices.ContainsFunc(n.Outputs, func(name string) bool { return name != "" && p.needed[name] }) {
			n.Reads(func(name string) { p.needed[name] = true })
		}
	}
}

func newInput(v wire.Value) (input, error) {
	in := input{Value: v, axis: -1, columns: 1}
	if !v.Known {
		return in, fault.Inputf("input %s: its number of axes is unknown: export the model with the shapes of its inputs", wire.Quote(v.Name))
	}
	for i, d := range v.Dims {
		switch {
		case d.Size >= 0:
			if d.Size == 0 || d.Size > maxColumns/int64(in.columns) {
				return in, fault.Inputf("input %s has %d elements on axis %d, expected 1 to %d elements for a row", wire.Quote(v.Name), d.Size, i, maxColumns)
			}
			in.columns *= int(d.Size)
		case in.axis < 0:
			in.axis = i
		default:
			return in, fault.Inputf("input %s: axis %d has no fixed size, expected fixed sizes of all axes except the batch axis, %d: export a list with a fixed number of positions", wire.Quote(v.Name), i, in.axis)
		}
	}
	return in, nil
}

// build builds the head for a number of rows and returns the outputs.
func (p *plan) build(batch int) (*builder, []*value, error) {
	b := &builder{plan: p, batch: batch, readers: map[*wire.Tensor]string{}, added: map[any]graph.Value{}, starts: map[*element]int{}, strides: map[*wire.Tensor]int{}, found: map[lookUpKey]*lookUp{}, columns: map[place]*number{}, retraced: map[graph.Value]*trace{}, producers: map[graph.Value]int{},
		fieldOf: map[[sha256.Size]byte]int{}, summaries: map[*element]*summary{}, computing: map[*element]bool{}}
	if most := maxFolding + 256*p.given; p.folding > most {
		return nil, nil, fault.Inputf("the constants take more than %d multiplications to compute", most)
	}
	defer func() {
		work, given := b.head.Folded()
		p.folding += work
		p.given = max(p.given, given)
	}()
	top := &scope{values: map[string]*value{}}
	for i := range p.inputs {
		v, err := b.input(i)
		if err != nil {
			return nil, nil, err
		}
		top.values[p.inputs[i].Name] = v
	}
	if err := b.graph(p.model.Graph, top, ""); err != nil {
		return nil, nil, err
	}
	var found []*value
	for _, o := range p.outputs {
		found = append(found, top.find(o.name))
	}
	return b, found, nil
}

// input returns the value of an input.
func (b *builder) input(i int) (*value, error) {
	in := &b.inputs[i]
	t := &trace{shape: []int{}}
	switch {
	case in.Type.Floating():
		t.kind = graph.Float
	case in.Type.Integer():
		t.kind = graph.Int
	case in.Type == wire.Bool:
		t.kind = graph.Bool
	default:
		return nil, fault.Inputf("input %s is of %s, expected numbers: strings must be mapped to ids before the model", wire.Quote(in.Name), in.Type)
	}
	count := 1
	for axis, d := range in.Dims {
		size := int(d.Size)
		if axis == in.axis {
			size = b.batch
		}
		t.shape = append(t.shape, size)
		count *= size
	}
	if b.bound[in.Name] {
		offsets := graph.NewInts(make([]int64, count), t.shape...)
		for at := range offsets.Ints {
			row, _ := in.place(at, b.batch)
			offsets.Ints[at] = int64(row)
		}
		return inHead(b.head.AddConstant(offsets)), nil
	}
	if !b.trace(count, 4) {
		return nil, fault.Inputf("input %s has %d elements, and the inputs together have too many, expected at most %d", wire.Quote(in.Name), count, maxTraces/4)
	}
	for at := range count {
		t.elements = append(t.elements, newInputElement(t.kind, i, at))
	}
	return &value{head: graph.Absent, trace: t, width: in.Type}, nil
}

// step counts n nodes, and reports whether the limits allow them.
func (b *builder) step(n int) bool {
	b.built += n
	b.steps -= n
	return b.built <= maxSteps && b.steps >= 0
}

// trace counts n elements of traces, and reports whether the limit allows them. weight is
// the memory of one of them relative to that of an element that is only moved.
func (b *builder) trace(n, weight int) bool {
	b.traced += n * weight
	return b.traced <= maxTraces
}

// graph builds the nodes of g in s. path is the position of g in the file.
func (b *builder) graph(g *wire.Graph, s *scope, path string) error {
	if !b.step(len(g.Initializers) + len(g.Outputs)) {
		return fault.Inputf("the graph takes more than %d operators with its loops unrolled", maxSteps)
	}
	for _, t := range g.Initializers {
		s.values[t.Name] = &value{head: graph.Absent, tensor: t}
	}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if path == "" && !slices.ContainsFunc(n.Outputs, func(name string) bool { return b.needed[name] }) {
			continue
		}
		out, err := b.node(n, s, path+"/"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		for k, name := range n.Outputs {
			if name == "" {
				continue
			}
			if k >= len(out) {
				if b.needed[name] {
					return fault.Inputf("node %s (%s): its output %d is not supported", n.Label(), wire.Quote(n.Op), k+1)
				}
				continue
			}
			s.values[name] = out[k]
		}
	}
	return nil
}

// constant returns a value that must not depend on the row.
func (b *builder) constant(v *value, n *wire.Node) (*graph.Tensor, error) {
	if v.tensor != nil {
		if err := b.load(v, n.Label()); err != nil {
			return nil, err
		}
	}
	if v.trace != nil && v.head == graph.Absent {
		if err := b.bind(v.trace); err != nil {
			return nil, err
		}
	}
	if v.head == graph.Absent || b.head.Values[v.head].Constant == nil {
		return nil, fault.Inputf("node %s (%s) depends on the row, expected a constant: the computation must be the same for each row", n.Label(), n.Op)
	}
	return b.head.Values[v.head].Constant, nil
}

// condition returns the constant truth value of v.
func (b *builder) condition(v *value, n *wire.Node) (bool, error) {
	t, err := b.constant(v, n)
	if err != nil {
		return false, err
	}
	if t.Type != graph.Bool || len(t.Bools) != 1 {
		return false, fault.Inputf("node %s (%s): its condition has the shape %v, expected one bool", n.Label(), n.Op, t.Shape)
	}
	return t.Bools[0], nil
}

// decide returns the decision for the node at path. own is the decision for the number of
// rows of this build. A decision for several rows also holds for one row, where the batch
// axis looks like any other axis of size 1.
func (b *builder) decide(path string, own []int64) ([]int64, error) {
	known, ok := b.decisions[path]
	switch {
	case b.batch > 1 && !ok:
		b.decisions[path] = own
	case b.batch > 1 && !slices.Equal(known, own):
		return nil, fmt.Errorf("the computation depends on the number of rows")
	case ok:
		return known, nil
	}
	return own, nil
}

// branch builds an If, whose condition must be constant.
func (b *builder) branch(n *wire.Node, s *scope, path string, in []*value) ([]*value, error) {
	if len(in) != 1 || in[0] == nil || attribute(n, "then_branch") == nil || attribute(n, "else_branch") == nil {
		return nil, fault.Inputf("node %s (If): expected a condition and two branches", n.Label())
	}
	var chosen error
	if b.undecided(in[0]) {
		out, err := b.choose(n, s, path, in[0])
		if err == nil {
			return out, nil
		}
		chosen = err
	}
	yes, err := b.condition(in[0], n)
	var found *bindError
	if err != nil && chosen != nil && !errors.As(err, &found) {
		err = chosen
	}
	if err != nil {
		return nil, err
	}
	own := []int64{0}
	if yes {
		own[0] = 1
	}
	decided, err := b.decide(path, own)
	if err != nil {
		return nil, fault.Inputf("node %s (If): %w", n.Label(), err)
	}
	body := attribute(n, "else_branch").Graph
	if decided[0] == 1 {
		body = attribute(n, "then_branch").Graph
	}
	if body == nil {
		return nil, fault.Inputf("node %s (If): a branch is not a graph", n.Label())
	}
	inner := &scope{map[string]*value{}, s}
	if err := b.graph(body, inner, path); err != nil {
		return nil, err
	}
	return outputs(body, inner)
}

func attribute(n *wire.Node, name string) *wire.Attribute { return n.Attributes[name] }

func outputs(g *wire.Graph, s *scope) ([]*value, error) {
	var out []*value
	for _, v := range g.Outputs {
		found := s.find(v.Name)
		if found == nil {
			return nil, fault.Inputf("output %s of a body is not computed", wire.Quote(v.Name))
		}
		out = append(out, found)
	}
	return out, nil
}

// loop builds a Loop, whose number of iterations must be constant.
func (b *builder) loop(n *wire.Node, s *scope, path string, in []*value) ([]*value, error) {
	a := attribute(n, "body")
	if a == nil || a.Graph == nil || len(in) < 2 || len(a.Graph.Inputs) != len(in) || len(a.Graph.Outputs) < len(in)-1 {
		return nil, fault.Inputf("node %s (Loop): its inputs do not match those of its body", n.Label())
	}
	body, carried := a.Graph, in[2:]
	count := int64(-1) // -1 = the condition ends the loop
	if in[0] != nil {
		t, err := b.constant(in[0], n)
		if err != nil {
			return nil, err
		}
		if t.Type != graph.Int || len(t.Ints) != 1 {
			return nil, fault.Inputf("node %s (Loop): its number of iterations has the shape %v, expected one number", n.Label(), t.Shape)
		}
		count = t.Ints[0]
	}
	more := true
	if in[1] != nil {
		var err error
		if more, err = b.condition(in[1], n); err != nil {
			return nil, err
		}
	}
	scans := make([][]*value, len(body.Outputs)-1-len(carried))
	b.loops++
	defer func() { b.loops-- }()
	for i := int64(0); more && (count < 0 || i < count); i++ {
		if b.iterations++; b.iterations > maxIterations {
			return nil, fault.Inputf("node %s (Loop): loops take more than %d iterations", n.Label(), maxIterations)
		}
		inner := &scope{map[string]*value{}, s}
		inner.values[body.Inputs[0].Name] = inHead(b.head.AddConstant(graph.NewInts([]int64{i})))
		inner.values[body.Inputs[1].Name] = inHead(b.head.AddConstant(graph.NewBools([]bool{true})))
		for k, v := range carried {
			if v == nil {
				return nil, fault.Inputf("node %s (Loop): input %d is missing", n.Label(), k+3)
			}
			inner.values[body.Inputs[k+2].Name] = v
		}
		if err := b.graph(body, inner, path+"/"+strconv.FormatInt(i, 10)); err != nil {
			return nil, err
		}
		out, err := outputs(body, inner)
		if err != nil {
			return nil, err
		}
		if more, err = b.condition(out[0], n); err != nil {
			return nil, err
		}
		carried = out[1 : 1+len(carried)]
		for k, v := range out[1+len(carried):] {
			scans[k] = append(scans[k], v)
		}
	}
	out := slices.Clone(carried)
	for _, list := range scans {
		v, err := b.stack(n, list, 0, true)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// stack concatenates values along an axis. If fresh is true, the axis is a new one.
func (b *builder) stack(n *wire.Node, list []*value, axis int64, fresh bool) (*value, error) {
	if len(list) == 0 {
		return nil, fault.Inputf("node %s (%s): its result has no elements", n.Label(), n.Op)
	}
	parts := list
	if fresh {
		parts = nil
		for _, v := range list {
			out, err := b.apply(n.Label(), "Unsqueeze", nil, v, b.ints(axis))
			if err != nil {
				return nil, err
			}
			parts = append(parts, out[0])
		}
	}
	out, err := b.apply(n.Label(), "Concat", graph.Attributes{"axis": axis}, parts...)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// ints returns a constant vector.
func (b *builder) ints(list ...int64) *value {
	return inHead(b.head.AddConstant(graph.NewInts(list, len(list))))
}

// bind returns a bindError if t, which chooses what a loop does, depends on one input of
// whole numbers only. Such an input holds the offsets of bags.
func (b *builder) bind(t *trace) error {
	if b.loops == 0 {
		return nil
	}
	name := ""
	for _, e := range t.elements {
		if e.constant != nil {
			continue
		}
		if e.source == nil || e.source.kind != graph.Int || name != "" && name != b.inputs[e.source.input].Name {
			return nil
		}
		name = b.inputs[e.source.input].Name
	}
	if name == "" {
		return nil
	}
	return &bindError{name}
}
