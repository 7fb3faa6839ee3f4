package columnfile

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/parquet/compress"

	"shaver/internal/base/fault"
)

// A defect of a page is reported as such, and not as a truncated file.
func TestTableOfBadPage(t *testing.T) {
	data, _ := parquetTableBytes(t, tableGroups, compress.Codecs.Uncompressed)
	if data[4] != 0x15 || data[6] != 0x15 {
		t.Fatalf("the file does not begin with a page: % x", data[:8])
	}
	data[7] |= 1 // sets the lowest bit of the zigzag-coded size, which makes the size negative
	_, _, err := tableOf(data, filepath.Join(t.TempDir(), "x.parquet"), "s")
	if !fault.IsInput(err) || !strings.Contains(err.Error(), `row group 0, column "s": a page's header is malformed`) {
		t.Errorf("a page of negative size: %v", err)
	}
}

// A page header with large claims is refused before any memory is allocated for it.
func TestPageHeaders(t *testing.T) {
	header := func(kind, size, compressed int64, more ...byte) string {
		out := []byte{}
		for _, x := range []int64{kind, size, compressed} {
			out = binary.AppendVarint(append(out, 0x15), x)
		}
		return string(append(out, more...))
	}
	values := func(structure byte, n int64) []byte { return binary.AppendVarint([]byte{structure, 0x15}, n) }
	for _, c := range []struct{ header, want string }{
		{header(0, 100, 50, 0x2c, 0x15, 2), ""},
		{header(2, 100, 50, values(0x4c, 25)...), ""},
		{header(2, 100, 50, append([]byte{0x15, 1}, values(0x3c, 25)...)...), ""},
		{header(2, 100, 50, values(0x4c, 26)...), "a dictionary claims 26 values in 100 bytes"},
		{header(2, 100, 50, values(0x4c, 1<<31-1)...), "a dictionary claims 2147483647 values in 100 bytes"},
		{header(2, 100, 50, values(0x2c, 25)...), "malformed"},
		{header(2, 100, 50, 0x15, 0x80), "malformed"},
		{header(2, 100, 50), "malformed"},
		{header(0, 100, -1), "malformed"},
		{header(0, maxPage+1, 50), "a page may have at most"},
		{header(0, 100, 1001), "1000 bytes are left"},
		{header(0, 901, 50), "write smaller pages"},
	} {
		memory := int64(1000)
		s := &pageStream{Reader: bufio.NewReader(strings.NewReader(c.header)), left: 1000, memory: &memory}
		for range 2 { // the second look at a page takes no more memory
			_, err := s.Peek(16)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("% x: %v, want %q", c.header, err, c.want)
			}
		}
		if taken := 1000 - memory; c.want == "" && taken != 200 && taken != 700 {
			t.Errorf("% x took %d bytes", c.header, taken)
		}
	}
}

// All columns of a row group share the memory of the group.
func TestTableOfManyPages(t *testing.T) {
	data, _ := parquetTableBytes(t, tableGroups, compress.Codecs.Snappy)
	path := filepath.Join(t.TempDir(), "x.parquet")
	least := func(names ...string) int {
		return sort.Search(1<<20, func(memory int) bool {
			_, _, err := tableWithin(memory, data, path, names...)
			if err != nil && !strings.Contains(err.Error(), "write smaller pages") {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if s, i, both := least("s"), least("i"), least("s", "i"); s == 0 || i == 0 || both != s+i {
		t.Errorf("column s takes %d bytes, i %d, and both %d", s, i, both)
	}
}

// A column with more or fewer values than the row group has rows is refused.
func TestTableOfUnevenColumns(t *testing.T) {
	table, _ := openParquet(t)
	for _, rows := range []int{2499, 2501} {
		err := table.table.(*parquetTable).rows(table.file, 0, rows, []int{0}, 0, func(int, [][]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(`row group 0 has %d rows, but its column "s" has 2500 values`, rows)) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
}
