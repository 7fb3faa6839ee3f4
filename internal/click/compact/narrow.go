package compact

import (
	"math"
	"math/bits"
	"sync"

	"shaver/internal/num/kernel"
)

// maxNarrow is the largest number of columns of narrow tables. In a model whose tables are
// all narrow, the kept entries of a row are marked by the bits of a uint16, its mask. An
// index of masks replaces the blocks and columns of every field, whatever its form.
const maxNarrow = 16

// groupRows is the number of rows in a group, and listingRows that of a word of a listing.
const groupRows, listingRows = 4, 32

// listsFew reports whether the groups of a field with size rows hold the listed rows only.
func (f Field) listsFew(size int) bool { return f.Rows < size*3/8 }

// group describes consecutive rows of a field.
type group struct {
	kept  uint32    // number of the field's kept entries before the group
	masks [2]uint32 // masks, 16 bits per row
}

// set sets the mask of row i. The mask must be 0 before.
func (g *group) set(i int, mask uint16) { g.masks[i/2] |= uint32(mask) << (i % 2 * 16) }

// word returns the masks of all rows, 16 bits each.
func (g *group) word() uint64 { return uint64(g.masks[0]) | uint64(g.masks[1])<<32 }

// row returns the mask of row i of a group, and the number of entries that earlier rows
// of the group keep. masks is the result of word.
func row(masks uint64, i uint32) (mask uint16, before int) {
	at := i % groupRows * 16
	return uint16(masks >> at), bits.OnesCount64(masks & (1<<at - 1))
}

// indexNarrow builds the index of a field of narrow tables, whose structure has been
// checked. The groups hold the listed rows only. If at least 3/8 of the rows are listed,
// the groups hold all rows, because that takes little more memory and saves a load.
func (f *field) indexNarrow(present []byte) {
	some := f.listsFew(f.size)
	grouping := f.size
	if some {
		f.listing, grouping = make([]uint64, 0, (f.size+listingRows-1)/listingRows), f.Rows
	}
	f.groups = make([]group, grouping/groupRows+1) // rank may return a row one past the end for a row that is not listed
	rows, kept := 0, 0
	for i := range f.size {
		if some && i%listingRows == 0 {
			f.listing = append(f.listing, uint64(rows)<<32|listedRows(present, i, min(i+listingRows, f.size)))
		}
		listed, at := len(present) == 0 || present[i/8]>>(i%8)&1 == 1, i
		if some {
			if at = rows; !listed {
				continue
			}
		}
		g := &f.groups[at/groupRows]
		if at%groupRows == 0 {
			g.kept = uint32(kept)
		}
		if listed {
			mask := f.mask(rows, kept)
			g.set(at%groupRows, mask)
			rows, kept = rows+1, kept+bits.OnesCount16(mask)
		}
	}
}

// mask returns the mask of a listed row. kept is the row's first kept entry.
func (f *field) mask(row, kept int) uint16 {
	mask := uint16(0)
	if f.layout == bitmaps {
		for k, b := range f.columns[row*f.width : (row+1)*f.width] {
			mask |= uint16(b) << (8 * k)
		}
		return mask
	}
	for ; ; kept++ {
		column, last := f.column(kept)
		if mask |= 1 << column; last {
			return mask
		}
	}
}

// word returns the word of row i. Its bit i%32 says whether the row is listed. Its upper
// 32 bits hold the number of rows in the groups before the first row of the word.
func (f *field) word(i int) uint64 {
	if f.listing == nil {
		return uint64(i&^31)<<32 | math.MaxUint32
	}
	return f.listing[i>>5]
}

// rank returns the number of row i within the groups, and 1 if the row is listed, else 0.
func rank(word uint64, i uint32) (row uint32, listed int) {
	bit := i % 32
	return uint32(word>>32) + uint32(bits.OnesCount32(uint32(word)&(1<<bit-1))), int(word >> bit & 1)
}

// locate returns the mask of row i and its first kept entry.
func (f *field) locate(i int) (mask uint16, kept int) {
	at, listed := rank(f.word(i), uint32(i))
	if listed == 0 {
		return 0, 0
	}
	g := &f.groups[at/groupRows]
	mask, before := row(g.word(), at)
	return mask, int(g.kept) + before
}

// expand writes the entries of a row to x, [d]. mask marks the entries, and is not 0;
// kept is the first of them. Most rows keep few entries, and their number is random. So
// expand writes four values before its first branch; if the row has fewer entries, it
// writes the last one again.
func (r *reader) expand(x []float32, mask uint16, kept int) {
	rest := uint64(mask)
	x[bits.TrailingZeros64(rest)] = r.at(kept)
	for range 3 {
		next := rest & (rest - 1)
		more := (next | -next) >> 63 // 1 if next is not 0
		rest = next | rest&(more-1)
		kept += int(more)
		x[bits.TrailingZeros64(rest)] = r.at(kept)
	}
	for rest &= rest - 1; rest != 0; rest &= rest - 1 {
		kept++
		x[bits.TrailingZeros64(rest)] = r.at(kept)
	}
}

// narrowBatch is the number of look-ups that embedNarrow interleaves. It equals 16 rows of
// KDD.
const narrowBatch = 176

// lookup is the state of one look-up of embedNarrow. For Mixed, a row is a segment.
type lookup struct {
	field *field
	word  uint64 // the row's word, later the masks of its group
	kept  uint32 // number of the field's kept entries before the group; not for Mixed
	row   uint32 // number of the row in the field, later in the groups
	at    int    // position of the row's embedding in x
}

// scratch is temporary memory for one call of embedNarrow.
type scratch struct {
	lookups [narrowBatch]lookup
	found   [narrowBatch]kernel.Part
	packed  [narrowBatch]kernel.Packed // for Mixed
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// embedNarrow implements Embed for narrow tables and for Mixed. A look-up takes three loads, each of
// which depends on the previous one and misses the caches. So embedNarrow does one load
// for all look-ups, then the next load for all, with little other work. The processor can
// then overlap as many loads as possible.
func (t *Table) embedNarrow(x []float32, features []int32) {
	rows := len(features) / t.ids
	for row := range rows {
		copy(x[row*len(t.empty):], t.empty)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for from, end := 0, rows*len(t.several); from < end; from += narrowBatch {
		t.fill(s.lookups[:min(narrowBatch, end-from)], x, features, from)
	}
	for from, end := 0, rows*len(t.looks); from < end; from += narrowBatch {
		n := t.begin(&s.lookups, x, features, from, min(from+narrowBatch, end))
		n = listed(s.lookups[:n])
		if t.values == Mixed {
			t.unpack(x, s.lookups[:n], s.packed[:])
			continue
		}
		for i := range n {
			l := &s.lookups[i]
			g := &l.field.groups[l.row/groupRows]
			l.word, l.kept = g.word(), g.kept
		}
		n = masks(&s.found, s.lookups[:n])
		t.expand(x, s.lookups[:n], s.found[:n])
	}
}

// fill writes what the dropped entries of fields with several words read to x, from a number of the look-ups of such fields on. It
// loads all numbers first, in a loop that does nothing else, so that the processor overlaps as many loads as possible.
func (t *Table) fill(lookups []lookup, x []float32, features []int32, from int) {
	j, row := from%len(t.several), from/len(t.several)
	for n := range lookups {
		read, l := &t.several[j], &lookups[n]
		l.field, l.at = read.field, row*len(t.empty)+read.at
		l.row = uint32(int(features[row*t.ids+read.id]) - read.first)
		if j++; j == len(t.several) {
			j, row = 0, row+1
		}
	}
	for i := range lookups {
		l := &lookups[i]
		l.row = uint32(l.field.numbers[l.row])
	}
	for i := range lookups {
		l := &lookups[i]
		copy(x[l.at:], l.field.words[int(l.row)*l.field.dim:][:l.field.dim])
	}
}

// begin loads the words of the look-ups from to end-1, which are numbered on from row to
// row. It returns the number of look-ups that need further loads. For fields stored as none
// or dense it writes to x directly.
func (t *Table) begin(lookups *[narrowBatch]lookup, x []float32, features []int32, from, end int) int {
	n, j, row := 0, from%len(t.looks), from/len(t.looks)
	first, ids := row*len(t.empty), features[row*t.ids:]
	for range end - from {
		read := &t.looks[j]
		f := read.field
		i, at := (int(ids[read.id])-read.first)*f.segments+read.segment, first+read.at
		switch f.layout {
		case nothing:
		case everything:
			f.values.row(x[at:at+f.dim], i*f.dim)
		default:
			l := &lookups[n]
			l.field, l.at, l.row, l.word = f, at, uint32(i), f.word(i)
			n++
		}
		if j++; j == len(t.looks) {
			j, first, ids = 0, first+len(t.empty), ids[t.ids:]
		}
	}
	return n
}

// listed moves the look-ups whose rows are listed to the front, replaces each row by its
// number in the groups, and returns their number.
func listed(lookups []lookup) int {
	n := 0
	for i := range lookups {
		l, to := &lookups[i], &lookups[n]
		f, at := l.field, l.at
		row, listed := rank(l.word, l.row)
		to.field, to.at, to.row = f, at, row
		n += listed
	}
	return n
}

// masks finds the kept entries of each look-up's row. It moves the rows that have any to
// the front and returns their number.
func masks(found *[narrowBatch]kernel.Part, lookups []lookup) int {
	n := 0
	for i := range lookups {
		l := &lookups[i]
		mask, before := row(l.word, l.row)
		lookups[n].field = l.field
		found[n] = kernel.Part{To: l.at, From: l.field.before + int(l.kept) + before, Mask: mask}
		n += int((uint32(mask) + math.MaxUint16) >> 16)
	}
	return n
}

// expand writes the entries that were found to x.
func (t *Table) expand(x []float32, lookups []lookup, found []kernel.Part) {
	if t.values == Float32 {
		kernel.Expand(x, t.entries, found)
		return
	}
	for i := range found {
		p, f := &found[i], lookups[i].field
		f.values.expand(x[p.To:p.To+f.dim], p.Mask, p.From-f.before)
	}
}
