package ingest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
)

// shared returns the path of a file in the folder next to the checkout. If the file is
// missing, the test is skipped, or fails on CI.
func shared(t testing.TB, name ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{"..", "..", "..", "..", "shared"}, name...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// gzipped returns text compressed with gzip.
func gzipped(t testing.TB, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// zstded returns text compressed with zstd.
func zstded(t testing.TB, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(text), nil))
}

// smallDataset makes a dataset and returns its folder.
func smallDataset(t testing.TB) string {
	t.Helper()
	text := "label,a,b\n" + strings.Repeat("0,1,2\n1,3,4\n0,0,0\n", 100)
	out := filepath.Join(t.TempDir(), "dataset")
	if _, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, text)}, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

// rowsOf reads all rows of splits, in batches of at most batch rows.
func rowsOf(t testing.TB, d *dataset.Dataset, batch int, splits ...string) *model.Rows {
	t.Helper()
	all := &model.Rows{}
	err := d.Scan(t.Context(), splits, batch, func(rows *model.Rows) error {
		if rows.Len() > batch || rows.Len() == 0 {
			return errors.New("a batch has a wrong number of rows")
		}
		all.Width = rows.Width
		all.Number = append(all.Number, rows.Number...)
		all.Label = append(all.Label, rows.Label...)
		all.Features = append(all.Features, rows.Features...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func open(t testing.TB, dir string) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wantInput(t testing.TB, err error, text string) {
	t.Helper()
	if !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v\nwant bad input with %q", err, text)
	}
}

func wantUsage(t testing.TB, err error, text string) {
	t.Helper()
	if !fault.IsUsage(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v\nwant wrong usage with %q", err, text)
	}
}

// wantNothing checks that a failed import left no files in the parent folder of out.
func wantNothing(t testing.TB, out string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(out))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// folderBytes returns the names and bytes of all files in a folder.
func folderBytes(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		relative, _ := filepath.Rel(dir, path)
		all.WriteString(relative + "\n" + string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
