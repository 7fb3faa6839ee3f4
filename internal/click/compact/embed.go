package compact

import (
	"encoding/binary"
	"math/bits"
)

// embedBatch is the number of look-ups that Embed interleaves. Each look-up is a chain of
// loads that miss the caches; the chains of different look-ups run in parallel. Whether a
// row is listed is random, so no branch depends on it.
const embedBatch = 64

// Embed writes the embeddings of some rows of the model, [rows, D], to x. features
// holds their global ids, [rows, Width]. Embed implements model.Embedder.
func (t *Table) Embed(x []float32, features []int32) {
	if t.narrow {
		t.embedNarrow(x, features)
		return
	}
	var places [embedBatch]place
	next, row := 0, 0
	lookUps := len(features) / t.ids * len(t.looks)
	for from := 0; from < lookUps; from += embedBatch {
		n := 0
		for range min(embedBatch, lookUps-from) {
			l := &t.looks[next]
			f, at := l.field, row*len(t.empty)+l.at
			i := int(features[row*t.ids+l.id]) - l.first
			copy(x[at:at+f.dim], f.absent(i))
			p := &places[n]
			p.field, p.at = f, at
			n += f.find(p, i)
			if next++; next == len(t.looks) {
				next, row = 0, row+1
			}
		}
		found := places[:n]
		for i := range found {
			found[i].field.seek(&found[i])
		}
		for i := range found {
			p := &found[i]
			p.field.fill(x[p.at:p.at+p.field.dim], p)
		}
	}
}

// place describes where the kept entries of a row are.
type place struct {
	field  *field
	at     int    // position of the row's embedding in x
	row    int    // number of the row among the field's listed rows
	before int    // number of listed rows before it in its block
	kept   int    // number of its first kept entry
	word   uint64 // first bytes of its block in columns; find loads them early
	byte   byte   // first byte of its first value; seek loads it early
}

// find returns 1 if row i is listed, else 0. If the row is listed, find also sets p.
// p.kept is then the first kept entry of the row's block, and seek sets it to that of the
// row.
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
	p.word = load(f.columns, at*f.width*listed) // for a row that is not listed, load data that is already cached
	return listed
}

// seek sets p.kept to the first kept entry of the row.
func (f *field) seek(p *place) {
	switch f.layout {
	case bitmaps:
		p.kept += ones(f.columns, (p.row-p.before)*f.width, p.row*f.width)
	case columnLists:
		f.seekColumns(p)
	}
	if at := p.kept * f.values.size; at < len(f.values.data) { // a listed row of a bitmap may have no kept entry
		p.byte = f.values.data[at]
	}
}

// seekColumns implements seek for the form columns. It skips the rows of the block that
// come before p's.
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
	// Find the number that ends the last row to be skipped. For each number in the word,
	// count holds how many rows end there or earlier. The highest bit of a number in
	// reached is set if its count is at least before.
	one := f.ends >> (8*f.width - 1)
	count := p.word & f.ends >> (8*f.width - 1) * one
	reached := (count | f.ends) - uint64(before)*one
	p.kept += bits.TrailingZeros64(reached&f.ends)>>f.endShift + 1
}

// read writes the kept entries of row i of the field to x, [d].
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

// load returns the 8 bytes at position at, little-endian. Bytes beyond the end are 0.
func load(data []byte, at int) uint64 {
	if at+8 <= len(data) {
		return binary.LittleEndian.Uint64(data[at:])
	}
	return loadEnd(data[at:])
}

// loadEnd implements load for fewer than 8 bytes, which may be none.
func loadEnd(data []byte) uint64 {
	word := uint64(0)
	for i, b := range data {
		word |= uint64(b) << (8 * i)
	}
	return word
}

// ones returns the number of bits set in bytes [from, to).
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
