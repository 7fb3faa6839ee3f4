package inspect

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire"
)

// ONNXFacts is what "model inspect" prints about an .onnx file, or about a file of our own
// that was converted from one and is still a graph.
type ONNXFacts struct {
	Architecture string      `json:"architecture"`      // "graph", or what was recognized in it
	FastPath     bool        `json:"fast_path"`         // whether the graph was recognized as another kind
	Generic      string      `json:"generic,omitempty"` // why it was not recognized
	Structure    string      `json:"structure,omitempty"`
	Hidden       []int       `json:"hidden,omitempty"`
	CrossLayers  int         `json:"cross_layers,omitempty"`
	Producer     string      `json:"producer,omitempty"`
	IR           int         `json:"ir,omitempty"` // 0 for a file of our own
	Opset        int         `json:"opset,omitempty"`
	Output       string      `json:"output,omitempty"`
	Logit        string      `json:"logit,omitempty"` // how the logit follows from the output
	Fields       []ONNXField `json:"fields,omitempty"`
	Dense        []ONNXDense `json:"dense,omitempty"`
	Parameters   int         `json:"parameters"` // entries of the tables whose entries are players
	Players      int         `json:"players"`    // number of entries that a row reads; the largest number of its players
	Operators    []Operator  `json:"operators"`  // operators of the head, or of the file if it is not understood
	Offsets      []string    `json:"offsets,omitempty"`
	Notes        []string    `json:"notes,omitempty"`
	Tensors      int         `json:"tensors,omitempty"` // of a file of our own
	Digest       string      `json:"digest,omitempty"`  // "" if the model is not understood

	Vocabulary []model.Identity `json:"vocabulary,omitempty"` // what the ids stand for; nil if the file does not say it

	Storage

	NotUnderstood string `json:"not_understood,omitempty"` // why the file is not understood; names the node
}

// ONNXField is a field and its tables.
type ONNXField struct {
	Name   string      `json:"name"`
	Input  string      `json:"input,omitempty"`
	Column int         `json:"column"`
	Rows   int         `json:"rows"`
	Float  bool        `json:"float,omitempty"`  // whether the ids are float32
	Length int         `json:"length,omitempty"` // number of positions of a list; 0 if the field is not one
	Pad    *Pad        `json:"pad,omitempty"`    // nil if the field is not a list
	Tables []ONNXTable `json:"tables"`

	Computed []string `json:"computed,omitempty"` // inputs from which an import computes the ids
}

// Pad is the id of positions of a list without a value.
type Pad struct {
	ID     int                  `json:"id"` // -1 = none
	Source checkpoint.PadSource `json:"source"`
}

// ONNXTable is a table, or the part of one that a field reads.
type ONNXTable struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"` // number of rows of the whole table
	Dim    int    `json:"dim"`
	Offset int    `json:"offset"` // row that id 0 reads
	Player bool   `json:"player"` // whether its entries are players

	SharedWith []string `json:"shared_with,omitempty"` // names of other fields that read the same rows, at most maxShared
}

// maxShared is the largest number of names in ONNXTable.SharedWith.
const maxShared = 16

// ONNXDense is a dense input.
type ONNXDense struct {
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Column int    `json:"column"`
	// Standard says how its numbers were standardised; nil if the file does not say it.
	Standard *model.Standard `json:"standard,omitempty"`
}

// Operator is the number of nodes with an operator.
type Operator struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// ONNX returns the facts about an .onnx file. If the file is read but not
// understood, it returns both the facts about the file and the error.
func ONNX(path string, o dissect.Options) (*ONNXFacts, error) {
	m, err := wire.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	f := &ONNXFacts{Architecture: "graph", Producer: m.Producer, IR: m.IR, Opset: m.Opset}
	n, err := dissect.Dissect(m, o)
	if err != nil {
		cause := err
		if inner := errors.Unwrap(err); inner != nil {
			cause = inner // without the name of the file
		}
		f.NotUnderstood, f.Operators = cause.Error(), countOperators(m.Graph)
		return f, err
	}
	f.describe(n)
	if a, err := checkpoint.Recognize(n); err == nil {
		f.Architecture, f.FastPath, f.Structure, f.Hidden, f.CrossLayers = string(a.Kind), true, a.Structure, a.Hidden, a.CrossLayers
	} else {
		f.Generic = err.Error()
	}
	ck, err := checkpoint.ReadPart(path, checkpoint.Options{ONNX: o})
	if err == nil {
		_, err = ck.Model()
	}
	if err != nil { // the file is understood, but cannot be evaluated
		f.NotUnderstood = strings.TrimPrefix(err.Error(), path+": ")
		return f, err
	}
	f.Digest, f.Vocabulary = ck.Digest(), ck.Known().Fields
	for j := range f.Vocabulary {
		f.Fields[j].Name = f.Vocabulary[j].Name // in the order of the graph
	}
	f.standardise(ck)
	f.share()
	return f, nil
}

// Graph returns the facts about a graph in a file of our own. m is the model of ck,
// and names are the names of the fields, or nil.
func Graph(ck *checkpoint.Checkpoint, m *model.Model, names []string) *ONNXFacts {
	a := &ck.Architecture
	f := &ONNXFacts{
		Architecture: string(a.Kind), Logit: ck.LogitText(), Parameters: a.Parameters(), Players: a.Players(),
		Tensors: ck.TensorCount(), Digest: ck.Digest(), Storage: storageOf(ck, names), Vocabulary: ck.Known().Fields,
	}
	for j, rows := range a.FieldDims {
		f.Fields = append(f.Fields, ONNXField{Name: FieldName(names, j), Rows: rows})
		if a.Plain() {
			f.Fields[j].Tables = []ONNXTable{{Name: ck.EmbeddingKey, Rows: a.Features(), Dim: a.Dim, Offset: int(a.Offsets()[j]), Player: true}}
		}
	}
	for _, l := range a.LookUps {
		t := &a.Tables[l.Table]
		at := &f.Fields[l.Field]
		at.Tables = append(at.Tables, ONNXTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: l.Offset, Player: true})
	}
	for i, l := range a.Lists {
		f.Fields[l.Field].Length, f.Fields[l.Field].Pad = l.Length, &Pad{l.Pad, ck.PadSources()[i]}
	}
	for _, t := range ck.ConstantTables() {
		at := &f.Fields[t.Field]
		at.Tables = append(at.Tables, ONNXTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: t.Offset})
	}
	f.share()
	for _, name := range a.Dense {
		f.Dense = append(f.Dense, ONNXDense{Name: name})
	}
	f.standardise(ck)
	counts := map[string]int{}
	for _, node := range m.Weights.Graph.Graph.Nodes {
		counts[node.Op]++
	}
	f.Operators = listOperators(counts)
	return f
}

// countOperators counts the operators of a file.
func countOperators(g *wire.Graph) []Operator {
	counts := map[string]int{}
	for i := range g.Nodes {
		counts[g.Nodes[i].Op]++
	}
	return listOperators(counts)
}

func listOperators(counts map[string]int) []Operator {
	var list []Operator
	for name, count := range counts {
		list = append(list, Operator{name, count})
	}
	slices.SortFunc(list, func(a, b Operator) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (f *ONNXFacts) describe(n *dissect.Network) {
	f.Output, f.Logit, f.Offsets, f.Notes = n.Output, n.Logit, n.Bound, n.Notes
	for _, field := range n.Fields {
		described := ONNXField{Name: field.Name, Input: field.Input, Column: field.Column, Rows: field.Rows, Float: field.Float}
		if field.Length > 1 {
			described.Length, described.Pad = field.Length, &Pad{field.Pad, checkpoint.SourceOfPad(&field)}
		}
		if field.Computed != nil {
			for _, s := range field.Computed.Sources {
				if !slices.Contains(described.Computed, s.Input) {
					described.Computed = append(described.Computed, s.Input)
				}
			}
		}
		f.Fields = append(f.Fields, described)
	}
	counted := map[int]bool{}
	for _, l := range n.LookUps {
		t := &n.Tables[l.Table]
		at := &f.Fields[l.Field]
		at.Tables = append(at.Tables, ONNXTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: l.Offset, Player: l.Player})
		if !l.Player {
			continue
		}
		f.Players += n.Fields[l.Field].Length * t.Dim
		if !counted[l.Table] {
			counted[l.Table] = true
			f.Parameters += t.Rows * t.Dim
		}
	}
	f.share()
	for _, d := range n.Dense {
		f.Dense = append(f.Dense, ONNXDense{Name: d.Name, Input: d.Input, Column: d.Column})
	}
	for _, o := range n.Operators {
		f.Operators = append(f.Operators, Operator{o.Name, o.Count})
	}
}

// standardise sets Standard of the dense inputs.
func (f *ONNXFacts) standardise(ck *checkpoint.Checkpoint) {
	for i := range ck.Standards {
		f.Dense[i].Standard = &ck.Standards[i]
	}
}

// share sets SharedWith of the tables.
func (f *ONNXFacts) share() {
	type rows struct {
		table  string
		offset int
	}
	readers := map[rows][]string{}
	for _, field := range f.Fields {
		for _, t := range field.Tables {
			if at := (rows{t.Name, t.Offset}); len(readers[at]) <= maxShared && !slices.Contains(readers[at], field.Name) {
				readers[at] = append(readers[at], field.Name)
			}
		}
	}
	for _, field := range f.Fields {
		for i := range field.Tables {
			t := &field.Tables[i]
			all := readers[rows{t.Name, t.Offset}]
			t.SharedWith = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == field.Name })
			t.SharedWith = t.SharedWith[:min(len(t.SharedWith), maxShared)]
		}
	}
}
