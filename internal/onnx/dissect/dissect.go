// Package dissect takes apart the graph of an .onnx file. It finds the tables, the look-ups
// that read their rows, the fields whose ids choose these rows, the dense inputs, and the
// head, which computes the logit from the rows and the dense inputs.
package dissect

import (
	"fmt"
	"strconv"

	"shaver/internal/onnx/graph"
	"shaver/internal/onnx/wire"
)

// OutputSetting is the name of Options.Output for fault.Settings, and LogitSetting that
// of Options.Logit.
const (
	OutputSetting = "output"
	LogitSetting  = "logit"
)

// Options are what a user says about a model.
type Options struct {
	// Output is the name of the output to use, or NAME[I] for number I of a row. "" stands for the only one. Several with
	// commas between them are those of several tasks; see Network.Tasks.
	Output string
	Logit  bool // whether the output is a logit although it does not look like one
}

// Network is a click model. Head computes the logit of a row from what each look-up reads,
// the number of each dense input, and the ids that it reads as numbers. It depends on
// nothing else of the row.
type Network struct {
	Fields  []Field // in the order in which the file declares its inputs, then by column
	Tables  []Table // in the order in which the head reads them first
	LookUps []LookUp
	Dense   []Dense // in the order in which the file declares its inputs, then by column
	IDs     []IDs   // by field

	// Tasks is the number of outputs if Options.Output has several, else 0. The last Tasks of Dense are then
	// inputs that the file does not have, task.0 and so on. The logit is the sum of the logits of the outputs, each
	// times the input of its task, which is 1 in a row of the task and 0 in all other rows.
	Tasks int

	// Head's inputs are the values of LookUps, followed by those of Dense and of IDs. Its
	// output is the logit, a Float of one element.
	Head *graph.Graph

	Output    string     // name of the output of the file, with the number, as in Options
	Logit     string     // how the logit follows from the output, for people
	End       wire.End   // the same for onnx.Calibration
	Operators []Operator // of Head, by name
	Bound     []string   // inputs that are the offsets of bags
	Notes     []string   // what a user should know, as sentences without a full stop
	Ignored   string     // the one of Notes about inputs that are not read, or ""
}

// Field is a field of the model: a column of an input whose elements are ids, or
// consecutive columns, which are a list of ids.
type Field struct {
	Name     string // Input; Input[Column] or Input[Column:Column+Length] if the input has other columns
	Input    string
	Column   int  // first one, among the elements of a row in the input
	Length   int  // number of columns; a field is a list if it has at least 2
	Rows     int  // ids are 0 to Rows-1
	Float    bool // whether the file takes the ids as float32
	Pad      int  // id of positions without a value; -1 if the field is not a list
	PadFound bool // whether the graph compares the ids with Pad; otherwise Pad is an assumption
	PadBelow bool // whether the graph masks ids below 0 instead, which no row can have

	// Computed is set if the graph computes the ids from others, such as id % 5000 or the last
	// item of a history. Name then says so, and Input and Column are those of the first source.
	Computed *Computed

	// Guard is set if the graph replaces ids below 0 or from Rows on, as a Clip does. It computes the id that
	// takes the place of such an id, and leaves others as they are. The only source is the field itself.
	Guard *Computed
}

// Table is a table of embeddings.
type Table struct {
	Name string
	Rows int
	Dim  int

	tensor  *wire.Tensor
	decoded []float32 // all values, if the tensor cannot be read in place; otherwise nil
}

// Read fills dst with consecutive values of t in row-major order, beginning at the given
// row. The length of dst must be a multiple of t.Dim. Read usually reads from the file.
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

// Tensor returns the tensor of the file that holds t, row by row. Its first axis is that of the
// rows, or a row of t is several of its rows, if ids choose them together.
func (t *Table) Tensor() *wire.Tensor { return t.tensor }

// LookUp reads row id + Offset of a table for each id of Field. Several look-ups may read
// the same rows of a table. Their fields then have the same number of rows, and no look-up
// reads a part of these rows.
type LookUp struct {
	Field  int // index into Network.Fields
	Table  int // index into Network.Tables
	Offset int
	Player bool        // whether the values are players: the table has several columns, or no table has
	Value  graph.Value // input of Network.Head of shape [Length of the field, Dim]
}

// IDs is an input of the head that takes the ids of a field as numbers.
type IDs struct {
	Field int         // index into Network.Fields
	Value graph.Value // input of Network.Head of shape [1, Length of the field]
}

// TaskInput returns the name of the dense input of task t.
func TaskInput(t int) string { return "task." + strconv.Itoa(t) }

// Dense is an input that is a number and not an id. The head converts it to a whole number
// or a truth value if that is its type in the file.
type Dense struct {
	Name   string // Input, or Input[Column] if the input has several columns
	Input  string
	Column int         // among the elements of a row in the input
	Value  graph.Value // input of Network.Head of shape [1, 1]
}

// Operator is an operator and the number of its nodes.
type Operator struct {
	Name  string
	Count int
}

// Dissect takes m apart. The head computes one row. An error names the node, the input or
// the output that is not supported. The result reads its tables from m, which must stay
// open until the last call of Table.Read.
func Dissect(m *wire.Model, o Options) (*Network, error) {
	n, err := dissect(m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return n, nil
}
