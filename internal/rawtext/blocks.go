package rawtext

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"shaver/internal/fault"
)

// blockSize is the usual size of a block, in bytes; a block of one long record
// grows up to MaxLine.
const blockSize = 1 << 19

// Block is some consecutive whole records of one file.
type Block struct {
	Row  int64 // position of the first record in the file, from 0
	Rows int   // number of records
	Read int64 // bytes of the file, as it lies on disk, that were read by now
	line int   // number of the first line, from 1
	data []byte
	odd  bool // there are NULs or bytes that are not UTF-8
	long bool // the record is a line longer than MaxLine; it is not in data
}

// Blocks cuts a source into blocks. It is for one goroutine.
type Blocks struct {
	Quotes bool // a line end between two quotes belongs to a value, and does not end the record
	source *Source
	rest   []byte // read, and in no block yet
	lines  int    // before rest
	rows   int64
	ended  bool // the source has no more
}

// NewBlocks returns the blocks of a source, of which nothing was read yet.
func NewBlocks(source *Source) (*Blocks, error) {
	b := &Blocks{source: source}
	var err error
	b.rest, err = b.fill(nil, len(mark))
	b.rest = bytes.TrimPrefix(b.rest, mark)
	return b, err
}

// fill reads on until data has size bytes, or the source ends.
func (b *Blocks) fill(data []byte, size int) ([]byte, error) {
	for len(data) < size && !b.ended {
		if cap(data) < size {
			data = append(make([]byte, 0, size), data...)
		}
		n, err := b.source.lines.Read(data[len(data):size])
		data = data[:len(data)+n]
		if err == io.EOF {
			b.ended = true
		} else if err != nil {
			b.source.Line = b.lines + bytes.Count(data, []byte{'\n'})
			return nil, b.source.failed(err)
		}
	}
	return data, nil
}

// Header takes the first line, without its end. It is for a new Blocks; an empty
// file is bad input.
func (b *Blocks) Header() ([]byte, error) {
	rest, err := b.fill(b.rest, MaxLine)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, fault.Inputf("%s: the file is empty", b.source.Path)
	}
	line, rest, ended := bytes.Cut(rest, []byte{'\n'})
	if !ended && len(line) == MaxLine {
		return nil, b.source.Errorf(1, "%w", errTooLong)
	}
	b.rest, b.lines = rest, 1
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// Next fills block, reusing its memory, with the next records; io.EOF means that
// there are none.
func (b *Blocks) Next(block *Block) error {
	data := append(block.data[:0], b.rest...)
	var end, rows, lines int
	for size := blockSize; ; size = MaxLine {
		var err error
		if data, err = b.fill(data, max(size, len(data))); err != nil {
			return err
		}
		if end, rows, lines = cut(data, b.Quotes); end > 0 || b.ended || len(data) >= MaxLine {
			break
		}
	}
	*block = Block{Row: b.rows, line: b.lines + 1, Read: b.source.Read()}
	var err error
	switch open := b.Quotes && bytes.Count(data[end:], []byte{'"'})%2 == 1; {
	case len(data) == 0:
		return io.EOF
	case end == 0 && len(data) >= MaxLine && open && bytes.IndexByte(data, '\n') >= 0:
		return b.openQuote(b.lines + 1)
	case end == 0 && len(data) >= MaxLine:
		block.long, rows, lines = true, 1, 1
		end, err = b.skipLine(&data)
	case b.ended && len(data) > end && open:
		return b.openQuote(b.lines + lines + 1)
	case b.ended && len(data) > end && len(data)-end < MaxLine: // a last line without end
		end, rows, lines = len(data), rows+1, lines+1
	}
	if err != nil {
		return err
	}
	b.rest = append(b.rest[:0], data[end:]...)
	b.lines += lines
	b.rows += int64(rows)
	block.Rows, block.data = rows, data[:end]
	if block.long {
		block.data = data[:0]
	}
	block.odd = bytes.IndexByte(block.data, 0) >= 0 || !utf8.Valid(block.data)
	return nil
}

// skipLine reads past the end of the line that data begins with, and returns
// where in data it is.
func (b *Blocks) skipLine(data *[]byte) (int, error) {
	for {
		if at := bytes.IndexByte(*data, '\n'); at >= 0 {
			return at + 1, nil
		}
		if b.ended {
			return len(*data), nil
		}
		var err error
		if *data, err = b.fill((*data)[:0], blockSize); err != nil {
			return 0, err
		}
	}
}

// openQuote is an error that no policy passes over: nobody could tell how many
// rows the quote swallowed.
func (b *Blocks) openQuote(line int) error {
	return b.source.Errorf(line, "%w", errOpenQuote)
}

var errOpenQuote = fmt.Errorf("a quote is opened and not closed within the file and %d bytes", MaxLine)

// cut returns where the last whole record of data ends, and the numbers of
// records and lines up to there.
func cut(data []byte, quotes bool) (end, records, lines int) {
	if !quotes || bytes.IndexByte(data, '"') < 0 {
		end = bytes.LastIndexByte(data, '\n') + 1
		records = bytes.Count(data[:end], []byte{'\n'})
		return end, records, records
	}
	open, passed := false, 0
	for i, c := range data {
		switch c {
		case '"':
			open = !open
		case '\n':
			passed++
			if !open {
				end, lines = i+1, passed
				records++
			}
		}
	}
	return end, records, lines
}
