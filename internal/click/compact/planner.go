package compact

import (
	"slices"

	"shaver/internal/click/model"
)

// Planner plans a sequence of Parts, each of which drops one more entry. The time per
// entry does not depend on the size of the tables.
type Planner struct {
	spans    []model.Span
	first    []int   // first entry of each field
	entries  int     // number of entries
	left     []int32 // number of kept entries of each row
	occupied []int   // number of rows of each field with a kept entry
	fields   []Field // the smallest form of each field
	parts    int     // bytes of all fields without their values
	kept     int     // number of kept entries
}

// NewPlanner returns a planner for the tables of a with nothing dropped. The planner takes
// 4 bytes per row.
func NewPlanner(a *model.Architecture) *Planner {
	p := &Planner{spans: a.Spans(), entries: a.Parameters(), kept: a.Parameters()}
	for _, s := range p.spans {
		p.first = append(p.first, s.Entry)
		p.fields = append(p.fields, smallest(s.Rows, s.Dim, s.Rows*s.Dim, s.Rows))
		p.occupied = append(p.occupied, s.Rows)
		p.left = append(p.left, slices.Repeat([]int32{int32(s.Dim)}, s.Rows)...)
	}
	return p
}

// Drop drops an entry of the tables, [Parameters], and returns how many bytes less the tables have without their values, which may be
// negative. The entry must not be dropped already.
func (p *Planner) Drop(entry int) (less int) {
	j, found := slices.BinarySearch(p.first, entry)
	if !found {
		j--
	}
	s := &p.spans[j]
	row := s.Row + (entry-s.Entry)/s.Dim
	p.left[row]--
	if p.left[row] == 0 {
		p.occupied[j]--
	}
	p.kept--
	was := p.fields[j]
	p.fields[j] = smallest(s.Rows, s.Dim, was.Kept-1, p.occupied[j])
	less = was.bytes(s.Rows, s.Dim) - p.fields[j].bytes(s.Rows, s.Dim)
	p.parts -= less
	return less
}

// Fields returns the result of Plan for the entries dropped so far.
func (p *Planner) Fields() []Field {
	fields := slices.Clone(p.fields)
	pad(fields, p.spans, p.parts+p.kept)
	return fields
}

// Bytes returns the total size of Rows, Columns and Values.
func (p *Planner) Bytes(v Encoding) int {
	parts := p.parts
	if 4*p.entries > MaxInflation*(p.parts+p.kept) {
		parts = 0
		for j, f := range p.Fields() {
			parts += f.bytes(p.spans[j].Rows, p.spans[j].Dim)
		}
	}
	return parts + p.kept*v.Size()
}
