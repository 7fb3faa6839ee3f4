package delta

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/data/columnfile"
	"shaver/internal/prune/delta/deltatest"
)

// written returns the folder of a small delta, between models with several words if version is WordsVersion.
func written(f *testing.F, version string) string {
	words := map[string][]int{WordsVersion: {3}}[version]
	nights := deltatest.Nights(f, 2, "float32", words...)
	folder := filepath.Join(f.TempDir(), "delta")
	if _, err := Write(nights[1], Options{From: nights[0], Generation: 2}, folder); err != nil {
		f.Fatal(err)
	}
	return folder
}

// A manifest with a right digest parses to one that is written with the same bytes, or is bad input.
func FuzzManifest(f *testing.F) {
	for _, version := range []string{Version, WordsVersion, "shaver.delta/3"} {
		text, err := os.ReadFile(filepath.Join(written(f, version), ManifestFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Replace(text, []byte(Version), []byte(version), 1))
		f.Add([]byte(`{"version":"` + version + `"}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var stated struct{ Digest string }
		if json.Unmarshal(text, &stated) == nil && len(stated.Digest) == len(seal.Blank) {
			blank := bytes.ReplaceAll(text, []byte(stated.Digest), []byte(seal.Blank))
			if digest, err := seal.Of(func(w io.Writer) error { _, err := w.Write(blank); return err }); err == nil {
				text = bytes.ReplaceAll(blank, []byte(seal.Blank), []byte(digest))
			}
		}
		m, err := parseManifest("m", text)
		if err != nil {
			if !fault.IsInput(err) {
				t.Errorf("not bad input: %v", err)
			}
			return
		}
		if m.Version != Version && m.Version != WordsVersion {
			t.Errorf("version %s", m.Version)
		}
		path := filepath.Join(t.TempDir(), ManifestFile)
		if _, err := m.write(path); err != nil {
			t.Fatal(err)
		}
		if again, err := readManifest(path); err != nil || again.Model != m.Model || again.Generation != m.Generation {
			t.Errorf("written again: %+v, %v", again, err)
		}
	})
}

// A row has the number of its word that the head has, or the file of rows is bad input.
func TestWordOfHead(t *testing.T) {
	folders := make([]string, 2)
	for i, words := range []int{3, 4} { // of the same rows
		folders[i] = filepath.Join(t.TempDir(), "delta")
		if _, err := Write(deltatest.Nights(t, 1, "float32", words)[0], Options{}, folders[i]); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(folders[0])
	if err != nil {
		t.Fatal(err)
	}
	count := func(*Row) error { return nil }
	if err := d.Rows(count); err != nil {
		t.Error(err)
	}
	d.Folder = folders[1]
	if err := d.Rows(count); !fault.IsInput(err) || !strings.Contains(err.Error(), "as in the head") {
		t.Errorf("numbers of other words: %v", err)
	}
}

// Rows of a file that anybody wrote fit the head, also in the numbers of words, or the file is bad input.
func FuzzRows(f *testing.F) {
	var all []*Delta
	for _, version := range []string{Version, WordsVersion} {
		folder := written(f, version)
		for _, name := range []string{columnfile.DeltaKept, columnfile.DeltaDropped} {
			data, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
			f.Add(data[:len(data)/2])
		}
		d, err := Open(folder)
		if err != nil || d.Version != version {
			f.Fatalf("version %s: %v", version, err)
		}
		all = append(all, d)
	}
	folder := f.TempDir() // each process of the fuzzer has one, because a folder for each input takes most of the time
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(folder, "rows.parquet"), data, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			d := *d
			d.Folder = folder
			for _, lists := range [][]string{rowLists, nil} {
				_, err := d.lines("rows.parquet", lists, func(r *Row) error {
					if r.ID < 0 || r.ID >= r.Piece.Rows || len(r.Columns) != len(r.Values) || len(r.Columns) > r.Piece.Width {
						t.Fatalf("%+v", r)
					}
					return nil
				})
				if err != nil && !fault.IsInput(err) {
					t.Errorf("not bad input: %v", err)
				}
			}
		}
	})
}
