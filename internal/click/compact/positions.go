package compact

import "math/bits"

// positions codes which entries are kept, and which quantizers are used. A context that
// occurs for the first time begins with the chance of a wider one.
type positions struct {
	*coder
	line   numberModel // quantizers of the codebook
	number numberModel // quantizers of the rows of all fields
	kept   chance      // whether a listed row of any field keeps a column

	// Of the field:
	dim     int
	numbers numberModel // quantizers of its rows
	any     chance      // whether a row is listed
	listed  [9]chance   // whether a row is listed, by the number of listed rows among the 8 before
	before  uint8       // whether each of the 8 rows before is listed, the last one in the lowest bit
	row     chance      // whether a listed row keeps a column
	columns []column
}

// column holds the chances that a listed row keeps a column.
type column struct {
	any chance
	by  [3]chance // by the number of kept columns before it: 0, 1 or more
}

// The weights with which chances begin, in bits that were coded.
const (
	rootWeight   = 1 // a chance that nothing is known of
	fieldWeight  = 2
	columnWeight = 2
	byWeight     = 4 // one of several chances that replace a wider one
)

var even = chance{1 << 31, rootWeight}

func newPositions(c *coder) *positions {
	p := &positions{coder: c, kept: even}
	for i := range p.line {
		p.line[i], p.number[i] = even, even
	}
	return p
}

// begin begins a field.
func (p *positions) begin(dim int) {
	p.dim, p.numbers, p.any, p.listed, p.before = dim, numberModel{}, even, [9]chance{}, 0
	p.row = p.kept.with(fieldWeight)
	if cap(p.columns) < dim {
		p.columns = make([]column, dim)
	}
	p.columns = p.columns[:dim]
	clear(p.columns)
}

// codeListed codes whether the next row of the field is listed.
func (p *positions) codeListed(listed int) int {
	by := p.listed[bits.OnesCount8(p.before)].or(&p.any, byWeight)
	listed = p.code(by, listed)
	p.any.learn(listed)
	p.before = p.before<<1 | uint8(listed)
	return listed
}

// codeColumns codes which columns the next listed row keeps, besides those of had, which may be nil.
// The masks hold one bit for each column, and at least one of them is 1. If p reads, codeColumns sets
// them; they must be 0 before. It returns the number of kept entries, without had.
func (p *positions) codeColumns(masks, had []uint16) int {
	is := func(c int) bool { return had != nil && had[c/maxNarrow]>>(c%maxNarrow)&1 == 1 }
	kept, last := 0, p.dim-1
	for is(last) {
		last--
	}
	for c := range p.columns[:last+1] {
		if is(c) {
			continue
		}
		mask := &masks[c/maxNarrow]
		if kept == 0 && c == last { // a listed row has a kept entry
			*mask |= 1 << (c % maxNarrow)
			return 1
		}
		column := &p.columns[c]
		column.any.or(&p.row, columnWeight)
		by := column.by[min(kept, 2)].or(&column.any, byWeight)
		bit := p.code(by, int(*mask>>(c%maxNarrow)&1))
		*mask |= uint16(bit) << (c % maxNarrow)
		kept += bit
		if column.any.learn(bit) && p.row.learn(bit) {
			p.kept.learn(bit)
		}
	}
	return kept
}

// numberModel holds the chances of the bits of a number from 0 to 15, from the highest bit
// on. The chance of a bit is at the position of the bits before it, after a 1.
type numberModel [16]chance

// codeLine codes the quantizer of a line of the codebook.
func (p *positions) codeLine(number int) int { return p.codeNumber(p.line[:], p.line[:], 4, number) }

// codeQuantizer codes the quantizer of the next listed row.
func (p *positions) codeQuantizer(number int) int {
	return p.codeNumber(p.numbers[:], p.number[:], 4, number)
}

// codeNumber codes a number of some bits, as numberModel says. wide has the chances with which those of m begin.
func (c *coder) codeNumber(m, wide []chance, bits, number int) int {
	node := 1
	for at := bits - 1; at >= 0; at-- {
		bit := c.code(m[node].or(&wide[node], byWeight), number>>at&1)
		if &m[0] != &wide[0] {
			wide[node].update(bit)
		}
		node = node<<1 | bit
	}
	return node - 1<<bits
}

// maskOf sets masks to the kept columns of a row and returns their number.
func maskOf(masks []uint16, dropped []bool) (kept int) {
	clear(masks)
	for c, gone := range dropped {
		if !gone {
			masks[c/maxNarrow] |= 1 << (c % maxNarrow)
		}
	}
	for _, mask := range masks {
		kept += bits.OnesCount16(mask)
	}
	return kept
}
