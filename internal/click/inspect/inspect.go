// Package inspect describes the files of models: the architecture, the tables, and how entries are
// stored.
package inspect

import (
	"strconv"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
)

// Facts is what "model inspect" prints.
type Facts struct {
	Architecture model.Kind `json:"architecture"`
	Framework    string     `json:"framework,omitempty"` // framework that named the tensors; "" for our own names
	Assumed      []string   `json:"assumed,omitempty"`   // assumptions where the file says nothing
	FieldDims    []int      `json:"field_dims"`
	FieldNames   []string   `json:"field_names,omitempty"` // from the dataset, from the file, or from the names of tables
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

	Vocabulary []model.Identity `json:"vocabulary,omitempty"` // what the ids of each field stand for, if the file says it

	Storage
}

// Storage is the facts about a compact file or one with a composed table. It is empty for a dense
// file.
type Storage struct {
	Table  *composed.Shape  `json:"table,omitempty"`  // of a composed table
	Kept   *int             `json:"kept,omitempty"`   // number of kept entries, or of values in the tensors of a composed table
	Values compact.Encoding `json:"values,omitempty"` // how kept entries are stored
	Stored []StoredField    `json:"stored,omitempty"` // by field, or by look-up in the order of the rows of the tables

	Palette []StoredQuantizer `json:"palette,omitempty"` // if the values are mixed
}

// StoredQuantizer is a quantizer of the palette of a compact file. A number q of at most 8 bits
// reads origin + step*q.
type StoredQuantizer struct {
	Bits   int     `json:"bits"`
	Origin float32 `json:"origin"`
	Step   float32 `json:"step"`
	Rows   int     `json:"rows"` // rows that use it
	Kept   int     `json:"kept"` // their kept entries
}

// StoredField is how a compact file stores a field, or the rows that a look-up reads.
type StoredField struct {
	FieldName string `json:"field,omitempty"` // in a model with look-ups
	Table     string `json:"table,omitempty"` // name of the table, in a model with look-ups
	compact.Field
	Bytes int      `json:"bytes"`           // values and structure together
	Words int      `json:"words,omitempty"` // number of words that dropped entries read, if there are several
	Error *float64 `json:"error,omitempty"` // int8: largest rounding error of a value

	Span model.Span `json:"-"` // rows that are stored
}

// storageOf returns the storage of ck. names are the names of the fields, or nil.
func storageOf(ck *checkpoint.Checkpoint, names []string) Storage {
	var s Storage
	if t := ck.Composed; t != nil {
		n := t.Parameters()
		s.Table, s.Kept = &t.Shape, &n
	}
	if ck.Compact == nil {
		return s
	}
	a, kept := &ck.Architecture, ck.Compact.Kept()
	s.Kept, s.Values = &kept, ck.Compact.Encoding()
	steps, book := ck.Compact.Steps(), a.Book(ck.Compact.Baseline())
	var mixed []int
	if p := ck.Compact.Palette(); p != nil {
		mixed = ck.Compact.FieldBytes()
		for i, u := range ck.Compact.Uses() {
			q := p.Quantizers[i]
			s.Palette = append(s.Palette, StoredQuantizer{q.Bits, q.Origin, q.Step, u.Rows, u.Kept})
		}
	}
	for j, field := range ck.Compact.Fields() {
		span := book.Spans[j]
		rows, columns := field.Sizes(span.Rows, span.Dim)
		stored := StoredField{Field: field, Bytes: rows + columns + field.Kept*s.Values.Size(), Span: span}
		if n := book.NumberOfWords(j); n > 1 {
			stored.Words = n
		}
		if mixed != nil {
			stored.Bytes = mixed[j]
		}
		if !a.Plain() {
			stored.FieldName, stored.Table = FieldName(names, span.Field), a.Tables[span.Table].Name
		}
		if steps != nil {
			half := float64(steps[j]) / 2
			stored.Error = &half
		}
		s.Stored = append(s.Stored, stored)
	}
	return s
}

// FieldName returns the name of field j, or its number if the names are not known.
func FieldName(names []string, j int) string {
	if names == nil {
		return strconv.Itoa(j)
	}
	return names[j]
}

// Model returns the facts about a model that is not a graph.
func Model(ck *checkpoint.Checkpoint) *Facts {
	a, names := &ck.Architecture, ck.Known().FieldNames()
	return &Facts{
		Architecture: a.Kind, Framework: ck.Family, Assumed: ck.Assumed(), FieldNames: names, FieldDims: a.FieldDims, Dim: a.Dim, Fields: a.Fields(), Features: a.Features(),
		Parameters: a.Parameters(), Players: a.Players(), Hidden: a.Hidden, CrossLayers: a.CrossLayers,
		Experts: a.Experts, Rank: a.Rank, Structure: a.Structure,
		EmbeddingKey: ck.EmbeddingKey, Tensors: ck.TensorCount(), Digest: ck.Digest(), Storage: storageOf(ck, names), Vocabulary: ck.Identities,
	}
}
