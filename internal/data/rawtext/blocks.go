package rawtext

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"shaver/internal/base/fault"
)

// blockSize is the usual size of a block in bytes. A block that holds one long record may
// grow to MaxLine bytes.
const blockSize = 1 << 19

// Block is a run of consecutive whole records of one file.
type Block struct {
	Row  int64 // position of the first record in the file, from 0
	Rows int   // number of records
	Read int64 // bytes of the file on disk, compressed or not, read so far
	line int   // number of the first line, from 1
	data []byte
	odd  bool // data contains NULs or is not UTF-8
	long bool // the only record is a line longer than MaxLine; data is empty
}

// Blocks cuts a source into blocks. It is not safe for concurrent use.
type Blocks struct {
	Quotes bool // a line end between two quotes belongs to a value and does not end the record
	source *Source
	rest   []byte // bytes that were read but are not in a block yet
	first  []byte // bytes that Header has read
	lines  int    // number of lines before rest
	rows   int64  // number of records before rest
	ended  bool   // the source has no more bytes
}

// NewBlocks returns the blocks of source. Nothing may have been read from source before.
func NewBlocks(source *Source) (*Blocks, error) {
	b := &Blocks{source: source}
	var err error
	b.rest, err = b.fill(nil, len(mark))
	b.rest = bytes.TrimPrefix(b.rest, mark)
	return b, err
}

// fill reads until data has size bytes or the source ends.
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
			return nil, b.source.failed(b.lines+bytes.Count(data, []byte{'\n'})+1, err)
		}
	}
	return data, nil
}

// Header reads the first line and returns it without its line end. It must be called
// before Next. An empty file is bad input.
func (b *Blocks) Header() ([]byte, error) {
	first, err := b.fill(b.rest, MaxLine)
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return nil, fault.Inputf("%s: the file is empty", b.source.Path)
	}
	line, rest, ended := bytes.Cut(first, []byte{'\n'})
	if !ended && len(line) == MaxLine {
		return nil, b.source.Errorf(1, "%w", errTooLong)
	}
	b.rest, b.first, b.lines = rest, first, 1
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// Unread makes the line that Header has read a record. It must be called before Next.
func (b *Blocks) Unread() { b.rest, b.lines = b.first, 0 }

// Next fills block with the next records and reuses the memory of block. It returns
// io.EOF after the last record.
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
	case b.ended && len(data) > end && len(data)-end < MaxLine: // a last line without a line end
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

// skipLine reads past the end of the line that data begins with. It returns the
// position in data of the first byte after the line.
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

// openQuote returns the error for a quote that is not closed. It ends the import even
// if bad rows are skipped, because the number of rows within the quote is unknown.
func (b *Blocks) openQuote(line int) error {
	return b.source.Errorf(line, "%w", errOpenQuote)
}

var errOpenQuote = fmt.Errorf("a quote is opened and not closed within %d bytes or by the end of the file", MaxLine)

// cut returns the end of the last whole record in data, and the numbers of records and
// lines before that position.
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
