package columnfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/base/fault"
)

// tableOf reads a whole file, and returns the sizes of the blocks too.
func tableOf(data []byte, path string, names ...string) (rows [][]string, blocks []int, err error) {
	return tableWithin(blockMemory, data, path, names...)
}

// tableWithin is tableOf with a bound on the memory of a block.
func tableWithin(memory int, data []byte, path string, names ...string) (rows [][]string, blocks []int, err error) {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return nil, nil, err
	}
	table, err := open(path, memory)
	if err != nil {
		return nil, nil, err
	}
	defer table.Close()
	if names == nil {
		names = table.Columns()
	}
	if err := table.Choose(names, nil, 0); err != nil {
		return nil, nil, err
	}
	for {
		block, err := table.Next()
		if err == io.EOF {
			return rows, blocks, nil
		}
		if err != nil {
			return rows, blocks, err
		}
		if block.Row != int64(len(rows)) {
			return nil, nil, fmt.Errorf("a block begins with row %d, expected row %d", block.Row, len(rows))
		}
		err = block.Rows(func(_ int, cells [][]byte) error {
			row := make([]string, len(cells))
			for k, cell := range cells {
				row[k] = string(cell)
			}
			rows = append(rows, row)
			return nil
		})
		if err != nil {
			return rows, blocks, err
		}
		if blocks = append(blocks, block.Len); int(block.Row)+block.Len != len(rows) {
			return nil, nil, fmt.Errorf("%d rows read, but the block claims %d", len(rows), int(block.Row)+block.Len)
		}
	}
}

// ipcTableBytes returns a table with all types in two batches, and its rows.
func ipcTableBytes(t testing.TB, rows int, stream bool, options ...ipc.Option) ([]byte, [][]string) {
	t.Helper()
	types := []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.Binary, arrow.FixedWidthTypes.Boolean,
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String}}
	var fields []arrow.Field
	for i, kind := range types {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: kind, Nullable: true, Metadata: arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{fmt.Sprint(i)})})
	}
	s := arrow.NewSchema(fields, nil)
	options = append(options, ipc.WithSchema(s))
	var out seekable
	var w interface {
		Write(arrow.Record) error
		Close() error
	}
	if stream {
		w = ipc.NewWriter(&out, options...)
	} else {
		var err error
		if w, err = ipc.NewFileWriter(&out, options...); err != nil {
			t.Fatal(err)
		}
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, s)
	var want [][]string
	for batch := range 2 {
		for i := range rows {
			row := []string{"", "", "", "", "", "", "", "", ""}
			for k, field := range builder.Fields() {
				if (i+k)%5 == 0 {
					field.AppendNull()
					continue
				}
				cell := fmt.Sprint(i*31%120 + batch + 1)
				if k == 3 {
					cell = fmt.Sprint(i % 2)
				}
				if k == 4 || k == 6 {
					cell = "-" + cell
				}
				if k == 8 && !stream { // a file has only one dictionary per column
					cell = fmt.Sprint(i % 120)
				}
				if k == 7 {
					cell = "18446744073709551615"
				}
				if b, ok := field.(*array.BinaryBuilder); ok {
					b.Append([]byte(cell))
				} else if err := field.AppendValueFromString(cell); err != nil {
					t.Fatal(err)
				}
				row[k] = cell
			}
			want = append(want, row)
		}
		if err := w.Write(builder.NewRecord()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), want
}

func TestTableOfArrow(t *testing.T) {
	for name, options := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}, "lz4": {ipc.WithLZ4()}} {
		for _, stream := range []bool{true, false} {
			data, want := ipcTableBytes(t, 700, stream, append(options, ipc.WithDictionaryDeltas(stream))...)
			got, blocks, err := tableOf(data, filepath.Join(t.TempDir(), "x.arrow"))
			if err != nil || !reflect.DeepEqual(blocks, []int{700, 700}) {
				t.Errorf("%s, stream %t: blocks %v, %v", name, stream, blocks, err)
				continue
			}
			for i := range want {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Fatalf("%s, stream %t: row %d is %q, want %q", name, stream, i, got[i], want[i])
				}
			}
		}
	}
}

// tableGroups are the sizes of the row groups, in rows.
var tableGroups = []int{2500, 0, 1, 1024}

// parquetTableBytes returns a table with optional and required columns.
func parquetTableBytes(t testing.TB, groups []int, codec compress.Compression) ([]byte, [][]string) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unsigned, err := schema.NewPrimitiveNodeLogical("u", parquet.Repetitions.Required, schema.NewIntLogicalType(32, false), parquet.Types.Int32, 0, -1)
	ok(err)
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{
		schema.NewByteArrayNode("s", parquet.Repetitions.Optional, -1), schema.NewInt64Node("i", parquet.Repetitions.Optional, -1),
		unsigned, schema.NewBooleanNode("b", parquet.Repetitions.Required, -1), schema.NewFloat64Node("f", parquet.Repetitions.Required, -1),
	}, -1)
	ok(err)
	var out bytes.Buffer
	w := file.NewParquetWriter(struct{ io.Writer }{&out}, root, file.WithWriterProps(parquet.NewWriterProperties(
		parquet.WithCompression(codec), parquet.WithDataPageSize(2000), parquet.WithDictionaryPageSizeLimit(3000))))
	var want [][]string
	for group, n := range groups {
		var strings []parquet.ByteArray
		var int64s []int64
		var int32s []int32
		var bools []bool
		var defined [2][]int16
		for i := range n {
			row := []string{"", "", fmt.Sprint(uint32(i) - 1), fmt.Sprint(i % 2)}
			int32s, bools = append(int32s, int32(i)-1), append(bools, i%2 == 1)
			for k, every := range []int{3, 7} {
				if i%every == 0 {
					defined[k] = append(defined[k], 0)
					continue
				}
				defined[k] = append(defined[k], 1)
				if k == 0 {
					row[0] = fmt.Sprintf("value %d of %d", i*i, group)
					strings = append(strings, parquet.ByteArray(row[0]))
				} else {
					row[1] = fmt.Sprint(-i)
					int64s = append(int64s, int64(-i))
				}
			}
			want = append(want, row)
		}
		g := w.AppendRowGroup()
		next := func() file.ColumnChunkWriter {
			c, err := g.NextColumn()
			ok(err)
			return c
		}
		c := next()
		_, err := c.(*file.ByteArrayColumnChunkWriter).WriteBatch(strings, defined[0], nil)
		ok(err)
		ok(c.Close())
		c = next()
		_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(int64s, defined[1], nil)
		ok(err)
		ok(c.Close())
		ok(writeNext(next(), int32s))
		c = next()
		_, err = c.(*file.BooleanColumnChunkWriter).WriteBatch(bools, nil, nil)
		ok(err)
		ok(c.Close())
		floats := make([]float64, n)
		for i := range floats {
			floats[i] = float64(i) / 2
		}
		ok(writeNext(next(), floats))
		ok(g.Close())
	}
	ok(w.Close())
	return out.Bytes(), want
}

func writeNext[T any](c file.ColumnChunkWriter, values []T) error {
	_, err := c.(interface {
		WriteBatch([]T, []int16, []int16) (int64, error)
	}).WriteBatch(values, nil, nil)
	if err != nil {
		return err
	}
	return c.Close()
}

func TestTableOfParquet(t *testing.T) {
	for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Zstd, compress.Codecs.Gzip} {
		data, want := parquetTableBytes(t, tableGroups, codec)
		path := filepath.Join(t.TempDir(), "x.parquet")
		got, blocks, err := tableOf(data, path, "s", "i", "u", "b")
		if err != nil || !reflect.DeepEqual(blocks, tableGroups) {
			t.Fatalf("%v: blocks %v, %v", codec, blocks, err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("%v: row %d is %q, want %q", codec, i, got[i], want[i])
			}
		}
		if got, _, err := tableOf(data, path, "b", "s"); err != nil || got[4][0] != want[4][3] || got[4][1] != want[4][0] {
			t.Errorf("two columns, in another order: %q, %v", got[4], err)
		}
		if got, _, err := tableOf(data, path, "f"); err != nil || !reflect.DeepEqual(got[:2], [][]string{{"0"}, {"0.5"}}) {
			t.Errorf("a column of floats: %q, %v", got, err)
		}
		for cut := range 60 {
			_, _, err := tableOf(data[:len(data)*cut/60], path, "s", "i", "u", "b")
			if !fault.IsInput(err) || !strings.Contains(err.Error(), path) && cut > 0 {
				t.Errorf("%d of %d bytes: %v", len(data)*cut/60, len(data), err)
			}
		}
	}
}

// Two columns of the same name are ambiguous and therefore refused.
func TestTableOfTwoColumnsOfOneName(t *testing.T) {
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.String}, {Name: "a", Type: arrow.BinaryTypes.String}}, nil)
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, ipc.WithSchema(s)).Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := tableOf(out.Bytes(), filepath.Join(t.TempDir(), "x.arrow"), "a")
	if !fault.IsInput(err) || !strings.Contains(err.Error(), `x.arrow: two columns are named "a"`) {
		t.Errorf("two columns of the same name: %v", err)
	}
}

// An error when a file cannot be opened again is not bad input.
func TestTableThatGoesAway(t *testing.T) {
	table, path := openParquet(t)
	if err := table.Choose([]string{"s"}, nil, 0); err != nil {
		t.Fatal(err)
	}
	block, err := table.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := block.Rows(func(int, [][]byte) error { return nil }); !errors.Is(err, os.ErrNotExist) || fault.IsInput(err) {
		t.Errorf("a file that was deleted: %v", err)
	}
}

// If a file is replaced or written to between its opening and the last byte that is read,
// the error says so. It is not bad input.
func TestTableThatChanges(t *testing.T) {
	parquet, _ := parquetTableBytes(t, tableGroups, compress.Codecs.Snappy)
	arrow, _ := ipcTableBytes(t, 700, false)
	for name, data := range map[string][]byte{"x.parquet": parquet, "x.arrow": arrow} {
		for how, change := range map[string]func(path string) error{
			"replaced": func(path string) error {
				if err := os.WriteFile(path+".new", data, 0o644); err != nil {
					return err
				}
				return os.Rename(path+".new", path)
			},
			"grown":   func(path string) error { return os.WriteFile(path, append(data[:len(data):len(data)], 0), 0o644) },
			"written": func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
		} {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			table, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer table.Close()
			if err := table.Choose(table.Columns()[:1], nil, 0); err != nil {
				t.Fatal(err)
			}
			block, err := table.Next()
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(data)
			if digest, size, err := table.Digest(); err != nil || size != int64(len(data)) || digest != hex.EncodeToString(sum[:]) {
				t.Errorf("%s: digest %s of %d bytes, %v", name, digest, size, err)
			}
			first := true // the file changes while the block is read
			err = block.Rows(func(int, [][]byte) error {
				if first {
					first = false
					return change(path)
				}
				return nil
			})
			changedRows := name == "x.parquet" && how != "replaced" // a replaced file stays open and unchanged; the cells of an Arrow batch are in memory
			if changedRows != errors.Is(err, errChanged) || !changedRows && err != nil || fault.IsInput(err) {
				t.Errorf("%s %s while a block is read: %v", name, how, err)
			}
			if err = block.Rows(func(int, [][]byte) error { return nil }); name == "x.parquet" && !errors.Is(err, errChanged) {
				t.Errorf("%s %s before a block is read: %v", name, how, err)
			}
			if _, _, err := table.Digest(); !errors.Is(err, errChanged) || fault.IsInput(err) || strings.Count(err.Error(), path) != 1 {
				t.Errorf("%s %s before the digest: %v", name, how, err)
			}
		}
	}
}

// A dictionary can make many long cells from a short file. They are refused before they
// take the memory.
func TestTableOfLongDictionary(t *testing.T) {
	const bound = 8 << 20
	kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: kind}}, nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, s)
	const long = 64 << 10
	value := strings.Repeat("x", long)
	for range bound/long + 1 {
		if err := builder.Field(0).(*array.BinaryDictionaryBuilder).AppendString(value); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	if err := w.Write(builder.NewRecord()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := tableWithin(bound, out.Bytes(), filepath.Join(t.TempDir(), "x.arrow"))
	if !fault.IsInput(err) || !strings.Contains(err.Error(), "values take more than") {
		t.Errorf("a dictionary of long values: %v", err)
	}
}

// Any bytes give rows of the table's columns, or bad input. Small files and small limits
// keep the test fast.
func FuzzTable(f *testing.F) {
	for _, options := range [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}} {
		for _, stream := range []bool{false, true} {
			data, _ := ipcTableBytes(f, 5, stream, options...)
			f.Add(data)
		}
	}
	for _, codec := range []compress.Compression{compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Zstd, compress.Codecs.Gzip} {
		data, _ := parquetTableBytes(f, []int{6, 0, 1}, codec)
		f.Add(data)
	}
	for _, pattern := range []string{"polars-newest-*.arrow*", "polars-times.*", "pyarrow-times*", "pyarrow-legacy.*", "pyarrow-replaced.*", "pyarrow-int96*", "pandas-period*", "duckdb-types*", "*-list.*", "*-struct.*"} {
		for _, data := range variants(f, pattern) {
			f.Add(data)
		}
	}
	enough := errors.New("enough rows")
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := scanFit(path, 2000, enough); err != nil && err != enough && !fault.IsInput(err) {
			t.Errorf("not bad input: %v", err)
		}
	})
}

// scanFit reads the columns that can be read, and stops after the given number of rows.
func scanFit(path string, most int, enough error) error {
	table, err := open(path, 1<<20)
	if err != nil {
		return err
	}
	defer table.Close()
	var fit []string
	for _, name := range table.Columns() {
		if err = table.Choose([]string{name}, []string{name}, '|'); err == nil {
			fit = append(fit, name)
		}
	}
	if fit == nil {
		return err
	}
	if err := table.Choose(fit, fit, '|'); err != nil {
		return err
	}
	rows := 0
	for {
		block, err := table.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if block.Row != int64(rows) {
			return fmt.Errorf("a block begins with row %d, expected row %d", block.Row, rows)
		}
		err = block.Rows(func(_ int, cells [][]byte) error {
			if rows++; rows == most {
				return enough
			}
			if len(cells) != len(fit) {
				return fmt.Errorf("%d cells for %d columns", len(cells), len(fit))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if int(block.Row)+block.Len != rows {
			return fmt.Errorf("%d rows read, but the block claims %d", rows, int(block.Row)+block.Len)
		}
	}
}

// openParquet opens a Parquet file of parquetTableBytes, which is closed at the end of
// the test.
func openParquet(t *testing.T) (table *File, path string) {
	data, _ := parquetTableBytes(t, tableGroups, compress.Codecs.Snappy)
	path = filepath.Join(t.TempDir(), "x.parquet")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	table, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table, path
}

// Lists of each kind become cells of their values. A value with the separator, and a list whose
// text is too long, are bad input.
func TestTableOfLists(t *testing.T) {
	element := arrow.PrimitiveTypes.Int64
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "list", Type: arrow.ListOf(element), Nullable: true}, {Name: "large", Type: arrow.LargeListOf(arrow.BinaryTypes.String), Nullable: true},
		{Name: "fixed", Type: arrow.FixedSizeListOf(2, element), Nullable: true},
	}, nil)
	data := func(texts ...string) []byte {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		list, large, fixed := b.Field(0).(*array.ListBuilder), b.Field(1).(*array.LargeListBuilder), b.Field(2).(*array.FixedSizeListBuilder)
		for row := range 3 {
			if row == 1 {
				b.Field(0).AppendNull()
			} else {
				list.Append(true)
				list.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{3, -17, 5}[:3-row], nil)
			}
			large.Append(true)
			if row == 0 {
				large.ValueBuilder().(*array.StringBuilder).AppendValues(texts, nil)
				large.ValueBuilder().AppendNull()
			}
			fixed.Append(true)
			fixed.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{int64(row), 9}, nil)
		}
		record := b.NewRecord()
		defer record.Release()
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(schema))
		if err := errors.Join(w.Write(record), w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	read := func(data []byte, lists ...string) (text string, err error) {
		path := filepath.Join(t.TempDir(), "x.arrow")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		if err := table.Choose(table.Columns(), lists, '|'); err != nil {
			return "", err
		}
		block, err := table.Next()
		if err != nil {
			return "", err
		}
		err = block.Rows(func(_ int, cells [][]byte) error {
			text += fmt.Sprintf("%q ", cells)
			return nil
		})
		return text, err
	}
	all := []string{"list", "large", "fixed"}
	if got, err := read(data("a", "bc"), all...); err != nil || got != `["3|-17|5" "a|bc|" "0|9"] ["" "" "1|9"] ["3" "" "2|9"] ` {
		t.Errorf("the rows are %s, %v", got, err)
	}
	for want, c := range map[string]struct {
		data  []byte
		lists []string
	}{
		`a value of a list contains '|': choose another separator`: {data("a", "b|c"), all},
		"the values of a list take more than 1048576 bytes":        {data(strings.Repeat("x", 600_000), strings.Repeat("y", 600_000)), all},
		`column "fixed" has lists, but it is not named as a list`:  {data("a"), all[:2]},
	} {
		if _, err := read(c.data, c.lists...); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Lists of lists in Parquet have the name of their column, also if they are named as a list, and are refused.
func TestTableOfNestedLists(t *testing.T) {
	list := func(name string, of schema.Node) schema.Node {
		node, err := schema.ListOf(of, parquet.Repetitions.Optional, -1)
		if err != nil {
			t.Fatal(err)
		}
		return schema.MustGroup(schema.NewGroupNodeLogical(name, parquet.Repetitions.Optional, schema.FieldList{node.Field(0)}, schema.NewListLogicalType(), -1))
	}
	inner := list("element", schema.NewInt64Node("element", parquet.Repetitions.Optional, -1))
	root := schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{list("tags", inner)}, -1))
	var out bytes.Buffer
	if err := file.NewParquetWriter(struct{ io.Writer }{&out}, root).Close(); err != nil {
		t.Fatal(err)
	}
	for _, lists := range [][]string{nil, {"tags"}} {
		path := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		if err := table.Choose([]string{"tags"}, lists, '|'); !fault.IsInput(err) || !strings.Contains(err.Error(), `column "tags" is of maps, lists of lists or structures`) {
			t.Errorf("lists %q: %v", lists, err)
		}
	}
}

// kinds has columns of every kind of values, by name.
var kinds = map[string]struct {
	kind    string
	arrow   arrow.DataType
	parquet parquet.Type
	logical schema.LogicalType // may be nil
}{
	"null":    {"", arrow.Null, parquet.Types.Int32, schema.NullLogicalType{}},
	"string":  {"strings", arrow.BinaryTypes.String, parquet.Types.ByteArray, schema.StringLogicalType{}},
	"bytes":   {"strings", arrow.BinaryTypes.LargeBinary, parquet.Types.ByteArray, nil},
	"words":   {"strings", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, parquet.Types.ByteArray, schema.EnumLogicalType{}},
	"int":     {"numbers", arrow.PrimitiveTypes.Int64, parquet.Types.Int64, nil},
	"small":   {"numbers", arrow.PrimitiveTypes.Uint8, parquet.Types.Int32, schema.NewIntLogicalType(8, false)},
	"float":   {"numbers", arrow.PrimitiveTypes.Float32, parquet.Types.Float, nil},
	"bool":    {"truth values", arrow.FixedWidthTypes.Boolean, parquet.Types.Boolean, nil},
	"date":    {"dates", arrow.FixedWidthTypes.Date32, parquet.Types.Int32, schema.DateLogicalType{}},
	"time":    {"times of day", arrow.FixedWidthTypes.Time64us, parquet.Types.Int64, schema.NewTimeLogicalType(false, schema.TimeUnitMicros)},
	"local":   {"timestamps without a zone", &arrow.TimestampType{Unit: arrow.Millisecond}, parquet.Types.Int64, schema.NewTimestampLogicalType(false, schema.TimeUnitMillis)},
	"old":     {"timestamps without a zone", &arrow.TimestampType{Unit: arrow.Second}, parquet.Types.Int96, nil},
	"instant": {"timestamps with a zone", arrow.FixedWidthTypes.Timestamp_ms, parquet.Types.Int64, schema.NewTimestampLogicalType(true, schema.TimeUnitMillis)},
}

// Both formats have the same kinds of values.
func TestKinds(t *testing.T) {
	var nodes schema.FieldList
	var fields []arrow.Field
	for name, c := range kinds {
		node := schema.MustPrimitive(schema.NewPrimitiveNode(name, parquet.Repetitions.Optional, c.parquet, -1, -1))
		if c.logical != nil {
			node = schema.MustPrimitive(schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Optional, c.logical, c.parquet, -1, -1))
		}
		nodes, fields = append(nodes, node), append(fields, arrow.Field{Name: name, Type: c.arrow, Nullable: true}, arrow.Field{Name: "list of " + name, Type: arrow.ListOf(c.arrow)})
	}
	var table, record bytes.Buffer
	if err := file.NewParquetWriter(struct{ io.Writer }{&table}, schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1))).Close(); err != nil {
		t.Fatal(err)
	}
	if err := ipc.NewWriter(&record, ipc.WithSchema(arrow.NewSchema(fields, nil))).Close(); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{table.Bytes(), record.Bytes()} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		table, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		for k, name := range table.Columns() {
			if got := table.Kind(k); got != kinds[strings.TrimPrefix(name, "list of ")].kind {
				t.Errorf("%.4q: %s has %q", data, name, got)
			}
		}
	}
}

// A map, and runs of values, are refused by their names.
func TestMapsAndRuns(t *testing.T) {
	keys := schema.MustGroup(schema.NewGroupNode("entries", parquet.Repetitions.Repeated, schema.FieldList{
		schema.NewByteArrayNode("k", parquet.Repetitions.Required, -1), schema.NewInt64Node("v", parquet.Repetitions.Optional, -1)}, -1))
	m := schema.MustGroup(schema.NewGroupNodeLogical("m", parquet.Repetitions.Optional, schema.FieldList{keys}, schema.MapLogicalType{}, -1))
	var table, maps, runs bytes.Buffer
	if err := file.NewParquetWriter(struct{ io.Writer }{&table}, schema.MustGroup(schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{m}, -1))).Close(); err != nil {
		t.Fatal(err)
	}
	for out, of := range map[*bytes.Buffer]arrow.DataType{
		&maps: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), &runs: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String),
	} {
		if err := ipc.NewWriter(out, ipc.WithSchema(arrow.NewSchema([]arrow.Field{{Name: "m", Type: of}}, nil))).Close(); err != nil {
			t.Fatal(err)
		}
	}
	for want, out := range map[string]*bytes.Buffer{`column "m.entries.k" is of maps`: &table, `column 0 ("m") has maps`: &maps, `column 0 ("m") is run-end encoded`: &runs} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err == nil {
			defer file.Close()
			err = file.Choose(file.Columns(), nil, 0)
		}
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
