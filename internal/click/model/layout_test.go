package model

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tables is an architecture with fields of 2, 3 and 4 features. Field 1 has two tables,
// and fields 0 and 2 share a table in the reverse order.
func tables() *Architecture {
	return &Architecture{
		FieldDims: []int{2, 3, 4},
		Tables:    []Table{{"narrow", 3, 1}, {"joint", 6, 2}, {"wide", 3, 4}},
		LookUps:   []LookUp{{Field: 2, Table: 1}, {Field: 1, Table: 2}, {Field: 0, Table: 1, Offset: 4}, {Field: 1, Table: 0}},
	}
}

func TestSpans(t *testing.T) {
	a := tables()
	if err := a.ValidateLayout(); err != nil {
		t.Fatal(err)
	}
	want := []Span{
		{LookUp: 3, Field: 1, Table: 0, Feature: 2, Row: 0, Rows: 3, Entry: 0, Dim: 1, Baseline: 8},
		{LookUp: 0, Field: 2, Table: 1, Feature: 5, Row: 3, Rows: 4, Entry: 3, Dim: 2, Baseline: 0},
		{LookUp: 2, Field: 0, Table: 1, Feature: 0, Row: 7, Rows: 2, Entry: 11, Dim: 2, Baseline: 6},
		{LookUp: 1, Field: 1, Table: 2, Feature: 2, Row: 9, Rows: 3, Entry: 15, Dim: 4, Baseline: 2},
	}
	if got := a.Spans(); !reflect.DeepEqual(got, want) {
		t.Errorf("spans %+v, expected %+v", got, want)
	}
	if a.Players() != 9 || a.Parameters() != 27 {
		t.Errorf("%d players and %d parameters, expected 9 and 27", a.Players(), a.Parameters())
	}
	if s := a.Shape(); s.Rows() != 12 || s.Entries() != 27 {
		t.Errorf("a shape of %d rows and %d entries, expected 12 and 27", s.Rows(), s.Entries())
	}
	if got := a.FeatureEntries(); !slices.Equal(got, []int{2, 5, 2}) {
		t.Errorf("the features of the fields have %v entries", got)
	}
	if got := a.RowCounts([]int64{0, 1, 2, 3, 4, 5, 6, 7, 8}); !slices.Equal(got, []int64{2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4}) {
		t.Errorf("counts of the rows %v", got)
	}
	e := NewRoster(a)
	if e.Set([]int32{1, 4, 5}); !slices.Equal(e.Rows(), []int32{3, 11, 8, 2}) || e.Merged() || e.Players() != 9 || !slices.Equal(e.Fields(), []int{2, 1, 0, 1}) {
		t.Errorf("the row 1, 4, 5 has %d players in the rows %v of the tables, of the fields %v", e.Players(), e.Rows(), e.Fields())
	}
}

// Embed reads the entries that the spans say.
func TestEmbedOfLookUps(t *testing.T) {
	a := tables()
	table := make([]float32, a.Parameters())
	for i := range table {
		table[i] = float32(i)
	}
	m := &Model{Architecture: *a, Weights: Weights{Embedding: table}, positions: a.positions()}
	x := make([]float32, 2*a.Players())
	m.Embed(x, []int32{1, 4, 5, 0, 2, 8})
	if want := []float32{3, 4, 23, 24, 25, 26, 13, 14, 2, 9, 10, 15, 16, 17, 18, 11, 12, 0}; !slices.Equal(x, want) {
		t.Errorf("embeddings %v, expected %v", x, want)
	}
}

// An architecture with one table is like one that has that table and its look-ups, except
// that it does not copy.
func TestPlainLayout(t *testing.T) {
	plain := &Architecture{FieldDims: []int{2, 3}, Dim: 4}
	listed := &Architecture{FieldDims: []int{2, 3}, Tables: []Table{{"t", 5, 4}}, LookUps: []LookUp{{Field: 0}, {Field: 1, Offset: 2}}}
	if err := listed.ValidateLayout(); err != nil {
		t.Fatal(err)
	}
	s, o := plain.Shape(), listed.Shape()
	if !reflect.DeepEqual(plain.Spans(), listed.Spans()) || !s.Equal(&o) || plain.Players() != listed.Players() || plain.Parameters() != listed.Parameters() {
		t.Errorf("one table has spans %+v, the same table in a list %+v", plain.Spans(), listed.Spans())
	}
	features, values := []int32{1, 3}, []int64{5, 6, 7, 8, 9}
	one, many := NewRoster(plain), NewRoster(listed)
	one.Set(features)
	many.Set(features)
	if got := one.Rows(); &got[0] != &features[0] || !slices.Equal(many.Rows(), features) {
		t.Errorf("%v reads the rows %v of one table", features, got)
	}
	if got := plain.RowCounts(values); &got[0] != &values[0] || !slices.Equal(listed.RowCounts(values), values) {
		t.Errorf("one table has %v for its rows, expected %v", got, values)
	}
	if text, err := json.Marshal(plain); err != nil || string(text) != `{"kind":"","field_dims":[2,3],"dim":4}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestLayoutRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(a *Architecture)
		expect string
	}{
		"dim":         {func(a *Architecture) { a.Dim = 2 }, "dim is 2: expected 0"},
		"no tables":   {func(a *Architecture) { a.Tables = nil }, "both tables and look_ups"},
		"no look-ups": {func(a *Architecture) { a.LookUps = nil }, "both tables and look_ups"},
		"name":        {func(a *Architecture) { a.Tables[2].Name = "joint" }, `table 2 has the name "joint"`},
		"unnamed":     {func(a *Architecture) { a.Tables[0].Name = "" }, `table 0 has the name ""`},
		"columns":     {func(a *Architecture) { a.Tables[1].Dim = 0 }, "table 1 (joint) has 0 columns"},
		"rows":        {func(a *Architecture) { a.Tables[1].Rows = 1<<31 - 3 }, "table 1 (joint) has 2147483645 rows after 3"},
		"field":       {func(a *Architecture) { a.LookUps[1].Field = 3 }, "look-up 1 reads field 3: expected one of 3 fields"},
		"table":       {func(a *Architecture) { a.LookUps[1].Table = -1 }, "look-up 1 reads table -1"},
		"outside":     {func(a *Architecture) { a.LookUps[2].Offset = 5 }, "look-up 2 reads rows 5 to 6 of table joint for field 0: the table has 6 rows"},
		"negative":    {func(a *Architecture) { a.LookUps[2].Offset = -1 }, "look-up 2 reads rows -1 to 0"},
		"shared":      {func(a *Architecture) { a.LookUps[2].Offset = 3 }, "look-ups 0 and 2 both read row 3 of table joint: expected that they read the same rows or none in common"},
		"overlap":     {func(a *Architecture) { a.LookUps = append(a.LookUps, LookUp{Field: 0, Table: 2}) }, "look-ups 1 and 4 both read row 0 of table wide"},
		"later":       {func(a *Architecture) { a.LookUps = append(a.LookUps, LookUp{Field: 0, Table: 2, Offset: 1}) }, "look-ups 1 and 4 both read row 1 of table wide"},
		"gap":         {func(a *Architecture) { a.Tables[1].Rows, a.LookUps[2].Offset = 7, 5 }, "no look-up reads row 4 of table joint"},
		"rest":        {func(a *Architecture) { a.Tables[2].Rows = 9 }, "no look-up reads row 3 of table wide"},
		"unread":      {func(a *Architecture) { a.Tables = append(a.Tables, Table{"other", 2, 2}) }, "no look-up reads row 0 of table other"},
	} {
		a := tables()
		c.spoil(a)
		if err := a.ValidateLayout(); err == nil || !strings.Contains(err.Error(), c.expect) {
			t.Errorf("%s: error %v, expected %q", name, err, c.expect)
		}
	}
	a := tables()
	a.Kind = FM
	if err := a.Validate(); err == nil || !strings.Contains(err.Error(), "kind is fm, which has a single table") {
		t.Errorf("error for an fm with tables: %v", err)
	}
}
