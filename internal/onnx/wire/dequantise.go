package wire

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/base/fault"
)

// The nodes that read constant codes are replaced by ONNX's own operators on tensors of form computed:
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

// dequantiser replaces the nodes of a graph that read constant codes.
type dequantiser struct {
	graph     *Graph
	meter     *meter
	constants map[string]*Tensor
	readers   map[string]int    // numbers of inputs that read a name
	taken     map[string]bool   // names that the graph defines
	made      map[source]string // names of tensors
	nodes     []Node            // that replace those of the graph
	gathers   map[string]int    // numbers of nodes that look up constants for one reader, by their outputs
}

// source is what a tensor is made of.
type source struct {
	codes, scales, zeros        *Tensor
	kind                        Type
	bits, length, behind, block int
}

// dequantise replaces the quantised tensors in g. It refuses all other nodes of quantised models.
func (p *parser) dequantise(g *Graph) error {
	if slices.ContainsFunc(g.Nodes, func(n Node) bool { return quantised[n.Op] || n.Domain != "" }) {
		d := &dequantiser{g, &p.meter, map[string]*Tensor{}, map[string]int{}, map[string]bool{}, map[source]string{}, nil, map[string]int{}}
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
			t := *v.Tensor
			t.Name = n.Outputs[0] // its own may be empty
			d.constants[t.Name] = &t
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
	one := len(scales.Dims) == 0 || scales.Elements() == 1 && len(scales.Dims) == 1
	if !one {
		if err := s.along(x.Dims, n.int("axis", 1), n.int("block_size", 0)); err != nil {
			return err
		}
	}
	if at >= 0 && !one {
		return fault.Inputf("tensor %s has several scales, and a Gather reads its codes: expected one scale, or the operator GatherBlockQuantized", Quote(x.Name))
	}
	if at < 0 {
		return d.add(t, s, x, zeros, n.Outputs[0])
	}
	name, err := d.share(t, s, x, zeros, scales)
	g := &d.nodes[at]
	g.Inputs, g.Outputs = []string{name, g.Inputs[1]}, n.Outputs
	return err
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
	name, err := d.share(t, s, x, zeros, scales)
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
	name, err := d.share(t, s, x, zeros, scales)
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

// share adds the tensor t as add does, unless the graph has it, and returns its name. scales are those of the file.
func (d *dequantiser) share(t *Tensor, s *scaled, x, zeros, scales *Tensor) (string, error) {
	of := source{x, scales, zeros, t.Type, s.codes.bits, s.codes.length, s.behind, s.block}
	if d.made[of] == "" {
		name := d.name(x.Name + ".values")
		if err := d.add(t, s, x, zeros, name); err != nil {
			return "", err
		}
		d.made[of] = name
	}
	return d.made[of], nil
}

// add adds the tensor t under a name. It is computed by s from the codes x and the zero points, which may be nil.
func (d *dequantiser) add(t *Tensor, s *scaled, x, zeros *Tensor, name string) error {
	real := func(t Type) bool { return t.Floating() && t != Double }
	switch elements := s.codes.of; {
	case !elements.Type.Integer() || elements.Type.width() > 4 || elements.Type == Uint32:
		return fault.Inputf("the codes %s are of %s, expected whole numbers of at most 32 bits", Quote(x.Name), x.Type)
	case !real(s.scales.Type) || !real(t.Type):
		return fault.Inputf("the scales %s are of %s and the result of %s, expected float32, float16 or bfloat16", Quote(s.scales.Name), s.scales.Type, t.Type)
	case t.Elements() == 0 || s.scales.Elements() == 0:
		return fault.Inputf("the codes %s or their scales are empty", Quote(x.Name))
	}
	if err := s.takeZeros(zeros, x.Type); err != nil {
		return err
	}
	t.Name, t.form, t.scaled, t.source, t.file, t.place = name, computed, s, x.source, x.file, x.place
	d.graph.Initializers = append(d.graph.Initializers, t)
	return d.meter.take(tensorCost)
}

// name returns a name that the graph does not have, which begins with the given one.
func (d *dequantiser) name(name string) string {
	for d.taken[name] {
		name += "_"
	}
	d.taken[name] = true
	return name
}
