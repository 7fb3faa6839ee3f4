// Package layout numbers the rows and the entries of a model's embedding tables. The rows
// are numbered on from table to table. The entries are numbered row by row, so the entries
// of a row are consecutive. It also turns a sparsity, the portion of a table's entries that
// pruning drops, into a number of entries.
package layout

import "sort"

// Shape states how many entries each row of the tables has. The zero value has no rows.
type Shape struct {
	runs []run // runs of rows with the same number of entries; neighbours differ
	end  run   // the numbers that come after the last row
	dim  int   // number of entries of each row, or 0 if rows differ
}

// run is a sequence of rows with the same number of entries.
type run struct {
	row   int // number of the first row
	entry int // number of its first entry
	dim   int // number of entries of each row; 0 in Shape.end
}

// Of returns the shape of one table.
func Of(rows, dim int) Shape { return Shape{}.And(rows, dim) }

// And returns s followed by a table with the given number of rows of dim entries each. It
// shares no memory with s.
func (s Shape) And(rows, dim int) Shape {
	if rows < 1 || dim < 1 {
		panic("layout: And: a table needs at least one row and one column")
	}
	runs := append(make([]run, 0, len(s.runs)+1), s.runs...)
	if len(runs) == 0 || runs[len(runs)-1].dim != dim {
		runs = append(runs, run{s.end.row, s.end.entry, dim})
	}
	next := Shape{runs: runs, end: run{row: s.end.row + rows, entry: s.end.entry + rows*dim}}
	if len(runs) == 1 {
		next.dim = dim
	}
	return next
}

// Rows returns the number of rows.
func (s *Shape) Rows() int { return s.end.row }

// Entries returns the number of entries of all rows.
func (s *Shape) Entries() int { return s.end.entry }

// Dim returns the number of entries of each row, or 0 if rows differ.
func (s *Shape) Dim() int { return s.dim }

// Widest returns the largest number of entries of a row.
func (s *Shape) Widest() int {
	widest := 0
	for _, r := range s.runs {
		widest = max(widest, r.dim)
	}
	return widest
}

// Row returns the entries [from, to) of a row.
func (s *Shape) Row(row int) (from, to int) {
	if s.dim == 0 {
		return s.search(row)
	}
	from = row * s.dim
	return from, from + s.dim
}

// search is Row for rows with different numbers of entries.
func (s *Shape) search(row int) (from, to int) {
	r := &s.runs[sort.Search(len(s.runs), func(i int) bool { return s.runs[i].row > row })-1]
	from = r.entry + (row-r.row)*r.dim
	return from, from + r.dim
}

// RowOf returns the row of an entry.
func (s *Shape) RowOf(entry int) int {
	r := &s.runs[sort.Search(len(s.runs), func(i int) bool { return s.runs[i].entry > entry })-1]
	return r.row + (entry-r.entry)/r.dim
}

// Cut cuts the rows into n ranges, at least 1, of about equal numbers of entries. Range i has the
// rows [starts[i], starts[i+1]). A range may be empty.
func (s *Shape) Cut(n int) (starts []int) {
	starts = make([]int, n+1)
	starts[n] = s.Rows()
	for i := 1; i < n; i++ {
		starts[i] = s.RowOf(i * s.Entries() / n)
	}
	return starts
}

// Tables returns the numbers of rows and columns of tables with the rows [from, to) of s.
func (s *Shape) Tables(from, to int) (tables [][2]int) {
	for i, r := range s.runs {
		end := s.end.row
		if i+1 < len(s.runs) {
			end = s.runs[i+1].row
		}
		if rows := min(to, end) - max(from, r.row); rows > 0 {
			tables = append(tables, [2]int{rows, r.dim})
		}
	}
	return tables
}

// Part returns the shape of the rows [from, to), which are numbered from 0.
func (s *Shape) Part(from, to int) (part Shape) {
	for _, table := range s.Tables(from, to) {
		part = part.And(table[0], table[1])
	}
	return part
}

// Equal reports whether all rows of s and o have the same numbers of entries.
func (s *Shape) Equal(o *Shape) bool {
	if s.end != o.end || len(s.runs) != len(o.runs) {
		return false
	}
	for i, r := range s.runs {
		if r != o.runs[i] {
			return false
		}
	}
	return true
}
