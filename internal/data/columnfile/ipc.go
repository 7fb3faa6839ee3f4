package columnfile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"shaver/internal/data/arrowio"
)

// ipcTable reads the record batches of an Arrow file or stream.
type ipcTable struct {
	*arrowio.TableReader
	memory int // see blockMemory
}

func (t *File) openIPC() error {
	r, err := arrowio.NewTableReader(t.file, t.info.Size(), t.memory)
	if err != nil {
		return err
	}
	t.table = &ipcTable{r, t.memory}
	for _, f := range r.Schema().Fields() {
		t.columns = append(t.columns, f.Name)
	}
	return nil
}

// values returns the field of a column, or of its lists, and the type of the values.
func (t *ipcTable) values(column int) (arrow.Field, arrow.DataType) {
	f := t.Schema().Field(column)
	if l, ok := f.Type.(arrow.ListLikeType); ok {
		f = l.ElemField()
	}
	if d, ok := f.Type.(*arrow.DictionaryType); ok {
		return f, d.ValueType
	}
	return f, f.Type
}

func (t *ipcTable) unfit(column int, list bool) string {
	if _, ok := t.Schema().Field(column).Type.(arrow.ListLikeType); ok && !list {
		return kindLists
	}
	f, kind := t.values(column)
	words, ok := ipcKinds[kind.ID()]
	if name := arrowio.ExtensionType(f.Metadata); ok && words != Strings && name != "" {
		return name
	} else if ok {
		return ""
	}
	return kind.String()
}

// ipcKinds are the supported types of values, with the results of File.Kind.
var ipcKinds = map[arrow.Type]string{
	arrow.STRING: Strings, arrow.LARGE_STRING: Strings, arrow.BINARY: Strings, arrow.LARGE_BINARY: Strings, arrow.STRING_VIEW: Strings, arrow.BINARY_VIEW: Strings,
	arrow.INT8: Numbers, arrow.INT16: Numbers, arrow.INT32: Numbers, arrow.INT64: Numbers, arrow.UINT8: Numbers, arrow.UINT16: Numbers, arrow.UINT32: Numbers, arrow.UINT64: Numbers,
	arrow.FLOAT32: Numbers, arrow.FLOAT64: Numbers, arrow.BOOL: Truths, arrow.DATE32: Dates, arrow.DATE64: Dates, arrow.TIME32: Times, arrow.TIME64: Times, arrow.TIMESTAMP: Timestamps, arrow.NULL: "",
}

func (t *ipcTable) kind(column int) string {
	_, kind := t.values(column)
	if zoned, ok := kind.(*arrow.TimestampType); ok && zoned.TimeZone != "" {
		return Instants
	}
	return ipcKinds[kind.ID()]
}

func (t *ipcTable) single(column int) bool {
	_, kind := t.values(column)
	return kind.ID() == arrow.FLOAT32
}

// next returns the next batch, with its cells copied out of Arrow's memory.
func (t *ipcTable) next(chosen []int, between byte) (*Block, error) {
	record, err := t.Next()
	if err != nil {
		return nil, err
	}
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
		write, err := newCellWriter(column, between)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", record.ColumnName(i), err)
		}
		c := &columns[k]
		c.ends = make([]int, n)
		for row := range n {
			if column.IsValid(row) {
				if c.text, err = write(c.text, row); err != nil {
					return nil, fmt.Errorf("column %q, row %d of the batch: %w", record.ColumnName(i), row, err)
				}
			}
			if c.ends[row] = len(c.text); len(c.text) > left { // a dictionary's values may be few in the file but repeated in the cells
				return nil, fmt.Errorf("a batch's values take more than %d bytes: write smaller batches", t.memory)
			}
		}
		left -= len(c.text)
	}
	return &Block{Len: n, Read: t.Position(), cells: func(visit func(int, [][]byte) error) error {
		cells := make([][]byte, len(columns))
		for row := range n {
			for k := range columns {
				cells[k] = columns[k].cell(row)
			}
			if err := visit(row, cells); err != nil {
				return err
			}
		}
		return nil
	}}, nil
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

// cellWriter appends the text of a row's value, which must not be null.
type cellWriter func(text []byte, row int) ([]byte, error)

func newCellWriter(column arrow.Array, between byte) (cellWriter, error) {
	switch a := column.(type) {
	case *array.String:
		return texts(a), nil
	case *array.LargeString:
		return texts(a), nil
	case *array.StringView:
		return texts(a), nil
	case *array.Binary:
		return bytesOf(a), nil
	case *array.LargeBinary:
		return bytesOf(a), nil
	case *array.BinaryView:
		return bytesOf(a), nil
	case *array.Boolean:
		return func(text []byte, row int) ([]byte, error) { return append(text, truth(a.Value(row))), nil }, nil
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
	case *array.Float32:
		return func(text []byte, row int) ([]byte, error) { return appendFloat(text, float64(a.Value(row)), 32), nil }, nil
	case *array.Float64:
		return func(text []byte, row int) ([]byte, error) { return appendFloat(text, a.Value(row), 64), nil }, nil
	case *array.Date32:
		return func(text []byte, row int) ([]byte, error) { return appendDate(text, int64(a.Value(row))) }, nil
	case *array.Date64:
		return func(text []byte, row int) ([]byte, error) {
			return appendDate(text, floorDiv(int64(a.Value(row)), 86_400_000))
		}, nil
	case *array.Time32:
		second := int64(time.Second / a.DataType().(*arrow.Time32Type).Unit.Multiplier())
		return func(text []byte, row int) ([]byte, error) { return appendTimeOfDay(text, int64(a.Value(row)), second) }, nil
	case *array.Time64:
		second := int64(time.Second / a.DataType().(*arrow.Time64Type).Unit.Multiplier())
		return func(text []byte, row int) ([]byte, error) { return appendTimeOfDay(text, int64(a.Value(row)), second) }, nil
	case *array.Timestamp:
		kind := a.DataType().(*arrow.TimestampType)
		second := int64(time.Second / kind.Unit.Multiplier())
		return func(text []byte, row int) ([]byte, error) {
			return appendTimestamp(text, int64(a.Value(row)), second, kind.TimeZone != "")
		}, nil
	case *array.Null: // each row is null, so this is never called
		return func(text []byte, _ int) ([]byte, error) { return text, nil }, nil
	case *array.Dictionary:
		values := a.Dictionary()
		write, err := newCellWriter(values, between)
		return func(text []byte, row int) ([]byte, error) {
			if at := a.GetValueIndex(row); values.IsValid(at) {
				return write(text, at)
			}
			return text, nil
		}, err
	}
	if a, ok := column.(array.ListLike); ok {
		return listCells(a, between)
	}
	return nil, fmt.Errorf("unexpected type %v", column.DataType())
}

// listCells returns the writer of a column of lists.
func listCells(a array.ListLike, between byte) (cellWriter, error) {
	values, list := a.ListValues(), listText{between}
	write, err := newCellWriter(values, between)
	return func(text []byte, row int) ([]byte, error) {
		first, end := a.ValueOffsets(row)
		from := len(text)
		for at := first; at < end; at++ {
			text, err = list.add(text, from, at == first, func(text []byte) ([]byte, error) {
				if values.IsNull(int(at)) {
					return text, nil
				}
				return write(text, int(at))
			})
			if err != nil {
				return nil, err
			}
		}
		return text, nil
	}, err
}

func texts(a interface{ Value(int) string }) cellWriter {
	return func(text []byte, row int) ([]byte, error) { return append(text, a.Value(row)...), nil }
}

func bytesOf(a interface{ Value(int) []byte }) cellWriter {
	return func(text []byte, row int) ([]byte, error) { return append(text, a.Value(row)...), nil }
}

func signed[T int8 | int16 | int32 | int64](values []T) cellWriter {
	return func(text []byte, row int) ([]byte, error) {
		return strconv.AppendInt(text, int64(values[row]), 10), nil
	}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](values []T) cellWriter {
	return func(text []byte, row int) ([]byte, error) {
		return strconv.AppendUint(text, uint64(values[row]), 10), nil
	}
}
