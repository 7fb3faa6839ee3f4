package columnfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/base/fault"
	"shaver/internal/data/arrowio"
)

// parquetTable reads row groups. It opens the file again for each one, so that they can
// be read concurrently.
type parquetTable struct {
	path   string
	memory int // see blockMemory
	size   int64
	info   os.FileInfo
	meta   *metadata.FileMetaData
	hidden map[string]string // columns by name whose type only the writer's Arrow schema states, with the name of that type
	wide   map[int]bool      // columns whose floats have the text of a double
	zoned  map[int]bool      // columns whose INT96 timestamps are instants
	groups int
	group  int // index of the next row group
	read   int64
}

func (t *File) openParquet() error {
	p := &parquetTable{path: t.path, memory: t.memory, size: t.info.Size(), info: t.info}
	t.table = p
	return arrowio.Guarded(func() error {
		r, err := file.NewParquetReader(io.NewSectionReader(t.file, 0, p.size))
		if err != nil {
			return err
		}
		p.meta, p.groups = r.MetaData(), r.NumRowGroups()
		if n := p.meta.Schema.NumColumns(); n > arrowio.MaxColumns {
			return fault.Inputf("%d columns, expected at most %d", n, arrowio.MaxColumns)
		}
		for i := range p.meta.Schema.NumColumns() {
			t.columns = append(t.columns, columnName(p.meta.Schema.Column(i)))
		}
		if text := p.meta.KeyValueMetadata().FindValue("ARROW:schema"); text != nil {
			p.hidden, err = arrowio.HiddenTypes(*text)
		}
		return err
	})
}

// columnName returns the name of a column. The path of a list, or of lists of lists, goes on below the
// column, by two names for each list.
func columnName(c *schema.Column) string {
	path, lists := c.ColumnPath(), int(c.MaxRepetitionLevel())
	if isList(c) || lists > 1 && len(path) == 1+2*lists {
		return path[0]
	}
	return c.Path()
}

// isList reports whether a column has lists of values, in one of the forms that Parquet's
// documentation describes.
func isList(c *schema.Column) bool {
	if len(c.ColumnPath()) == 3 {
		if kind := c.SchemaNode().Parent().Parent().ConvertedType(); kind == schema.ConvertedTypes.Map || kind == schema.ConvertedTypes.MapKeyValue {
			return false
		}
	}
	return c.MaxRepetitionLevel() == 1 && c.MaxDefinitionLevel() <= 3 && len(c.ColumnPath()) <= 3
}

func (p *parquetTable) unfit(column int, list bool) string {
	c := p.meta.Schema.Column(column)
	if isList(c) && !list {
		return kindLists
	}
	if !isList(c) && (c.MaxRepetitionLevel() > 0 || c.MaxDefinitionLevel() > 1) {
		return "maps, lists of lists or structures"
	}
	return p.unfitValue(column)
}

// unfitValue returns the name of the type of a column's values if it is not supported.
func (p *parquetTable) unfitValue(column int) string {
	c := p.meta.Schema.Column(column)
	if _, ok := c.LogicalType().(*schema.DecimalLogicalType); ok || c.ConvertedType() == schema.ConvertedTypes.Decimal {
		return "decimals"
	}
	if kind := p.hidden[columnName(c)]; kind != "" {
		return kind
	}
	if parquetKinds[c.PhysicalType()] != "" {
		return ""
	}
	if kind := c.LogicalType(); kind != nil && kind.IsValid() && !kind.IsNone() {
		return kind.String()
	}
	return c.PhysicalType().String()
}

func (p *parquetTable) kind(column int) string {
	c := p.meta.Schema.Column(column)
	switch kind := c.LogicalType().(type) {
	case schema.NullLogicalType, schema.UnknownLogicalType:
		return ""
	case schema.DateLogicalType:
		return Dates
	case *schema.TimeLogicalType:
		return Times
	case *schema.TimestampLogicalType:
		if kind.IsAdjustedToUTC() {
			return Instants
		}
		return Timestamps
	}
	return parquetKinds[c.PhysicalType()]
}

// parquetKinds are the supported types of values, with the results of File.Kind for values without a logical type.
var parquetKinds = map[parquet.Type]string{
	parquet.Types.Boolean: Truths, parquet.Types.Int32: Numbers, parquet.Types.Int64: Numbers, parquet.Types.Int96: Timestamps,
	parquet.Types.Float: Numbers, parquet.Types.Double: Numbers, parquet.Types.ByteArray: Strings,
}

func (p *parquetTable) single(column int) bool {
	return p.meta.Schema.Column(column).PhysicalType() == parquet.Types.Float
}

func (p *parquetTable) next(chosen []int, between byte) (*Block, error) {
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
	return &Block{Len: int(rows), Read: p.read, cells: func(visit func(int, [][]byte) error) error {
		return reopen(p.path, p.info, func(f *os.File) error { return p.rows(f, group, int(rows), chosen, between, visit) }) // opened again, because the table may be closed by now
	}}, nil
}

// parquetBatch is the number of rows that are decoded at a time.
const parquetBatch = 1024

func (p *parquetTable) rows(f *os.File, group, rows int, chosen []int, between byte, visit func(row int, cells [][]byte) error) error {
	columns, memory := make([]*parquetColumn, len(chosen)), int64(p.memory)
	for k, i := range chosen {
		chunk, err := p.chunk(f, group, rows, i, &memory)
		if err != nil {
			return err
		}
		if columns[k], err = newParquetColumn(chunk, between, p.wide[i], p.zoned[i]); err != nil {
			return err
		}
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
			if err := visit(done+i, cells); err != nil {
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
	decode   func(want int64, from int, defined, repeated []int16) (int64, int, error) // decodes values and stores them from a position on
	list     *parquetList                                                              // nil if the column has no lists
	write    func(text []byte, i int) ([]byte, error)                                  // appends the text of a decoded value; nil for bytes
	defined  [parquetBatch]int16
	cells    [parquetBatch][]byte
	text     []byte              // texts of a batch
	ends     [parquetBatch]int   // end of each value in text
	bytes    []parquet.ByteArray // decoded bytes
}

// newParquetColumn returns the decoder of a column chunk. wide and zoned are as in parquetTable.
func newParquetColumn(chunk file.ColumnChunkReader, between byte, wide, zoned bool) (*parquetColumn, error) {
	d := chunk.Descriptor()
	c := &parquetColumn{chunk: chunk, optional: d.MaxDefinitionLevel() > 0}
	if isList(d) {
		c.list = newParquetList(d, between)
	}
	switch chunk := chunk.(type) {
	case *file.BooleanColumnChunkReader:
		values := make([]bool, parquetBatch)
		c.decode, c.write = decoder(chunk.ReadBatch, values), func(text []byte, i int) ([]byte, error) { return append(text, truth(values[i])), nil }
	case *file.Int32ColumnChunkReader:
		values := make([]int32, parquetBatch)
		write := integerWriter(d.LogicalType())
		if isUnsigned(d.LogicalType()) {
			c.write = func(text []byte, i int) ([]byte, error) {
				return strconv.AppendUint(text, uint64(uint32(values[i])), 10), nil
			}
		} else {
			c.write = func(text []byte, i int) ([]byte, error) { return write(text, int64(values[i])) }
		}
		c.decode = decoder(chunk.ReadBatch, values)
	case *file.Int64ColumnChunkReader:
		values := make([]int64, parquetBatch)
		write := integerWriter(d.LogicalType())
		if isUnsigned(d.LogicalType()) {
			c.write = func(text []byte, i int) ([]byte, error) { return strconv.AppendUint(text, uint64(values[i]), 10), nil }
		} else {
			c.write = func(text []byte, i int) ([]byte, error) { return write(text, values[i]) }
		}
		c.decode = decoder(chunk.ReadBatch, values)
	case *file.Int96ColumnChunkReader:
		values := make([]parquet.Int96, parquetBatch)
		c.decode, c.write = decoder(chunk.ReadBatch, values), func(text []byte, i int) ([]byte, error) { return appendInt96(text, values[i], zoned) }
	case *file.Float32ColumnChunkReader:
		values, bits := make([]float32, parquetBatch), 32
		if wide {
			bits = 64
		}
		c.decode, c.write = decoder(chunk.ReadBatch, values), func(text []byte, i int) ([]byte, error) { return appendFloat(text, float64(values[i]), bits), nil }
	case *file.Float64ColumnChunkReader:
		values := make([]float64, parquetBatch)
		c.decode, c.write = decoder(chunk.ReadBatch, values), func(text []byte, i int) ([]byte, error) { return appendFloat(text, values[i], 64), nil }
	case *file.ByteArrayColumnChunkReader:
		c.bytes = make([]parquet.ByteArray, parquetBatch)
		c.decode = decoder(chunk.ReadBatch, c.bytes)
	default:
		return nil, fmt.Errorf("unexpected type %v", chunk.Type())
	}
	return c, nil
}

// decoder returns a function that stores the decoded values in values.
func decoder[T any](read func(int64, []T, []int16, []int16) (int64, int, error), values []T) func(int64, int, []int16, []int16) (int64, int, error) {
	return func(want int64, from int, defined, repeated []int16) (int64, int, error) {
		return read(want, values[from:], defined, repeated)
	}
}

func isUnsigned(kind schema.LogicalType) bool {
	number, ok := kind.(interface{ IsSigned() bool })
	return ok && !number.IsSigned()
}

// integerWriter returns the function that appends the text of an integer of a logical type.
func integerWriter(kind schema.LogicalType) func(text []byte, x int64) ([]byte, error) {
	switch kind := kind.(type) {
	case schema.DateLogicalType:
		return appendDate
	case *schema.TimeLogicalType:
		second := ticks(kind.TimeUnit())
		return func(text []byte, x int64) ([]byte, error) { return appendTimeOfDay(text, x, second) }
	case *schema.TimestampLogicalType:
		second, zone := ticks(kind.TimeUnit()), kind.IsAdjustedToUTC()
		return func(text []byte, x int64) ([]byte, error) { return appendTimestamp(text, x, second, zone) }
	}
	return func(text []byte, x int64) ([]byte, error) { return strconv.AppendInt(text, x, 10), nil }
}

// ticks returns how many units are in a second.
func ticks(unit schema.TimeUnitType) int64 {
	switch unit {
	case schema.TimeUnitMillis:
		return 1e3
	case schema.TimeUnitMicros:
		return 1e6
	case schema.TimeUnitNanos:
		return 1e9
	}
	panic(fmt.Sprintf("unknown unit of time %d", unit))
}

// appendInt96 appends a timestamp in an older form, which does not say whether it has a zone. It has eight bytes
// of nanoseconds since midnight and four bytes with the number of the Julian day.
func appendInt96(text []byte, x parquet.Int96, zone bool) ([]byte, error) {
	const epoch = 2440588 // Julian day of 1970-01-01
	nanoseconds := int64(binary.LittleEndian.Uint64(x[:]))
	seconds := floorDiv(nanoseconds, 1e9)
	days := int64(binary.LittleEndian.Uint32(x[8:])) - epoch
	return appendInstant(text, days*86400+seconds, nanoseconds-seconds*1e9, zone)
}

// read decodes the next n cells.
func (c *parquetColumn) read(n int) error {
	if c.list != nil {
		return c.readLists(n)
	}
	total, values := int64(0), 0
	for int(total) < n { // with a dictionary a batch ends where its page ends
		defined := c.defined[total:n]
		if !c.optional {
			defined = nil
		}
		t, v, err := c.decode(int64(n)-total, values, defined, nil)
		if err != nil {
			return err
		}
		if t == 0 {
			if err := c.chunk.Err(); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return arrowio.ErrTruncated
		}
		total, values = total+t, values+v
	}
	if err := c.format(values); err != nil {
		return err
	}
	value := 0
	for i := range n {
		c.cells[i] = nil
		if !c.optional || c.defined[i] > 0 {
			if c.cells[i] = c.cell(value); c.cells[i] == nil {
				c.cells[i] = []byte{}
			}
			value++
		}
	}
	if value != values {
		return fmt.Errorf("%d values, expected %d", values, value)
	}
	return nil
}

// format writes the first n decoded values as text, unless they are bytes.
func (c *parquetColumn) format(n int) (err error) {
	if c.write == nil {
		return nil
	}
	c.text = c.text[:0]
	for i := range n {
		if c.text, err = c.write(c.text, i); err != nil {
			return err
		}
		c.ends[i] = len(c.text)
	}
	return nil
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
