package compact

import (
	"encoding/binary"
	"math/bits"
)

// together is how many look-ups Embed does at once. Each is a chain of loads that
// miss the caches: those of many run side by side. Which rows are listed is
// random, so nothing branches on it.
const together = 64

// Embed writes the embeddings of some rows of the model, [rows, m*d], to x.
// features are global ids, [rows, m], field by field. It is what a model.Table
// does.
func (t *Table) Embed(x []float32, features []int32) {
	if t.dim <= maxNarrow {
		t.embedNarrow(x, features)
		return
	}
	var places [together]place
	field := 0
	for from := 0; from < len(features); from += together {
		n := 0
		for k, id := range features[from:min(from+together, len(features))] {
			f := &t.fields[field]
			if field++; field == len(t.fields) {
				field = 0
			}
			at := (from + k) * t.dim
			copy(x[at:at+t.dim], f.codebook)
			p := &places[n]
			p.field, p.at = f, at
			n += f.find(p, int(id)-f.first)
		}
		found := places[:n]
		for i := range found {
			found[i].field.seek(&found[i])
		}
		for i := range found {
			p := &found[i]
			p.field.fill(x[p.at:p.at+t.dim], p)
		}
	}
}

// place is where the kept entries of a row are.
type place struct {
	field  *field
	at     int    // of its embedding in x
	row    int    // listed row
	before int    // listed rows of its block before it
	kept   int    // its first kept entry
	word   uint64 // the first bytes of columns of its block, which find asks for early
	byte   byte   // of its first value, which seek asks for early
}

// find returns 1 if row i is listed, and its place, in which kept is its block's;
// else 0.
func (f *field) find(p *place, i int) int {
	switch f.layout {
	case nothing:
		return 0
	case everything:
		p.row, p.kept = i, i*f.dim
		return 1
	}
	b := &f.blocks[i>>f.shift]
	bit := i & (1<<f.shift - 1)
	listed := int(b.listed >> bit & 1)
	p.before = bits.OnesCount64(b.listed & (1<<bit - 1))
	p.row, p.kept = int(b.rows)+p.before, int(b.kept)
	at := p.kept
	if f.layout == bitmaps {
		at = int(b.rows)
	}
	p.word = load(f.columns, at*f.width*listed) // of a row that is not listed, what the caches have
	return listed
}

// seek completes p.
func (f *field) seek(p *place) {
	switch f.layout {
	case bitmaps:
		p.kept += ones(f.columns, (p.row-p.before)*f.width, p.row*f.width)
	case columnLists:
		f.seekColumns(p)
	}
	if at := p.kept * f.values.size; at < len(f.values.data) { // a listed row of a bitmap may keep nothing
		p.byte = f.values.data[at]
	}
}

// seekColumns is seek for the form columns: it goes past the ends of the rows
// before p's in its block.
func (f *field) seekColumns(p *place) {
	before := p.before
	if before == 0 {
		return
	}
	for {
		n := bits.OnesCount64(p.word & f.ends)
		if n >= before {
			break
		}
		before -= n
		p.kept += f.step
		p.word = load(f.columns, p.kept*f.width)
	}
	// The number that ends row "before" of this word: in count each one has the ends
	// until it, itself included, and in reached its highest bit if that is enough.
	one := f.ends >> (8*f.width - 1)
	count := p.word & f.ends >> (8*f.width - 1) * one
	reached := (count | f.ends) - uint64(before)*one
	p.kept += bits.TrailingZeros64(reached&f.ends)>>f.endShift + 1
}

// read writes the kept entries of row i to x, [d].
func (f *field) read(x []float32, i int) {
	if f.groups != nil {
		if mask, kept := f.locate(i); mask != 0 {
			f.values.expand(x, mask, kept)
		}
		return
	}
	var p place
	if f.find(&p, i) == 1 {
		f.seek(&p)
		f.fill(x, &p)
	}
}

// fill writes the kept entries at p to x, [d].
func (f *field) fill(x []float32, p *place) {
	switch f.layout {
	case everything:
		f.values.row(x, p.kept)
	case bitmaps:
		kept := p.kept
		for k, b := range f.columns[p.row*f.width : (p.row+1)*f.width] {
			for ; b != 0; b &= b - 1 {
				x[8*k+bits.TrailingZeros8(b)] = f.values.at(kept)
				kept++
			}
		}
	case columnLists:
		for kept := p.kept; ; kept++ {
			column, last := f.column(kept)
			x[column] = f.values.at(kept)
			if last {
				return
			}
		}
	}
}

// load returns 8 bytes from at on, little-endian, and 0 for those after the end.
func load(data []byte, at int) uint64 {
	if at+8 <= len(data) {
		return binary.LittleEndian.Uint64(data[at:])
	}
	return loadEnd(data[at:])
}

// loadEnd is load where less than 8 bytes are left, from 0.
func loadEnd(data []byte) uint64 {
	word := uint64(0)
	for i, b := range data {
		word |= uint64(b) << (8 * i)
	}
	return word
}

// ones counts the bits that are set in bytes from until to.
func ones(data []byte, from, to int) int {
	n := 0
	for ; from+8 <= to; from += 8 {
		n += bits.OnesCount64(load(data, from))
	}
	if from < to {
		n += bits.OnesCount64(load(data, from) & (1<<(8*(to-from)) - 1))
	}
	return n
}
