package checkpoint

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/onnx/dissect"
)

// zeroed returns the logits of c for rows, if all that s drops reads 0. Ids that the head reads as numbers are those of
// Sliced.
func zeroed(t *testing.T, c *Checkpoint, s *Slice, rows *model.Rows) []float64 {
	t.Helper()
	m := must(c.Model())(t)
	a, w := &m.Architecture, m.Weights
	head := *w.Graph
	w.Graph = &head
	gone := func(field int) bool { return !slices.Contains(s.Fields, field) }
	for i, l := range head.Constants {
		if gone(l.Field) {
			head.Constants[i].Values = make([]float32, len(l.Values))
		}
	}
	// Fields may share rows of a table, so that each look-up gets a table of its own.
	wide := model.Architecture{Kind: model.Graph, FieldDims: a.FieldDims, Lists: a.Lists, Dense: a.Dense}
	var table []float32
	lookUps, tables := a.LookUps, a.Tables
	if a.Plain() {
		tables = []model.Table{{Name: "t", Rows: a.Features(), Dim: a.Dim}}
		for j, first := range a.Offsets() {
			lookUps = append(lookUps, model.LookUp{Field: j, Offset: int(first)})
		}
	}
	for k, l := range lookUps {
		from := 0
		for _, before := range tables[:l.Table] {
			from += before.Rows * before.Dim
		}
		dim, size := tables[l.Table].Dim, a.FieldDims[l.Field]
		part := slices.Clone(w.Embedding[from+l.Offset*dim : from+(l.Offset+size)*dim])
		for i := range part {
			if gone(l.Field) || a.TableColumns() > 0 && !slices.Contains(s.Columns, i%dim) {
				part[i] = 0
			}
		}
		table = append(table, part...)
		wide.Tables = append(wide.Tables, model.Table{Name: string(rune('a' + k)), Rows: size, Dim: dim})
		wide.LookUps = append(wide.LookUps, model.LookUp{Field: l.Field, Table: k})
	}
	w.Embedding = table
	whole := must(model.New(wide, w))(t)
	read := &model.Rows{Width: rows.Width, Inputs: rows.Inputs, Number: rows.Number, Label: rows.Label, Dense: rows.Dense, Features: slices.Clone(rows.Features)}
	at := 0
	for j, length := range a.Lengths() {
		for range length {
			if gone(j) {
				id := int32(0)
				for _, l := range a.Lists {
					if l.Field == j && l.Pad == 0 && a.FieldDims[j] > 1 {
						id = 1
					}
				}
				for r := range rows.Len() {
					read.Row(r)[at] = a.Offsets()[j] + id
				}
			}
			at++
		}
	}
	logits := make([]float64, rows.Len())
	whole.NewScorer().Logits(logits, read)
	return logits
}

// without returns rows with the given fields only.
func without(rows *model.Rows, fields []int, before, after *model.Architecture) *model.Rows {
	out := &model.Rows{Width: after.Width(), Inputs: rows.Inputs, Number: rows.Number, Label: rows.Label, Dense: rows.Dense}
	from, to, lengths := before.Offsets(), after.Offsets(), before.Lengths()
	first := model.Offsets(lengths)
	for r := range rows.Len() {
		for k, j := range fields {
			for _, id := range rows.Row(r)[first[j]:][:lengths[j]] {
				out.Features = append(out.Features, id-from[j]+to[k])
			}
		}
	}
	return out
}

// sliceCase is a slice of an exported model.
type sliceCase struct {
	name  string
	slice Slice
}

// sliceCases returns slices of a model: without each of the first fields, with every second field, and with fewer columns.
func sliceCases(a *model.Architecture) (cases []sliceCase) {
	all := Slice{Fields: numbers(a.Fields()), Columns: numbers(a.TableColumns())}
	add := func(name string, fields, columns []int) {
		if len(fields) > 0 && (len(columns) > 0 || a.TableColumns() == 0) {
			cases = append(cases, sliceCase{name, Slice{fields, columns}})
		}
	}
	drop := func(list []int, gone func(i int) bool) []int { return slices.DeleteFunc(slices.Clone(list), gone) }
	add("whole", all.Fields, all.Columns)
	for j := range min(a.Fields(), 3) {
		add("field", drop(all.Fields, func(i int) bool { return i == j }), all.Columns)
	}
	add("half", drop(all.Fields, func(i int) bool { return i%2 == 1 }), all.Columns)
	if a.TableColumns() > 1 {
		add("columns", all.Fields, drop(all.Columns, func(i int) bool { return i == 1 }))
		add("both", drop(all.Fields, func(i int) bool { return i == 0 }), drop(all.Columns, func(i int) bool { return i == 0 || i == 2 }))
	}
	return cases
}

// An exported graph of every framework, without some fields or columns, has the logits of the whole graph in which these
// read 0, and takes no more products.
func TestSlicedGraph(t *testing.T) {
	long.Test(t)
	cut, saved := 0, 0
	for _, e := range readExports(t) {
		t.Run(strings.TrimSuffix(e.File, ".onnx"), func(t *testing.T) {
			c, err := ReadPart(filepath.Join(exports, e.File), Options{ONNX: dissect.Options{Output: e.Output}, Generic: true})
			if err != nil {
				t.Fatal(err)
			}
			rows := e.rowsOf(t, c)
			before := must(c.Model())(t).Weights.Graph.Graph.Products()
			for _, s := range sliceCases(&c.Architecture) {
				sliced, err := c.Sliced(s.slice)
				if err != nil {
					if strings.Contains(err.Error(), "no longer depends on the row") || strings.Contains(err.Error(), "remove that field too") {
						continue
					}
					t.Fatalf("%s: %v", s.name, err)
				}
				path := filepath.Join(t.TempDir(), "sliced.safetensors")
				must(WriteDense(path, sliced))(t)
				again, small, err := ReadModel(path, "")
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if again.Digest() != sliced.Digest() {
					t.Errorf("%s: the written file reads as another checkpoint", s.name)
				}
				want := zeroed(t, c, &s.slice, rows)
				got := make([]float64, rows.Len())
				small.NewScorer().Logits(got, without(rows, s.slice.Fields, &c.Architecture, &small.Architecture))
				for i := range got {
					if !(math.Abs(got[i]-want[i]) <= 2e-6*(1+math.Abs(want[i]))) && !(math.IsNaN(got[i]) && math.IsNaN(want[i])) {
						t.Fatalf("%s %v: row %d has the logit %.9f, expected %.9f", s.name, s.slice, i, got[i], want[i])
					}
				}
				after := small.Weights.Graph.Graph.Products()
				if after > before {
					t.Errorf("%s: %d products of %d", s.name, after, before)
				}
				if cut++; after < before {
					saved++
				}
			}
		})
	}
	if saved < cut*2/3 {
		t.Errorf("%d of %d slices save products", saved, cut)
	}
}
