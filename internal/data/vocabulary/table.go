// Package vocabulary maps the values of each field to ids. It counts the values of many
// rows in bounded memory (Counter, Merge), looks values up (Field, Lookup), and reads
// mappers from users' files and from datasets (Mapper, Read, Of). Without a mapper, the
// kept values of a field have the ids 0, 1, ... in byte order, and all other values have
// the next id.
package vocabulary

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
)

// slot holds a value and its number. A value of at most 15 bytes is in the slot itself: a
// is bytes 0 to 7, and b is bytes 8 to 14 and the length, both big-endian and padded with
// zeros, so that comparing (a, b) compares the values. For a longer value, a is the same,
// and b is its position in the arena, shifted left by 8 bits, plus the mark long.
type slot struct {
	a, b   uint64
	number int64 // 0: the slot is free
}

const (
	slotBytes = 24   // size of a slot in bytes
	short     = 15   // largest length of a short value, which is in the slot
	long      = 0xff // lowest byte of b for a long value
)

// table is a hash table from values to numbers above 0. It has no pointers to the values,
// so the garbage collector does not scan them. The zero value is an empty table.
type table struct {
	slots []slot
	used  int    // number of values
	arena []byte // length (4 bytes) and bytes of each long value
}

// pack returns the words a and b of the slot of a value. For a long value, b is without the
// position in the arena.
func pack(value []byte) (a, b uint64) {
	n := len(value)
	switch {
	case n <= short && cap(value) >= 16: // reads 16 bytes and masks those after the value, so needs no branch on n
		word := value[:16]
		first := min(n, 8)
		a = binary.BigEndian.Uint64(word) &^ (math.MaxUint64 >> (8 * first))
		b = binary.BigEndian.Uint64(word[8:]) &^ (math.MaxUint64 >> (8 * (n - first)))
		return a, b | uint64(n)
	case n > short:
		return binary.BigEndian.Uint64(value), long
	case n >= 8:
		return binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[n-8:])<<(8*(16-n)) | uint64(n)
	case n >= 4:
		return uint64(binary.BigEndian.Uint32(value))<<32 | uint64(binary.BigEndian.Uint32(value[n-4:]))<<(8*(8-n)), uint64(n)
	case n > 0:
		for i, c := range value {
			a |= uint64(c) << (56 - 8*i)
		}
	}
	return a, uint64(n)
}

var seed = maphash.MakeSeed()

var seeds = [2]uint64{maphash.String(seed, "a"), maphash.String(seed, "b")}

// hash returns the hash of a packed value. It depends on a random seed, so it may affect
// the order of slots but must not affect any result.
func hash(value []byte, a, b uint64) uint64 {
	if b == long {
		return maphash.Bytes(seed, value)
	}
	high, low := bits.Mul64(a^seeds[0], b^seeds[1])
	high, low = bits.Mul64(high^low^seeds[1], a^0x9E3779B97F4A7C15)
	return high ^ low
}

// find returns the slot of a value, or the free slot where it would be inserted. The table
// must have at least one free slot.
func (t *table) find(value []byte, a, b uint64) *slot {
	return t.search(value, a, b, t.home(value, a, b))
}

// home returns the position of the slot where the search for a value begins.
func (t *table) home(value []byte, a, b uint64) int {
	at, _ := bits.Mul64(hash(value, a, b), uint64(len(t.slots)))
	return int(at)
}

// search is like find, and starts at the value's home at.
func (t *table) search(value []byte, a, b uint64, at int) *slot {
	for i := at; ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		s := &t.slots[i]
		if s.number == 0 || s.a == a && (s.b == b && b != long || b == long && s.b&long == long && bytes.Equal(t.stored(s), value)) {
			return s
		}
	}
}

// stored returns the bytes of a long value.
func (t *table) stored(s *slot) []byte {
	at := s.b >> 8
	n := uint64(binary.LittleEndian.Uint32(t.arena[at:]))
	return t.arena[at+4 : at+4+n]
}

// append appends the bytes of a slot's value to buffer.
func (t *table) append(buffer []byte, s *slot) []byte {
	if s.b&long == long {
		return append(buffer, t.stored(s)...)
	}
	n := int(s.b & 0xff)
	var word [16]byte
	binary.BigEndian.PutUint64(word[:], s.a)
	binary.BigEndian.PutUint64(word[8:], s.b)
	return append(buffer, word[:n]...)
}

// compare compares the values of two slots as bytes.Compare does.
func (t *table) compare(x, y *slot) int {
	if x.a == y.a && (x.b&long == long || y.b&long == long) {
		return bytes.Compare(t.append(nil, x), t.append(nil, y))
	}
	return compareShort(*x, *y)
}

// compareShort is compare for two short values, or for values that differ in the first
// eight bytes. It is separate because a Flush spends most of its time sorting.
func compareShort(x, y slot) int {
	switch {
	case x.a < y.a:
		return -1
	case x.a > y.a:
		return 1
	}
	return cmp.Compare(x.b, y.b)
}

// need returns the additional memory in bytes that inserting value takes, and the number of
// slots that the table then has.
func (t *table) need(value []byte) (more, slots int) {
	slots = len(t.slots)
	if 4*(t.used+1) > 3*slots {
		slots = max(16, 2*slots)
		more = slots * slotBytes // the old slots stay in memory while the table grows
	}
	if len(value) > short {
		if n := len(t.arena) + 4 + len(value); n > cap(t.arena) {
			more += max(n, 2*cap(t.arena))
		}
	}
	return more, slots
}

// insert adds a value, which must be missing, with its number. It first grows the table to
// at least the given number of slots.
func (t *table) insert(value []byte, a, b uint64, number int64, slots int) {
	if slots > len(t.slots) {
		t.grow(slots)
	}
	s := t.find(value, a, b)
	if b == long {
		at := len(t.arena)
		if n := at + 4 + len(value); n > cap(t.arena) {
			grown := make([]byte, at, max(n, 2*cap(t.arena)))
			copy(grown, t.arena)
			t.arena = grown
		}
		t.arena = binary.LittleEndian.AppendUint32(t.arena, uint32(len(value)))
		t.arena = append(t.arena, value...)
		b |= uint64(at) << 8
	}
	*s = slot{a, b, number}
	t.used++
}

// grow moves the values to a new array of slots.
func (t *table) grow(slots int) {
	old := t.slots
	t.slots = make([]slot, slots)
	for i := range old {
		s := &old[i]
		if s.number == 0 {
			continue
		}
		b := s.b
		var value []byte
		if b&long == long {
			b, value = long, t.stored(s)
		}
		at, _ := bits.Mul64(hash(value, s.a, b), uint64(slots))
		i := int(at)
		for t.slots[i].number != 0 {
			if i++; i == slots {
				i = 0
			}
		}
		t.slots[i] = *s
	}
}

// bytes returns the memory of the table in bytes.
func (t *table) bytes() int { return len(t.slots)*slotBytes + cap(t.arena) }
