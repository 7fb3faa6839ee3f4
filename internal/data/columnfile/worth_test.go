package columnfile_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"shaver/internal/data/columnfile"
)

// The Parquet file has a line for each id, with all digits of its worth, and is recognised.
func TestWorth(t *testing.T) {
	ids := []columnfile.WorthID{{Table: "t", Field: "x", ID: 7, Count: 3, Worth: 1. / 3, Score: 2, Key: -5}, {Table: "u", Field: "y", ID: 0, Worth: -1e-9, Score: 1}}
	var b bytes.Buffer
	if err := columnfile.WriteWorth(&b, ids, "path", "job"); err != nil {
		t.Fatal(err)
	}
	if !columnfile.IsWorthParquet(bytes.NewReader(b.Bytes()), int64(b.Len())) {
		t.Error("the file is not recognised")
	}
	path := filepath.Join(t.TempDir(), "worth.parquet")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := columnfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for {
		block, err := f.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := block.Rows(func(_ int, cells [][]byte) error {
			got = append(got, string(bytes.Join(cells, []byte(" "))))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"t x 7 3 0.3333333333333333 2 -5", "u y 0 0 -1e-09 1 0"}; !slices.Equal(got, want) || !slices.Equal(f.Columns(), []string{"table", "field", "id", "count", "worth", "score", "key"}) {
		t.Errorf("%q, columns %q", got, f.Columns())
	}
}
