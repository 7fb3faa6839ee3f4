package redisrows

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// The value of a row has one or two versions, the newer one first. A version is
//
//	uint32   generation
//	uint16   number n of kept entries, at least 1
//	uint16   their columns, [n], ascending; absent if n is the number of columns of the row
//	float32  the entries, [n]
//	uint32   CRC-32C of the bytes before
//
// in little-endian bytes.

// maxWidth is the largest number of columns of a row.
const maxWidth = math.MaxUint16

var errRow = errors.New("the value is not that of a row")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Row is a row of a piece of a table.
type Row struct {
	Piece, ID int
	Width     int       // number of columns
	Columns   []int32   // of the kept entries, ascending
	Values    []float32 // the kept entries
}

// newVersion returns a version of a row.
func newVersion(generation int64, r *Row) (b []byte) {
	b = binary.LittleEndian.AppendUint32(b, uint32(generation))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Columns)))
	if len(r.Columns) < r.Width {
		for _, c := range r.Columns {
			b = binary.LittleEndian.AppendUint16(b, uint16(c))
		}
	}
	for _, v := range r.Values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// version is a version of a row. Its bytes have been checked.
type version struct {
	bytes []byte
	width int
}

// row returns the bytes without the generation and the checksum.
func (v version) row() []byte { return v.bytes[4 : len(v.bytes)-4] }

func (v version) generation() int64 { return int64(binary.LittleEndian.Uint32(v.bytes)) }
func (v version) kept() int         { return int(binary.LittleEndian.Uint16(v.bytes[4:])) }

// set sets the kept entries of a row.
func (v version) set(row []float32) {
	n := v.kept()
	columns, values := v.bytes[6:], v.bytes[len(v.bytes)-4*n-4:]
	for k := range n {
		c := k
		if n < v.width {
			c = int(binary.LittleEndian.Uint16(columns[2*k:]))
		}
		row[c] = math.Float32frombits(binary.LittleEndian.Uint32(values[4*k:]))
	}
}

// versions parses the value of a row with the given number of columns.
func versions(value []byte, width int) (all []version, err error) {
	for len(value) > 0 {
		if len(value) < 6 {
			return nil, errRow
		}
		n := int(binary.LittleEndian.Uint16(value[4:]))
		size := 6 + 4*n + 4
		if n < width {
			size += 2 * n
		}
		if n < 1 || n > width || len(value) < size || len(all) == 2 || crc32.Checksum(value[:size-4], castagnoli) != binary.LittleEndian.Uint32(value[size-4:]) {
			return nil, errRow
		}
		v := version{value[:size], width}
		last := -1
		for k := 0; n < width && k < n; k++ {
			c := int(binary.LittleEndian.Uint16(value[6+2*k:]))
			if c <= last || c >= width {
				return nil, errRow
			}
			last = c
		}
		if len(all) == 1 && v.generation() >= all[0].generation() {
			return nil, errRow
		}
		all, value = append(all, v), value[size:]
	}
	if len(all) == 0 {
		return nil, errRow
	}
	return all, nil
}
