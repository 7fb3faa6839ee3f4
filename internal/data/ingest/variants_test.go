package ingest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
)

// variant is an entry of variants.json, which testdata/variants.py writes.
type variant struct {
	Name    string     `json:"name"`
	Files   []string   `json:"files"`   // patterns in the folder variants
	Table   bool       `json:"table"`   // the files are Parquet or Arrow
	Columns []string   `json:"columns"` // NAME or NAME=FIELD; nil: all columns
	Fields  []string   `json:"fields"`
	Rows    [][]string `json:"rows"`  // label and values
	Error   string     `json:"error"` // part of the error; "" if the files are imported
}

// Files of the current releases of pandas, polars, pyarrow and DuckDB are imported with
// every value as it was, or are refused with an error of one line.
func TestVariants(t *testing.T) {
	data, err := os.ReadFile("testdata/variants.json")
	if err != nil {
		t.Fatal(err)
	}
	var variants []variant
	if err := json.Unmarshal(data, &variants); err != nil {
		t.Fatal(err)
	}
	if len(variants) < 100 {
		t.Errorf("%d variants, expected at least 100", len(variants))
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			config := RawConfig{Split: "1:0:0", MinCount: 1, Workers: 2, Out: filepath.Join(t.TempDir(), "out")}
			for _, pattern := range v.Files {
				files, err := filepath.Glob(filepath.Join("testdata", "variants", filepath.FromSlash(pattern)))
				if err != nil || len(files) == 0 {
					t.Fatalf("no files %s, %v", pattern, err)
				}
				config.Files = append(config.Files, files...)
			}
			if v.Table {
				config.Format = Tables()
			}
			for _, text := range v.Columns {
				name, as, _ := strings.Cut(text, "=")
				config.Format.Columns = append(config.Format.Columns, Column{name, as})
			}
			_, err := ImportRaw(t.Context(), config)
			if v.Error != "" {
				if !fault.IsInput(err) || !strings.Contains(err.Error(), v.Error) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), filepath.FromSlash(strings.TrimRight(v.Files[0], "*"))) {
					t.Errorf("error %v\nwant bad input with %q", err, v.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			fields, rows := stringsOf(t, config.Out)
			if !slices.Equal(fields, v.Fields) {
				t.Fatalf("fields %q, want %q", fields, v.Fields)
			}
			for i := range max(len(rows), len(v.Rows)) {
				if i >= len(rows) || i >= len(v.Rows) || !slices.Equal(rows[i], v.Rows[i]) {
					t.Fatalf("%d rows, want %d; they differ from row %d: %q, want %q", len(rows), len(v.Rows), i, rows[min(i, len(rows)-1):], v.Rows[min(i, len(v.Rows)-1):])
				}
			}
		})
	}
}

// stringsOf returns the fields of a dataset of raw values, and the label and the values of
// the rows of train.
func stringsOf(t *testing.T, dir string) (fields []string, rows [][]string) {
	t.Helper()
	d := open(t, dir)
	values := make([][]string, len(d.Fields()))
	offset := 0
	offsets := make([]int, len(values))
	for j, f := range d.Manifest.Fields {
		var err error
		if values[j], err = d.Vocabulary(j); err != nil {
			t.Fatal(err)
		}
		offsets[j] = offset
		offset += f.Size
	}
	all := rowsOf(t, d, 1000, dataset.Train)
	for i, label := range all.Label {
		row := []string{strconv.Itoa(int(label))}
		for j := range values {
			row = append(row, values[j][int(all.Features[i*len(values)+j])-offsets[j]])
		}
		rows = append(rows, row)
	}
	return d.Fields(), rows
}

// A vocabulary that Polars or pandas wrote has all its values, in each format.
func TestVariantsOfMappers(t *testing.T) {
	paths, err := filepath.Glob("testdata/variants/mappers/*")
	if err != nil || len(paths) < 6 {
		t.Fatalf("mappers %q, %v", paths, err)
	}
	for _, path := range paths {
		mapper, err := ReadVocabulary(path, 1<<28, "")
		if err != nil {
			t.Error(err)
			continue
		}
		out := filepath.Join(t.TempDir(), "out")
		summary, err := ImportRaw(t.Context(), RawConfig{Files: []string{"testdata/variants/pandas.csv"}, Vocabulary: mapper, Split: "1:0:0", Out: out})
		if err != nil || summary.Unseen[0]+summary.Unseen[1] != 0 {
			t.Errorf("%s: %v unseen, %v", path, summary, err)
			continue
		}
		_, rows := stringsOf(t, out)
		if want := []string{"1", "a \"b\" c", "12"}; len(rows) != 6 || !slices.Equal(rows[4], want) {
			t.Errorf("%s: rows %q, want %q in row 4", path, rows, want)
		}
	}
}
