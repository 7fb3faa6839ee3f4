package compact

import "slices"

// Planner plans, one after the other, the tables of which more and more is dropped,
// in steps that do not grow with the table.
type Planner struct {
	sizes    []int
	dim      int
	first    []int   // row of each field
	left     []int32 // kept entries of each row
	occupied []int   // rows of each field of which something is kept
	fields   []Field // the smallest
	parts    int     // bytes of their structure
	kept     int
}

// NewPlanner returns the planner of a table of fields of the given sizes and d
// columns, of which nothing is dropped. It takes 4 bytes a row.
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

// Drop drops an entry of the table, [n*d], that is not dropped yet.
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

// Fields returns what Plan returns for what is dropped.
func (p *Planner) Fields() []Field {
	fields := slices.Clone(p.fields)
	pad(fields, p.sizes, p.dim, p.parts+p.kept)
	return fields
}

// Bytes returns how many Parts have of Rows, Columns and Values.
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
