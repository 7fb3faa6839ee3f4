package dataset_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
)

// ScanFrom delivers the same rows as Scan, starting at any row of the chosen splits.
func TestScanFrom(t *testing.T) {
	dir, d := largeDataset(t)
	for _, splits := range [][]string{{dataset.Train}, {dataset.Train, dataset.Test}, nil} {
		all := rowsOf(t, d, 1<<16, splits...)
		n, train := int64(all.Len()), d.Rows(dataset.Train)
		for _, first := range []int64{0, 1, arrowio.RowsBatch - 1, arrowio.RowsBatch, arrowio.RowsBatch + 7, train - 1, train, n - 1, n, n + 5} {
			if got, want := rowsFrom(t, d, splits, first), all.Slice(int(min(first, n)), all.Len()); !slices.Equal(got.Number, want.Number) ||
				!slices.Equal(got.Label, want.Label) || !slices.Equal(got.Features, want.Features) {
				t.Errorf("%v from row %d: got %d rows, expected %d, or the rows differ", splits, first, got.Len(), want.Len())
			}
		}
	}
	// If a file has more or fewer rows than the manifest states, ScanFrom returns an error,
	// although it skips rows.
	train, val := readFile(t, dir, "train.arrow"), readFile(t, dir, "val.arrow")
	for name, other := range map[string][]byte{dataset.Train: val, dataset.Val: train} {
		if err := os.WriteFile(filepath.Join(dir, name+".arrow"), other, 0o600); err != nil {
			t.Fatal(err)
		}
		wantInput(t, d.ScanFrom(t.Context(), []string{name}, 1, 1<<16, func(*model.Rows) error { return nil }), name+".arrow is corrupt")
	}
}

func readFile(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func largeDataset(t *testing.T) (string, *dataset.Dataset) {
	t.Helper()
	var text strings.Builder
	for i := range 2*arrowio.RowsBatch + 5000 {
		fmt.Fprintf(&text, "%d,%d,%d\n", i%3%2, i%7, i%11)
	}
	file, out := filepath.Join(t.TempDir(), "rows.csv"), filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Split: "8:1:1", Sizes: []int{7, 11}, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out, open(t, out)
}

func rowsFrom(t *testing.T, d *dataset.Dataset, splits []string, first int64) *model.Rows {
	t.Helper()
	all := &model.Rows{Width: len(d.Fields())}
	err := d.ScanFrom(t.Context(), splits, first, 1<<16, func(rows *model.Rows) error {
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

// OpenIn reads a dataset below a root like Open does, and opens no file outside the root.
func TestOpenIn(t *testing.T) {
	dir, d := smallDataset(t)
	parent, name := filepath.Split(dir)
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	in, err := dataset.OpenIn(root, name)
	if err != nil {
		t.Fatal(err)
	}
	if in.Digest() != d.Digest() || !slices.Equal(rowsOf(t, in, 100).Features, rowsOf(t, d, 100).Features) {
		t.Error("OpenIn and Open read different datasets")
	}
	outside := t.TempDir()
	for _, file := range []string{"train.arrow", dataset.ManifestName} {
		if err := os.Rename(filepath.Join(dir, file), filepath.Join(outside, file)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(outside, file), filepath.Join(dir, file)); err != nil {
			t.Skip("no symbolic links here: ", err)
		}
		if _, err := dataset.Open(dir); err != nil {
			t.Errorf("%s as a link: %v", file, err)
		}
		if _, err := dataset.OpenIn(root, name); err == nil || !strings.Contains(err.Error(), "escapes") && !strings.Contains(err.Error(), "leads out of") {
			t.Errorf("%s as a link to the outside: %v", file, err)
		}
	}
	if _, err := dataset.OpenIn(root, ".."); err == nil {
		t.Error("OpenIn opened the parent of the root")
	}
}
