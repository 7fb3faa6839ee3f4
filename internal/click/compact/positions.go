package compact

import "math/bits"

// positions codes which entries are kept, and which quantizers are used.
type positions struct {
	*coder
	codebook numberModel // quantizers of the codebook
	number   numberModel // quantizers of the rows
	listed   [2]chance   // whether a row of the field is listed, by whether the row before is
	columns  []chance    // for each column of the field, whether a listed row keeps it
	last     int         // whether the row before is listed
}

func newPositions(c *coder) *positions {
	return &positions{coder: c, codebook: newNumberModel(), number: newNumberModel()}
}

// numberModel holds the chances of the bits of a number from 0 to 15, from the highest bit
// on. The chance of a bit is at the position of the bits before it, after a 1.
type numberModel [16]chance

func newNumberModel() (m numberModel) {
	for i := range m {
		m[i] = even
	}
	return m
}

// codeNumber codes a number from 0 to 15.
func (p *positions) codeNumber(m *numberModel, number int) int {
	node := 1
	for bit := 3; bit >= 0; bit-- {
		node = node<<1 | p.code(&m[node], number>>bit&1)
	}
	return node & 15
}

// begin begins a field.
func (p *positions) begin(dim int) {
	p.listed = [2]chance{even, even}
	p.last = 0
	p.columns = p.columns[:0]
	for range dim {
		p.columns = append(p.columns, even)
	}
}

// codeListed codes whether the next row of the field is listed.
func (p *positions) codeListed(listed int) int {
	p.last = p.code(&p.listed[p.last], listed)
	return p.last
}

// codeQuantizer codes the quantizer of the next listed row.
func (p *positions) codeQuantizer(number int) int { return p.codeNumber(&p.number, number) }

// codeColumns codes which columns the next listed row keeps. The masks hold one bit for each
// column, and at least one of them is 1. If p reads, codeColumns sets them. It returns the
// number of kept entries.
func (p *positions) codeColumns(masks []uint16) int {
	kept := 0
	for c := range p.columns {
		mask := &masks[c/maxNarrow]
		if kept == 0 && c == len(p.columns)-1 { // no row without a kept entry is listed
			*mask |= 1 << (c % maxNarrow)
			return 1
		}
		bit := p.code(&p.columns[c], int(*mask>>(c%maxNarrow)&1))
		*mask |= uint16(bit) << (c % maxNarrow)
		kept += bit
	}
	return kept
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
