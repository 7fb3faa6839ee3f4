package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
	"shaver/internal/onnx/wire"
)

// onnxFacts is what "model inspect" prints about an .onnx file, or about a file of our own
// that was converted from one and is still a graph.
type onnxFacts struct {
	Architecture string         `json:"architecture"`      // "graph", or what was recognized in it
	FastPath     bool           `json:"fast_path"`         // whether the graph was recognized as another kind
	Generic      string         `json:"generic,omitempty"` // why it was not recognized
	Structure    string         `json:"structure,omitempty"`
	Hidden       []int          `json:"hidden,omitempty"`
	CrossLayers  int            `json:"cross_layers,omitempty"`
	Producer     string         `json:"producer,omitempty"`
	IR           int            `json:"ir,omitempty"` // 0 for a file of our own
	Opset        int            `json:"opset,omitempty"`
	Output       string         `json:"output,omitempty"`
	Logit        string         `json:"logit,omitempty"` // how the logit follows from the output
	Fields       []onnxField    `json:"fields,omitempty"`
	Dense        []onnxDense    `json:"dense,omitempty"`
	Parameters   int            `json:"parameters"` // entries of the tables whose entries are players
	Players      int            `json:"players"`    // number of entries that a row reads; the largest number of its players
	Operators    []onnxOperator `json:"operators"`  // operators of the head, or of the file if it is not understood
	Offsets      []string       `json:"offsets,omitempty"`
	Notes        []string       `json:"notes,omitempty"`
	Tensors      int            `json:"tensors,omitempty"` // of a file of our own
	Digest       string         `json:"digest,omitempty"`  // "" if the model is not understood

	storage

	NotUnderstood string `json:"not_understood,omitempty"` // why the file is not understood; names the node
}

// onnxField is a field and its tables.
type onnxField struct {
	Name   string      `json:"name"`
	Input  string      `json:"input,omitempty"`
	Column int         `json:"column"`
	Rows   int         `json:"rows"`
	Float  bool        `json:"float,omitempty"`  // whether the ids are float32
	Length int         `json:"length,omitempty"` // number of positions of a list; 0 if the field is not one
	Pad    *onnxPad    `json:"pad,omitempty"`    // nil if the field is not a list
	Tables []onnxTable `json:"tables"`
}

// onnxPad is the id of positions of a list without a value.
type onnxPad struct {
	ID     int                  `json:"id"` // -1 = none
	Source checkpoint.PadSource `json:"source"`
}

// onnxTable is a table, or the part of one that a field reads.
type onnxTable struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"` // number of rows of the whole table
	Dim    int    `json:"dim"`
	Offset int    `json:"offset"` // row that id 0 reads
	Player bool   `json:"player"` // whether its entries are players

	SharedWith []string `json:"shared_with,omitempty"` // names of other fields that read the same rows, at most maxShared
}

// maxShared is the largest number of names in onnxTable.SharedWith.
const maxShared = 16

type onnxDense struct {
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Column int    `json:"column"`
}

type onnxOperator struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// checkModelOutput checks that the command may write the model of the file in, perhaps with
// pruned tables, to path, which the user gave as flag. An .onnx file cannot say that shaver
// wrote it, so only --force replaces one.
func checkModelOutput(outputs *cli.Outputs, flag, path, in string) error {
	if !checkpoint.NamedONNX(path) {
		return outputs.Check(flag, path, models)
	}
	if !checkpoint.IsONNX(in) {
		return fault.Usagef("%s is %s, but %s is not an .onnx file: an .onnx file is written from an .onnx file only; expected another extension", flag, path, in)
	}
	files, err := checkpoint.ONNXFiles(path, in)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := outputs.Check(flag, file, cli.Any); err != nil {
			return err
		}
	}
	return nil
}

// onnxFlags adds the flags that say how the output of an .onnx file is understood.
func onnxFlags(c *cobra.Command, o *dissect.Options) {
	c.Flags().StringVar(&o.Output, "model-output", "", "`name` of the output of an .onnx file, or NAME[I] for one of its numbers (default the only one)")
	c.Flags().BoolVar(&o.Logit, "logit", false, "take the output of an .onnx file as the logit, whatever computes it")
}

// withOnnxFlags adds to an error of package dissect the flags that may avoid it.
func withOnnxFlags(err error) error {
	flags := map[string]string{dissect.OutputSetting: "--model-output", dissect.LogitSetting: "--logit"}
	var names []string
	for _, name := range fault.Settings(err) {
		if flags[name] != "" {
			names = append(names, flags[name])
		}
	}
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(names, ", "))
}

// inspectONNX returns the facts about an .onnx file. If the file is read but not
// understood, it returns both the facts about the file and the error.
func inspectONNX(path string, o dissect.Options) (*onnxFacts, error) {
	m, err := wire.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	f := &onnxFacts{Architecture: "graph", Producer: m.Producer, IR: m.IR, Opset: m.Opset}
	n, err := dissect.Dissect(m, o)
	if err != nil {
		cause := err
		if inner := errors.Unwrap(err); inner != nil {
			cause = inner // without the name of the file
		}
		f.NotUnderstood, f.Operators = cause.Error(), countOperators(m.Graph)
		return f, withOnnxFlags(err)
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
	f.Digest = ck.Digest()
	return f, nil
}

// inspectGraph returns the facts about a graph in a file of our own. m is the model of ck,
// and names are the names of the fields, or nil.
func inspectGraph(ck *checkpoint.Checkpoint, m *model.Model, names []string) *onnxFacts {
	a := &ck.Architecture
	f := &onnxFacts{
		Architecture: string(a.Kind), Logit: ck.LogitText(), Parameters: a.Parameters(), Players: a.Players(),
		Tensors: ck.TensorCount(), Digest: ck.Digest(), storage: storageOf(ck, names),
	}
	for j, rows := range a.FieldDims {
		f.Fields = append(f.Fields, onnxField{Name: fieldName(names, j), Rows: rows})
		if a.Plain() {
			f.Fields[j].Tables = []onnxTable{{Name: ck.EmbeddingKey, Rows: a.Features(), Dim: a.Dim, Offset: int(a.Offsets()[j]), Player: true}}
		}
	}
	for _, l := range a.LookUps {
		t := &a.Tables[l.Table]
		at := &f.Fields[l.Field]
		at.Tables = append(at.Tables, onnxTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: l.Offset, Player: true})
	}
	for i, l := range a.Lists {
		f.Fields[l.Field].Length, f.Fields[l.Field].Pad = l.Length, &onnxPad{l.Pad, ck.PadSources()[i]}
	}
	for _, t := range ck.ConstantTables() {
		at := &f.Fields[t.Field]
		at.Tables = append(at.Tables, onnxTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: t.Offset})
	}
	f.share()
	for _, name := range a.Dense {
		f.Dense = append(f.Dense, onnxDense{Name: name})
	}
	counts := map[string]int{}
	for _, node := range m.Weights.Graph.Graph.Nodes {
		counts[node.Op]++
	}
	f.Operators = listOperators(counts)
	return f
}

// countOperators counts the operators of a file.
func countOperators(g *wire.Graph) []onnxOperator {
	counts := map[string]int{}
	for i := range g.Nodes {
		counts[g.Nodes[i].Op]++
	}
	return listOperators(counts)
}

func listOperators(counts map[string]int) []onnxOperator {
	var list []onnxOperator
	for name, count := range counts {
		list = append(list, onnxOperator{name, count})
	}
	slices.SortFunc(list, func(a, b onnxOperator) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (f *onnxFacts) describe(n *dissect.Network) {
	f.Output, f.Logit, f.Offsets, f.Notes = n.Output, n.Logit, n.Bound, n.Notes
	for _, field := range n.Fields {
		described := onnxField{Name: field.Name, Input: field.Input, Column: field.Column, Rows: field.Rows, Float: field.Float}
		if field.Length > 1 {
			described.Length, described.Pad = field.Length, &onnxPad{field.Pad, checkpoint.PadAssumed}
			if field.PadFound {
				described.Pad.Source = checkpoint.PadFound
			}
		}
		f.Fields = append(f.Fields, described)
	}
	counted := map[int]bool{}
	for _, l := range n.LookUps {
		t := &n.Tables[l.Table]
		at := &f.Fields[l.Field]
		at.Tables = append(at.Tables, onnxTable{Name: t.Name, Rows: t.Rows, Dim: t.Dim, Offset: l.Offset, Player: l.Player})
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
		f.Dense = append(f.Dense, onnxDense{d.Name, d.Input, d.Column})
	}
	for _, o := range n.Operators {
		f.Operators = append(f.Operators, onnxOperator{o.Name, o.Count})
	}
}

// share sets SharedWith of the tables.
func (f *onnxFacts) share() {
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

// fewNames joins the first names.
func fewNames(names []string) string {
	const most = 3
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "...")
	}
	return strings.Join(names, ", ")
}

// text describes a list.
func (p *onnxPad) text(length int) string {
	if p.ID < 0 {
		return fmt.Sprintf("a list of %d, no pad (%s)", length, p.Source)
	}
	return fmt.Sprintf("a list of %d, pad %d (%s)", length, p.ID, p.Source)
}

func (f *onnxFacts) table(w io.Writer) {
	what := f.Architecture
	if f.FastPath {
		what = strings.TrimSpace(f.Architecture+" "+f.Structure) + " (recognized in an ONNX graph; fast path)"
	}
	form := "a file of shaver's own"
	if f.IR > 0 {
		form = fmt.Sprintf("ONNX, operator set %d, format %d", f.Opset, f.IR)
	}
	fmt.Fprintf(w, "architecture\t%s\t%s\n", what, form)
	if f.Producer != "" {
		fmt.Fprintf(w, "producer\t%s\n", cli.Printable(f.Producer))
	}
	if f.NotUnderstood == "" || len(f.Fields) > 0 {
		f.understood(w)
	}
	if len(f.Hidden) > 0 {
		fmt.Fprintf(w, "hidden layers\t%v\n", f.Hidden)
	}
	if f.CrossLayers > 0 {
		fmt.Fprintf(w, "cross layers\t%d\n", f.CrossLayers)
	}
	total := 0
	var names []string
	for _, o := range f.Operators {
		total += o.Count
		names = append(names, cli.Printable(fmt.Sprint(o.Name, " ", o.Count)))
	}
	what = "head"
	if len(f.Fields) == 0 {
		what = "graph"
	}
	fmt.Fprintf(w, "%s\t%d operators\t%s\n", what, total, strings.Join(names, ", "))
	if f.Generic != "" {
		fmt.Fprintf(w, "fast path\tno\t%s\n", cli.Printable(f.Generic))
	}
	for _, note := range f.Notes {
		fmt.Fprintf(w, "note\t%s\n", cli.Printable(note))
	}
	if f.NotUnderstood != "" {
		fmt.Fprintf(w, "not understood\t%s\n", cli.Printable(f.NotUnderstood))
	}
	if f.Tensors > 0 {
		fmt.Fprintf(w, "tensors\t%d\n", f.Tensors)
	}
	if f.Digest != "" {
		fmt.Fprintf(w, "digest\t%s\n", f.Digest)
	}
}

// understood prints what is known only about a model that is understood.
func (f *onnxFacts) understood(w io.Writer) {
	switch {
	case f.Output != "":
		fmt.Fprintf(w, "output\t%s\tlogit: %s\n", cli.Printable(f.Output), cli.Printable(f.Logit))
	case f.Logit != "":
		fmt.Fprintf(w, "logit\t%s\n", cli.Printable(f.Logit))
	}
	fmt.Fprintf(w, "fields\t%d\n", len(f.Fields))
	for _, field := range f.Fields {
		var tables []string
		for _, t := range field.Tables {
			text := fmt.Sprintf("%s %d x %d", cli.Printable(t.Name), t.Rows, t.Dim)
			if t.Offset > 0 {
				text += fmt.Sprintf(" from row %d", t.Offset)
			}
			if !t.Player {
				text += " (first order)"
			}
			if len(t.SharedWith) > 0 {
				text += " (shared with " + cli.Printable(fewNames(t.SharedWith)) + ")"
			}
			tables = append(tables, text)
		}
		ids := "ids"
		if field.Float {
			ids = "float32 ids"
		}
		if field.Pad != nil {
			ids += ", " + field.Pad.text(field.Length)
		}
		fmt.Fprintf(w, "field %s\t%d %s\t%s\n", cli.Printable(field.Name), field.Rows, ids, strings.Join(tables, ", "))
	}
	fmt.Fprintf(w, "embedding\t%d parameters\n", f.Parameters)
	players := strconv.Itoa(f.Players)
	if slices.ContainsFunc(f.Fields, func(field onnxField) bool { return field.Pad != nil }) {
		players = "at most " + players
	}
	fmt.Fprintf(w, "players per row\t%s\n", players)
	var names, dense []string
	for _, field := range f.Fields {
		names = append(names, field.Name)
	}
	f.storage.table(w, names)
	for _, d := range f.Dense {
		dense = append(dense, cli.Printable(d.Name))
	}
	if len(dense) > 0 {
		fmt.Fprintf(w, "dense inputs\t%d\t%s\n", len(dense), strings.Join(dense, ", "))
	}
	for _, name := range f.Offsets {
		fmt.Fprintf(w, "bags\toffsets: %s\n", cli.Printable(name))
	}
}
