// Package graph describes what a model computes for one row: a graph of operators with
// fixed types and shapes. The operators are those of ONNX, in the form of operator set 22.
// A batch axis has size 1.
//
// A Graph folds constants while it is built, so all its nodes depend on the row. Evaluate
// defines every operator, in plain Go. Package execute computes graphs fast.
//
// A node has no version. A reader of ONNX files rewrites the nodes of older operator sets
// before it calls Add:
//
//   - axes, sizes, pads, limits and ratios that were attributes become constant inputs, in
//     Squeeze, Unsqueeze, the reductions, Split, Slice, Pad, Clip and Dropout;
//   - a Split without sizes gets the attribute num_outputs;
//   - a Softmax or LogSoftmax before set 13 becomes a Flatten at its axis, which is 1 by
//     default, a Softmax or LogSoftmax of axis -1, and a Reshape.
//
// A Graph contains no other graphs. The reader also replaces If and Loop by nodes.
//
// An operator has only the outputs that inference needs. Dropout has no mask,
// LayerNormalization has no mean, and BatchNormalization has no statistics.
package graph

// Type is the type of a value's elements.
type Type uint8

// The types. An ONNX type that is not listed is converted when the graph is built: all
// whole numbers to Int, and all floating-point numbers to Float. Whole numbers do not
// wrap at the width of the type they had in the file, except in Cast.
const (
	Float Type = iota + 1 // float32
	Int                   // int64
	Bool
)

// Tensor is a dense array in row-major order. Type says which one of the slices holds the
// elements. Its length is the product of Shape. A Tensor may be shared and is read-only.
type Tensor struct {
	Name   string // name in the file, for errors and for storing it; "" = computed
	Type   Type
	Shape  []int // empty for a scalar
	Floats []float32
	Ints   []int64
	Bools  []bool

	doubles []float64 // elements in float64, for Evaluate; nil = Floats (see NewDoubles)
}

// Value is an index into Graph.Values.
type Value int

// Absent stands for an optional input that a node does not have.
const Absent Value = -1

// Info describes a value.
type Info struct {
	Name     string // name in the file, for errors
	Type     Type
	Shape    []int
	Constant *Tensor // nil = the value depends on the row
}

// Node applies an operator.
type Node struct {
	Name       string // name in the file, or that of its first output
	Op         string // name of the operator in ONNX, for example Gemm
	Inputs     []Value
	Outputs    []Value
	Attributes Attributes
}

// Attributes are the attributes of a node by name. A value is an int64, a float32, a
// string, a []int64, a []float32 or a *Tensor.
type Attributes map[string]any

// Graph is the computation of a row. Nodes are in an order in which every node comes after
// those whose outputs it reads. The zero Graph is empty and ready to use.
type Graph struct {
	Values []Info
	Nodes  []Node
	Inputs []Value // values that depend on the row and are not computed
	Output Value

	given   int64 // elements of all tensors from AddConstant and Constant nodes
	folded  int64 // elements of all tensors that folding made
	work    int64 // multiplications that folding did
	varied  int64 // elements of all outputs of nodes
	rowWork int64 // multiplications of all nodes
}
