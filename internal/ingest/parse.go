package ingest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// header is the information in the first line of a file.
type header struct {
	columns   []string // names of all columns, including the label
	separator byte     // comma or tab
	named     bool     // the line is a header; otherwise it is a row, and the names are invented
}

// readHeader parses the first line of a file. A line that contains a tab is tab-separated.
// Any other line is comma-separated, with quotes as in encoding/csv. If rows is true, a line
// of only integers is a row and not a header.
func readHeader(line []byte, rows bool) (*header, error) {
	h := &header{separator: ',', named: true}
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, errors.New("NUL byte (is this text in UTF-8?)")
	}
	if bytes.IndexByte(line, '\t') >= 0 {
		h.separator = '\t'
		h.columns = strings.Split(string(line), "\t")
	} else {
		var err error
		if h.columns, err = csv.NewReader(bytes.NewReader(line)).Read(); err != nil {
			return nil, fmt.Errorf("the header is not CSV: %w", err)
		}
	}
	if len(h.columns) < 2 {
		return nil, errors.New("1 column, expected a label and at least one field, separated by commas or tabs")
	}
	if !rows {
		return h, nil
	}
	integers := 0
	for _, name := range h.columns {
		if isInteger(name) {
			integers++
		}
	}
	switch integers {
	case 0:
	case len(h.columns):
		h.named = false
		h.columns[0] = "label"
		for j := range h.columns[1:] {
			h.columns[1+j] = "f" + strconv.Itoa(j)
		}
	default:
		return nil, fmt.Errorf("%d of %d columns are integers: this is neither a header nor a row", integers, len(h.columns))
	}
	return h, nil
}

func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// parser parses lines of the form "label,id,id,...". It is not safe for concurrent use.
type parser struct {
	fields    []string
	separator byte
	low, high []int32 // range of the ids in the file, [low, high), for each field
	offset    []int32 // added to the ids in the file to make them global
	features  []int32 // ids of the row that parse read last, with offset added
}

// newParser returns a parser for files of local or global ids. For local ids sizes may be
// nil. Then any id below 2^31-1 is valid, and the parsed ids stay local.
func newParser(h *header, sizes []int, global bool) *parser {
	m := len(h.columns) - 1
	p := &parser{fields: h.columns[1:], separator: h.separator,
		low: make([]int32, m), high: make([]int32, m), offset: make([]int32, m), features: make([]int32, m)}
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
		p.high[j] = p.low[j] + int32(sizes[j])
		before += int32(sizes[j])
	}
	return p
}

// parse parses a line and stores its ids in p.features. If it returns false, the line is not
// valid, and explain returns the reason.
func (p *parser) parse(line []byte) (label uint8, ok bool) {
	if len(line) < 2 || line[0]&^1 != '0' || line[1] != p.separator {
		return 0, false
	}
	label = line[0] & 1
	rest, separator := line[2:], p.separator
	last := len(p.features) - 1
	for j := range p.features {
		id, k := 0, 0
		for k < len(rest) {
			c := rest[k]
			if c == separator {
				break
			}
			digit := int(c - '0')
			if digit > 9 || id > math.MaxInt32 {
				return 0, false
			}
			id = id*10 + digit
			k++
		}
		if k == 0 || id < int(p.low[j]) || id >= int(p.high[j]) || (k == len(rest)) != (j == last) {
			return 0, false
		}
		p.features[j] = int32(id) + p.offset[j]
		if j < last {
			rest = rest[k+1:]
		}
	}
	return label, true
}

// explain returns an error that says why a line is not valid, or nil if it is valid.
func (p *parser) explain(line []byte) error {
	if bytes.IndexByte(line, 0) >= 0 {
		return errors.New("NUL byte")
	}
	if len(line) == 0 {
		return errors.New("the line is empty")
	}
	cells := strings.Split(string(line), string(rune(p.separator)))
	if len(cells) != len(p.fields)+1 {
		return fmt.Errorf("%d columns, expected %d", len(cells), len(p.fields)+1)
	}
	if cells[0] != "0" && cells[0] != "1" {
		return fmt.Errorf("label is %q, expected 0 or 1", clip(cells[0]))
	}
	for j, cell := range cells[1:] {
		if err := p.explainID(j, cell); err != nil {
			return fmt.Errorf("field %d (%s): %w", j, p.fields[j], err)
		}
	}
	return nil
}

func (p *parser) explainID(j int, cell string) error {
	id, err := strconv.ParseInt(cell, 10, 64)
	switch {
	case cell == "":
		return errors.New("empty value")
	case !isInteger(cell):
		return fmt.Errorf("%q is not an integer", clip(cell))
	case cell[0] == '-':
		return fmt.Errorf("id %s is negative", clip(cell))
	case err != nil || id < int64(p.low[j]) || id >= int64(p.high[j]):
		return fmt.Errorf("id %s is outside [%d,%d)", clip(cell), p.low[j], p.high[j])
	}
	return nil
}

// clip shortens text that a message quotes.
func clip(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
