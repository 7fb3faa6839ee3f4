package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
	"shaver/internal/onnx/graph"
)

// metaGraph is the metadata key of the head of a model of Kind Graph.
const metaGraph = "shaver.graph"

// The keys of the tensors of a model of Kind Graph. The embedding tables follow each other
// in one tensor, [n, d] if the architecture is plain, else [Parameters].
const (
	graphEmbedding = "embedding"
	graphConstants = "constants." // followed by the name of a table whose entries are not players
	graphHead      = "head."      // followed by the name of a constant of the head
)

// graphForm describes a head, with its weights left out. Inputs of the head are given by
// their position in its description.
type graphForm struct {
	Head      json.RawMessage `json:"head"`                // description by graph.Encode
	LookUps   []int           `json:"look_ups"`            // input of each look-up of the architecture
	Constants []graphConstant `json:"constants,omitempty"` // look-ups whose values are not players
	Dense     []int           `json:"dense,omitempty"`     // input of each dense input of the architecture
	IDs       []graphIDs      `json:"ids,omitempty"`       // inputs that read ids as numbers
	Pads      []PadSource     `json:"pads,omitempty"`      // where the pad of each list of the architecture is from
	Fields    []string        `json:"fields,omitempty"`    // names of the fields
	Computed  []graphComputed `json:"computed,omitempty"`  // fields whose ids follow from the row
	Tasks     int             `json:"tasks,omitempty"`     // number of the last dense inputs that choose a task; see dissect.Network
	Output    string          `json:"output,omitempty"`    // how the logit follows from the file's output, for people
}

// graphConstant is a look-up whose values are constants of a row. It reads the row local
// id + offset of a table.
type graphConstant struct {
	Table  string `json:"table"`
	Field  int    `json:"field"`
	Offset int    `json:"offset,omitempty"`
	Input  int    `json:"input"`
}

// graphIDs is an input that reads the ids of a field as numbers.
type graphIDs struct {
	Field int `json:"field"`
	Input int `json:"input"`
}

// PadSource says where the pad of a list is from.
type PadSource string

// The sources of pads.
const (
	PadFound   PadSource = "found"   // the graph compares the ids of the list with it
	PadAssumed PadSource = "assumed" // the graph does not say, and 0 is usual
	PadGiven   PadSource = "given"   // a user said so
	PadBelow   PadSource = "below 0" // the graph masks ids below 0; such a list has to be given a pad
)

// graphKey returns the key of a tensor. If a key cannot have the name, a digest of the
// name takes its place.
func graphKey(prefix, name string) string {
	if key := prefix + name; tensor.CheckKey(key) == nil {
		return key
	}
	sum := sha256.Sum256([]byte(name))
	return prefix + "sha256." + hex.EncodeToString(sum[:])
}

// takeGraph reads the metadata of a model of Kind Graph and reports whether c is one.
func (c *Checkpoint) takeGraph(metadata map[string]string) (is bool, err error) {
	text, ok := metadata[metaGraph]
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal([]byte(metadata[metaArchitecture]), &c.Architecture); err != nil {
		return true, c.inputf("metadata %s: %w", metaArchitecture, err)
	}
	if err := c.Architecture.Validate(); err != nil {
		return true, c.inputf("metadata %s: %w", metaArchitecture, err)
	}
	if c.Architecture.Kind != model.Graph {
		return true, c.inputf("metadata %s describes a head, but the kind is %s: expected %s", metaGraph, c.Architecture.Kind, model.Graph)
	}
	c.graph = new(graphForm)
	if err := json.Unmarshal([]byte(text), c.graph); err != nil {
		return true, c.inputf("metadata %s: %w", metaGraph, err)
	}
	if n := c.graph.Tasks; n < 0 || n > len(c.Architecture.Dense) {
		return true, c.inputf("metadata %s has %d tasks, the architecture has %d dense inputs", metaGraph, n, len(c.Architecture.Dense))
	}
	c.EmbeddingKey, c.Fields = graphEmbedding, c.graph.Fields
	if c.Fields != nil && len(c.Fields) != c.Architecture.Fields() {
		return true, c.inputf("metadata %s names %d fields, the architecture has %d", metaGraph, len(c.Fields), c.Architecture.Fields())
	}
	if len(c.graph.Pads) != len(c.Architecture.Lists) {
		return true, c.inputf("metadata %s has the pads of %d lists, the architecture has %d", metaGraph, len(c.graph.Pads), len(c.Architecture.Lists))
	}
	if _, ok := metadata[metaCompact]; ok {
		if err := c.takeCompact(metadata); err != nil {
			return true, c.inputf("compact form: %w", err)
		}
		return true, nil
	}
	table, ok := c.Tensors[graphEmbedding]
	if want := embeddingShape(&c.Architecture); !ok || !slices.Equal(table.Shape, want) {
		return true, c.inputf("tensor %s has shape %s, expected %s", graphEmbedding, tensor.ShapeText(table.Shape), tensor.ShapeText(want))
	}
	return true, nil
}

// embeddingShape returns the shape of the tensor of all embedding tables.
func embeddingShape(a *model.Architecture) []int {
	if a.Plain() {
		return []int{a.Features(), a.Dim}
	}
	return []int{a.Parameters()}
}

// ConstantTable is a table of a model of Kind Graph whose entries are not players, or the
// part of one that a field reads.
type ConstantTable struct {
	Name      string
	Field     int
	Offset    int // row of id 0
	Rows, Dim int // of the whole table
}

// ConstantTables returns the tables of a model of Kind Graph whose entries are not players,
// once for each look-up.
func (c *Checkpoint) ConstantTables() []ConstantTable {
	var tables []ConstantTable
	for _, k := range c.graph.Constants {
		t := ConstantTable{Name: k.Table, Field: k.Field, Offset: k.Offset}
		if shape := c.Tensors[graphKey(graphConstants, k.Table)].Shape; len(shape) == 2 {
			t.Rows, t.Dim = shape[0], shape[1]
		}
		tables = append(tables, t)
	}
	return tables
}

// denseInputs returns the names of the dense inputs without those that choose a task.
func (c *Checkpoint) denseInputs() []string {
	if c.graph == nil {
		return c.Architecture.Dense
	}
	return c.Architecture.Dense[:len(c.Architecture.Dense)-c.graph.Tasks]
}

// PadSources says where the pad of each list of the architecture is from.
func (c *Checkpoint) PadSources() []PadSource { return c.graph.Pads }

// LogitText says, for people, how the logit of a model of Kind Graph follows from the
// output of the .onnx file. It is "" if this is not known.
func (c *Checkpoint) LogitText() string { return c.graph.Output }

// head returns the head of a model of Kind Graph.
func (c *Checkpoint) head() (*graph.Graph, error) {
	head, err := graph.Decode(c.graph.Head, func(name string) (*graph.Tensor, error) {
		key := graphKey(graphHead, name)
		if _, ok := c.Tensors[key]; !ok {
			return nil, fault.Inputf("there is no tensor %s", tensor.Quote(key))
		}
		values, err := c.Tensors[key].AnyFloat32s() // Decode checks them
		if err != nil {
			return nil, c.inputf("tensor %s %w", key, err)
		}
		return &graph.Tensor{Name: name, Type: graph.Float, Shape: c.Tensors[key].Shape, Floats: values}, nil
	})
	if err != nil {
		return nil, c.inputf("metadata %s: %w", metaGraph, err)
	}
	return head, nil
}

// HeadProducts returns the number of multiplications of a row in the products of matrices of a model of Kind Graph. It is 0
// if Model returns an error.
func (c *Checkpoint) HeadProducts() int {
	head, err := c.head()
	if err != nil {
		return 0
	}
	return int(head.Products())
}

// graphModel is Model for Kind Graph.
func (c *Checkpoint) graphModel() (*model.Model, error) {
	head, err := c.head()
	if err != nil {
		return nil, err
	}
	r := &weightReader{c: c}
	input := func(i int) (graph.Value, error) {
		if i < 0 || i >= len(head.Inputs) {
			return 0, c.inputf("metadata %s names input %d of the head, which has %d inputs", metaGraph, i, len(head.Inputs))
		}
		return head.Inputs[i], nil
	}
	inputs := func(list []int) (values []graph.Value, err error) {
		for _, i := range list {
			v, err := input(i)
			if err != nil {
				return nil, err
			}
			values = append(values, v)
		}
		return values, nil
	}
	w := model.Weights{Graph: &model.GraphHead{Graph: head}}
	small := c.Compact != nil && c.Tensors[graphEmbedding].Data == nil
	if !small {
		w.Embedding = r.values(graphEmbedding)
	}
	if w.Graph.LookUps, err = inputs(c.graph.LookUps); err != nil {
		return nil, err
	}
	if w.Graph.Dense, err = inputs(c.graph.Dense); err != nil {
		return nil, err
	}
	for _, k := range c.graph.IDs {
		v, err := input(k.Input)
		if err != nil {
			return nil, err
		}
		w.Graph.IDs = append(w.Graph.IDs, model.IDInput{Field: k.Field, Input: v})
	}
	for _, k := range c.graph.Constants {
		l := model.ConstantLookUp{Name: k.Table, Field: k.Field}
		if l.Input, err = input(k.Input); err != nil {
			return nil, err
		}
		key := graphKey(graphConstants, k.Table)
		shape, values := c.Tensors[key].Shape, r.values(key)
		if r.err != nil {
			return nil, r.err
		}
		if k.Field < 0 || k.Field >= c.Architecture.Fields() {
			return nil, c.inputf("metadata %s: table %s is read by field %d, of %d fields", metaGraph, tensor.Quote(k.Table), k.Field, c.Architecture.Fields())
		}
		size := c.Architecture.FieldDims[k.Field]
		if len(shape) != 2 || k.Offset < 0 || size > shape[0]-k.Offset {
			return nil, c.inputf("tensor %s has shape %s, but field %d reads rows %d to %d", key, tensor.ShapeText(shape), k.Field, k.Offset, k.Offset+size-1)
		}
		l.Dim, l.Values = shape[1], values[k.Offset*shape[1]:(k.Offset+size)*shape[1]]
		w.Graph.Constants = append(w.Graph.Constants, l)
	}
	if r.err != nil {
		return nil, r.err
	}
	var m *model.Model
	if small {
		m, err = model.NewWithEmbedder(c.Architecture, w, c.Compact)
	} else {
		m, err = model.New(c.Architecture, w)
	}
	if err != nil {
		return nil, fault.Inputf("%s: %w", c.name, err)
	}
	return m, nil
}
