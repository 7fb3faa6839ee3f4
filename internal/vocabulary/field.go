package vocabulary

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"

	"shaver/internal/fault"
)

// Field maps the values of one field to local ids: 0 to Size-2 each have a
// value, Size-1 is that of all others. Any number of goroutines may read it.
type Field struct {
	values table // numbers are ids + 1
}

// newField returns a field with room for the given number of values; longBytes
// are those of values of more than 15 bytes.
func newField(values, longBytes int) *Field {
	return &Field{table{slots: make([]slot, values+values/3+2), arena: make([]byte, 0, longBytes)}}
}

// FieldBytes is about the memory of a field of so many values, which take the
// given bytes with a line end each.
func FieldBytes(values, textBytes int64) int64 {
	return (values+values/3+2)*slotBytes + max(0, textBytes-values*(short+1))
}

// Size returns the number of features: of the values, and the one of all others.
func (f *Field) Size() int { return f.values.used + 1 }

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

// Each calls visit with the values in the order of their ids. A value is valid
// until visit returns.
func (f *Field) Each(visit func(value []byte) error) error {
	order := make([]int32, f.values.used)
	for i := range f.values.slots {
		if n := f.values.slots[i].number; n > 0 {
			order[n-1] = int32(i)
		}
	}
	var value []byte
	for _, i := range order {
		value = f.values.append(value[:0], &f.values.slots[i])
		if err := visit(value); err != nil {
			return err
		}
	}
	return nil
}

// A vocabulary file has one line for each value of a field that has an id of its
// own: line k (from 0) is the value of local id k, its backslashes, tabs, line
// feeds and carriage returns written as \\, \t, \n and \r. All other values share
// the field's last id, which has no line.

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

// ReadField reads a vocabulary file of about the given numbers of values and
// bytes, which it makes room for.
func ReadField(r io.Reader, values int, textBytes int64) (*Field, error) {
	f := newField(values, int(max(0, textBytes-int64(values)*(short+1))))
	err := readLines(r, func(number int, value []byte) error {
		if number > math.MaxInt32-1 {
			return fault.Inputf("more than 2^31-2 values")
		}
		if !f.add(value, int64(number-1)) {
			return fault.Inputf("line %d: the value %q is there already", number, value)
		}
		return nil
	})
	return f, err
}

// ParseText returns the values of a vocabulary file.
func ParseText(data []byte) ([]string, error) {
	values, seen := []string{}, map[string]bool{}
	err := readLines(bytes.NewReader(data), func(number int, line []byte) error {
		value := string(line)
		if seen[value] {
			return fault.Inputf("line %d: the value %q is there already", number, value)
		}
		seen[value] = true
		values = append(values, value)
		return nil
	})
	return values, err
}

// readLines calls visit with the values and their lines' numbers, from 1.
func readLines(r io.Reader, visit func(number int, value []byte) error) error {
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
		value, err := unescape(line[:len(line)-1])
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := visit(number, value); err != nil {
			return err
		}
	}
}
