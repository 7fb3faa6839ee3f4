package wire

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
)

// A quantised tensor is stored as whole numbers, the codes, with scales and zero points. Its values are
//
//	(code - zero) * scale
//
// in float32, rounded to the type of the scales, as DequantizeLinear defines them and as onnxruntime computes them in GatherBlockQuantized
// and MatMulNBits. The nodes that read constant codes are replaced by ONNX's own operators on a tensor of
// form computed, whose elements are computed when they are read:
//
//	DequantizeLinear(codes)               the tensor
//	DequantizeLinear(Gather(codes, ids))  Gather(tensor, ids), with one scale
//	GatherBlockQuantized(codes, ids)      Gather(tensor, ids)
//	MatMulNBits(x, codes)                 MatMul(x, Transpose(tensor))

// quantised is the set of ONNX's operators of quantised models, and contrib that of operators of contribDomain that may be replaced.
var (
	quantised = map[string]bool{
		"QuantizeLinear": true, "DequantizeLinear": true, "DynamicQuantizeLinear": true, "QLinearConv": true, "QLinearMatMul": true,
		"MatMulInteger": true, "ConvInteger": true,
	}
	contrib = map[string]bool{"DequantizeLinear": true, "GatherBlockQuantized": true, "MatMulNBits": true}
)

// contribDomain is the domain of the operators that onnxruntime adds.
const contribDomain = "com.microsoft"

// codes are whole numbers that a file stores.
type codes struct {
	of             *Tensor // of whole numbers; of Uint8 if several codes share a byte
	bits           int     // of a code, if several share a byte, the first one in the lowest bits; 0 = the elements are the codes
	signed         bool
	length, padded int // numbers of codes of a row, without and with those that only fill it
}

// scaled is how a tensor is computed from what a file stores. The scale of the element at the position (o, a, i), before,
// on and behind an axis of the given size, has the number o*outer + a/block*step + i*inner.
type scaled struct {
	codes              codes
	zeros              *codes // numbered as the scales; nil = all zero points are zero
	zero               int32
	scales             *Tensor
	size, behind       int // of the axis; number of positions behind it
	outer, step, inner int
	block              int
}

// at returns the position of code i among those that share bytes.
func (c *codes) at(i int) int { return i/c.length*c.padded + i%c.length }

// read reads consecutive codes, beginning at the given one.
func (c *codes) read(dst []int32, first int) error {
	if c.bits == 0 {
		return c.of.each(first, len(dst), func(i int, bits uint64) error {
			dst[i] = int32(bits)
			return nil
		})
	}
	begin := c.at(first) * c.bits / 8
	bytes := make([]byte, c.at(first+len(dst)-1)*c.bits/8+1-begin)
	err := c.of.each(begin, len(bytes), func(i int, bits uint64) error {
		bytes[i] = byte(bits)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range dst {
		bit := c.at(first+i)*c.bits - 8*begin
		dst[i] = int32(bytes[bit/8]>>(bit%8)) & (1<<c.bits - 1)
		if c.signed && dst[i]>>(c.bits-1) == 1 {
			dst[i] -= 1 << c.bits
		}
	}
	return nil
}

// inPlace reports whether reading can start at any element.
func (s *scaled) inPlace() bool {
	return s.codes.of.InPlace() && s.scales.InPlace() && (s.zeros == nil || s.zeros.of.InPlace())
}

// bytes returns the size of what the file stores.
func (s *scaled) bytes() int64 {
	n := s.codes.of.size + s.scales.size
	if s.zeros != nil {
		n += s.zeros.of.size
	}
	return n
}

// number returns the number of the scale of element i.
func (s *scaled) number(i int) int {
	return i/s.behind/s.size*s.outer + i/s.behind%s.size/s.block*s.step + i%s.behind*s.inner
}

// span returns a range of numbers of scales that has those of the elements from first to last.
func (s *scaled) span(first, last int) (from, to int) {
	if s.outer == 0 && first/s.behind/s.size != last/s.behind/s.size {
		return 0, s.scales.Elements()
	}
	return s.number(first - first%s.behind), s.number(last-last%s.behind+s.behind-1) + 1
}

// eachScaled is each for a tensor that is stored as codes.
func (t *Tensor) eachScaled(first, count int, f func(i int, bits uint64) error) error {
	s, part := t.scaled, chunk/8
	if !s.inPlace() { // every read would begin at the first element
		part = count
	}
	for done := 0; done < count; done += part {
		begin, n := first+done, min(part, count-done)
		list := make([]int32, n)
		if err := s.codes.read(list, begin); err != nil {
			return err
		}
		from, to := s.span(begin, begin+n-1)
		scales := make([]float32, to-from)
		if err := s.scales.ReadFloats(scales, from); err != nil {
			return err
		}
		var zeros []int32
		if s.zeros != nil {
			zeros = make([]int32, to-from)
			if err := s.zeros.read(zeros, from); err != nil {
				return err
			}
		}
		for i, code := range list {
			k, zero := s.number(begin+i)-from, s.zero
			if zeros != nil {
				zero = zeros[k]
			}
			if err := f(done+i, t.Type.bits(float32(code-zero)*scales[k])); err != nil {
				return err
			}
		}
	}
	return nil
}

// dequantiser replaces the nodes of a graph that read constant codes.
type dequantiser struct {
	graph     *Graph
	meter     *meter
	constants map[string]*Tensor
	readers   map[string]int    // numbers of inputs that read a name
	taken     map[string]bool   // names that the graph defines
	tensors   map[string]string // names of tensors that were made, by what they are made of
	nodes     []Node            // that replace those of the graph
	gathers   map[string]int    // numbers of nodes that look up constants for one reader, by their outputs
}

// dequantise replaces the quantised tensors in g. It refuses all other nodes of quantised models.
func (p *parser) dequantise(g *Graph) error {
	if slices.ContainsFunc(g.Nodes, func(n Node) bool { return quantised[n.Op] || n.Domain != "" }) {
		d := &dequantiser{g, &p.meter, map[string]*Tensor{}, map[string]int{}, map[string]bool{}, map[string]string{}, nil, map[string]int{}}
		d.find()
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if err := d.node(n); err != nil {
				return fmt.Errorf("node %s (%s): %w", n.Label(), n.Op, err)
			}
		}
		g.Nodes = d.nodes
	}
	return refuseQuantised(g)
}

// refuseQuantised returns an error if g or a body has a node of a quantised model.
func refuseQuantised(g *Graph) error {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if quantised[n.Op] || n.Domain != "" {
			return fault.Inputf("node %s: operator %s belongs to a quantised model, and reads what is not constant or is in a body, which is not supported: quantise tables and weights only, or export the model before quantisation", n.Label(), n.Op)
		}
		for _, name := range sortedNames(n.Attributes) {
			if body := n.Attributes[name].Graph; body != nil {
				if err := refuseQuantised(body); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// find fills the maps of d.
func (d *dequantiser) find() {
	for _, v := range d.graph.Inputs {
		d.taken[v.Name] = true
	}
	for _, t := range d.graph.Initializers {
		d.constants[t.Name], d.taken[t.Name] = t, true
	}
	for _, v := range d.graph.Outputs {
		d.readers[v.Name]++
	}
	for i := range d.graph.Nodes {
		n := &d.graph.Nodes[i]
		n.Reads(func(name string) { d.readers[name]++ })
		for _, name := range n.Outputs {
			d.taken[name] = true
		}
		if v := n.Attributes["value"]; n.Op == "Constant" && v != nil && v.Tensor != nil && len(n.Outputs) == 1 {
			d.constants[n.Outputs[0]] = v.Tensor
		}
	}
}

// input returns the constant that input i of n is, or nil if n has no such input.
func (d *dequantiser) input(n *Node, i int) (*Tensor, error) {
	if i >= len(n.Inputs) || n.Inputs[i] == "" {
		return nil, nil
	}
	if t := d.constants[n.Inputs[i]]; t != nil {
		return t, nil
	}
	return nil, fault.Inputf("it reads %s, expected a constant", Quote(n.Inputs[i]))
}

// int returns an attribute of n that is a whole number.
func (n *Node) int(name string, otherwise int64) int64 {
	if a := n.Attributes[name]; a != nil && a.Kind == KindInt {
		return a.Int
	}
	return otherwise
}

// node adds what replaces n.
func (d *dequantiser) node(n *Node) error {
	if len(n.Outputs) == 1 && len(n.Inputs) > 1 {
		switch n.Op {
		case "Gather":
			if d.constants[n.Inputs[0]] != nil && d.readers[n.Outputs[0]] == 1 {
				d.gathers[n.Outputs[0]] = len(d.nodes)
			}
		case "DequantizeLinear":
			return d.linear(n)
		case "GatherBlockQuantized":
			return d.blocks(n)
		case "MatMulNBits":
			return d.product(n)
		}
	}
	d.nodes = append(d.nodes, *n)
	return nil
}

// linear replaces a DequantizeLinear.
func (d *dequantiser) linear(n *Node) error {
	of, at := n.Inputs[0], -1
	if i, ok := d.gathers[of]; ok {
		of, at = d.nodes[i].Inputs[0], i
	}
	x := d.constants[of]
	if x == nil { // which refuseQuantised refuses
		d.nodes = append(d.nodes, *n)
		return nil
	}
	_, scales, zeros, err := d.stored(n, -1, 1, 2)
	if err != nil {
		return err
	}
	t := &Tensor{Dims: slices.Clone(x.Dims), Type: scales.Type}
	if kind := n.int("output_dtype", 0); kind != 0 {
		t.Type = Type(min(max(kind, 0), math.MaxUint8))
	}
	s := &scaled{codes: whole(x), scales: scales, size: 1, behind: 1, block: 1}
	if zeros != nil {
		z := whole(zeros)
		if s.zeros = &z; zeros.Type != x.Type {
			return fault.Inputf("the zero points %s are of %s, expected %s", Quote(zeros.Name), zeros.Type, x.Type)
		}
	}
	one := len(scales.Dims) == 0 || scales.Elements() == 1 && len(scales.Dims) == 1
	if !one {
		if err := s.along(x.Dims, n.int("axis", 1), n.int("block_size", 0)); err != nil {
			return err
		}
	}
	if at >= 0 && !one {
		return fault.Inputf("tensor %s has several scales, and a Gather reads its codes: expected one scale, or the operator GatherBlockQuantized", Quote(x.Name))
	}
	name := n.Outputs[0]
	if at >= 0 {
		name = ""
	}
	if name, err = d.add(t, s, x, zeros, name); err != nil {
		return err
	}
	if at >= 0 {
		g := d.nodes[at]
		g.Inputs, g.Outputs = []string{name, g.Inputs[1]}, n.Outputs
		d.nodes[at] = g
	}
	return nil
}

// blocks replaces a GatherBlockQuantized.
func (d *dequantiser) blocks(n *Node) error {
	x, scales, zeros, err := d.stored(n, 0, 2, 3)
	if err != nil {
		return err
	}
	bits := n.int("bits", 4)
	t := &Tensor{Dims: slices.Clone(x.Dims), Type: scales.Type}
	s := &scaled{codes: whole(x), scales: scales}
	if x.Type == Uint8 {
		if err := s.unpack(t, bits); err != nil {
			return err
		}
	}
	axis, size := n.int("quantize_axis", 1), n.int("block_size", 128)
	if size < 1 {
		return fault.Inputf("block_size is %d, expected at least 1", size)
	}
	if err := s.along(t.Dims, axis, size); err != nil {
		return err
	}
	if zeros != nil {
		z := whole(zeros)
		if s.zeros = &z; zeros.Type != x.Type {
			return fault.Inputf("the zero points %s are of %s, expected %s", Quote(zeros.Name), zeros.Type, x.Type)
		}
		if x.Type == Uint8 {
			s.packZeros(bits, scales.Dims[len(scales.Dims)-1])
		}
	}
	name, err := d.add(t, s, x, zeros, "")
	if err != nil {
		return err
	}
	g := *n
	g.Op, g.Domain, g.Inputs = "Gather", "", []string{name, n.Inputs[1]}
	g.Attributes = map[string]*Attribute{"axis": {Kind: KindInt, Int: n.int("gather_axis", 0)}}
	d.nodes = append(d.nodes, g)
	return nil
}

// product replaces a MatMulNBits.
func (d *dequantiser) product(n *Node) error {
	x, scales, zeros, err := d.stored(n, 1, 2, 3)
	if err != nil {
		return err
	}
	if len(n.Inputs) > 4 && n.Inputs[4] != "" {
		return fault.Inputf("it reorders its columns (g_idx), which is not supported: quantise without it")
	}
	rows, columns, size, bits := n.int("N", 0), n.int("K", 0), n.int("block_size", 0), n.int("bits", 4)
	if x.Type != Uint8 || len(x.Dims) != 3 || rows != int64(x.Dims[0]) || size < 1 || size > maxElements/int64(max(1, x.Dims[1])) || columns < 1 || columns > int64(x.Dims[1])*size || columns <= int64(x.Dims[1]-1)*size {
		return fault.Inputf("tensor %s of %s has the shape %v, which does not fit N = %d, K = %d and block_size = %d", Quote(x.Name), x.Type, x.Dims, rows, columns, size)
	}
	t := &Tensor{Dims: []int{x.Dims[0], x.Dims[1] * x.Dims[2]}, Type: scales.Type}
	s := &scaled{codes: whole(x), scales: scales}
	if err := s.unpack(t, bits); err != nil {
		return err
	}
	if int64(t.Dims[1]) != int64(x.Dims[1])*size {
		return fault.Inputf("tensor %s has the shape %v, expected blocks of %d codes of %d bits", Quote(x.Name), x.Dims, size, bits)
	}
	t.Dims[1], s.codes.length = int(columns), int(columns)
	flat := *scales
	if flat.Dims = []int{x.Dims[0], x.Dims[1]}; flat.Elements() != scales.Elements() {
		return fault.Inputf("the scales %s have the shape %v, expected %d", Quote(scales.Name), scales.Dims, flat.Elements())
	}
	if s.scales = &flat; s.along(t.Dims, 1, size) != nil {
		panic("wire: the shape of scales was checked")
	}
	if zeros != nil {
		z := whole(zeros)
		if s.zeros = &z; zeros.Type != Uint8 {
			return fault.Inputf("the zero points %s are of %s, expected uint8", Quote(zeros.Name), zeros.Type)
		}
		s.packZeros(bits, x.Dims[1])
	}
	name, err := d.add(t, s, x, zeros, "")
	if err != nil {
		return err
	}
	turned, sum := *n, *n
	turned.Op, turned.Domain, turned.Inputs, turned.Outputs, turned.Attributes = "Transpose", "", []string{name}, []string{d.name(name + ".transposed")}, map[string]*Attribute{}
	product := turned
	product.Op, product.Inputs, product.Outputs = "MatMul", []string{n.Inputs[0], turned.Outputs[0]}, n.Outputs
	d.nodes = append(d.nodes, turned, product)
	if len(n.Inputs) > 5 && n.Inputs[5] != "" {
		last := &d.nodes[len(d.nodes)-1]
		last.Outputs = []string{d.name(n.Outputs[0] + ".product")}
		sum.Op, sum.Domain, sum.Inputs, sum.Attributes = "Add", "", []string{last.Outputs[0], n.Inputs[5]}, map[string]*Attribute{}
		d.nodes = append(d.nodes, sum)
	}
	return nil
}

// stored returns the constants at the given inputs of n. Zero points may be nil, and codes at -1 are.
func (d *dequantiser) stored(n *Node, codes, scales, zeros int) (x, s, z *Tensor, err error) {
	if codes >= 0 {
		x, err = d.input(n, codes)
	}
	if err == nil {
		s, err = d.input(n, scales)
	}
	if err == nil && (s == nil || codes >= 0 && x == nil) {
		err = fault.Inputf("it has no codes or no scales")
	}
	if err == nil {
		z, err = d.input(n, zeros)
	}
	return x, s, z, err
}

// whole returns the codes that t holds.
func whole(t *Tensor) codes {
	c := codes{of: t, bits: t.Type.packed(), signed: t.Type == Int4 || t.Type == Int2, length: 1, padded: 1}
	if c.bits > 0 {
		bytes := *t
		bytes.Type, bytes.Dims = Uint8, []int{(t.Elements()*c.bits + 7) / 8}
		c.of = &bytes
	}
	return c
}

// unpack makes the codes of s, which are of Uint8, those of the given number of bits, and the last axis of t as long as
// it is then.
func (s *scaled) unpack(t *Tensor, bits int64) error {
	if bits != 2 && bits != 4 && bits != 8 {
		return fault.Inputf("bits is %d, expected 2, 4 or 8", bits)
	}
	s.zero = 1 << (bits - 1)
	if len(t.Dims) == 0 || t.Dims[len(t.Dims)-1] > maxElements/8 {
		return fault.Inputf("tensor %s has the shape %v, expected at least one axis of at most %d", Quote(s.codes.of.Name), t.Dims, int64(maxElements/8))
	}
	last := &t.Dims[len(t.Dims)-1]
	if *last *= int(8 / bits); bits < 8 {
		s.codes.bits, s.codes.length, s.codes.padded = int(bits), *last, *last
	}
	return nil
}

// packZeros says that rows of n zero points of the given number of bits take whole bytes.
func (s *scaled) packZeros(bits int64, n int) {
	if per := int(8 / bits); per > 1 {
		s.zeros.bits, s.zeros.length, s.zeros.padded = int(bits), n, (n+per-1)/per*per
	}
}

// along sets how scales are numbered: one for each position of an axis of a tensor of the given shape, or for each block
// of positions if block is not 0.
func (s *scaled) along(dims []int, axis, block int64) error {
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis < 0 || axis >= int64(len(dims)) {
		return fault.Inputf("axis %d of a tensor of the shape %v does not exist", axis, dims)
	}
	s.size, s.behind, s.block = dims[axis], 1, int(max(block, 1))
	for _, size := range dims[axis+1:] {
		s.behind *= size
	}
	want := []int{s.size}
	if block == 0 {
		s.step = 1
	} else {
		want = slices.Clone(dims)
		want[axis] = (s.size-1)/s.block + 1
		s.outer, s.step, s.inner = want[axis]*s.behind, s.behind, 1
	}
	if !slices.Equal(s.scales.Dims, want) {
		return fault.Inputf("the scales %s have the shape %v, expected %v", Quote(s.scales.Name), s.scales.Dims, want)
	}
	return nil
}

// add adds the tensor t, which is computed by s from x and zeros. It returns its name, which is the given one or, if that is "",
// follows from that of x. In this case the same tensor is added once.
func (d *dequantiser) add(t *Tensor, s *scaled, x, zeros *Tensor, name string) (string, error) {
	switch elements := s.codes.of; {
	case !elements.Type.Integer() || elements.Type.width() > 4 || elements.Type == Uint32:
		return "", fault.Inputf("the codes %s are of %s, expected whole numbers of at most 32 bits", Quote(x.Name), x.Type)
	case !s.scales.Type.Floating() || !t.Type.Floating():
		return "", fault.Inputf("the scales %s are of %s and the result of %s, expected floating-point numbers", Quote(s.scales.Name), s.scales.Type, t.Type)
	case t.Elements() == 0 || s.scales.Elements() == 0:
		return "", fault.Inputf("the codes %s or their scales are empty", Quote(x.Name))
	case s.zeros != nil:
		n := s.scales.Elements()
		if s.zeros.bits > 0 {
			n = s.zeros.at(n-1)*s.zeros.bits/8 + 1
		}
		if s.zeros.of.Elements() != n {
			return "", fault.Inputf("the zero points %s have the shape %v, which does not fit the shape %v of the scales", Quote(zeros.Name), zeros.Dims, s.scales.Dims)
		}
	}
	if err := d.meter.take(tensorCost); err != nil {
		return "", err
	}
	if name == "" {
		made := fmt.Sprintf("%q %q %v %d %d", x.Name, s.scales.Name, t.Dims, s.behind, s.block)
		if zeros != nil {
			made += " " + zeros.Name
		}
		if name = d.tensors[made]; name != "" {
			return name, nil
		}
		name = d.name(x.Name + ".values")
		d.tensors[made] = name
	}
	t.Name, t.form, t.scaled, t.source, t.file, t.place = name, computed, s, x.source, x.file, x.place
	d.graph.Initializers = append(d.graph.Initializers, t)
	return name, nil
}

// name returns a name that the graph does not have, which begins with the given one.
func (d *dequantiser) name(name string) string {
	for d.taken[name] {
		name += "_"
	}
	d.taken[name] = true
	return name
}
