package dataset

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"shaver/internal/base/fault"
)

// A vocabulary file has one line for each id of a field. Line k, counted from 0, is the
// value with local id k. Backslashes, tabs, line feeds and carriage returns are written as
// \\, \t, \n and \r. If the id is reserved or stands for unseen values, the line is NoLine.
// The last id has no line if it stands for unseen values.

// MaxValue is the limit for the length of a value in bytes.
const MaxValue = 1 << 20

// NoLine is the line of an id without a value, with its line end.
const NoLine = "\\-\n"

// VocabularyLines returns the number of lines in the vocabulary file of a field.
func VocabularyLines(size, oov int) int {
	if oov >= 0 && oov == size-1 {
		return size - 1
	}
	return size
}

// AppendLine appends the line of value in a vocabulary file to buffer.
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

// unescape reverses the escaping of AppendLine, in place.
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
				return nil, fault.Inputf(`expected \, t, n or r after a backslash`)
			}
			c = "\\\t\n\r"[at]
		}
		out = append(out, c)
	}
	return out, nil
}

// ParseVocabularyFile returns the values in a vocabulary file by id, with "" for an id without a
// value. It returns the errors of ReadVocabularyFile, and one for a value that occurs twice.
func ParseVocabularyFile(data []byte, size, oov int) ([]string, error) {
	lines := bytes.Count(data, []byte("\n"))
	values, seen := make([]string, 0, lines), make(map[string]struct{}, lines) // growing takes as long as filling
	known := 0
	err := ReadVocabularyFile(bytes.NewReader(data), size, oov, func(id int, line []byte) error {
		value := string(line)
		seen[value] = struct{}{}
		if len(seen) == known {
			return fault.Inputf("line %d: the value %q occurs twice", id+1, value)
		}
		known++
		for len(values) < id {
			values = append(values, "")
		}
		values = append(values, value)
		return nil
	})
	return values, err
}

// ReadVocabularyFile calls visit with each id that has a value. It returns an error unless the
// file has exactly one line for each id that needs one, and no value for the id of unseen
// values.
func ReadVocabularyFile(r io.Reader, size, oov int, visit func(id int, value []byte) error) error {
	count, want := 0, VocabularyLines(size, oov)
	err := readLines(r, func(number int, value []byte, has bool) error {
		switch count = number; {
		case number > want:
			return fault.Inputf("more than the expected %d lines for a field of size %d", want, size)
		case !has:
			return nil
		case number-1 == oov:
			return fault.Inputf("line %d: the value %q has the id that stands for unseen values", number, value)
		}
		return visit(number-1, value)
	})
	if err == nil && count != want {
		err = fault.Inputf("%d lines, expected %d for a field of size %d", count, want, size)
	}
	return err
}

// readLines calls visit with the line number, from 1, and the value of each line. For
// NoLine, has is false.
func readLines(r io.Reader, visit func(number int, value []byte, has bool) error) error {
	in := bufio.NewReaderSize(r, 1<<16)
	var long []byte
	for number := 1; ; number++ {
		line, err := in.ReadSlice('\n')
		for long = long[:0]; err == bufio.ErrBufferFull; line, err = in.ReadSlice('\n') {
			if long = append(long, line...); len(long) > 2*MaxValue {
				return fault.Inputf("line %d has more than %d bytes", number, 2*MaxValue)
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
			return fault.Inputf("line %d has no line end", number)
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
