package vocabulary

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"shaver/internal/fault"
)

// Field maps the values of one field to local ids below Size. One id, mostly the
// last, may stand for all unseen values, those without an id of their own (OOV);
// others may be reserved, and no value's. Any number of goroutines may read it.
type Field struct {
	values   table // numbers are ids + 1
	size     int
	oov      int // id of unseen values; -1: there is none
	reserved int // ids of no value, the one of unseen values not among them
}

// newField returns a field with room for the given number of values; longBytes
// are those of values of more than 15 bytes.
func newField(values, longBytes int) *Field {
	return &Field{values: table{slots: make([]slot, values+values/3+2), arena: make([]byte, 0, longBytes)}}
}

// FieldBytes is about the memory of a field of so many values, which take the
// given bytes with a line end each.
func FieldBytes(values, textBytes int64) int64 {
	return (values+values/3+2)*slotBytes + max(0, textBytes-values*(short+1))
}

// Size returns the number of features.
func (f *Field) Size() int { return f.size }

// OOV returns the id of unseen values, -1 if there is none.
func (f *Field) OOV() int { return f.oov }

// Reserved returns how many ids no value can get.
func (f *Field) Reserved() int { return f.reserved }

// add gives a value an id; false if the value has one.
func (f *Field) add(value []byte, id int64) bool {
	a, b := pack(value)
	if len(f.values.slots) > 0 && f.values.find(value, a, b).number > 0 {
		return false
	}
	_, slots := f.values.need(value)
	f.values.insert(value, a, b, id+1, slots)
	return true
}

// Each calls visit with each id that has a line in a vocabulary file, in their
// order: with its value, or without one (has is false), if it is reserved or that of
// unseen values. A value is valid until visit returns.
func (f *Field) Each(visit func(value []byte, has bool) error) error {
	order := make([]int32, lines(f.size, f.oov)) // slots + 1
	for i := range f.values.slots {
		if n := f.values.slots[i].number; n > 0 && int(n-1) != f.oov {
			order[n-1] = int32(i) + 1
		}
	}
	var value []byte
	for _, i := range order {
		if value = value[:0]; i > 0 {
			value = f.values.append(value, &f.values.slots[i-1])
		}
		if err := visit(value, i > 0); err != nil {
			return err
		}
	}
	return nil
}

// A vocabulary file has one line for each id of a field: line k (from 0) is the
// value of local id k, its backslashes, tabs, line feeds and carriage returns written
// as \\, \t, \n and \r, or NoLine if no value, or every unseen one, has the id. The
// last id has no line if it is that of unseen values.

// NoLine is the line of an id without a value.
const NoLine = "\\-\n"

// lines returns how many lines the file of a field has.
func lines(size, oov int) int {
	if oov >= 0 && oov == size-1 {
		return size - 1
	}
	return size
}

// AppendLine appends a value's line to buffer.
func AppendLine(buffer, value []byte) []byte {
	for _, c := range value {
		if at := strings.IndexByte("\\\t\n\r", c); at >= 0 {
			buffer = append(buffer, '\\', `\tnr`[at])
		} else {
			buffer = append(buffer, c)
		}
	}
	return append(buffer, '\n')
}

// unescape takes back AppendLine's escapes, in line's own memory.
func unescape(line []byte) ([]byte, error) {
	at := bytes.IndexByte(line, '\\')
	if at < 0 {
		return line, nil
	}
	out := line[:at]
	for i := at; i < len(line); i++ {
		c := line[i]
		if c == '\\' {
			i++
			at := -1
			if i < len(line) {
				at = strings.IndexByte(`\tnr`, line[i])
			}
			if at < 0 {
				return nil, fault.Inputf(`a backslash is not followed by \, t, n or r`)
			}
			c = "\\\t\n\r"[at]
		}
		out = append(out, c)
	}
	return out, nil
}

// ReadField reads a vocabulary file, of about the given number of bytes, of a field
// of this size and this id of unseen values (-1: none).
func ReadField(r io.Reader, size, oov int, textBytes int64) (*Field, error) {
	values := int(min(int64(size), textBytes)) // a line has a byte at least
	f := newField(values, int(max(0, textBytes-int64(values)*(short+1))))
	f.size, f.oov, f.reserved = size, oov, size
	if oov >= 0 {
		f.reserved--
	}
	err := readValues(r, size, oov, func(id int, value []byte) error {
		if !f.add(value, int64(id)) {
			return fault.Inputf("line %d: the value %q is there already", id+1, value)
		}
		f.reserved--
		return nil
	})
	return f, err
}

// ParseText returns the values by id of a vocabulary file, for which ReadField
// reads it; "" for an id that has none.
func ParseText(data []byte, size, oov int) ([]string, error) {
	values, seen := []string{}, map[string]bool{}
	err := readValues(bytes.NewReader(data), size, oov, func(id int, line []byte) error {
		value := string(line)
		if seen[value] {
			return fault.Inputf("line %d: the value %q is there already", id+1, value)
		}
		seen[value] = true
		for len(values) < id {
			values = append(values, "")
		}
		values = append(values, value)
		return nil
	})
	return values, err
}

// readValues calls visit with the ids that have a value, and sees to it that the
// file has a line for each id that needs one, and no value for unseen ones.
func readValues(r io.Reader, size, oov int, visit func(id int, value []byte) error) error {
	count, want := 0, lines(size, oov)
	err := readLines(r, func(number int, value []byte, has bool) error {
		switch count = number; {
		case number > want:
			return fault.Inputf("more than %d lines, the field has size %d", want, size)
		case !has:
			return nil
		case number-1 == oov:
			return fault.Inputf("line %d: the value %q has the id of unseen values", number, value)
		}
		return visit(number-1, value)
	})
	if err == nil && count != want {
		err = fault.Inputf("%d lines, expected %d, as the field has size %d", count, want, size)
	}
	return err
}

// readLines calls visit with the values and their lines' numbers, from 1; has is
// false for NoLine.
func readLines(r io.Reader, visit func(number int, value []byte, has bool) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var long []byte
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		for long = long[:0]; err == bufio.ErrBufferFull; line, err = in.ReadSlice('\n') {
			if long = append(long, line...); len(long) > 2*maxValue {
				return fault.Inputf("line %d has more than %d bytes", number, 2*maxValue)
			}
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return fault.Inputf("line %d has no end", number)
		case err != nil:
			return err
		}
		if string(line) == NoLine {
			if err := visit(number, nil, false); err != nil {
				return err
			}
			continue
		}
		value, err := unescape(line[:len(line)-1])
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := visit(number, value, true); err != nil {
			return err
		}
	}
}
