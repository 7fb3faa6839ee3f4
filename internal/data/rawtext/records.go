package rawtext

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"io"
	"math/bits"
)

// Records splits a block into records, and each record into cells. If Quotes is set,
// cells may be quoted as in encoding/csv. Otherwise every byte between two separators
// belongs to the cell. Records may be reused for one block after another. It is not safe
// for concurrent use.
type Records struct {
	Separator byte
	Quotes    bool
	Line      int  // number of the first line of the record that Next returned last, from 1
	Lines     int  // number of lines of that record
	Odd       bool // cells of the block may contain NULs or bytes that are not UTF-8
	block     *Block
	rest      []byte
	cells     [][]byte
	text      []byte // text of a record with quotes, over all its lines
}

// Reset makes r read block, which must not change until r has read it.
func (r *Records) Reset(block *Block) {
	r.block, r.rest, r.Line, r.Lines, r.Odd = block, block.data, block.line, 0, block.odd
}

// Next returns the cells of the next record, which are valid until the next call. It
// returns io.EOF after the last record. Any other error means that the record is
// malformed, and the next call returns the record after it.
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

// split appends the cells of line to cells. It looks at eight bytes at a time. Most cells
// have only a few bytes, so calling bytes.IndexByte for each of them would take longer.
func split(cells [][]byte, line []byte, separator byte) [][]byte {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	pattern := ones * uint64(separator)
	start, at := 0, 0
	for ; at+8 <= len(line); at += 8 {
		word := binary.LittleEndian.Uint64(line[at:]) ^ pattern // separators become zero bytes
		// The high bit of each byte of word that is zero; all other bits are 0.
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

// take removes the next line from r.rest and returns it without its line end.
func (r *Records) take() []byte {
	line, rest, _ := bytes.Cut(r.rest, []byte{'\n'})
	r.rest = rest
	return bytes.TrimSuffix(line, []byte{'\r'})
}

// quoted reads a record with quotes, whose first line is line. It adds further lines
// until the number of quotes is even. Blocks ensures that the block contains them.
func (r *Records) quoted(line []byte) ([][]byte, error) {
	r.text = append(r.text[:0], line...)
	for bytes.Count(r.text, []byte{'"'})%2 == 1 && len(r.rest) > 0 {
		r.text = append(append(r.text, "\r\n"...), r.take()...)
		r.Lines++
	}
	// encoding/csv removes one carriage return from the end of each line. take has
	// removed it already, so each line gets one back.
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
