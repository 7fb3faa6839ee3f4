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
	record := r.rest
	line := r.take()
	r.Lines = 1
	if len(line) >= MaxLine {
		return nil, errTooLong
	}
	if r.Quotes && bytes.IndexByte(line, '"') >= 0 {
		return r.quoted(record)
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

// quoted reads a record with quotes, with which data begins and whose first line r has taken. It takes further lines
// until the number of quotes is even. Blocks ensures that the block contains them.
func (r *Records) quoted(data []byte) ([][]byte, error) {
	record := func() []byte { return data[:len(data)-len(r.rest)] }
	for bytes.Count(record(), []byte{'"'})%2 == 1 && len(r.rest) > 0 {
		r.take()
		r.Lines++
	}
	text := bytes.TrimSuffix(bytes.TrimSuffix(record(), []byte{'\n'}), []byte{'\r'})
	// encoding/csv removes one carriage return from the end of each line, so each gets one more.
	r.text = append(r.text[:0], bytes.ReplaceAll(text, []byte("\r\n"), []byte("\r\r\n"))...)
	r.text = append(r.text, "\r\n"...)
	if len(text)+2 > MaxLine {
		return nil, errTooLong
	}
	reader := csv.NewReader(bytes.NewReader(r.text))
	reader.Comma = rune(r.Separator)
	reader.FieldsPerRecord = -1
	values, err := reader.Read()
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
	for _, cell := range values {
		r.cells = append(r.cells, []byte(cell))
	}
	return r.cells, nil
}
