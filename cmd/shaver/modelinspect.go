package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/fault"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/onnx/dissect"
)

// modelFacts is what "model inspect" prints.
type modelFacts struct {
	Architecture model.Kind `json:"architecture"`
	Framework    string     `json:"framework,omitempty"` // framework that named the tensors; "" for our own names
	Assumed      []string   `json:"assumed,omitempty"`   // assumptions where the file says nothing
	FieldDims    []int      `json:"field_dims"`
	FieldNames   []string   `json:"field_names,omitempty"` // from the dataset or from the names of tables
	Dim          int        `json:"dim"`
	Fields       int        `json:"fields"`
	Features     int        `json:"features"`
	Parameters   int        `json:"parameters"` // entries of the embedding table
	Players      int        `json:"players"`    // in one row
	Hidden       []int      `json:"hidden,omitempty"`
	CrossLayers  int        `json:"cross_layers,omitempty"`
	Experts      int        `json:"experts,omitempty"`
	Rank         int        `json:"rank,omitempty"`
	Structure    string     `json:"structure,omitempty"`
	EmbeddingKey string     `json:"embedding_key"`
	Tensors      int        `json:"tensors"`
	Digest       string     `json:"digest"`

	storage
}

// storage is the facts about a compact file or one with a composed table. It is empty for a dense
// file.
type storage struct {
	Table  *composed.Shape  `json:"table,omitempty"`  // of a composed table
	Kept   *int             `json:"kept,omitempty"`   // number of kept entries, or of values in the tensors of a composed table
	Values compact.Encoding `json:"values,omitempty"` // how kept entries are stored
	Stored []storedField    `json:"stored,omitempty"` // by field, or by look-up in the order of the rows of the tables
}

// storedField is how a compact file stores a field, or the rows that a look-up reads.
type storedField struct {
	FieldName string `json:"field,omitempty"` // in a model with look-ups
	Table     string `json:"table,omitempty"` // name of the table, in a model with look-ups
	compact.Field
	Bytes int      `json:"bytes"`           // values and structure together
	Error *float64 `json:"error,omitempty"` // int8: largest rounding error of a value

	span model.Span
}

// storageOf returns the storage of ck. names are the names of the fields, or nil.
func storageOf(ck *checkpoint.Checkpoint, names []string) storage {
	var s storage
	if t := ck.Composed; t != nil {
		n := t.Parameters()
		s.Table, s.Kept = &t.Shape, &n
	}
	if ck.Compact == nil {
		return s
	}
	a, kept := &ck.Architecture, ck.Compact.Kept()
	s.Kept, s.Values = &kept, ck.Compact.Encoding()
	steps, spans := ck.Compact.Steps(), a.Spans()
	for j, field := range ck.Compact.Fields() {
		span := spans[j]
		rows, columns := field.Sizes(span.Rows, span.Dim)
		stored := storedField{Field: field, Bytes: rows + columns + field.Kept*s.Values.Size(), span: span}
		if !a.Plain() {
			stored.FieldName, stored.Table = fieldName(names, span.Field), a.Tables[span.Table].Name
		}
		if steps != nil {
			half := float64(steps[j]) / 2
			stored.Error = &half
		}
		s.Stored = append(s.Stored, stored)
	}
	return s
}

// fieldName returns the name of field j, or its number if the names are not known.
func fieldName(names []string, j int) string {
	if names == nil {
		return strconv.Itoa(j)
	}
	return names[j]
}

// table prints the storage. names are the names of the fields, or nil.
func (s *storage) table(w io.Writer, names []string) {
	if t := s.Table; t != nil {
		fmt.Fprintf(w, "table\t%s\t%d parameters, %s\n", t.Scheme, *s.Kept, composedText(t))
		return
	}
	if s.Kept == nil {
		return
	}
	fmt.Fprintf(w, "pruned\t%d kept\t%s values\n", *s.Kept, s.Values)
	for _, f := range s.Stored {
		name := cli.Printable(fieldName(names, f.span.Field))
		if f.Table != "" {
			name += " in " + cli.Printable(f.Table)
		}
		fmt.Fprintf(w, "field %s\t%d of %d kept\t%s, %d rows, %d bytes\n", name, f.Kept, f.span.Rows*f.span.Dim, f.Form, f.Rows, f.Bytes)
	}
}

// composedText describes the tensors of a composed table.
func composedText(s *composed.Shape) string {
	switch s.Scheme {
	case composed.QR:
		return fmt.Sprintf("divider %d", s.Divider)
	case composed.CERP:
		return fmt.Sprintf("2 tables of %d rows", s.Buckets)
	}
	text := fmt.Sprintf("%d cores with rows %v, columns %v and ranks %v", len(s.Rows), s.Rows, s.Columns, s.Ranks)
	if s.Cached > 0 {
		text += fmt.Sprintf(", %d cached features", s.Cached)
	}
	return text
}

func modelInspectCommand() *cobra.Command {
	var folders []string
	var part checkpoint.Options
	var out cli.Output
	c := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Print a checkpoint's architecture, sizes and digest",
		Long:  help("model-inspect"),
		Example: `  shaver model inspect model.pth
  shaver model inspect pruned.safetensors --dataset data
  shaver model inspect model.onnx`,
		ValidArgsFunction: cli.FileArgs(append([]string{"onnx"}, cli.Checkpoints...)...),
		Args:              cli.Args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := out.Check(); err != nil {
				return err
			}
			if checkpoint.NamedONNX(args[0]) {
				if len(folders) > 0 || part.StateDict != "" {
					return fault.Usagef("--dataset and --state-dict are for state dicts, but %s is an .onnx file", args[0])
				}
				facts, err := inspectONNX(args[0], part.ONNX)
				if facts != nil {
					if err := out.Print(c.OutOrStdout(), facts, facts.table); err != nil {
						return err
					}
				}
				return err
			}
			if part.ONNX != (dissect.Options{}) {
				return fault.Usagef("--model-output and --logit are for .onnx files, but %s is another file", args[0])
			}
			ck, err := checkpoint.ReadPart(args[0], part)
			if err != nil {
				return err
			}
			m, err := ck.Model() // which checks that every tensor is present, fits and is finite
			if err != nil {
				return err
			}
			var names []string // of the dataset
			if len(folders) > 0 {
				d, err := dataset.OpenAll(folders)
				if err != nil {
					return err
				}
				if err := d.CheckModel(&ck.Architecture); err != nil {
					return err
				}
				if err := d.CheckNames(ck.Fields); err != nil {
					return err
				}
				names = d.Fields()
			}
			if ck.Architecture.Kind == model.Graph {
				if names == nil {
					names = ck.Fields
				}
				facts := inspectGraph(ck, m, names)
				return out.Print(c.OutOrStdout(), facts, facts.table)
			}
			facts := inspectModel(ck)
			if names != nil {
				facts.FieldNames = names
			}
			return out.Print(c.OutOrStdout(), facts, facts.table)
		},
	}
	partFlags(c, &part)
	datasetFlag(c, &folders, "dataset `folder`, for the names of the fields (default no names)")
	out.Flag(c)
	return c
}

func inspectModel(ck *checkpoint.Checkpoint) *modelFacts {
	a := &ck.Architecture
	f := &modelFacts{
		Architecture: a.Kind, Framework: ck.Family, Assumed: ck.Assumed(), FieldNames: ck.Fields, FieldDims: a.FieldDims, Dim: a.Dim, Fields: a.Fields(), Features: a.Features(),
		Parameters: a.Parameters(), Players: a.Players(), Hidden: a.Hidden, CrossLayers: a.CrossLayers,
		Experts: a.Experts, Rank: a.Rank, Structure: a.Structure,
		EmbeddingKey: ck.EmbeddingKey, Tensors: ck.TensorCount(), Digest: ck.Digest(), storage: storageOf(ck, ck.Fields),
	}
	return f
}

func (f *modelFacts) table(w io.Writer) {
	fmt.Fprintf(w, "architecture\t%s\n", strings.TrimSpace(fmt.Sprint(f.Architecture, " ", f.Structure)))
	if f.Framework != "" {
		fmt.Fprintf(w, "framework\t%s\n", f.Framework)
	}
	for _, assumed := range f.Assumed {
		fmt.Fprintf(w, "assumed\t%s\n", assumed)
	}
	fmt.Fprintf(w, "fields\t%d\tfeatures: %s\n", f.Fields, f.sizes())
	fmt.Fprintf(w, "embedding\t%d x %d\t%d parameters\n", f.Features, f.Dim, f.Parameters)
	fmt.Fprintf(w, "players per row\t%d\t%d fields x %d columns\n", f.Players, f.Fields, f.Dim)
	f.storage.table(w, f.FieldNames)
	if len(f.Hidden) > 0 {
		fmt.Fprintf(w, "hidden layers\t%v\n", f.Hidden)
	}
	if f.CrossLayers > 0 {
		fmt.Fprintf(w, "cross layers\t%d\n", f.CrossLayers)
	}
	if f.Experts > 0 {
		fmt.Fprintf(w, "experts\t%d of rank %d\n", f.Experts, f.Rank)
	}
	fmt.Fprintf(w, "tensors\t%d\tembedding in %s\n", f.Tensors, cli.Printable(f.EmbeddingKey))
	fmt.Fprintf(w, "digest\t%s\n", f.Digest)
}

// sizes returns the sizes of the fields, after their names if these are known.
func (f *modelFacts) sizes() string {
	var all []string
	for j, size := range f.FieldDims {
		text := strconv.Itoa(size)
		if f.FieldNames != nil {
			text = cli.Printable(f.FieldNames[j]) + " " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
