package compact

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Encode returns the parts of a table, [n, d]. sizes are the fields' numbers of rows.
// dropped marks the entries that are dropped; codebook, [m, d], holds the values that
// stand for them. If a value is not finite, or v cannot represent it, Encode returns an
// error that names its row, a global id, and its column. The parts share codebook and do
// not copy it.
func Encode(sizes []int, dim int, table []float32, dropped []bool, codebook []float32, v Encoding) (*Parts, error) {
	if len(table) != len(dropped) || len(codebook) != len(sizes)*dim || v.Size() == 0 {
		panic(fmt.Sprintf("compact: Encode: table of %d, mask of %d, codebook of %d entries as %q", len(table), len(dropped), len(codebook), v))
	}
	for i, e := range codebook {
		if !finite(e) {
			return nil, fmt.Errorf("the baseline of field %d has the value %v in column %d", i/dim, e, i%dim)
		}
	}
	for i, e := range table {
		if !dropped[i] && !finite(e) {
			return nil, fmt.Errorf("row %d has the value %v in column %d: weights must be finite", i/dim, e, i%dim)
		}
	}
	p := &Parts{Fields: Plan(sizes, dim, dropped), Codebook: codebook}
	rows, columns, kept := 0, 0, 0
	for j, f := range p.Fields {
		r, c := f.Sizes(sizes[j], dim)
		rows, columns, kept = rows+r, columns+c, kept+f.Kept
	}
	p.Rows, p.Columns, p.Values = make([]byte, 0, rows), make([]byte, 0, columns), make([]byte, 0, kept*v.Size())
	first := 0
	for j, size := range sizes {
		mask := dropped[first : first+size*dim]
		p.appendStructure(p.Fields[j], mask, dim)
		data, origin, step, err := v.appendValues(p.Values, table[first:], mask, first, dim)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", j, err)
		}
		p.Values = data
		if v == Int8 {
			p.Steps = append(p.Steps, origin, step)
		}
		first += len(mask)
	}
	return p, nil
}

// appendStructure appends a field's part of Rows and Columns.
func (p *Parts) appendStructure(f Field, dropped []bool, dim int) {
	if f.Form == None || f.Form == Dense {
		return
	}
	size := len(dropped) / dim
	some := f.Rows < size
	present := make([]byte, bitBytes(size))
	bitmap := make([]byte, bitBytes(dim))
	for i := range size {
		row := dropped[i*dim : (i+1)*dim]
		if some && !slices.Contains(row, false) {
			continue
		}
		present[i/8] |= 1 << (i % 8)
		if f.Form == Columns {
			p.appendColumns(row)
			continue
		}
		clear(bitmap)
		for c, gone := range row {
			if !gone {
				bitmap[c/8] |= 1 << (c % 8)
			}
		}
		p.Columns = append(p.Columns, bitmap...)
	}
	if some {
		p.Rows = append(p.Rows, present...)
	}
}

// appendColumns appends the kept columns of a row. The row must have a kept entry.
func (p *Parts) appendColumns(dropped []bool) {
	wide := columnBytes(len(dropped)) == 2
	for c, gone := range dropped {
		switch {
		case gone:
		case wide:
			p.Columns = binary.LittleEndian.AppendUint16(p.Columns, uint16(c))
		default:
			p.Columns = append(p.Columns, byte(c))
		}
	}
	p.Columns[len(p.Columns)-1] |= 0x80
}

// sampleRows is the maximal number of rows of a column that Find examines.
const sampleRows = 1024

// Find reconstructs which entries of a dense table, [n, d], were dropped, because a dense
// table does not store this. For each column of a field, Find takes the most frequent
// value in a sample of rows. Entries with exactly this value count as dropped, and
// codebook, [m, d], holds the value. No information is lost, although some of these
// entries may have been kept. If dropping these entries does not make a field smaller,
// Find drops nothing from the field.
func Find(sizes []int, dim int, table []float32) (dropped []bool, codebook []float32) {
	dropped, codebook = make([]bool, len(table)), make([]float32, len(sizes)*dim)
	first := 0
	for j, size := range sizes {
		entries, mask := table[first:first+size*dim], dropped[first:first+size*dim]
		line := codebook[j*dim : (j+1)*dim]
		for c := range dim {
			value, repeated := mostFrequent(entries, c, dim)
			if !repeated {
				continue
			}
			line[c] = value
			for i := c; i < len(entries); i += dim {
				mask[i] = math.Float32bits(entries[i]) == math.Float32bits(value)
			}
		}
		f := smallest(size, dim, kept(mask), occupied(mask, dim))
		if f.bytes(size, dim)+4*f.Kept >= 4*len(mask) {
			clear(mask)
			clear(line)
		}
		first += len(mask)
	}
	return dropped, codebook
}

// mostFrequent returns the most frequent value in a sample of column c, and whether it
// occurs at least twice. Of equally frequent values it returns the one with the smaller
// bits.
func mostFrequent(entries []float32, c, dim int) (value float32, repeated bool) {
	size := len(entries) / dim
	stride := (size + sampleRows - 1) / sampleRows
	var found []uint32
	for i := 0; i < size; i += stride {
		found = append(found, math.Float32bits(entries[i*dim+c]))
	}
	slices.Sort(found)
	best, longest := uint32(0), 0
	for from := 0; from < len(found); {
		to := from
		for to < len(found) && found[to] == found[from] {
			to++
		}
		if to-from > longest {
			best, longest = found[from], to-from
		}
		from = to
	}
	return math.Float32frombits(best), longest > 1
}
