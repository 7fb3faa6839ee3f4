// Package dissect takes the graph of an .onnx file apart: into tables, the look-ups that
// read their rows, the fields whose ids choose these rows, the dense inputs, and the head,
// which computes the logit from the rows and the dense inputs.
package dissect

import (
	"fmt"

	"shaver/internal/graph"
	"shaver/internal/onnx"
)

// OutputSetting is the name of Options.Output for fault.Settings, and LogitSetting that
// of Options.Logit.
const (
	OutputSetting = "output"
	LogitSetting  = "logit"
)

// Options are the choices of a user about a model.
type Options struct {
	Output string // name of the output to follow, or NAME[I] for number I of a row; "" = the only one
	Logit  bool   // whether the output is a logit, even if it does not look like one
}

// Network is a click model: the logit of a row is what Head computes from the row of each
// look-up and the number of each dense input. Head depends on nothing else of a row.
type Network struct {
	Fields  []Field // in the order in which the file declares its inputs, then by column
	Tables  []Table // in the order in which the head reads them first
	LookUps []LookUp
	Dense   []Dense // in the order in which the file declares its inputs, then by column

	// Head has the values of LookUps as its first inputs, and then those of Dense, in
	// their order. Its output is the logit, a Float of one element.
	Head *graph.Graph

	Output    string     // name of the output of the file, with the number as in Options
	Logit     string     // how the logit follows from the output, for people
	Operators []Operator // of Head, by name
	Bound     []string   // inputs that are the offsets of bags; every bag has one id
	Notes     []string   // what a user should know, as sentences without a full stop
}

// Field is a field of the model: a column of an input whose elements are ids.
type Field struct {
	Name   string // Input, or Input[Column] if the input has several columns
	Input  string
	Column int  // among the elements of a row in the input
	Rows   int  // ids are 0 to Rows-1
	Float  bool // whether the file takes the ids as float32
}

// Table is a table of embeddings.
type Table struct {
	Name string
	Rows int
	Dim  int

	tensor  *onnx.Tensor
	decoded []float32 // all values, if the file has them in a form of which no part can be read
}

// Read fills dst with consecutive values of t in row-major order, beginning at the given
// row. The length of dst is a multiple of t.Dim. The values are read from the file.
func (t *Table) Read(dst []float32, row int) error {
	if len(dst)%t.Dim != 0 || row < 0 || row > t.Rows-len(dst)/t.Dim {
		panic(fmt.Sprintf("dissect: %d values at row %d of table %s with %d rows of %d values", len(dst), row, t.Name, t.Rows, t.Dim))
	}
	if t.decoded != nil {
		copy(dst, t.decoded[row*t.Dim:])
		return nil
	}
	return t.tensor.ReadFloats(dst, row*t.Dim)
}

// LookUp reads one row of a table: row id + Offset, where id is that of Field.
type LookUp struct {
	Field  int // index into Network.Fields
	Table  int // index into Network.Tables
	Offset int
	Player bool        // whether the values are players; those of tables with one column are not
	Value  graph.Value // input of Network.Head of shape [1, Dim]
}

// Dense is an input that is a number and not an id.
type Dense struct {
	Name   string // Input, or Input[Column] if the input has several columns
	Input  string
	Column int         // among the elements of a row in the input
	Value  graph.Value // input of Network.Head of shape [1, 1]
}

// Operator is an operator, and how often it occurs.
type Operator struct {
	Name  string
	Count int
}

// Dissect takes m apart. It binds the batch axis to one row. An error names the node, the
// input or the output that is not understood. The result reads its tables from m, which
// must stay open for as long as they are read.
func Dissect(m *onnx.Model, o Options) (*Network, error) {
	n, err := dissect(m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return n, nil
}
