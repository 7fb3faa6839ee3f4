package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/shard"
)

// stored makes a dataset with the given number of rows at path.
func stored(t *testing.T, path string, rows int) *dataset.Dataset {
	t.Helper()
	var text strings.Builder
	for i := range rows {
		fmt.Fprintf(&text, "%d,%d,%d\n", i%2, i%3, i%4)
	}
	file := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.ImportEncoded(t.Context(), ingest.EncodedConfig{Train: []string{file}, Sizes: []int{3, 4}, Out: path}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A store finds the datasets in its folder and in the folders directly in it, and none
// that is deeper.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	in := stored(t, filepath.Join(dir, "in"), 40)
	other := stored(t, filepath.Join(dir, "other"), 41)
	deep := stored(t, filepath.Join(t.TempDir(), "deep"), 42)
	if err := os.Mkdir(filepath.Join(dir, "far"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "far", "away"), os.DirFS(filepath.Join(dir, "in"))); err != nil {
		t.Fatal(err)
	}
	for path, holds := range map[string][]string{dir: {in.Digest(), other.Digest()}, filepath.Join(dir, "in"): {in.Digest()}} {
		s, err := OpenStore("dir:" + path)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time the dataset is known
			for _, digest := range holds {
				if d, err := s.Dataset(digest, nil); err != nil || d.Digest() != digest {
					t.Errorf("%s: %v", path, err)
				}
			}
			if _, err := s.Dataset(deep.Digest(), nil); err == nil || !strings.Contains(err.Error(), "store "+path+": no dataset "+deep.Digest()) {
				t.Errorf("%s: %v", path, err)
			}
		}
		s.Close()
	}
	for _, text := range []string{"", dir, "dir:", "s3:" + dir} {
		if _, err := OpenStore(text); !fault.IsUsage(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := OpenStore("dir:" + filepath.Join(dir, "nowhere")); !fault.IsInput(err) {
		t.Errorf("a missing folder: %v", err)
	}
}

// Reading in place gives the rows that the task names, or an error. A damaged copy that
// was repaired is read again.
func TestRowsInPlace(t *testing.T) {
	dir := t.TempDir()
	d := stored(t, filepath.Join(dir, "data"), 40)
	s, err := OpenStore("dir:" + dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var want *model.Rows
	err = d.ScanFrom(t.Context(), nil, 10, 5, func(rows *model.Rows) error {
		if want == nil {
			want = &model.Rows{Width: 2, Number: slices.Clone(rows.Number), Label: slices.Clone(rows.Label), Features: slices.Clone(rows.Features)}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	task := &job.Task{Rows: 5, Spec: job.Spec{Dataset: d.Digest(), Splits: []string{"train"}, Sample: 1}, Place: job.Place{Seen: 10, Kept: 10, SHA256: shard.Digest(want)}}
	a := &model.Architecture{FieldDims: []int{3, 4}}
	var steps atomic.Int64
	rows, err := s.rows(t.Context(), task, a, &steps)
	if err != nil || rows.Len() != 5 || rows.Number[0] != 10 || steps.Load() == 0 {
		t.Fatalf("%+v %v", rows, err)
	}
	refused := func(what, text string, task *job.Task, a *model.Architecture) {
		t.Helper()
		if _, err := s.rows(t.Context(), task, a, &steps); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another model", "field 1 (f1) has 4 features in the dataset and 5 in the model", task, &model.Architecture{FieldDims: []int{3, 5}})
	changed := *task
	changed.Place.SHA256 = strings.Repeat("0", 64)
	refused("other rows", "the digest of the rows differs", &changed, a)
	changed = *task
	changed.Place.Seen = 1 << 40
	refused("a place past the end", "only 0 of 5 rows", &changed, a)
	changed.Place.Seen, changed.Spec.Splits = 10, []string{"dev"}
	refused("an unknown split", `no split "dev"`, &changed, a)
	file := filepath.Join(dir, "data", "train.arrow")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	refused("a file that is gone", "train.arrow", task, a)
	refused("a file that is gone, again", "train.arrow is missing", task, a)
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.rows(t.Context(), task, a, &steps); err != nil {
		t.Errorf("after the file was restored: %v", err)
	}
	var none *Store
	if _, err := none.rows(t.Context(), task, a, &steps); err == nil {
		t.Error("a nil store returned rows")
	}
}

// A model is read from the store if one of its files has the content of the blob. It is fetched if
// no file does, or if the file is damaged.
func TestStoreModel(t *testing.T) {
	f, d := newTask(t)
	model := f.blobs["model"]
	dir := t.TempDir()
	path := filepath.Join(dir, "models", "m.shaver")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty.shaver": "", "text.shaver": strings.Repeat("x", len(model)), "other": string(model)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store, err := OpenStore("dir:" + dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	find := func(want bool) {
		t.Helper()
		if found := store.model(d.Task.Model, new(atomic.Int64)); (found != nil) != want || want && !bytes.Equal(found, model) {
			t.Errorf("found %d bytes, expected %v", len(found), want)
		}
	}
	find(false)
	if err := os.WriteFile(path, model, 0o600); err != nil {
		t.Fatal(err)
	}
	find(true)
	delete(f.blobs, "model")
	if outcome := runTask(t, &Models{Store: store}, f, d); outcome != Done {
		t.Errorf("outcome %q without the model on the server: %s", outcome, f.aside)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	find(false)
}
