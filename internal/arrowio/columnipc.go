package arrowio

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"shaver/internal/fault"
)

// ipcTable reads record batches from front to back, through the same checks as our own
// forms.
type ipcTable struct {
	memory   int // see blockMemory
	messages *messages
	reader   *ipc.Reader
	read     *counted
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (t *ColumnFile) openIPC() error {
	read := &counted{Reader: t.file}
	m := &messages{r: bufio.NewReaderSize(read, 1<<18), compressed: true, foreign: true, allocator: &limited{limit: t.memory}}
	t.ipc = &ipcTable{memory: t.memory, messages: m, read: read}
	footer, err := footerStart(t.file)
	if err != nil {
		return err
	}
	if footer > 0 {
		m.limit = &io.LimitedReader{R: m.r, N: footer}
		m.r = m.limit
	}
	return guarded(func() error {
		if err := m.start(); err != nil {
			return err
		}
		var err error
		if t.ipc.reader, err = ipc.NewReaderFromMessageReader(m, ipc.WithAllocator(m.allocator)); err != nil {
			if footer > 0 { // the file begins like an Arrow file
				return fmt.Errorf("as an Arrow file: %w", err)
			}
			return fmt.Errorf("neither Parquet nor Arrow: %w", err)
		}
		for _, f := range t.ipc.reader.Schema().Fields() {
			t.columns = append(t.columns, f.Name)
		}
		return nil
	})
}

// footerStart returns the position of a file's footer, or 0 for a stream. The content of
// the footer is not needed, because batches follow one another.
func footerStart(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var head [8]byte
	if n, err := f.ReadAt(head[:], 0); n < len(head) || string(head[:]) != magic {
		if err == io.EOF || err == nil {
			return 0, nil
		}
		return 0, err
	}
	var tail [10]byte
	if _, err := f.ReadAt(tail[:], info.Size()-int64(len(tail))); err != nil {
		return 0, fault.Inputf("%w", errTruncated)
	}
	start := info.Size() - int64(len(tail)) - int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != magic[:6] || start < int64(len(magic)) {
		return 0, fault.Inputf("%w", errTruncated)
	}
	return start, nil
}

func (t *ipcTable) unfit(column int) string {
	kind := t.reader.Schema().Field(column).Type
	if d, ok := kind.(*arrow.DictionaryType); ok {
		kind = d.ValueType
	}
	switch kind.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.BINARY, arrow.LARGE_BINARY, arrow.BOOL,
		arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64:
		return ""
	}
	return kind.String()
}

// next returns the next batch, with its cells copied out of Arrow's memory.
func (t *ipcTable) next(chosen []int) (*ColumnBlock, error) {
	if !t.reader.Next() {
		if err := t.reader.Err(); err != nil {
			return nil, err
		}
		return nil, io.EOF
	}
	record := t.reader.Record()
	n := int(record.NumRows())
	if n > t.memory/endBytes/len(chosen) {
		return nil, fmt.Errorf("a batch has %d rows of %d columns, which is too large: write smaller batches", n, len(chosen))
	}
	columns, left := make([]textColumn, len(chosen)), t.memory
	for k, i := range chosen {
		column := record.Column(i)
		if column.Len() != n {
			return nil, fmt.Errorf("column %q has %d values, but the batch has %d rows", record.ColumnName(i), column.Len(), n)
		}
		write, err := cellWriter(column)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", record.ColumnName(i), err)
		}
		c := &columns[k]
		c.ends = make([]int, n)
		for row := range n {
			if column.IsValid(row) {
				c.text = write(c.text, row)
			}
			if c.ends[row] = len(c.text); len(c.text) > left { // a dictionary's values may be few in the file but repeated in the cells
				return nil, fmt.Errorf("a batch's values take more than %d bytes: write smaller batches", t.memory)
			}
		}
		left -= len(c.text)
	}
	return &ColumnBlock{Len: n, Read: t.read.n, cells: func(visit func([][]byte) error) error {
		cells := make([][]byte, len(columns))
		for row := range n {
			for k := range columns {
				cells[k] = columns[k].cell(row)
			}
			if err := visit(cells); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

func (t *ipcTable) close() {
	if t.reader != nil {
		t.reader.Release()
	}
}

// textColumn holds the cells of a column, one after the other.
type textColumn struct {
	text []byte
	ends []int // end of each cell in text
}

// endBytes is the size of an element of ends, in bytes.
const endBytes = 8

func (c *textColumn) cell(i int) []byte {
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.text[start:c.ends[i]]
}

// cellWriter returns a function that appends the text of a row's value, which must not be
// null.
func cellWriter(column arrow.Array) (func(text []byte, row int) []byte, error) {
	switch a := column.(type) {
	case *array.String:
		return func(text []byte, row int) []byte { return append(text, a.Value(row)...) }, nil
	case *array.LargeString:
		return func(text []byte, row int) []byte { return append(text, a.Value(row)...) }, nil
	case *array.Binary:
		return func(text []byte, row int) []byte { return append(text, a.Value(row)...) }, nil
	case *array.LargeBinary:
		return func(text []byte, row int) []byte { return append(text, a.Value(row)...) }, nil
	case *array.Boolean:
		return func(text []byte, row int) []byte { return append(text, truth(a.Value(row))) }, nil
	case *array.Int8:
		return signed(a.Int8Values()), nil
	case *array.Int16:
		return signed(a.Int16Values()), nil
	case *array.Int32:
		return signed(a.Int32Values()), nil
	case *array.Int64:
		return signed(a.Int64Values()), nil
	case *array.Uint8:
		return unsigned(a.Uint8Values()), nil
	case *array.Uint16:
		return unsigned(a.Uint16Values()), nil
	case *array.Uint32:
		return unsigned(a.Uint32Values()), nil
	case *array.Uint64:
		return unsigned(a.Uint64Values()), nil
	case *array.Dictionary:
		values := a.Dictionary()
		write, err := cellWriter(values)
		return func(text []byte, row int) []byte {
			if at := a.GetValueIndex(row); values.IsValid(at) {
				return write(text, at)
			}
			return text
		}, err
	}
	return nil, fmt.Errorf("unexpected type %v", column.DataType())
}

func signed[T int8 | int16 | int32 | int64](values []T) func([]byte, int) []byte {
	return func(text []byte, row int) []byte { return strconv.AppendInt(text, int64(values[row]), 10) }
}

func unsigned[T uint8 | uint16 | uint32 | uint64](values []T) func([]byte, int) []byte {
	return func(text []byte, row int) []byte { return strconv.AppendUint(text, uint64(values[row]), 10) }
}
