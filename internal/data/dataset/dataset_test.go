package dataset_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/data/arrowio"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
)

func readAll(ctx context.Context, dir string) error {
	d, err := dataset.Open(dir)
	if err != nil {
		return err
	}
	if _, err := d.Frequencies(); err != nil {
		return err
	}
	for j := range d.Fields() {
		if _, err := d.Vocabulary(j); err != nil {
			return err
		}
	}
	return d.Scan(ctx, nil, 100, func(*model.Rows) error { return nil })
}

// A changed, truncated or missing file is bad input that names the file.
func TestCorruptDataset(t *testing.T) {
	for _, name := range []string{"train.arrow", "val.arrow", "test.arrow", "frequencies.arrow", "vocabulary/0-a.txt", "vocabulary/1-b.txt"} {
		dir, _ := smallDataset(t)
		path := filepath.Join(dir, filepath.FromSlash(name))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range data {
			if at%7 != 0 && at > 100 {
				continue
			}
			changed := bytes.Clone(data)
			changed[at] ^= 0x10
			if err := os.WriteFile(path, changed, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := readAll(t.Context(), dir); !fault.IsInput(err) || !strings.Contains(err.Error(), path) {
				t.Fatalf("%s, byte %d of %d changed: %v", name, at, len(data), err)
			}
		}
		if err := os.WriteFile(path, data[:len(data)-1], 0o644); err != nil {
			t.Fatal(err)
		}
		wantInput(t, readAll(t.Context(), dir), path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantInput(t, readAll(t.Context(), dir), path+" is missing")
	}
	_, err := dataset.Open(t.TempDir())
	wantInput(t, err, "is not a dataset")
}

func TestReaderAndScanAgree(t *testing.T) {
	_, d := smallDataset(t)
	want := rowsOf(t, d, 1<<16)
	for i, number := range want.Number {
		if number != int64(i) {
			t.Fatalf("row %d has number %d", i, number)
		}
	}
	if got := rowsOf(t, d, 7); !reflect.DeepEqual(got, want) {
		t.Error("the rows depend on the size of the batches")
	}
	r, err := d.NewReader(dataset.Test)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var rows model.Rows
	if err := r.Next(&rows); err != nil || int64(rows.Len()) != d.Rows(dataset.Test) || rows.Number[0] != d.Rows(dataset.Train)+d.Rows(dataset.Val) {
		t.Errorf("the first batch of test has %d rows with numbers %d: %v", rows.Len(), rows.Number, err)
	}
	for range 2 {
		if err := r.Next(&rows); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestScanStops(t *testing.T) {
	_, d := smallDataset(t)
	enough := errors.New("enough")
	if err := d.Scan(t.Context(), nil, 10, func(*model.Rows) error { return enough }); err != enough {
		t.Errorf("Scan returned %v, expected the error of visit", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := d.Scan(ctx, nil, 10, func(*model.Rows) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := d.Scan(t.Context(), []string{"dev"}, 10, nil); !fault.IsUsage(err) || !strings.Contains(err.Error(), `no split "dev": it has [train val test]`) {
		t.Errorf("a split that does not exist: %v", err)
	}
}

func TestCheckModel(t *testing.T) {
	_, d := smallDataset(t)
	if err := fit(d, &model.Architecture{FieldDims: []int{4, 4}}); err != nil {
		t.Error(err)
	}
	wantInput(t, fit(d, &model.Architecture{FieldDims: []int{4, 3}}), "field 1 (b) has 4 features in the dataset and 3 in the model")
	wantInput(t, fit(d, &model.Architecture{FieldDims: []int{4}}), "the dataset has 2 fields (a, b) and the model 1")
}

// An inspection contains the rows, the sizes and the most frequent values by name.
func TestInspect(t *testing.T) {
	text := "a\tlabel\n" + strings.Repeat("y\t1\nx\t0\ny\t0\n", 40) + strings.Repeat("rare\t0\n", 1)
	out := filepath.Join(t.TempDir(), "x")
	if _, err := ingest.ImportRaw(t.Context(), ingest.RawConfig{Files: []string{write(t, text)}, MinCount: 2, Out: out}); err != nil {
		t.Fatal(err)
	}
	facts, err := dataset.Inspect(out, 2)
	if err != nil {
		t.Fatal(err)
	}
	if facts.Rows != 121 || facts.Features != 3 || len(facts.Splits) != 3 || facts.IDs != dataset.RawStrings {
		t.Errorf("%+v", facts)
	}
	f := facts.Fields[0]
	if f.Name != "a" || f.Size != 3 || f.Seen != 3 || f.OOV == nil || *f.OOV != 1.0/121 || len(f.Top) != 2 ||
		*f.Top[0].Value != "y" || f.Top[0].ID != 1 || f.Top[0].Rows != 80 || *f.Top[1].Value != "x" {
		t.Errorf("%+v", f)
	}
	if want := []dataset.HeldFacts{{.5, 1}, {.9, 2}, {.99, 2}}; !slices.Equal(f.Concentration, want) { // the values have 80, 40 and 1 of 121 rows
		t.Errorf("%v, expected %v", f.Concentration, want)
	}
	// If no values are listed, the vocabulary is not read, because it may be large.
	path := filepath.Join(out, "vocabulary", "0-a.txt")
	values, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ToUpper(values), 0o644); err != nil {
		t.Fatal(err)
	}
	if facts, err = dataset.Inspect(out, 0); err != nil || facts.Fields[0].OOV == nil || *facts.Fields[0].OOV != 1.0/121 {
		t.Errorf("%+v, %v", facts, err)
	}
	if _, err := dataset.Inspect(out, 1); err == nil {
		t.Error("a corrupt vocabulary is accepted")
	}
	if err := os.WriteFile(path, values, 0o644); err != nil {
		t.Fatal(err)
	}
	if facts, err = dataset.Inspect(out, 9); err != nil || len(facts.Fields[0].Top) != 3 || facts.Fields[0].Top[2].Value != nil {
		t.Errorf("%+v, %v", facts, err)
	}
}

// rewrite replaces text in the manifest of the dataset in dir.
func rewrite(t testing.TB, dir, old, new string) {
	t.Helper()
	path := filepath.Join(dir, dataset.ManifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s does not contain %s", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A number of rows that the file of a split does not have is refused before a row is read.
func TestRowsOfManifest(t *testing.T) {
	for _, split := range []string{dataset.Train, dataset.Val, dataset.Test} {
		for _, claim := range []int64{1 << 36, 1 << 20, 1} {
			dir, d := smallDataset(t)
			rows := d.Rows(split)
			rewrite(t, dir, fmt.Sprintf(`"rows": %d,
      "positives": %d`, rows, positives(d, split)), fmt.Sprintf(`"rows": %d,
      "positives": 0`, claim))
			_, err := dataset.Open(dir)
			wantInput(t, err, fmt.Sprintf("%s has %d rows, but dataset.json states %d", filepath.Join(dir, split+".arrow"), rows, claim))
		}
	}
	dir, d := smallDataset(t)
	rewrite(t, dir, fmt.Sprintf(`"rows": %d`, d.Rows("train")), `"rows": 1000000000000000000`)
	_, err := dataset.Open(dir)
	wantInput(t, err, "split train has 1000000000000000000 rows after 0 rows in other splits: expected at most 137438953472 in all")
}

func positives(d *dataset.Dataset, split string) int64 {
	return *d.Splits[slices.IndexFunc(d.Splits, func(s dataset.Split) bool { return s.Name == split })].Positives
}

// The counts of every field must add up to the rows of their split.
func TestCountsOfFrequencies(t *testing.T) {
	dir, d := smallDataset(t)
	path := filepath.Join(dir, "frequencies.arrow")
	for _, wrong := range []int64{-1, 1, math.MaxInt64 - 1000} {
		var counts [][]int64
		for _, split := range d.SplitNames() {
			c, err := d.Frequencies(split)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, c)
		}
		counts[1][0] += wrong
		counts[1][0] = max(counts[1][0], 0)
		counts[1][1] += wrong
		var file bytes.Buffer
		if err := arrowio.WriteFrequencies(&file, d.SplitNames(), counts); err != nil {
			t.Fatal(err)
		}
		forged, _ := smallDataset(t)
		if err := os.WriteFile(filepath.Join(forged, "frequencies.arrow"), file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		old, new := sha256.Sum256(contents(t, path)), sha256.Sum256(file.Bytes())
		rewrite(t, forged, hex.EncodeToString(old[:]), hex.EncodeToString(new[:]))
		_, err := open(t, forged).Frequencies()
		wantInput(t, err, "the counts of field 0 (a) in split val do not add up to its")
	}
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A reader that reads up to the last row gets an error if the file is corrupt.
func TestLastRowsAreChecked(t *testing.T) {
	dir, d := smallDataset(t)
	path := filepath.Join(dir, "train.arrow")
	data := contents(t, path)
	at := bytes.LastIndex(data, []byte("ARROW1")) - 40 // in the footer, which no reader of rows needs
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), int64(0)
	err := d.Scan(t.Context(), []string{"train"}, 1, func(rows *model.Rows) error {
		if n += int64(rows.Len()); n == d.Rows("train") {
			return enough
		}
		return nil
	})
	wantInput(t, err, path+" is corrupt")
}

// Whichever byte of a file is wrong, the error says that the file is corrupt.
func TestAnyByteIsChecked(t *testing.T) {
	dir, d := smallDataset(t)
	path := filepath.Join(dir, "train.arrow")
	data := contents(t, path)
	for at := 0; at < len(data); at += 7 {
		damaged := bytes.Clone(data)
		damaged[at] ^= 8
		if err := os.WriteFile(path, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		err := d.Scan(t.Context(), []string{"train"}, 100, func(*model.Rows) error { return nil })
		if want := path + " is corrupt: its SHA-256 is not the one in dataset.json"; !fault.IsInput(err) || err.Error() != want {
			t.Fatalf("byte %d: %v, expected %s", at, err, want)
		}
	}
}

// fit returns an error unless d has the fields of a model.
func fit(d *dataset.Dataset, a *model.Architecture) error {
	_, err := d.For(a, nil)
	return err
}
