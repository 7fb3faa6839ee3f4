// Package wire reads .onnx files, and writes them again with new elements of tensors. It
// reads a file in pieces. In memory it keeps only a description of bounded size: nodes,
// names, attributes, and the positions of the tensors. The elements of tensors stay in the
// file, or in the files next to it, until a caller reads them. The package executes nothing
// and trusts nothing in a file.
//
// Local functions are inlined, so that a graph contains only ONNX's own operators. Sparse
// tensors, training information and operators of other domains are refused. Quantised tables and weights are
// read as numbers, and other quantised operators are refused.
package wire

import (
	"io"
	"strconv"
)

// MinOpset and MaxOpset are the first and the last version of ONNX's operator set that the
// package reads.
const (
	MinOpset = 7
	MaxOpset = 25
)

// MetadataPrefix begins the keys of the metadata that the package reads and writes.
const MetadataPrefix = "shaver."

// Model is the content of an .onnx file. It reads tensors from the file until it is
// closed. A Model that is not changed may be used by several goroutines.
type Model struct {
	Name     string // the path of the file, for errors
	IR       int    // version of the file format
	Opset    int    // version of ONNX's operator set
	Producer string // program that wrote the file, with its version
	Graph    *Graph
	// Metadata has the model's metadata whose keys begin with MetadataPrefix.
	Metadata map[string]string

	properties map[string]field // position of each entry of Metadata
	closers    []io.Closer
	source     io.ReaderAt // the file, of size bytes
	size       int64
	outside    []*Tensor // with elements in other files, in the order of the file
	compact    []*compactTable
	weights8   []weight8
}

// Close closes the files of m. The tensors of m must not be read afterwards.
func (m *Model) Close() error {
	var first error
	for _, c := range m.closers {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	m.closers = nil
	return first
}

// Graph is a graph, or the body of an If or a Loop. Its names are unique, every name that
// is read is defined, and each node comes after the nodes whose outputs it reads. A body
// also reads the names of the graphs around it.
type Graph struct {
	Name         string
	Nodes        []Node
	Initializers []*Tensor
	Inputs       []Value // without the initialisers
	Outputs      []Value

	place *message
}

// Value describes an input or an output of a graph.
type Value struct {
	Name  string
	Type  Type  // Undefined if the value is not a tensor, or its type is unknown
	Known bool  // whether the number of axes is known
	Dims  []Dim // empty for a scalar
}

// Dim is the size of an axis.
type Dim struct {
	Size int64  // -1 = unknown
	Name string // name of an unknown size, such as "batch"; "" = it has none
}

// Node applies an operator. An absent optional input or output is "".
type Node struct {
	Name       string
	Scope      string // module of PyTorch from which the node is, such as "encoder.attention (MultiheadAttention)"; "" = unknown
	Op         string
	Domain     string // always ONNX's own domain, ""
	Opset      int    // version of the operator set in which the node is written
	Inputs     []string
	Outputs    []string
	Attributes map[string]*Attribute

	place *message // nil if the node is in a local function
}

// NameOrOutput returns the name of n. If n has no name, it is that of its first output.
func (n *Node) NameOrOutput() string {
	name := n.Name
	for i := 0; name == "" && i < len(n.Outputs); i++ {
		name = n.Outputs[i]
	}
	return name
}

// Label returns NameOrOutput for an error.
func (n *Node) Label() string { return Quote(n.NameOrOutput()) }

// Reads calls visit for each name that n and its bodies read, and for names that the bodies define.
func (n *Node) Reads(visit func(name string)) {
	for _, name := range n.Inputs {
		visit(name)
	}
	for _, name := range sortedNames(n.Attributes) {
		if body := n.Attributes[name].Graph; body != nil {
			for i := range body.Nodes {
				body.Nodes[i].Reads(visit)
			}
			for _, v := range body.Outputs {
				visit(v.Name)
			}
		}
	}
}

// Attribute is an attribute of a node. Kind says which of the other fields is in use.
type Attribute struct {
	Kind    Kind
	Float   float32
	Int     int64
	String  string
	Tensor  *Tensor
	Graph   *Graph
	Floats  []float32
	Ints    []int64
	Strings []string

	reference string // in a function, name of the caller's attribute that replaces this one
}

// Kind is the type of an attribute.
type Kind uint8

// The kinds, with ONNX's numbers. An attribute of another kind is refused.
const (
	KindFloat   Kind = 1
	KindInt     Kind = 2
	KindString  Kind = 3
	KindTensor  Kind = 4
	KindGraph   Kind = 5
	KindFloats  Kind = 6
	KindInts    Kind = 7
	KindStrings Kind = 8
)

// Type is the type of a tensor's elements.
type Type uint8

// The types, with ONNX's numbers. Elements of String and of types that are not listed
// cannot be read.
const (
	Undefined Type = 0
	Float     Type = 1
	Uint8     Type = 2
	Int8      Type = 3
	Uint16    Type = 4
	Int16     Type = 5
	Int32     Type = 6
	Int64     Type = 7
	String    Type = 8
	Bool      Type = 9
	Float16   Type = 10
	Double    Type = 11
	Uint32    Type = 12
	Uint64    Type = 13
	Bfloat16  Type = 16
	Uint4     Type = 21
	Int4      Type = 22
	Uint2     Type = 25
	Int2      Type = 26
)

var typeNames = map[Type]string{
	Undefined: "undefined", Float: "float32", Uint8: "uint8", Int8: "int8", Uint16: "uint16", Int16: "int16", Int32: "int32",
	Int64: "int64", String: "string", Bool: "bool", Float16: "float16", Double: "float64", Uint32: "uint32", Uint64: "uint64",
	Bfloat16: "bfloat16", Uint4: "uint4", Int4: "int4", Uint2: "uint2", Int2: "int2",
}

// String returns the usual name of t, for example "float32".
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return "type " + strconv.Itoa(int(t))
}

// width returns the size of an element in bytes, or 0 if elements of t cannot be read.
func (t Type) width() int {
	switch t {
	case Uint8, Int8, Bool:
		return 1
	case Uint16, Int16, Float16, Bfloat16:
		return 2
	case Float, Int32, Uint32:
		return 4
	case Int64, Double, Uint64:
		return 8
	}
	return 0
}

// packed returns the size of an element in bits if several share a byte, or 0. Such elements are codes of a quantised tensor,
// and cannot be read in other ways.
func (t Type) packed() int {
	switch t {
	case Uint4, Int4:
		return 4
	case Uint2, Int2:
		return 2
	}
	return 0
}

// Floating reports whether t is a floating-point type.
func (t Type) Floating() bool {
	return t == Float || t == Float16 || t == Bfloat16 || t == Double
}

// Integer reports whether t is a type of whole numbers. Bool is not.
func (t Type) Integer() bool { return t.width() > 0 && !t.Floating() && t != Bool }

// Quote returns a name from a file for an error. A name that is short and printable stays
// as it is. Other names are quoted and cut.
func Quote(name string) string {
	const most = 200
	cut := name
	if len(cut) > most {
		cut = cut[:most]
	}
	if quoted := strconv.Quote(cut); name == "" || quoted != `"`+cut+`"` {
		return quoted
	}
	if len(name) > most {
		return cut + "..."
	}
	return name
}
