package compact

import (
	"math"
	"math/bits"
	"sync"

	"shaver/internal/kernel"
)

// maxNarrow is the most columns of a narrow table. What is kept of its rows are the
// bits of a uint16 each, their masks, which it has in an index in place of blocks
// and columns, whatever the form of a field.
const maxNarrow = 16

// grouped is how many rows a group has.
const grouped = 4

// group is some consecutive rows.
type group struct {
	kept  uint32    // the field's kept entries before them
	masks [2]uint32 // 16 bits a row
}

// set sets the mask of row i, which is 0.
func (g *group) set(i int, mask uint16) { g.masks[i/2] |= uint32(mask) << (i % 2 * 16) }

// word returns the masks, 16 bits a row.
func (g *group) word() uint64 { return uint64(g.masks[0]) | uint64(g.masks[1])<<32 }

// row returns the mask of row i of a group with the given masks, and how many
// entries the rows before it keep.
func row(masks uint64, i uint32) (mask uint16, before int) {
	at := i % grouped * 16
	return uint16(masks >> at), bits.OnesCount64(masks & (1<<at - 1))
}

// indexNarrow is index for a narrow table, of a structure that is checked. Groups
// have the listed rows, or all where that takes little more, as it saves a load.
func (f *field) indexNarrow(present []byte) {
	some := f.Rows < f.size*3/8
	grouping := f.size
	if some {
		f.listing, grouping = make([]uint64, 0, (f.size+31)/32), f.Rows
	}
	f.groups = make([]group, grouping/grouped+1) // one too many at most, for the rank of rows that are not listed
	rows, kept := 0, 0
	for i := range f.size {
		if some && i%32 == 0 {
			f.listing = append(f.listing, uint64(rows)<<32|listedRows(present, i, min(i+32, f.size)))
		}
		listed, at := len(present) == 0 || present[i/8]>>(i%8)&1 == 1, i
		if some {
			if at = rows; !listed {
				continue
			}
		}
		g := &f.groups[at/grouped]
		if at%grouped == 0 {
			g.kept = uint32(kept)
		}
		if listed {
			mask := f.mask(rows, kept)
			g.set(at%grouped, mask)
			rows, kept = rows+1, kept+bits.OnesCount16(mask)
		}
	}
}

// mask returns that of a listed row, of which kept is the first kept entry.
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

// word returns what says whether row i is listed: its bit i%32, and above 32 bits
// how many rows the groups have before those of the word.
func (f *field) word(i int) uint64 {
	if f.listing == nil {
		return uint64(i&^31)<<32 | math.MaxUint32
	}
	return f.listing[i>>5]
}

// rank returns which row of the groups row i is, and 1 if it is listed, else 0.
func rank(word uint64, i uint32) (row uint32, listed int) {
	bit := i % 32
	return uint32(word>>32) + uint32(bits.OnesCount32(uint32(word)&(1<<bit-1))), int(word >> bit & 1)
}

// locate returns the mask of row i, and its first kept entry.
func (f *field) locate(i int) (mask uint16, kept int) {
	at, listed := rank(f.word(i), uint32(i))
	if listed == 0 {
		return 0, 0
	}
	g := &f.groups[at/grouped]
	mask, before := row(g.word(), at)
	return mask, int(g.kept) + before
}

// expand writes the kept entries of a row, which are those from kept on, to x, [d].
// mask is not 0. Most rows keep few entries, and how many is random: so it writes
// four times before it branches, the last entry again if there are no more.
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

// atOnce is how many look-ups embedNarrow does at once: those of 16 rows of KDD.
const atOnce = 176

// lookup is how far embedNarrow is with a row.
type lookup struct {
	field *field
	word  uint64 // of its row, then the masks of its group
	kept  uint32 // its group's
	row   uint32 // of the field, then of the groups
	at    int    // of its embedding in x
}

// scratch is the memory of one call of embedNarrow.
type scratch struct {
	lookups [atOnce]lookup
	found   [atOnce]kernel.Part
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// embedNarrow is Embed for a narrow table. It takes three loads to read a row, of
// which each needs the one before, and all miss the caches. So it goes over the
// rows once for every load, and does little else with it: the processor then has
// as many of them under way as it can.
func (t *Table) embedNarrow(x []float32, features []int32) {
	for row := 0; row < len(features)*t.dim; row += len(t.codebook) {
		copy(x[row:], t.codebook)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for from := 0; from < len(features); from += atOnce {
		n := t.begin(&s.lookups, x, features[from:min(from+atOnce, len(features))], from)
		n = listed(s.lookups[:n])
		for i := range n {
			l := &s.lookups[i]
			g := &l.field.groups[l.row/grouped]
			l.word, l.kept = g.word(), g.kept
		}
		n = masks(&s.found, s.lookups[:n])
		t.expand(x, s.lookups[:n], s.found[:n])
	}
}

// begin loads the words of features, which are from that of number from on, and
// returns how many have one. Of the others it writes what is kept to x.
func (t *Table) begin(lookups *[atOnce]lookup, x []float32, features []int32, from int) int {
	n, j, at := 0, from%len(t.fields), from*t.dim
	for _, id := range features {
		f := &t.fields[j]
		i := int(id) - f.first
		switch f.layout {
		case nothing:
		case everything:
			f.values.row(x[at:at+t.dim], i*t.dim)
		default:
			l := &lookups[n]
			l.field, l.at, l.row, l.word = f, at, uint32(i), f.word(i)
			n++
		}
		at += t.dim
		if j++; j == len(t.fields) {
			j = 0
		}
	}
	return n
}

// listed loads the groups of the look-ups whose rows are listed, and returns how
// many that are: they come first.
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

// masks finds what is kept of the look-ups' rows, and returns of how many that is
// something: those come first.
func masks(found *[atOnce]kernel.Part, lookups []lookup) int {
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

// expand writes what was found of the look-ups' rows to x.
func (t *Table) expand(x []float32, lookups []lookup, found []kernel.Part) {
	if t.values == Float32 {
		kernel.Expand(x, t.entries, found)
		return
	}
	for i := range found {
		p, f := &found[i], lookups[i].field
		f.values.expand(x[p.To:p.To+t.dim], p.Mask, p.From-f.before)
	}
}
