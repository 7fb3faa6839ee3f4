package compact

import (
	"math"
	"math/bits"
)

// maxNarrow is the most columns of a narrow table. What is kept of its rows are the
// bits of a uint16 each, their masks, which it has in an index in place of blocks
// and columns, whatever the form of a field.
const maxNarrow = 16

// grouped is how many rows a group has.
const grouped = 6

// group is some consecutive rows: in the lowest 32 bits the field's kept entries
// before them, then their masks.
type group [2]uint64

// set sets the mask of row i, which is 0.
func (g *group) set(i int, mask uint16) { g[(i+2)/4] |= uint64(mask) << ((i + 2) % 4 * 16) }

// row returns the mask of row i, and the field's kept entries before it. Shifts by
// 64 or more, also where the number of bits is below 0, give 0.
func (g *group) row(i uint32) (mask uint16, before uint32) {
	at, first, rest := 16*i, g[0]>>32, g[1]
	n := bits.OnesCount64(first&(1<<at-1)) + bits.OnesCount64(rest<<(96-at))
	return uint16(first>>at | rest>>(at-32)), uint32(g[0]) + uint32(n)
}

// indexNarrow is index for a narrow table, of a structure that is checked. Groups
// have all rows where most are listed, else those.
func (f *field) indexNarrow(present []byte) {
	some := f.Rows < f.size*3/4
	grouping := f.size
	if some {
		f.listing, grouping = make([]uint64, 0, (f.size+31)/32), f.Rows
	}
	f.groups = make([]group, (grouping+grouped-1)/grouped)
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
			g[0] = uint64(kept)
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
	row, listed := rank(f.word(i), uint32(i))
	if listed == 0 {
		return 0, 0
	}
	mask, before := f.groups[row/grouped].row(row % grouped)
	return mask, int(before)
}

// expand writes the kept entries of a row to x, [d]. Values are those from kept on,
// of which first is the first, and mask is not 0. Most rows keep few entries, and
// how many is random: so it writes four times before it branches, the last entry
// again if there are no more.
func (r *reader) expand(x []float32, mask uint64, kept int, first float32) {
	x[bits.TrailingZeros64(mask)] = first
	for range 3 {
		rest := mask & (mask - 1)
		more := (rest | -rest) >> 63 // 1 if rest is not 0
		mask = rest | mask&(more-1)
		kept += int(more)
		x[bits.TrailingZeros64(mask)] = r.at(kept)
	}
	for mask &= mask - 1; mask != 0; mask &= mask - 1 {
		kept++
		x[bits.TrailingZeros64(mask)] = r.at(kept)
	}
}

// atOnce is how many look-ups embedNarrow does at once: those of 16 rows of KDD.
const atOnce = 176

// lookup is how far embedNarrow is with a row.
type lookup struct {
	field *field
	group group   // its group, before that the word of its row in the first
	at    int     // of its embedding in x
	row   uint32  // of the field, then of the groups
	kept  uint32  // its first kept entry
	first float32 // and the value of that
	mask  uint16
}

// embedNarrow is Embed for a narrow table. It takes three loads to find what is
// kept of a row, of which each needs the one before, and all miss the caches. So
// it goes over the rows once for every load, and does little else with it: the
// processor then has as many of them under way as it can.
func (t *Table) embedNarrow(x []float32, features []int32) {
	var lookups [atOnce]lookup
	for from := 0; from < len(features); from += atOnce {
		rows := features[from:min(from+atOnce, len(features))]
		found := lookups[:t.begin(&lookups, x, rows, from)]
		found = t.list(found, x)
		for i := range found {
			l := &found[i]
			l.group = l.field.groups[l.row/grouped]
		}
		found = masks(found)
		for i := range found {
			l := &found[i]
			l.first = l.field.values.at(int(l.kept))
		}
		for i := range found {
			l := &found[i]
			l.field.values.expand(x[l.at:l.at+t.dim], uint64(l.mask), int(l.kept), l.first)
		}
	}
}

// begin loads the words of features, which are from that of number from on, and
// returns how many have one. It writes the embeddings of the others to x.
func (t *Table) begin(lookups *[atOnce]lookup, x []float32, features []int32, from int) int {
	n, j := 0, from%len(t.fields)
	for k, id := range features {
		f := &t.fields[j]
		if j++; j == len(t.fields) {
			j = 0
		}
		i, at := int(id)-f.first, (from+k)*t.dim
		switch f.layout {
		case nothing:
			copy(x[at:at+t.dim], f.codebook)
		case everything:
			f.read(x[at:at+t.dim], i)
		default:
			l := &lookups[n]
			l.field, l.at, l.row, l.group[0] = f, at, uint32(i), f.word(i)
			n++
		}
	}
	return n
}

// list writes the codebook to x, and returns the look-ups whose rows are listed.
func (t *Table) list(lookups []lookup, x []float32) []lookup {
	n := 0
	for i := range lookups {
		l := &lookups[i]
		copy(x[l.at:l.at+t.dim], l.field.codebook)
		row, listed := rank(l.group[0], l.row)
		to := &lookups[n]
		to.field, to.at, to.row = l.field, l.at, row
		n += listed
	}
	return lookups[:n]
}

// masks returns the look-ups of whose rows something is kept.
func masks(lookups []lookup) []lookup {
	n := 0
	for i := range lookups {
		l := &lookups[i]
		mask, kept := l.group.row(l.row % grouped)
		to := &lookups[n]
		to.field, to.at, to.mask, to.kept = l.field, l.at, mask, kept
		n += int((uint32(mask) + math.MaxUint16) >> 16)
	}
	return lookups[:n]
}
