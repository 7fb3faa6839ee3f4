package columnfile

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"

	"shaver/internal/base/fault"
)

// rowSet is a set of rows.
type rowSet map[uint64]bool

func (s rowSet) Contains(row uint64) bool { return s[row] }

// parquetOf writes 5 rows in row groups of 2: x is the number of the row, half is a tenth of it as a float32, s its text or missing
// in row 3, and when an INT96 timestamp. The columns have the given field IDs.
func parquetOf(t *testing.T, ids ...int32) string {
	if ids == nil {
		ids = []int32{-1, -1, -1, -1}
	}
	optional, required := parquet.Repetitions.Optional, parquet.Repetitions.Required
	root := must(schema.NewGroupNode("schema", required, schema.FieldList{
		schema.NewInt64Node("x", required, ids[0]), schema.NewFloat32Node("half", required, ids[1]),
		must(schema.NewPrimitiveNodeLogical("s", optional, schema.StringLogicalType{}, parquet.Types.ByteArray, 0, ids[2])), schema.NewInt96Node("when", required, ids[3]),
	}, -1))
	path := filepath.Join(t.TempDir(), "x.parquet")
	w := file.NewParquetWriter(must(os.Create(path)), root)
	for from := 0; from < 5; from += 2 {
		g := w.AppendRowGroup()
		var x []int64
		var half []float32
		var s []parquet.ByteArray
		var defined []int16
		var when []parquet.Int96
		for i := from; i < min(5, from+2); i++ {
			var at parquet.Int96
			binary.LittleEndian.PutUint64(at[:], uint64(i)*1e9)
			binary.LittleEndian.PutUint32(at[8:], 2440588) // the Julian day of 1970-01-01
			x, half, when, defined = append(x, int64(i)), append(half, float32(i)/10), append(when, at), append(defined, 1)
			if i == 3 {
				defined[len(defined)-1] = 0
			} else {
				s = append(s, parquet.ByteArray(fmt.Sprint("s", i)))
			}
		}
		must(must(g.NextColumn()).(*file.Int64ColumnChunkWriter).WriteBatch(x, nil, nil))
		must(must(g.NextColumn()).(*file.Float32ColumnChunkWriter).WriteBatch(half, nil, nil))
		must(must(g.NextColumn()).(*file.ByteArrayColumnChunkWriter).WriteBatch(s, defined, nil))
		must(must(g.NextColumn()).(*file.Int96ColumnChunkWriter).WriteBatch(when, nil, nil))
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// must returns v, and panics if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// seen returns the rows of a view, with their positions in the file.
func seen(t *testing.T, path string, v *View, names ...string) (rows [][]string) {
	t.Helper()
	f, err := OpenView(path, v)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Choose(names, nil, '|'); err != nil {
		t.Fatal(err)
	}
	for {
		b, err := f.Next()
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		for k, name := range names {
			if want := name == "h"; b.Single[k] != (want && !v.Columns[0].Double) {
				t.Errorf("column %s is single: %t", name, b.Single[k])
			}
		}
		if err := b.Rows(func(row int, cells [][]byte) error {
			texts := []string{fmt.Sprint(b.Row + int64(row))}
			for _, c := range cells {
				texts = append(texts, string(c))
			}
			rows = append(rows, texts)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A view finds the file's columns by their field IDs, or by their names if the file has no IDs. A column that the file does not
// have has the same value in all rows, rows that are deleted are left out, and the table's types decide the texts.
func TestView(t *testing.T) {
	v := &View{Columns: []ViewColumn{
		{Name: "h", Source: "half", ID: 7, Kind: Numbers, Double: true}, {Name: "text", Source: "s", ID: 8, Kind: Strings},
		{Name: "day", Value: "2026-11-29", Kind: Dates}, {Name: "new", Source: "none", ID: 9, Kind: Numbers}, {Name: "t", Source: "when", ID: 10, Kind: Instants},
	}, Deleted: rowSet{1: true, 4: true}}
	want := [][]string{}
	for i := range 5 {
		if s := fmt.Sprint("s", i); i != 1 && i != 4 {
			if i == 3 {
				s = ""
			}
			half := "0"
			if i > 0 {
				half = fmt.Sprint(float64(float32(i) / 10)) // the nearest double of the float32
			}
			want = append(want, []string{fmt.Sprint(i), "", s, "2026-11-29", half, fmt.Sprintf("1970-01-01 00:00:0%d+00:00", i)})
		}
	}
	if got := seen(t, parquetOf(t), v, "new", "text", "day", "h", "t"); !reflect.DeepEqual(got, want) {
		t.Errorf("by names: %q, expected %q", got, want)
	}
	renamed := &View{Columns: []ViewColumn{{Name: "h", Source: "s", ID: 7, Kind: Numbers, Double: true}, {Name: "text", ID: 8}, v.Columns[2], v.Columns[3], {Name: "t", ID: 10, Kind: Instants}}, Deleted: v.Deleted}
	if got := seen(t, parquetOf(t, 5, 7, 8, 10), renamed, "new", "text", "day", "h", "t"); !reflect.DeepEqual(got, want) {
		t.Errorf("by IDs: %q, expected %q", got, want)
	}
	single := &View{Columns: []ViewColumn{{Name: "h", Source: "half", Kind: Numbers}}}
	for i, row := range seen(t, parquetOf(t), single, "h") {
		if want := FloatText(math.Round(float64(i))/10, 64); row[1] != want {
			t.Errorf("row %d of a float32: %s, expected %s", i, row[1], want)
		}
	}
	if got := seen(t, parquetOf(t), v, "day"); len(got) != 3 {
		t.Errorf("only a column that the file does not have: %q", got)
	}
}

// A column whose values are of another kind than the table's is bad input.
func TestViewOfOtherKind(t *testing.T) {
	_, err := OpenView(parquetOf(t), &View{Columns: []ViewColumn{{Name: "a", Source: "s", Kind: Numbers}}})
	if !fault.IsInput(err) || !strings.Contains(err.Error(), `column "a" has strings, but the column of the table has numbers`) {
		t.Error(err)
	}
}
