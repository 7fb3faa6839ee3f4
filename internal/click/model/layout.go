package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"shaver/internal/num/layout"
)

// Table is an embedding table whose entries are players.
type Table struct {
	Name string `json:"name"`
	Rows int    `json:"rows"` // at least 1
	Dim  int    `json:"dim"`  // number of columns, 1 to 65536
}

// LookUp reads one row of a table for each id of a field in a row of data: the row with the
// local id plus an offset. A field that is not a list has one id.
type LookUp struct {
	Field  int `json:"field"`            // index into Architecture.FieldDims
	Table  int `json:"table"`            // index into Architecture.Tables
	Offset int `json:"offset,omitempty"` // row of the table that local id 0 reads
}

// Span is a range of rows of a table that one or more look-ups read, with the numbers of
// its entries. Look-ups read either the same rows or none in common, and no row is left
// unread. What a span says of a look-up is said of the first one that reads it. The span
// counts as a part of this look-up's field.
type Span struct {
	LookUp   int      // index of the look-up
	Field    int      // the look-up's field
	Table    int      // the look-up's table
	Feature  int      // global id of the field's first feature
	Row      int      // number of the first row over all tables
	Rows     int      // number of rows, which is the size of the field
	Entry    int      // number of the first row's first entry over all tables
	Dim      int      // number of columns
	Baseline int      // position of the look-up's first column in a baseline
	Sharers  []Reader // the other look-ups that read the rows, in their order; nil without any
}

// Reader is a look-up that reads a span.
type Reader struct {
	LookUp   int // index of the look-up
	Field    int // the look-up's field
	Feature  int // global id of the field's first feature
	Baseline int // position of the look-up's first column in a baseline
}

// Readers returns all look-ups that read the span, in their order.
func (s *Span) Readers() []Reader {
	return append([]Reader{{s.LookUp, s.Field, s.Feature, s.Baseline}}, s.Sharers...)
}

// Entries returns the entries [from, to) of the span.
func (s *Span) Entries() (from, to int) { return s.Entry, s.Entry + s.Rows*s.Dim }

// Plain reports whether the model has a single table in which field j's rows come after
// those of field j-1. Rows of the table and features are then the same.
func (a *Architecture) Plain() bool { return len(a.Tables) == 0 && len(a.LookUps) == 0 }

// TableColumns returns the number of columns of the table, or of each of several tables. It is 0 if they have
// different numbers.
func (a *Architecture) TableColumns() int {
	tables := a.tables()
	for _, t := range tables {
		if t.Dim != tables[0].Dim {
			return 0
		}
	}
	return tables[0].Dim
}

// SameLayout reports whether a and o have the same fields, tables and look-ups. Frozen fields may differ.
func (a *Architecture) SameLayout(o *Architecture) bool {
	return slices.Equal(a.FieldDims, o.FieldDims) && a.Dim == o.Dim && slices.Equal(a.Tables, o.Tables) && slices.Equal(a.LookUps, o.LookUps) && slices.Equal(a.Lists, o.Lists)
}

// Size describes the size of the tables in words.
func (a *Architecture) Size() string {
	if a.Plain() {
		return fmt.Sprintf("a table of %d features x %d columns", a.Features(), a.Dim)
	}
	return fmt.Sprintf("%d tables of %d parameters, which %d fields of %d features read", len(a.Tables), a.Parameters(), a.Fields(), a.Features())
}

// tables returns the tables. A plain architecture has one without a name.
func (a *Architecture) tables() []Table {
	if a.Plain() {
		return []Table{{Rows: a.Features(), Dim: a.Dim}}
	}
	return a.Tables
}

// lookUps returns the look-ups. A plain architecture has one for each field.
func (a *Architecture) lookUps() []LookUp {
	if !a.Plain() {
		return a.LookUps
	}
	all := make([]LookUp, len(a.FieldDims))
	for j, first := range a.Offsets() {
		all[j] = LookUp{Field: j, Offset: int(first)}
	}
	return all
}

// Shape returns the shape of the tables.
func (a *Architecture) Shape() layout.Shape {
	var s layout.Shape
	for _, t := range a.tables() {
		s = s.And(t.Rows, t.Dim)
	}
	return s
}

// Spans returns the spans of all look-ups, in the order of their rows. There is one for
// each range of rows, even if several look-ups read it.
func (a *Architecture) Spans() []Span {
	tables, features := a.tables(), a.Offsets()
	rows, entries := make([]int, len(tables)), make([]int, len(tables)) // number of the first row and entry of each table
	for t := range tables[1:] {
		rows[t+1], entries[t+1] = rows[t]+tables[t].Rows, entries[t]+tables[t].Rows*tables[t].Dim
	}
	var spans []Span
	columns := 0
	for k, l := range a.lookUps() {
		dim := tables[l.Table].Dim
		spans = append(spans, Span{
			LookUp: k, Field: l.Field, Table: l.Table, Feature: int(features[l.Field]), Row: rows[l.Table] + l.Offset, Rows: a.FieldDims[l.Field],
			Entry: entries[l.Table] + l.Offset*dim, Dim: dim, Baseline: columns,
		})
		columns += dim
	}
	slices.SortStableFunc(spans, func(s, o Span) int { return s.Row - o.Row })
	distinct := spans[:1]
	for _, s := range spans[1:] {
		if first := &distinct[len(distinct)-1]; first.Row == s.Row {
			first.Sharers = append(first.Sharers, Reader{s.LookUp, s.Field, s.Feature, s.Baseline})
		} else {
			distinct = append(distinct, s)
		}
	}
	return distinct
}

// BaselineSize returns the number of values of a baseline with one word for each span, which are a value for each column
// of each look-up, in their order. It differs from Players only in models with lists, because a
// word is the same at all positions of a list.
func (a *Architecture) BaselineSize() int {
	columns := a.Fields() * a.Dim
	for _, l := range a.LookUps {
		columns += a.Tables[l.Table].Dim
	}
	return columns
}

// FixedRows returns the rows of the tables that pad ids or frozen fields read, in ascending
// order. Their entries are never players, not even of a row that reads them with another id
// or through another field, and no method changes them.
func (a *Architecture) FixedRows() []int {
	if len(a.Lists) == 0 && len(a.Frozen) == 0 {
		return nil
	}
	var rows []int
	for _, s := range a.Spans() {
		if a.frozen(&s) {
			for i := range s.Rows {
				rows = append(rows, s.Row+i)
			}
			continue
		}
		for _, l := range a.Lists {
			if l.Pad >= 0 && s.readBy(l.Field) {
				rows = append(rows, s.Row+l.Pad)
			}
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// frozen reports whether a frozen field reads the span.
func (a *Architecture) frozen(s *Span) bool { return slices.ContainsFunc(a.Frozen, s.readBy) }

// readBy reports whether a field reads the span.
func (s *Span) readBy(field int) bool {
	return s.Field == field || slices.ContainsFunc(s.Sharers, func(r Reader) bool { return r.Field == field })
}

// Freeze returns an error unless fields, ascending indices, can be frozen: each of them reads a
// table with players, and a player is left. Otherwise it sets Frozen.
func (a *Architecture) Freeze(fields []int) error {
	spans := a.Spans()
	for i, j := range fields {
		if i > 0 && j <= fields[i-1] || !slices.ContainsFunc(spans, func(s Span) bool { return s.readBy(j) }) {
			return fmt.Errorf("field %d reads no table with players, or is given twice", j)
		}
	}
	frozen := *a
	if frozen.Frozen = fields; frozen.Prunable() == 0 {
		return errors.New("no player is left: expected at least one field that reads another table")
	}
	a.Frozen = fields
	return nil
}

// Prunable returns the number of entries that budgets count: those of all spans that no frozen field reads.
func (a *Architecture) Prunable() int {
	n := a.Parameters()
	if len(a.Frozen) == 0 {
		return n
	}
	for _, s := range a.Spans() {
		if a.frozen(&s) {
			n -= s.Rows * s.Dim
		}
	}
	return n
}

// Free returns the elements of a row's embedding that no frozen field's table gives, or nil if no field is frozen. In
// a model without lists and shared rows, they are the players.
func (a *Architecture) Free() (elements []int32) {
	if len(a.Frozen) == 0 {
		return nil
	}
	element := int32(0)
	for _, p := range a.positions() {
		for range p.dim {
			if !p.frozen {
				elements = append(elements, element)
			}
			element++
		}
	}
	return elements
}

// MostPlayers returns the largest number of players of a row.
func (a *Architecture) MostPlayers() int {
	if free := a.Free(); free != nil {
		return len(free)
	}
	return a.Players()
}

// position is what a look-up reads for one id of a row of data. It fills consecutive
// elements of the row's embedding.
type position struct {
	at      int // index of the id in the row
	feature int // global id of the first feature of the id's field
	row     int // row of the tables that this feature reads
	entry   int // first entry of this row of the tables
	dim     int // number of columns
	field   int // field of the span, which may be that of another look-up
	frozen  bool

	span     int // number of the span
	baseline int // position of the look-up's first word in a baseline
}

// positions returns the positions of all look-ups, in the order of the elements.
func (a *Architecture) positions() []position {
	lookUps := a.lookUps()
	spans, readers, numbers := make([]Span, len(lookUps)), make([]Reader, len(lookUps)), make([]int, len(lookUps)) // by look-up
	for j, s := range a.Spans() {
		for _, r := range s.Readers() {
			spans[r.LookUp], readers[r.LookUp], numbers[r.LookUp] = s, r, j
		}
	}
	lengths := a.Lengths()
	first := Offsets(lengths) // index of each field's first id
	var all []position
	for k, s := range spans {
		field := readers[k].Field
		for i := range lengths[field] {
			all = append(all, position{int(first[field]) + i, readers[k].Feature, s.Row, s.Entry, s.Dim, s.Field, a.frozen(&s), numbers[k], readers[k].Baseline})
		}
	}
	return all
}

// FeatureEntries returns, for each field, the number of entries of each of its features in
// all spans of the field together. It is 0 for a field without spans.
func (a *Architecture) FeatureEntries() []int {
	entries := make([]int, len(a.FieldDims))
	for _, s := range a.Spans() {
		entries[s.Field] += s.Dim
	}
	return entries
}

// RowCounts returns how often each row of the tables is read. counts, [n], are the
// occurrences of the features. The occurrences of features of several fields that read the
// same row are added, and those of pad rows are 0. The result of a plain architecture is
// counts itself.
func (a *Architecture) RowCounts(counts []int64) []int64 {
	if len(counts) != a.Features() {
		panic("model: RowCounts: counts have the wrong length")
	}
	if a.Plain() {
		return counts
	}
	var all []int64
	for _, s := range a.Spans() {
		rows := make([]int64, s.Rows)
		var fields []int // a field may have several look-ups
		for _, r := range s.Readers() {
			if slices.Contains(fields, r.Field) {
				continue
			}
			fields = append(fields, r.Field)
			for id, count := range counts[r.Feature : r.Feature+s.Rows] {
				rows[id] += count
			}
		}
		all = append(all, rows...)
	}
	for _, row := range a.FixedRows() {
		all[row] = 0
	}
	return all
}

// ValidateLayout is Validate for FieldDims, Dim, Tables and LookUps alone.
func (a *Architecture) ValidateLayout() error {
	if len(a.FieldDims) == 0 {
		return errors.New("field_dims is empty: a model needs at least one field")
	}
	if err := CheckSizes(nil, a.FieldDims); err != nil {
		return fmt.Errorf("field_dims: %w", err)
	}
	if a.Plain() {
		if a.Dim < 1 || a.Dim > 1<<16 {
			return fmt.Errorf("dim is %d: expected 1 to 65536 columns", a.Dim)
		}
		return a.validateLists()
	}
	if a.Dim != 0 {
		return fmt.Errorf("dim is %d: expected 0 in a model with tables and look_ups", a.Dim)
	}
	if len(a.Tables) == 0 || len(a.LookUps) == 0 {
		return errors.New("a model needs both tables and look_ups, or neither")
	}
	rows, entries := 0, 0
	for i, t := range a.Tables {
		switch {
		case t.Name == "" || slices.ContainsFunc(a.Tables[:i], func(o Table) bool { return o.Name == t.Name }):
			return fmt.Errorf("table %d has the name %q: expected a name of its own", i, t.Name)
		case t.Dim < 1 || t.Dim > 1<<16:
			return fmt.Errorf("table %d (%s) has %d columns: expected 1 to 65536", i, t.Name, t.Dim)
		case t.Rows < 1 || t.Rows > math.MaxInt32-rows:
			return fmt.Errorf("table %d (%s) has %d rows after %d: expected at least 1 and less than 2^31 in all tables", i, t.Name, t.Rows, rows)
		}
		rows, entries = rows+t.Rows, entries+t.Rows*t.Dim
	}
	if err := a.validateLists(); err != nil {
		return err
	}
	return a.checkLookUps()
}

// checkLookUps returns an error if a look-up is invalid, if two look-ups read the same row
// but not the same rows, or if no look-up reads a row.
func (a *Architecture) checkLookUps() error {
	for k, l := range a.LookUps {
		if l.Field < 0 || l.Field >= len(a.FieldDims) {
			return fmt.Errorf("look-up %d reads field %d: expected one of %d fields", k, l.Field, len(a.FieldDims))
		}
		if l.Table < 0 || l.Table >= len(a.Tables) {
			return fmt.Errorf("look-up %d reads table %d: expected one of %d tables", k, l.Table, len(a.Tables))
		}
		if t, size := a.Tables[l.Table], a.FieldDims[l.Field]; l.Offset < 0 || size > t.Rows-l.Offset {
			return fmt.Errorf("look-up %d reads rows %d to %d of table %s for field %d: the table has %d rows", k, l.Offset, l.Offset+size-1, t.Name, l.Field, t.Rows)
		}
	}
	order := make([]int, len(a.LookUps)) // look-ups in the order of their rows
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(k, o int) int {
		x, y := a.LookUps[k], a.LookUps[o]
		if x.Table != y.Table {
			return x.Table - y.Table
		}
		return x.Offset - y.Offset
	})
	for t, table := range a.Tables {
		next, last := 0, -1 // the first row that no look-up has read, and the last look-up
		for _, k := range order {
			l := a.LookUps[k]
			switch {
			case l.Table != t:
				continue
			case l.Offset < next && l.Offset == a.LookUps[last].Offset && a.FieldDims[l.Field] == a.FieldDims[a.LookUps[last].Field]:
				continue
			case l.Offset < next:
				return fmt.Errorf("look-ups %d and %d both read row %d of table %s: expected that they read the same rows or none in common", last, k, l.Offset, table.Name)
			case l.Offset > next:
				return fmt.Errorf("no look-up reads row %d of table %s: expected that each row is read by a look-up", next, table.Name)
			}
			next, last = l.Offset+a.FieldDims[l.Field], k
		}
		if next < table.Rows {
			return fmt.Errorf("no look-up reads row %d of table %s: expected that each row is read by a look-up", next, table.Name)
		}
	}
	return nil
}
