package rawtext

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Header is the information in the first line of a file.
type Header struct {
	Columns   []string // names of all columns, including the label
	Separator byte     // comma or tab
	Named     bool     // the line is a header; otherwise it is a row, and the names are invented
}

// ReadHeader parses the first line of a file. A line that contains a tab is tab-separated.
// Any other line is comma-separated, with quotes as in encoding/csv. If rows is true, a line
// of only integers, or of a number and then only integers, is a row and not a header.
func ReadHeader(line []byte, rows bool) (*Header, error) {
	h := &Header{Separator: ',', Named: true}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, errors.New("NUL byte (is this text in UTF-8?)")
	}
	if bytes.IndexByte(line, '\r') >= 0 {
		return nil, errors.New(`the lines end with carriage returns only, expected "\n" or "\r\n"`)
	}
	if bytes.IndexByte(line, '\t') >= 0 {
		h.Separator = '\t'
		h.Columns = strings.Split(string(line), "\t")
		for _, name := range h.Columns {
			if len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
				return nil, fmt.Errorf("the header is quoted as in CSV, but values separated by tabs have no quotes: write them without, or separate them by commas: %.40q", name)
			}
		}
	} else {
		var err error
		if h.Columns, err = csv.NewReader(bytes.NewReader(line)).Read(); err != nil {
			return nil, fmt.Errorf("the header is not CSV: %w", err)
		}
	}
	if len(h.Columns) < 2 {
		return nil, errors.New("1 column, expected a label and at least one field, separated by commas or tabs")
	}
	if !rows {
		return h, nil
	}
	integers := 0
	for i, name := range h.Columns {
		if isInteger(name) || i == 0 && isNumber(name) {
			integers++
		}
	}
	switch integers {
	case 0:
	case len(h.Columns):
		h.Named = false
		h.Columns[0] = "label"
		for j := range h.Columns[1:] {
			h.Columns[1+j] = "f" + strconv.Itoa(j)
		}
	default:
		return nil, fmt.Errorf("%d of %d columns are integers: this is neither a header nor a row", integers, len(h.Columns))
	}
	return h, nil
}

func isInteger(text string) bool {
	digits := strings.TrimSuffix(strings.TrimPrefix(text, "-"), ".0")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// isNumber reports whether text is a finite number, such as a rating.
func isNumber(text string) bool {
	x, err := strconv.ParseFloat(text, 64)
	return err == nil && x-x == 0
}

// Encoded parses lines of the form "label,id,id,...". A number may have the end ".0". It is not safe for concurrent use.
type Encoded struct {
	fields    []string
	label     string // name of the first column; "label" if the file has no header
	separator byte
	low, high []int32                         // range of the ids in the file, [low, high), for each field
	offset    []int32                         // added to the ids in the file to make them global
	dense     []bool                          // for each column after the label, whether it is a dense input; nil if none is
	LabelCell bool                            // the label may be any text, which Parse stores in Label; set it before the first call of Parse
	Label     []byte                          // with LabelCell, the cell of the label of the row that Parse read last
	Features  []int32                         // ids of the row that Parse read last, with offset added, position by position
	lists     []List                          // form of each field; nil if none is a list
	base      []int32                         // global id of each field's first feature, or 0 if the parsed ids stay local
	Cut       []bool                          // with lists, for each field whether Parse left ids out of the row that it read last
	Guards    []func(id int64) (int64, error) // for local ids, by field, what replaces an id outside the field, or nil; set it before the first call of Parse
	Numbers   [][]byte                        // cells of the dense inputs of the row that Parse read last, in the order of the columns
}

// List says how the cell of a list is read. The zero value is a field that is no list.
type List struct {
	Length    int    // number of positions; 0 = the field is no list
	Pad       int    // local id of positions without a value; -1 = there is no such id, so a cell must be full
	Separator byte   // byte between two ids
	Long      string // what to do with a cell of more than Length ids: LongFail, LongFirst or LongLast
	Front     bool   // pads come before the ids and not after them
}

// What to do with a list that has more ids than positions.
const (
	LongFail  = "fail"  // the row is malformed
	LongFirst = "first" // keep the first ids
	LongLast  = "last"  // keep the last ids
)

// NewEncoded returns an Encoded for files of local or global ids. For local ids sizes may be
// nil. Then any id below 2^31-1 is valid, and the parsed ids stay local. dense says for each
// column after the label whether it is a dense input and not a field. It is nil if none is.
// lists has the form of each field, or is nil if no field is a list.
func NewEncoded(h *Header, dense []bool, sizes []int, global bool, lists []List) *Encoded {
	var fields []string
	for j, name := range h.Columns[1:] {
		if dense == nil || !dense[j] {
			fields = append(fields, name)
		}
	}
	m := len(fields)
	p := &Encoded{fields: fields, label: h.Columns[0], separator: h.Separator, dense: dense, Numbers: make([][]byte, len(h.Columns)-1-m),
		low: make([]int32, m), high: make([]int32, m), offset: make([]int32, m), base: make([]int32, m)}
	width := m
	if lists != nil {
		p.lists, p.Cut = lists, make([]bool, m)
		for _, l := range lists {
			width += max(1, l.Length) - 1
		}
	}
	p.Features = make([]int32, width)
	before := int32(0)
	for j := range m {
		p.high[j] = math.MaxInt32
		if sizes == nil {
			continue
		}
		if global {
			p.low[j] = before
		} else {
			p.offset[j] = before
		}
		p.base[j] = before
		p.high[j] = p.low[j] + int32(sizes[j])
		before += int32(sizes[j])
	}
	return p
}

// fraction is the end of a whole number that a writer has stored as a float.
var fraction = []byte(".0")

// Parse parses a line and stores its ids in p.Features. If it returns false, the line is not
// valid, and Explain returns the reason. With LabelCell the label is 0.
func (p *Encoded) Parse(line []byte) (label float32, ok bool) {
	rest, separator := []byte(nil), p.separator
	if p.LabelCell {
		var more bool
		if p.Label, rest, more = bytes.Cut(line, []byte{separator}); !more {
			return 0, false
		}
	} else {
		if len(line) < 2 || line[0]&^1 != '0' {
			return 0, false
		}
		label = float32(line[0] & 1)
		rest = bytes.TrimPrefix(line[1:], fraction)
		if len(rest) == 0 || rest[0] != separator {
			return 0, false
		}
		rest = rest[1:]
	}
	if p.dense != nil || p.lists != nil || p.Guards != nil {
		return label, p.parseMixed(rest)
	}
	last := len(p.Features) - 1
	for j := range p.Features {
		id, k := 0, 0
		for k < len(rest) {
			c := rest[k]
			if c == separator {
				break
			}
			digit := int(c - '0')
			if c == '.' && k > 0 && bytes.HasPrefix(rest[k:], fraction) && (k+2 == len(rest) || rest[k+2] == separator) {
				k += 2
				break
			}
			if digit > 9 || id > math.MaxInt32 {
				return 0, false
			}
			id = id*10 + digit
			k++
		}
		if k == 0 || id < int(p.low[j]) || id >= int(p.high[j]) || (k == len(rest)) != (j == last) {
			return 0, false
		}
		p.Features[j] = int32(id) + p.offset[j]
		if j < last {
			rest = rest[k+1:]
		}
	}
	return label, true
}

// parseMixed parses the columns after the label, of which some are dense inputs or lists.
func (p *Encoded) parseMixed(rest []byte) bool {
	if bytes.IndexByte(rest, 0) >= 0 {
		return false
	}
	clear(p.Cut)
	j, k, at := 0, 0, 0
	for i, columns := 0, len(p.fields)+len(p.Numbers); i < columns; i++ {
		cell, after, more := bytes.Cut(rest, []byte{p.separator})
		if more == (i == columns-1) {
			return false
		}
		rest = after
		if p.dense != nil && p.dense[i] {
			p.Numbers[k] = cell
			k++
			continue
		}
		if p.lists != nil && p.lists[j].Length > 0 {
			n := p.lists[j].Length
			if !p.parseList(p.Features[at:at+n], cell, j) {
				return false
			}
			at += n
			j++
			continue
		}
		id, ok := p.id(j, cell)
		if !ok {
			return false
		}
		p.Features[at] = id + p.offset[j]
		j++
		at++
	}
	return true
}

// parseList sets into to the ids in the cell of the list j, and fills it with the pad id.
func (p *Encoded) parseList(into []int32, cell []byte, j int) bool {
	l, n := &p.lists[j], 0
	for more := len(cell) > 0; more; n++ {
		var text []byte
		text, cell, more = bytes.Cut(cell, []byte{l.Separator})
		id, ok := p.id(j, text)
		if !ok {
			return false
		}
		switch {
		case n < len(into):
			into[n] = id + p.offset[j]
		case l.Long == LongLast:
			into[n%len(into)] = id + p.offset[j] // a ring, which is put in order below
		case l.Long != LongFirst:
			return false
		}
	}
	if n > len(into) {
		p.Cut[j] = true
		if start := n % len(into); l.Long == LongLast {
			slices.Reverse(into[:start])
			slices.Reverse(into[start:])
			slices.Reverse(into)
		}
		return true
	}
	if n < len(into) && l.Pad < 0 {
		return false
	}
	Fill(into, n, p.base[j]+int32(l.Pad), l.Front)
	return true
}

// Fill fills a list of n ids, which are at its start, with pads: at its end, or at its front, which moves the ids to the end.
func Fill(list []int32, n int, pad int32, front bool) {
	pads := list[n:]
	if front {
		copy(list[len(list)-n:], list[:n])
		pads = list[:len(list)-n]
	}
	for i := range pads {
		pads[i] = pad
	}
}

// id returns the id in a cell of field j.
func (p *Encoded) id(j int, cell []byte) (id int32, ok bool) {
	if id, ok = parseID(cell); ok && id >= p.low[j] && id < p.high[j] {
		return id, true
	}
	text := string(bytes.TrimSuffix(cell, fraction))
	if p.Guards == nil || p.Guards[j] == nil || !isInteger(text) {
		return 0, false
	}
	x, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		x, err = p.Guards[j](x)
	}
	return int32(x), err == nil && x >= 0 && x < int64(p.high[j])
}

// parseID returns the id in a cell, which must be below 2^31-1.
func parseID(cell []byte) (int32, bool) {
	digits := bytes.TrimSuffix(cell, fraction)
	id := 0
	for _, c := range digits {
		digit := int(c) - '0'
		if digit < 0 || digit > 9 || id >= math.MaxInt32 {
			return 0, false
		}
		id = 10*id + digit
	}
	return int32(id), len(digits) > 0 && id < math.MaxInt32
}

// ErrNoLabel is wrapped by the error of a row whose label is missing.
var ErrNoLabel = errors.New("the label is missing")

// NumberLabel is the error of a label that is a finite number, where 0 or 1 is expected.
type NumberLabel struct{ error }

func (e *NumberLabel) Unwrap() error { return e.error }

// BadLabel returns err, the error of a label that is neither 0 nor 1, as a NumberLabel if the label is a finite number.
func BadLabel(label string, err error) error {
	if x, bad := strconv.ParseFloat(label, 64); bad != nil || x-x != 0 {
		return err
	}
	return &NumberLabel{err}
}

// Explain returns an error that says why a line is not valid, or nil if it is valid.
func (p *Encoded) Explain(line []byte) error {
	if bytes.IndexByte(line, 0) >= 0 {
		return errors.New("NUL byte")
	}
	if len(line) == 0 {
		return errors.New("the line is empty")
	}
	cells := strings.Split(string(line), string(rune(p.separator)))
	if want := len(p.fields) + len(p.Numbers) + 1; len(cells) != want {
		if len(cells) > want && bytes.IndexByte(line, '"') >= 0 {
			return fmt.Errorf("%d columns, expected %d: quotes have no meaning in rows of ids, so no cell may contain %q", len(cells), want, p.separator)
		}
		return fmt.Errorf("%d columns, expected %d", len(cells), want)
	}
	if label := strings.TrimSuffix(cells[0], ".0"); !p.LabelCell && label != "0" && label != "1" {
		named := p.label != "" && p.label != "label"
		switch {
		case label == "" && named:
			return fmt.Errorf("%w in the first column, %q, expected 0 or 1", ErrNoLabel, Clip(p.label))
		case label == "":
			return fmt.Errorf("%w, expected 0 or 1", ErrNoLabel)
		case named:
			return BadLabel(label, fmt.Errorf("the label, which is the first column, %q, is %q, expected 0 or 1", Clip(p.label), Clip(cells[0])))
		}
		return BadLabel(label, fmt.Errorf("label is %q, expected 0 or 1", Clip(cells[0])))
	}
	j := 0
	for i, cell := range cells[1:] {
		if p.dense != nil && p.dense[i] {
			continue
		}
		explain := p.explainID
		if p.lists != nil && p.lists[j].Length > 0 {
			explain = p.explainList
		}
		if err := explain(j, cell); err != nil {
			return fmt.Errorf("field %d (%s): %w", j, p.fields[j], err)
		}
		j++
	}
	return nil
}

func (p *Encoded) explainID(j int, cell string) error {
	id, err := strconv.ParseInt(strings.TrimSuffix(cell, ".0"), 10, 64)
	_, ok := p.id(j, []byte(cell))
	switch {
	case ok:
		return nil
	case cell == "":
		return errors.New("empty value")
	case !isInteger(cell):
		return fmt.Errorf("%q is not an integer", Clip(cell))
	case cell[0] == '-':
		return fmt.Errorf("id %s is negative: expected at least 0; give a missing value an id and a row of the table", Clip(cell))
	case err == nil && id == int64(p.high[j]) && p.low[j] == 0 && id < math.MaxInt32:
		return fmt.Errorf("id %d is outside [0,%d), because ids count from 0", id, id)
	case err != nil || id < int64(p.low[j]) || id >= int64(p.high[j]):
		return fmt.Errorf("id %s is outside [%d,%d)", Clip(cell), p.low[j], p.high[j])
	}
	return nil
}

// explainList is explainID for the cell of a list.
func (p *Encoded) explainList(j int, cell string) error {
	var ids []string
	if l := &p.lists[j]; cell != "" {
		ids = strings.Split(cell, string(rune(l.Separator)))
	}
	for at, id := range ids {
		if err := p.explainID(j, id); err != nil {
			return fmt.Errorf("position %d: %w", at, err)
		}
	}
	switch l := &p.lists[j]; {
	case len(ids) > l.Length && l.Long != LongFirst && l.Long != LongLast:
		return fmt.Errorf("%d ids, expected at most %d", len(ids), l.Length)
	case len(ids) < l.Length && l.Pad < 0:
		return fmt.Errorf("%d ids, expected %d, because no id stands for missing ones", len(ids), l.Length)
	}
	return nil
}

// Clip shortens text that a message quotes.
func Clip(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
