package rawtext

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"math/bits"
)

// Records takes a block apart. With quotes, cells may be quoted as encoding/csv
// reads them; else every byte between two separators is the value. It is for one
// goroutine, and for one block after another.
type Records struct {
	Separator byte
	Quotes    bool
	Line      int  // number of the line at which the record of the last Next begins
	Lines     int  // how many lines that takes
	Odd       bool // its cells may hold NULs, or bytes that are not UTF-8
	block     *Block
	rest      []byte
	cells     [][]byte
	text      []byte // of a quoted record
}

// Reset begins a block, which must not change while it is read.
func (r *Records) Reset(block *Block) {
	r.block, r.rest, r.Line, r.Lines, r.Odd = block, block.data, block.line, 0, block.odd
}

// Next returns the cells of the next record, valid until the next call; io.EOF
// after the last one. Another error says why the record is none: the next call
// goes on behind it.
func (r *Records) Next() ([][]byte, error) {
	r.Line += r.Lines
	if r.block.long {
		if r.Lines++; r.Lines > 1 {
			return nil, io.EOF
		}
		return nil, errTooLong
	}
	if len(r.rest) == 0 {
		return nil, io.EOF
	}
	line := r.take()
	r.Lines = 1
	if len(line) >= MaxLine {
		return nil, errTooLong
	}
	if r.Quotes && bytes.IndexByte(line, '"') >= 0 {
		return r.quoted(line)
	}
	r.cells = split(r.cells[:0], line, r.Separator)
	return r.cells, nil
}

// split appends the cells of a line. Most are of a few bytes, for which a call of
// bytes.IndexByte each takes longer than looking at eight bytes at a time.
func split(cells [][]byte, line []byte, separator byte) [][]byte {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	pattern := ones * uint64(separator)
	start, at := 0, 0
	for ; at+8 <= len(line); at += 8 {
		word := binary.LittleEndian.Uint64(line[at:]) ^ pattern // separators are zeros
		// The high bit of each byte that is zero, and of no other.
		zeros := ^((word&^highs + ^uint64(highs)) | word | ^uint64(highs))
		for ; zeros != 0; zeros &= zeros - 1 {
			end := at + bits.TrailingZeros64(zeros)/8
			cells = append(cells, line[start:end])
			start = end + 1
		}
	}
	for ; at < len(line); at++ {
		if line[at] == separator {
			cells = append(cells, line[start:at])
			start = at + 1
		}
	}
	return append(cells, line[start:])
}

// take cuts the next line off, and returns it without its end.
func (r *Records) take() []byte {
	line, rest, _ := bytes.Cut(r.rest, []byte{'\n'})
	r.rest = rest
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// quoted reads a record with quotes: it goes on over lines until the quotes are
// even, which Blocks saw to.
func (r *Records) quoted(line []byte) ([][]byte, error) {
	r.text = append(r.text[:0], line...)
	for bytes.Count(r.text, []byte{'"'})%2 == 1 && len(r.rest) > 0 {
		r.text = append(append(r.text, "\r\n"...), r.take()...)
		r.Lines++
	}
	// encoding/csv takes one carriage return from the end of every line, as take
	// did: these are for it to take.
	r.text = append(r.text, "\r\n"...)
	if len(r.text) > MaxLine {
		return nil, errTooLong
	}
	reader := csv.NewReader(bytes.NewReader(r.text))
	reader.Comma = rune(r.Separator)
	reader.FieldsPerRecord = -1
	text, err := reader.Read()
	if err == nil && reader.InputOffset() < int64(len(r.text)) {
		err = errors.New("the quotes do not match")
	}
	if p := (*csv.ParseError)(nil); errors.As(err, &p) {
		err = p.Err // its line numbers are not the file's
	}
	if err != nil {
		return nil, errors.New("not CSV: " + err.Error())
	}
	r.cells = r.cells[:0]
	for _, cell := range text {
		r.cells = append(r.cells, []byte(cell))
	}
	return r.cells, nil
}
