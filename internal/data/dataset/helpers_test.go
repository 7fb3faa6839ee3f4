package dataset_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// smallDataset returns a dataset of 300 rows and its folder.
func smallDataset(t testing.TB) (string, *dataset.Dataset) {
	t.Helper()
	text := "label,a,b\n" + strings.Repeat("0,1,2\n1,3,4\n0,0,0\n", 100)
	out := filepath.Join(t.TempDir(), "dataset")
	if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{write(t, text)}, Out: out}); err != nil {
		t.Fatal(err)
	}
	return out, open(t, out)
}

func open(t testing.TB, dir string) *dataset.Dataset {
	t.Helper()
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rowsOf reads all rows of splits, in batches of at most batch rows.
func rowsOf(t testing.TB, d *dataset.Dataset, batch int, splits ...string) *model.Rows {
	t.Helper()
	all := &model.Rows{Width: len(d.Fields())}
	err := d.Scan(t.Context(), splits, batch, func(rows *model.Rows) error {
		if rows.Len() > batch || rows.Len() == 0 {
			return errors.New("a batch has a wrong number of rows")
		}
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

func wantInput(t testing.TB, err error, text string) {
	t.Helper()
	if !fault.IsInput(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v\nwant bad input with %q", err, text)
	}
}
