package places

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/ops/remote"
)

// The copy of a dataset has the list of blocks that the dataset has now, so that nobody has to read all rows.
func TestDatasetBlocks(t *testing.T) {
	dir := t.TempDir()
	rows, folder := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "rows")
	write(t, rows, "label,a\n1,0\n0,1\n")
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{rows}, Sizes: []int{2}, Out: folder}); err != nil {
		t.Fatal(err)
	}
	l, err := remote.Parse("file://" + filepath.ToSlash(folder))
	if err != nil {
		t.Fatal(err)
	}
	u := newUse(t)
	blocks := func() string {
		t.Helper()
		path, err := Dataset(t.Context(), u.Session, l)
		if err != nil {
			t.Fatal(err)
		}
		d, err := dataset.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := d.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	own, err := dataset.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	want, err := own.Blocks()
	if got := blocks(); err != nil || want == "" || got != want {
		t.Errorf("the list of the copy has the digest %q, expected %q (%v)", got, want, err)
	}
	if err := os.Remove(filepath.Join(folder, dataset.BlocksName)); err != nil {
		t.Fatal(err)
	}
	if got := blocks(); got != "" {
		t.Errorf("the copy has a list that the dataset does not have any more: %s", got)
	}
	if _, err := os.Stat(filepath.Join(u.Local(l), dataset.BlocksName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the list: %v", err)
	}
}
