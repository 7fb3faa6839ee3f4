package arrowio

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/fault"
)

// ColumnFile reads the columns of a Parquet file, or of an Arrow IPC file or stream. The
// columns it reads hold strings, dictionaries of strings, integers or truth values. A
// ColumnFile must not be used by several goroutines at once, but its blocks may be.
type ColumnFile struct {
	path    string
	memory  int // see blockMemory
	file    *os.File
	info    os.FileInfo // state of file when it was opened
	columns []string
	chosen  []int
	rows    int64 // number of rows in the blocks returned so far
	parquet *parquetTable
	ipc     *ipcTable
}

// ColumnBlock is consecutive rows of a table: a row group or a record batch.
type ColumnBlock struct {
	Row   int64 // position of the first row, from 0
	Len   int   // number of rows
	Read  int64 // approximate number of bytes of the file up to the end of the block
	cells func(visit func(cells [][]byte) error) error
}

// blockMemory bounds the memory of a block, in bytes. For a row group it bounds the pages
// of all columns that are held at once. For a record batch it bounds the decompressed
// batch, and separately the copy of its cells. Blocks that are read concurrently may each
// take as much.
const blockMemory = 1 << 30

// OpenColumnFile opens a table and chooses all columns. It recognises the format by the
// first bytes. The caller must close the table.
func OpenColumnFile(path string) (*ColumnFile, error) { return openColumnFile(path, blockMemory) }

// openColumnFile is OpenColumnFile with a bound other than blockMemory.
func openColumnFile(path string, memory int) (*ColumnFile, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, fault.Inputf("%s: no such file", path)
	}
	if err != nil {
		return nil, err
	}
	t := &ColumnFile{path: path, memory: memory, file: f}
	var head [4]byte
	n := 0
	if t.info, err = f.Stat(); err == nil {
		n, err = f.ReadAt(head[:], 0)
	}
	switch {
	case err != nil && err != io.EOF:
	case n == 0:
		err = fault.Inputf("the file is empty")
	case string(head[:n]) == "PAR1":
		err = t.openParquet()
	default:
		err = t.openIPC()
	}
	if err == nil && len(t.columns) == 0 {
		err = fault.Inputf("the file has no columns")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range t.columns {
		t.chosen = append(t.chosen, i)
	}
	return t, nil
}

// Columns returns the names of the columns of the file.
func (t *ColumnFile) Columns() []string { return t.columns }

// Choose selects the columns of the blocks and their order. A column that is missing,
// ambiguous or of an unsupported type is bad input.
func (t *ColumnFile) Choose(names []string) error {
	t.chosen = nil
	for _, name := range names {
		at := slices.Index(t.columns, name)
		if at < 0 {
			return fault.Inputf("%s: no column %q, the columns are %q", t.path, name, t.columns)
		}
		if slices.Contains(t.columns[at+1:], name) {
			return fault.Inputf("%s: two columns are named %q, the columns are %q", t.path, name, t.columns)
		}
		var kind string
		if t.parquet != nil {
			kind = t.parquet.unfit(at)
		} else {
			kind = t.ipc.unfit(at)
		}
		if kind != "" {
			return fault.Inputf("%s: column %q is of %s, expected strings or integers", t.path, name, kind)
		}
		t.chosen = append(t.chosen, at)
	}
	return nil
}

// Next returns the next block, or io.EOF after the last one.
func (t *ColumnFile) Next() (*ColumnBlock, error) {
	var p *ColumnBlock
	err := guarded(func() (err error) {
		if t.parquet != nil {
			p, err = t.parquet.next(t.chosen)
		} else {
			p, err = t.ipc.next(t.chosen)
		}
		return err
	})
	if err != nil {
		if err != io.EOF {
			err = fmt.Errorf("%s: after row %d: %w", t.path, t.rows, err)
		}
		return nil, err
	}
	p.Row = t.rows
	t.rows += int64(p.Len)
	return p, nil
}

// Rows calls visit for each row, with one cell per chosen column. The cells are valid
// until visit returns. A missing value is an empty cell.
func (p *ColumnBlock) Rows(visit func(cells [][]byte) error) error {
	var visiting error
	err := guarded(func() error {
		return p.cells(func(cells [][]byte) error {
			visiting = visit(cells)
			return visiting
		})
	})
	if visiting != nil {
		return visiting
	}
	return err
}

// reopen opens the file again and calls read with it. It returns an error if the file is
// not the one that was opened before, or was written to before read has finished.
func reopen(path string, was os.FileInfo, read func(f *os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unchanged(path, was, f); err != nil {
		return err
	}
	if err := read(f); err != nil {
		if changed := unchanged(path, was, f); changed != nil { // the change explains the error of read
			return changed
		}
		return err
	}
	return unchanged(path, was, f)
}

var errChanged = errors.New("the file changed while it was read")

// unchanged returns an error if f is not the file that was opened, or has been written
// to.
func unchanged(path string, was os.FileInfo, f *os.File) error {
	is, err := f.Stat()
	if err == nil && (!os.SameFile(is, was) || is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime())) {
		err = &fs.PathError{Op: "read", Path: path, Err: errChanged}
	}
	return err
}

// Digest returns the SHA-256 of the file, in hexadecimal, and its size in bytes. Like the
// reading of blocks, it fails if the file is not the one that was opened, or has been
// written to since.
func (t *ColumnFile) Digest() (digest string, size int64, err error) {
	hash := sha256.New()
	err = reopen(t.path, t.info, func(f *os.File) error {
		size, err = io.Copy(hash, f)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)), size, err
}

// Close closes the file. Blocks that Next returned remain usable.
func (t *ColumnFile) Close() {
	if t.ipc != nil {
		t.ipc.close()
	}
	t.file.Close()
}

// guarded turns f's panics and errors into bad input, except errors of the file system,
// which may be temporary.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Inputf("malformed data: %v", p)
		}
	}()
	err = f()
	if err == nil || err == io.EOF || fault.IsInput(err) || errors.As(err, new(*fs.PathError)) {
		return err
	}
	return fault.Inputf("%w", err)
}

// parquetTable reads row groups. It opens the file again for each one, so that they can
// be read concurrently.
type parquetTable struct {
	path   string
	memory int // see blockMemory
	size   int64
	info   os.FileInfo
	meta   *metadata.FileMetaData
	groups int
	group  int // index of the next row group
	read   int64
}

func (t *ColumnFile) openParquet() error {
	p := &parquetTable{path: t.path, memory: t.memory, size: t.info.Size(), info: t.info}
	t.parquet = p
	return guarded(func() error {
		r, err := file.NewParquetReader(io.NewSectionReader(t.file, 0, p.size))
		if err != nil {
			return err
		}
		p.meta, p.groups = r.MetaData(), r.NumRowGroups()
		if n := p.meta.Schema.NumColumns(); n > maxColumns {
			return fault.Inputf("%d columns, expected at most %d", n, maxColumns)
		}
		for i := range p.meta.Schema.NumColumns() {
			t.columns = append(t.columns, p.meta.Schema.Column(i).Path())
		}
		return nil
	})
}

// unfit returns the name of a column's type if the type is not supported, and ""
// otherwise.
func (p *parquetTable) unfit(column int) string {
	c := p.meta.Schema.Column(column)
	if c.MaxRepetitionLevel() > 0 || c.MaxDefinitionLevel() > 1 {
		return "lists or structures"
	}
	if c.ConvertedType() == schema.ConvertedTypes.Decimal {
		return "decimals"
	}
	switch c.PhysicalType() {
	case parquet.Types.Boolean, parquet.Types.Int32, parquet.Types.Int64, parquet.Types.ByteArray:
		return ""
	}
	return c.PhysicalType().String()
}

func (p *parquetTable) next(chosen []int) (*ColumnBlock, error) {
	if p.group == p.groups {
		return nil, io.EOF
	}
	group := p.group
	p.group++
	meta := p.meta.RowGroup(group)
	rows := meta.NumRows()
	if rows < 0 || rows > 1<<31-1 {
		return nil, fmt.Errorf("row group %d has %d rows", group, rows)
	}
	p.read = min(p.size, p.read+meta.TotalCompressedSize())
	return &ColumnBlock{Len: int(rows), Read: p.read, cells: func(visit func([][]byte) error) error {
		return reopen(p.path, p.info, func(f *os.File) error { return p.rows(f, group, int(rows), chosen, visit) }) // opened again, because the table may be closed by now
	}}, nil
}

// parquetBatch is the number of rows that are decoded at a time.
const parquetBatch = 1024

func (p *parquetTable) rows(f *os.File, group, rows int, chosen []int, visit func(cells [][]byte) error) error {
	columns, memory := make([]*parquetColumn, len(chosen)), int64(p.memory)
	for k, i := range chosen {
		chunk, err := p.chunk(f, group, rows, i, &memory)
		if err != nil {
			return err
		}
		columns[k] = newParquetColumn(chunk)
	}
	cells := make([][]byte, len(chosen))
	for done := 0; done < rows; {
		n := min(parquetBatch, rows-done)
		for _, c := range columns {
			if err := c.read(n); err != nil {
				return fmt.Errorf("row group %d, column %q: %w", group, c.chunk.Descriptor().Path(), err)
			}
		}
		for i := range n {
			for k, c := range columns {
				cells[k] = c.cells[i]
			}
			if err := visit(cells); err != nil {
				return err
			}
		}
		done += n
	}
	return nil
}

// parquetColumn decodes a column chunk into cells.
type parquetColumn struct {
	chunk    file.ColumnChunkReader
	optional bool
	unsigned bool
	defined  [parquetBatch]int16
	cells    [parquetBatch][]byte
	text     []byte            // the integers of a batch as text
	ends     [parquetBatch]int // end of each integer in text
	bools    []bool
	int32s   []int32
	int64s   []int64
	bytes    []parquet.ByteArray
}

func newParquetColumn(chunk file.ColumnChunkReader) *parquetColumn {
	d := chunk.Descriptor()
	c := &parquetColumn{chunk: chunk, optional: d.MaxDefinitionLevel() > 0}
	if kind, ok := d.LogicalType().(interface{ IsSigned() bool }); ok {
		c.unsigned = !kind.IsSigned()
	}
	switch chunk.(type) {
	case *file.BooleanColumnChunkReader:
		c.bools = make([]bool, parquetBatch)
	case *file.Int32ColumnChunkReader:
		c.int32s = make([]int32, parquetBatch)
	case *file.Int64ColumnChunkReader:
		c.int64s = make([]int64, parquetBatch)
	case *file.ByteArrayColumnChunkReader:
		c.bytes = make([]parquet.ByteArray, parquetBatch)
	}
	return c
}

// read decodes the next n cells.
func (c *parquetColumn) read(n int) error {
	total, values := int64(0), 0
	for int(total) < n { // with a dictionary a batch ends where its page ends
		t, v, err := c.batch(n, int(total), values)
		if err != nil {
			return err
		}
		if t == 0 {
			if err := c.chunk.Err(); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return errTruncated
		}
		total, values = total+t, values+v
	}
	c.format(values)
	value := 0
	for i := range n {
		c.cells[i] = nil
		if !c.optional || c.defined[i] > 0 {
			c.cells[i] = c.cell(value)
			value++
		}
	}
	if value != values {
		return fmt.Errorf("%d values, expected %d", values, value)
	}
	return nil
}

func (c *parquetColumn) batch(n, rows, values int) (int64, int, error) {
	want, defined := int64(n-rows), c.defined[rows:n]
	if !c.optional {
		defined = nil
	}
	switch chunk := c.chunk.(type) {
	case *file.BooleanColumnChunkReader:
		return chunk.ReadBatch(want, c.bools[values:], defined, nil)
	case *file.Int32ColumnChunkReader:
		return chunk.ReadBatch(want, c.int32s[values:], defined, nil)
	case *file.Int64ColumnChunkReader:
		return chunk.ReadBatch(want, c.int64s[values:], defined, nil)
	case *file.ByteArrayColumnChunkReader:
		return chunk.ReadBatch(want, c.bytes[values:], defined, nil)
	}
	return 0, 0, fmt.Errorf("unexpected type %v", c.chunk.Type())
}

// format writes the first n integers or truth values as text.
func (c *parquetColumn) format(n int) {
	c.text = c.text[:0]
	for i := range n {
		switch {
		case c.int32s != nil && c.unsigned:
			c.text = strconv.AppendUint(c.text, uint64(uint32(c.int32s[i])), 10)
		case c.int32s != nil:
			c.text = strconv.AppendInt(c.text, int64(c.int32s[i]), 10)
		case c.int64s != nil && c.unsigned:
			c.text = strconv.AppendUint(c.text, uint64(c.int64s[i]), 10)
		case c.int64s != nil:
			c.text = strconv.AppendInt(c.text, c.int64s[i], 10)
		case c.bools != nil:
			c.text = append(c.text, truth(c.bools[i]))
		}
		c.ends[i] = len(c.text)
	}
}

// cell returns value i of those that read has decoded.
func (c *parquetColumn) cell(i int) []byte {
	if c.bytes != nil {
		return c.bytes[i]
	}
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.text[start:c.ends[i]]
}

func truth(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}
