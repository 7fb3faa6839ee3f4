package wire

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

const (
	maxDepth     = 8       // graphs within graphs
	maxOutside   = 256     // files with external data
	maxAxes      = 16      // axes of a tensor
	maxFunctions = 1 << 12 // local functions
)

// The costs of what a file describes, in bytes of memory.
const (
	nodeCost      = 512 // including what checks and inlining keep for a node
	attributeCost = 256
	tensorCost    = 512
	valueCost     = 256
)

// Open reads the .onnx file at path. The caller must close the result. Tensors may be in
// other files, which must be in the folder of path or below it.
func Open(path string) (*Model, error) {
	f, err := files.Open(path, "an .onnx file")
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		f.Close()
		return nil, err
	}
	p := newParser(path, f, info.Size(), root)
	m, err := p.model()
	if err != nil {
		p.close()
		f.Close()
		return nil, err
	}
	m.closers = append(p.closers(), f)
	return m, nil
}

// Read reads a model of size bytes from r. r must stay readable for as long as the model is
// used. Errors call the file name. Tensors in other files are refused.
func Read(name string, r io.ReaderAt, size int64) (*Model, error) {
	return newParser(name, r, size, nil).model()
}

// parser reads the description of a model.
type parser struct {
	reader
	file      string
	root      *os.Root // folder of the file; nil = tensors in other files are refused
	outside   map[string]outsideFile
	tensors   []*Tensor // with elements in other files
	opset     int
	functions map[string]*function
}

// outsideFile is a file that holds tensors.
type outsideFile struct {
	f    *os.File
	info os.FileInfo
}

// function is a local function.
type function struct {
	name            string
	inputs, outputs []string
	defaults        map[string]*Attribute
	nodes           []Node
	opset           int // 0 = that of the model
}

func newParser(name string, r io.ReaderAt, size int64, root *os.Root) *parser {
	return &parser{reader: reader{source: r, size: size}, file: name, root: root,
		outside: map[string]outsideFile{}, functions: map[string]*function{}}
}

// closers returns what must be closed after the file, for a parser with a root.
func (p *parser) closers() []io.Closer {
	var list []io.Closer
	seen := map[*os.File]bool{} // a file may have several names
	for _, o := range p.outside {
		if !seen[o.f] {
			seen[o.f] = true
			list = append(list, o.f)
		}
	}
	return append(list, p.root)
}

func (p *parser) close() {
	for _, c := range p.closers() {
		c.Close()
	}
}

// key returns the key of an operator in parser.functions.
func key(domain, op, overload string) string {
	if domain == "ai.onnx" {
		domain = ""
	}
	return domain + "\x00" + op + "\x00" + overload
}

func (p *parser) model() (*Model, error) {
	m, err := p.parse()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.file, err)
	}
	return m, nil
}

func (p *parser) parse() (*Model, error) {
	m := &Model{Name: p.file, source: p.source, size: p.size}
	var version string
	var graph *field
	err := p.fields(0, p.size, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return integer(v, &m.IR)
		case 2:
			return p.name(v, &m.Producer)
		case 3:
			return p.name(v, &version)
		case 7:
			if graph != nil {
				return fault.Inputf("it has two graphs, expected one")
			}
			graph = &v
		case 8:
			return p.opsetImport(v, &p.opset)
		case 14:
			return p.property(v, m)
		case 20:
			return fault.Inputf("it contains training information, expected a model for inference")
		case 25:
			return p.function(v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if graph == nil || m.IR < 1 {
		return nil, fault.Inputf("it is not an .onnx file: it lacks a graph or the version of the format")
	}
	if err := checkOpset(p.opset); err != nil {
		return nil, err
	}
	m.Opset = p.opset
	m.Producer = strings.TrimSpace(m.Producer + " " + version)
	if m.Graph, err = p.graph(*graph, 0); err != nil {
		return nil, err
	}
	if err := p.inline(m.Graph); err != nil {
		return nil, err
	}
	c := checker{&p.meter}
	if err := c.graph(m.Graph, nil); err != nil {
		return nil, err
	}
	if err := p.dequantise(m.Graph); err != nil {
		return nil, err
	}
	m.outside = p.tensors
	if err := p.compact(m); err != nil {
		return nil, err
	}
	if err := m.takeWeights8(); err != nil {
		return nil, err
	}
	return m, nil
}

// property adds an entry of the model's metadata to m if its key begins with MetadataPrefix.
func (p *parser) property(v field, m *Model) error {
	var key string
	var value *field
	err := p.message(v, func(number protowire.Number, part field) error {
		switch {
		case number == 1 && part.kind == protowire.BytesType && part.end-part.at <= maxName: // other keys are not ours
			b, err := p.bytes(part)
			key = string(b)
			return err
		case number == 2:
			value = &part
		}
		return nil
	})
	if err != nil || value == nil || !strings.HasPrefix(key, MetadataPrefix) {
		return err
	}
	if _, twice := m.Metadata[key]; twice {
		return fault.Inputf("its metadata have the key %s twice", Quote(key))
	}
	text, err := p.text(*value, maxMetadata)
	if m.Metadata == nil {
		m.Metadata, m.properties = map[string]string{}, map[string]field{}
	}
	m.Metadata[key], m.properties[key] = text, v
	return err
}

func checkOpset(version int) error {
	if version < MinOpset || version > MaxOpset {
		return fault.Inputf("it uses version %d of ONNX's operator set, expected %d to %d: export it again with opset_version=18", version, MinOpset, MaxOpset)
	}
	return nil
}

// opsetImport reads the version of ONNX's own operator set into opset, and ignores others.
func (p *parser) opsetImport(v field, opset *int) error {
	var domain string
	var version int
	err := p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return p.name(v, &domain)
		case 2:
			return integer(v, &version)
		}
		return nil
	})
	if domain == "" || domain == "ai.onnx" {
		*opset = version
	}
	return err
}

func (p *parser) function(v field) error {
	f := &function{defaults: map[string]*Attribute{}}
	if len(p.functions) == maxFunctions {
		return fault.Inputf("it has more than %d local functions", maxFunctions)
	}
	if err := p.meter.take(nodeCost); err != nil {
		return err
	}
	var domain, overload string
	err := p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return p.name(v, &f.name)
		case 4:
			return p.names(v, &f.inputs)
		case 5:
			return p.names(v, &f.outputs)
		case 7:
			return p.node(v, &f.nodes, 0)
		case 9:
			return p.opsetImport(v, &f.opset)
		case 10:
			return p.name(v, &domain)
		case 11:
			return p.attribute(v, f.defaults, 0)
		case 13:
			return p.name(v, &overload)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("function %s: %w", Quote(f.name), err)
	}
	if f.opset != 0 {
		if err := checkOpset(f.opset); err != nil {
			return fmt.Errorf("function %s: %w", Quote(f.name), err)
		}
	}
	k := key(domain, f.name, overload)
	if p.functions[k] != nil {
		return fault.Inputf("function %s is defined twice", Quote(f.name))
	}
	p.functions[k] = f
	return nil
}

func (p *parser) graph(v field, depth int) (*Graph, error) {
	if depth > maxDepth {
		return nil, fault.Inputf("graphs are nested more than %d deep", maxDepth)
	}
	g := &Graph{}
	err := p.message(v, func(number protowire.Number, v field) error {
		g.place = p.open
		switch number {
		case 1:
			return p.node(v, &g.Nodes, depth)
		case 2:
			return p.name(v, &g.Name)
		case 5:
			t, err := p.tensor(v)
			if err != nil {
				return err
			}
			g.Initializers = append(g.Initializers, t)
		case 11:
			return p.value(v, &g.Inputs)
		case 12:
			return p.value(v, &g.Outputs)
		case 14:
			return fault.Inputf("it is quantised (quantization_annotation), which is not supported: export it before quantisation")
		case 15:
			return fault.Inputf("it has sparse initialisers, which are not supported")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	constants := map[string]*Tensor{}
	for _, t := range g.Initializers {
		constants[t.Name] = t
	}
	inputs := g.Inputs[:0] // before version 4 of the format, initialisers are also inputs
	for _, v := range g.Inputs {
		if t := constants[v.Name]; t != nil {
			t.input = true
		} else {
			inputs = append(inputs, v)
		}
	}
	g.Inputs = inputs
	return g, nil
}

func (p *parser) node(v field, list *[]Node, depth int) error {
	if err := p.meter.take(nodeCost); err != nil {
		return err
	}
	n := Node{Attributes: map[string]*Attribute{}}
	var overload string
	err := p.message(v, func(number protowire.Number, v field) error {
		n.place = p.open
		switch number {
		case 1:
			return p.names(v, &n.Inputs)
		case 2:
			return p.names(v, &n.Outputs)
		case 3:
			return p.name(v, &n.Name)
		case 4:
			return p.name(v, &n.Op)
		case 5:
			return p.attribute(v, n.Attributes, depth)
		case 7:
			return p.name(v, &n.Domain)
		case 8:
			return p.name(v, &overload)
		case 9:
			return p.scope(v, &n.Scope)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node %s (%s): %w", n.Label(), Quote(n.Op), err)
	}
	if n.Domain == "ai.onnx" {
		n.Domain = ""
	}
	if overload != "" {
		n.Op += "\x00" + overload // inlining removes it
	}
	*list = append(*list, n)
	return nil
}

func (p *parser) attribute(v field, all map[string]*Attribute, depth int) error {
	if err := p.meter.take(attributeCost); err != nil {
		return err
	}
	a := &Attribute{}
	var name string
	var kind int
	err := p.message(v, func(number protowire.Number, v field) (err error) {
		found := Kind(0)
		switch number {
		case 1:
			return p.name(v, &name)
		case 2:
			if v.kind != protowire.Fixed32Type {
				return fault.Inputf("a float32 has wire type %d, expected %d", v.kind, protowire.Fixed32Type)
			}
			a.Float, found = math.Float32frombits(uint32(v.number)), KindFloat
		case 3:
			found, err = KindInt, integer(v, &a.Int)
		case 4:
			found = KindString
			a.String, err = p.text(v, maxText)
		case 5:
			found = KindTensor
			a.Tensor, err = p.tensor(v)
		case 6:
			found = KindGraph
			a.Graph, err = p.graph(v, depth+1)
		case 7:
			found, err = KindFloats, p.floats(v, &a.Floats)
		case 8:
			found, err = KindInts, p.integers(v, &a.Ints)
		case 9:
			found = KindStrings
			var s string
			if s, err = p.text(v, maxText); err == nil {
				err = p.meter.take(2 * 16)
			}
			a.Strings = append(a.Strings, s)
		case 20:
			return integer(v, &kind)
		case 21:
			return p.name(v, &a.reference)
		case 22, 23:
			return fault.Inputf("it is a sparse tensor, which is not supported")
		case 10, 11, 14, 15:
			return fault.Inputf("it is a list of tensors or graphs, or a type, which is not supported")
		}
		if a.Kind == 0 {
			a.Kind = found
		}
		return err
	})
	if err == nil && kind != 0 && a.Kind != 0 && Kind(kind) != a.Kind {
		err = fault.Inputf("it has the type %d, but a value of type %d", kind, a.Kind)
	}
	if err == nil && kind != 0 {
		if kind < 1 || kind > int(KindStrings) {
			err = fault.Inputf("it has the type %d, which is not supported", kind)
		}
		a.Kind = Kind(kind) // an empty list, or a value that is 0
	}
	if err == nil && (a.Kind == KindTensor && a.Tensor == nil || a.Kind == KindGraph && a.Graph == nil) && a.reference == "" {
		err = fault.Inputf("it has no value")
	}
	if err == nil && all[name] != nil {
		err = fault.Inputf("it occurs twice")
	}
	if err != nil {
		return fmt.Errorf("attribute %s: %w", Quote(name), err)
	}
	all[name] = a
	return nil
}

func (p *parser) value(v field, list *[]Value) error {
	if err := p.meter.take(valueCost); err != nil {
		return err
	}
	var value Value
	err := p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return p.name(v, &value.Name)
		case 2:
			return p.message(v, func(number protowire.Number, v field) error {
				if number == 1 {
					return p.tensorType(v, &value)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("value %s: %w", Quote(value.Name), err)
	}
	*list = append(*list, value)
	return nil
}

func (p *parser) tensorType(v field, value *Value) error {
	return p.message(v, func(number protowire.Number, v field) error {
		switch number {
		case 1:
			return integer(v, &value.Type)
		case 2:
			value.Known = true
			return p.message(v, func(number protowire.Number, v field) error {
				if number != 1 {
					return nil
				}
				if len(value.Dims) == maxAxes {
					return fault.Inputf("it has more than %d axes", maxAxes)
				}
				if err := p.meter.take(64); err != nil {
					return err
				}
				d := Dim{Size: -1}
				err := p.message(v, func(number protowire.Number, v field) error {
					switch number {
					case 1:
						return integer(v, &d.Size)
					case 2:
						return p.name(v, &d.Name)
					}
					return nil
				})
				if d.Size < 0 || d.Name != "" { // some programs write -1 for an unknown size
					d.Size = -1
				}
				value.Dims = append(value.Dims, d)
				return err
			})
		}
		return nil
	})
}

func (p *parser) tensor(v field) (*Tensor, error) {
	if err := p.meter.take(tensorCost); err != nil {
		return nil, err
	}
	t := &Tensor{source: p.source, file: p.file}
	var dims []int64
	var settings []setting
	var entries []field
	location := 0
	data := func(v field, f form) error {
		if v.kind != protowire.BytesType || t.form != nothing {
			return fault.Inputf("its elements are in several pieces, expected one")
		}
		if v.end > v.at {
			t.form, t.at, t.size, t.data = f, v.at, v.end-v.at, v
		}
		return nil
	}
	typed := func(v field, f form, types ...Type) error {
		for _, allowed := range types {
			if t.Type == allowed || t.Type == Undefined { // the type may follow
				return data(v, f)
			}
		}
		return fault.Inputf("its elements are stored in a field for another type than %s", t.Type)
	}
	err := p.message(v, func(number protowire.Number, v field) error {
		t.place = p.open
		switch number {
		case 1:
			if err := p.integers(v, &dims); err != nil {
				return err
			}
			if len(dims) > maxAxes {
				return fault.Inputf("it has more than %d axes", maxAxes)
			}
		case 2:
			return integer(v, &t.Type)
		case 3:
			return fault.Inputf("it is stored in segments, which is not supported")
		case 4:
			return typed(v, fixed, Float)
		case 5:
			return typed(v, varints, Int32, Int16, Int8, Uint16, Uint8, Bool, Float16, Bfloat16, Uint4, Int4, Uint2, Int2)
		case 7:
			return typed(v, varints, Int64)
		case 8:
			return p.name(v, &t.Name)
		case 9:
			return data(v, fixed)
		case 10:
			return typed(v, fixed, Double)
		case 11:
			return typed(v, varints, Uint32, Uint64)
		case 13:
			entries = append(entries, v)
			return p.outsideEntry(v, &settings)
		case 14:
			if err := p.meter.take(64); err != nil {
				return err
			}
			entries = append(entries, v)
			return integer(v, &location)
		}
		return nil
	})
	if err == nil {
		err = t.shape(dims)
	}
	if err == nil && (location != 0 || len(settings) > 0) {
		if t.form != nothing || location != 1 {
			err = fault.Inputf("it is not clear whether its elements are in this file or in another one")
		} else {
			t.outside = &outside{entries: entries}
			err = p.external(t, settings)
		}
	}
	if err == nil {
		return t, t.check()
	}
	return nil, fmt.Errorf("tensor %s: %w", Quote(t.Name), err)
}

// shape sets t's shape.
func (t *Tensor) shape(dims []int64) error {
	t.Dims = make([]int, len(dims))
	for i, size := range dims {
		if size < 0 || size > maxElements {
			return fault.Inputf("it has the shape %v, expected sizes of 0 to %d", dims, int64(maxElements))
		}
		t.Dims[i] = int(size)
	}
	return nil
}
