package compact

import "slices"

// Planner plans a sequence of tables, each of which drops one more entry. The time per
// entry does not depend on the size of the table.
type Planner struct {
	sizes    []int
	dim      int
	first    []int   // first row of each field
	left     []int32 // number of kept entries of each row
	occupied []int   // number of rows of each field with a kept entry
	fields   []Field // the smallest form of each field
	parts    int     // bytes of all fields without their values
	kept     int     // number of kept entries
}

// NewPlanner returns a planner for a table with d columns and nothing dropped. sizes are
// the fields' numbers of rows. The planner takes 4 bytes per row.
func NewPlanner(sizes []int, dim int) *Planner {
	p := &Planner{sizes: sizes, dim: dim, occupied: slices.Clone(sizes)}
	rows := 0
	for _, size := range sizes {
		p.first = append(p.first, rows)
		p.fields = append(p.fields, smallest(size, dim, size*dim, size))
		rows += size
	}
	p.kept = rows * dim
	p.left = slices.Repeat([]int32{int32(dim)}, rows)
	return p
}

// Drop drops an entry of the table, [n*d]. It must not be dropped already.
func (p *Planner) Drop(entry int) {
	row := entry / p.dim
	j, found := slices.BinarySearch(p.first, row)
	if !found {
		j--
	}
	p.left[row]--
	if p.left[row] == 0 {
		p.occupied[j]--
	}
	p.kept--
	was, size := p.fields[j], p.sizes[j]
	p.fields[j] = smallest(size, p.dim, was.Kept-1, p.occupied[j])
	p.parts += p.fields[j].bytes(size, p.dim) - was.bytes(size, p.dim)
}

// Fields returns the result of Plan for the entries dropped so far.
func (p *Planner) Fields() []Field {
	fields := slices.Clone(p.fields)
	pad(fields, p.sizes, p.dim, p.parts+p.kept)
	return fields
}

// Bytes returns the total size of Rows, Columns and Values.
func (p *Planner) Bytes(v Encoding) int {
	parts := p.parts
	if 4*p.dim*len(p.left) > MaxInflation*(p.parts+p.kept) {
		parts = 0
		for j, f := range p.Fields() {
			parts += f.bytes(p.sizes[j], p.dim)
		}
	}
	return parts + p.kept*v.Size()
}
