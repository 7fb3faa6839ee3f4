// Package graph describes what a model computes for one row: a graph of operators with
// fixed types and shapes. The operators are those of ONNX, in the form of its newest
// supported operator set; what older operator sets wrote as attributes are inputs here. A
// batch axis has size 1.
//
// A Graph folds constants while it is built, so its nodes are only what depends on the
// row. Evaluate defines every operator, in plain Go. Package execute computes graphs fast.
//
// A node has no version. A reader of ONNX files writes older operator sets in the newest
// form before it calls Add:
//
//   - axes, sizes, pads, limits, repeats and ratios that were attributes become constant
//     inputs: Squeeze, Unsqueeze, ReduceX, Split, Slice, Pad, Clip, Tile, Dropout;
//   - a Split without sizes has the attribute num_outputs;
//   - Softmax and LogSoftmax before set 13 flatten their input to a matrix at the axis,
//     which is 1 if it is not given: Flatten, Softmax with axis -1, Reshape;
//   - binary operators before set 7 with the attributes broadcast and axis, and Gemm with
//     the attribute broadcast: Unsqueeze the second input;
//   - Upsample, Scan, Loop, If and other operators with graphs in them are the reader's.
//
// An operator has only the outputs that inference needs: Dropout has no mask,
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

// Tensor is a dense array in row-major order. Exactly one of the slices is in use, which
// Type names; its length is the product of Shape. A Tensor may be shared and is read-only.
type Tensor struct {
	Name   string // name in the file, for errors and for storing it; "" = computed
	Type   Type
	Shape  []int // empty for a scalar
	Floats []float32
	Ints   []int64
	Bools  []bool
}

// Value is an index into Graph.Values.
type Value int

// Absent stands for an optional input that is not there.
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
	Inputs []Value // what depends on the row and is not computed
	Output Value

	given   int64 // elements of all tensors that AddConstant was given
	folded  int64 // elements of all tensors that folding made
	work    int64 // multiplications that folding did
	varied  int64 // elements of all outputs of nodes
	rowWork int64 // multiplications of all nodes
}
