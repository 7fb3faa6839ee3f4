package compact

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"shaver/internal/click/model"
)

// Encode returns the parts of the tables of a, [Parameters]. dropped marks the entries that
// are dropped, and baseline says what they read. If a value is not
// finite, or v cannot represent it, Encode returns an error that names its row, numbered
// over all tables, and its column. Pad rows must not be dropped. They are rounded as other
// rows are, except that a 0 stays 0, because a head without a mask adds the row once for each
// empty position. The parts share the values of baseline and do not copy them.
func Encode(a *model.Architecture, tables []float32, dropped []bool, baseline model.Baseline, v Encoding) (*Parts, error) {
	if len(tables) != a.Parameters() || len(dropped) != a.Parameters() || v.Size() == 0 {
		panic(fmt.Sprintf("compact: Encode: tables of %d, mask of %d entries as %q", len(tables), len(dropped), v))
	}
	p := &Parts{Fields: Plan(a, dropped), Baseline: baseline}
	spans := a.Spans()
	if err := checkEncoded(a, spans, tables, dropped, &baseline); err != nil {
		return nil, err
	}
	if err := checkPads(a, dropped); err != nil {
		return nil, err
	}
	if len(a.Frozen) > 0 && v != Float32 {
		return nil, fmt.Errorf("frozen fields keep their values, which %s would round: store values as %s, or as auto, which rounds only the others", v, Float32)
	}
	rows, columns, kept := 0, 0, 0
	for j, f := range p.Fields {
		r, c := f.Sizes(spans[j].Rows, spans[j].Dim)
		rows, columns, kept = rows+r, columns+c, kept+f.Kept
	}
	p.Rows, p.Columns, p.Values = make([]byte, 0, rows), make([]byte, 0, columns), make([]byte, 0, kept*v.Size())
	pads := a.FixedRows()
	for j := range spans {
		s := &spans[j]
		from, to := s.Entries()
		p.appendStructure(p.Fields[j], dropped[from:to], s.Dim)
		padded := slices.ContainsFunc(pads, func(row int) bool { return row >= s.Row && row < s.Row+s.Rows })
		data, origin, step, err := v.appendValues(p.Values, tables[from:to], dropped[from:to], padded, s.Row, s.Dim)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", spanName(a, s), err)
		}
		p.Values = data
		if v == Int8 {
			p.Steps = append(p.Steps, origin, step)
		}
	}
	p.Words = Words(a, dropped, &p.Baseline)
	return p, nil
}

// checkPads returns an error if an entry of a pad row is dropped.
func checkPads(a *model.Architecture, dropped []bool) error {
	shape := a.Shape()
	for _, row := range a.FixedRows() {
		if from, to := shape.Row(row); slices.Contains(dropped[from:to], true) {
			return fmt.Errorf("the mask drops an entry of row %d, which a pad id or a frozen field reads", row)
		}
	}
	return nil
}

// checkEncoded returns an error unless baseline is one of a, and for the first value that would be stored and is not finite.
func checkEncoded(a *model.Architecture, spans []model.Span, tables []float32, dropped []bool, baseline *model.Baseline) error {
	if err := a.CheckBaseline(baseline); err != nil {
		return err
	}
	for i := range spans {
		s := &spans[i]
		from, to := s.Entries()
		for k, e := range tables[from:to] {
			if !dropped[from+k] && !finite(e) {
				return fmt.Errorf("row %d has the value %v in column %d: weights must be finite", s.Row+k/s.Dim, e, k%s.Dim)
			}
		}
	}
	return nil
}

// spanName names a field in errors.
func spanName(a *model.Architecture, s *model.Span) string {
	if a.Plain() {
		return fmt.Sprintf("field %d", s.Field)
	}
	return fmt.Sprintf("field %d in table %s", s.Field, a.Tables[s.Table].Name)
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

// Find reconstructs which entries of dense tables, [Parameters], were dropped, because
// dense tables do not store this. For each column of a field, Find takes the most frequent
// value in a sample of rows. Entries with exactly this value count as dropped, and
// baseline, of one word for each field, holds the value. No information is lost, although some of these
// entries may have been kept. If dropping these entries does not make a field smaller,
// Find drops nothing from the field. It never drops pad rows.
func Find(a *model.Architecture, tables []float32) (dropped []bool, baseline model.Baseline) {
	dropped, baseline = make([]bool, len(tables)), a.Zero()
	pads, shape := a.FixedRows(), a.Shape()
	for _, s := range a.Spans() {
		from, to := s.Entries()
		entries, mask, dim := tables[from:to], dropped[from:to], s.Dim
		line := baseline.Values[s.Baseline : s.Baseline+dim]
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
		for _, row := range pads {
			if row >= s.Row && row < s.Row+s.Rows {
				first, end := shape.Row(row)
				clear(dropped[first:end])
			}
		}
		f := smallest(s.Rows, dim, kept(mask), occupied(mask, dim))
		if f.bytes(s.Rows, dim)+4*f.Kept >= 4*len(mask) {
			clear(mask)
			clear(line)
		}
		for _, r := range s.Sharers {
			copy(baseline.Values[r.Baseline:r.Baseline+dim], line)
		}
	}
	return dropped, baseline
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
