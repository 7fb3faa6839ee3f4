package rawtext

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
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

// Clip shortens text that a message quotes.
func Clip(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
