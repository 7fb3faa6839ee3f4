package arrowio

import (
	"encoding/binary"
	"errors"
	"math/bits"

	"shaver/internal/value/tally"
)

// The sums of a feature in a partial are packed into a record. The record begins with one byte for
// each list of sums, whose low seven bits are the width of its numbers in bits, from 0 to 64. Then
// follow, for each list, its d numbers of that width, from the lowest bit on, and zeros up to the
// next byte. A signed sum s is stored as the number 2s, or -2s-1 if s is negative.
//
// The highest bit of a list's byte says that the list follows from an earlier list of the record,
// the signed sums of the same contributions. A list of absolute values then has half of what each
// of them exceeds the magnitude of the sum by. A list of squares then has the width 0, and its
// values are the squares of the sums. This is so for features that occur in a single row, which
// most features of a shard do.

// derived is the bit of a list's byte that says that the list follows from another.
const derived = 0x80

// packing says how the list of a partial is packed.
type packing struct {
	signed bool
	of     int  // the list of sums that the list may follow from; -1 = none
	square bool // whether the list has squares, otherwise absolute values; only if of >= 0
}

// packings returns how the lists of a partial are packed. If high is true, those of tally.Partial.High
// follow.
func packings(form tally.Form, high bool) []packing {
	n := tally.Lists(form)
	all := make([]packing, n)
	if high {
		all = make([]packing, 2*n)
	}
	for i := range all {
		all[i] = packing{of: -1, signed: i >= n}
	}
	sums := []int{0}
	if form.Path {
		all[0].signed = true
		return all
	}
	if form.Paired {
		sums = append(sums, 3)
	}
	for _, sum := range sums {
		all[sum].signed = true
		all[sum+1].of = sum
		all[sum+2] = packing{of: sum, square: true}
	}
	if at := form.CorrectionList(); at >= 0 {
		all[at].signed = true
	}
	if form.Weighted {
		all[n-1].signed = true
	}
	return all
}

// packer packs records one after the other.
type packer struct {
	lists   []packing
	numbers []uint64 // of one list
	out     []byte
}

// pack appends the record of a feature that occurs in count rows. sums has d values for each list.
func (p *packer) pack(sums [][]int64, count int64) {
	head := len(p.out)
	p.out = append(p.out, make([]byte, len(p.lists))...)
	for i, l := range p.lists {
		list := sums[i]
		p.numbers = p.numbers[:0]
		mode := byte(0)
		switch {
		case l.of >= 0 && l.square && count == 1 && areSquares(list, sums[l.of]):
			p.out[head+i] = derived
			continue
		case l.of >= 0 && !l.square && exceed(list, sums[l.of]):
			mode = derived
			for c, v := range list {
				p.numbers = append(p.numbers, uint64(v-magnitude(sums[l.of][c]))/2)
			}
		case l.signed:
			for _, v := range list {
				p.numbers = append(p.numbers, uint64(v<<1^v>>63))
			}
		default:
			for _, v := range list {
				p.numbers = append(p.numbers, uint64(v))
			}
		}
		any := uint64(0)
		for _, n := range p.numbers {
			any |= n
		}
		width := bits.Len64(any)
		p.out[head+i] = byte(width) | mode
		p.out = appendBits(p.out, p.numbers, width)
	}
}

func magnitude(v int64) int64 { return max(v, -v) }

// areSquares reports whether list has the squares of the sums.
func areSquares(list, sums []int64) bool {
	for c, v := range sums {
		if square, ok := tally.Square(v); !ok || square != list[c] {
			return false
		}
	}
	return true
}

// exceed reports whether each value exceeds the magnitude of its sum by an even number.
func exceed(list, sums []int64) bool {
	for c, v := range list {
		size := magnitude(sums[c])
		if size < 0 || v < size || (v-size)%2 != 0 {
			return false
		}
	}
	return true
}

// appendBits appends numbers of the given width in bits, and zeros up to the next byte.
func appendBits(out []byte, numbers []uint64, width int) []byte {
	word, used := uint64(0), 0
	for _, n := range numbers {
		word |= n << used
		if used+width >= 64 {
			out = binary.LittleEndian.AppendUint64(out, word)
			word = n >> (64 - used) // 0 if used is 0
			used -= 64
		}
		used += width
	}
	for ; used > 0; used -= 8 {
		out, word = append(out, byte(word)), word>>8
	}
	return out
}

var errRecord = errors.New("a record of sums is malformed")

// unpack sets sums, which has d values for each list, from a record.
func unpack(record []byte, lists []packing, sums [][]int64) error {
	if len(record) < len(lists) {
		return errRecord
	}
	head, body := record[:len(lists)], record[len(lists):]
	for i, l := range lists {
		width, list := int(head[i]&^derived), sums[i]
		size := (width*len(list) + 7) / 8
		if width > 64 || size > len(body) {
			return errRecord
		}
		readBits(list, body[:size], width)
		body = body[size:]
		switch {
		case head[i]&derived == 0 && l.signed:
			for c, n := range list {
				list[c] = int64(uint64(n)>>1) ^ -(n & 1)
			}
		case head[i]&derived == 0:
		case l.of < 0 || l.square && width > 0:
			return errRecord
		case l.square:
			for c, v := range sums[l.of] {
				var ok bool
				if list[c], ok = tally.Square(v); !ok {
					return errRecord
				}
			}
		default:
			for c, n := range list {
				size := magnitude(sums[l.of][c])
				if list[c] = size + 2*n; size < 0 || n < 0 || n > 1<<62 || list[c] < 0 {
					return errRecord
				}
			}
		}
	}
	if len(body) > 0 {
		return errRecord
	}
	return nil
}

// readBits reads numbers of the given width, as appendBits writes them.
func readBits(list []int64, data []byte, width int) {
	mask := uint64(1)<<width - 1 // all ones if width is 64
	c, at := 0, 0
	if width <= 64-7 { // a number and the bits before it in its byte fit into a word
		for ; c < len(list) && at/8+8 <= len(data); c, at = c+1, at+width {
			list[c] = int64(binary.LittleEndian.Uint64(data[at/8:]) >> (at % 8) & mask)
		}
	}
	for ; c < len(list); c, at = c+1, at+width {
		var bytes [9]byte
		copy(bytes[:], data[at/8:])
		n := binary.LittleEndian.Uint64(bytes[:]) >> (at % 8)
		if at%8 > 0 {
			n |= uint64(bytes[8]) << (64 - at%8)
		}
		list[c] = int64(n & mask)
	}
}
