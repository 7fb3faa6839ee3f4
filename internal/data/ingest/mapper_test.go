package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/dataset"
	"shaver/internal/data/rawtext"
	"shaver/internal/value/tally"
)

// With the vocabulary of a dataset, the same rows give the same dataset, and values in
// other rows get the same ids. Values that are not in the vocabulary are counted.
func TestFrozenVocabulary(t *testing.T) {
	s := shapes(t, 1500, "criteo")[0]
	dir := t.TempDir()
	config := RawConfig{Format: s.format, Files: s.files(t, 1, plain), MinCount: 10, Out: filepath.Join(dir, "made")}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	made := open(t, config.Out)
	var err error
	if config.Vocabulary, err = ReadVocabulary(config.Out, DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	config.Sizes, config.Out = made.FieldDims(), filepath.Join(dir, "again")
	summary, err := ImportRaw(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	again := open(t, config.Out)
	if again.MinCount != 0 || !reflect.DeepEqual(again.Splits, made.Splits) || !reflect.DeepEqual(again.Manifest.Vocabulary, made.Manifest.Vocabulary) || again.Manifest.Frequencies != made.Manifest.Frequencies {
		t.Errorf("%+v\nis not\n%+v", again.Manifest, made.Manifest)
	}
	all, err := made.Frequencies()
	if err != nil {
		t.Fatal(err)
	}
	for j, at := 0, 0; j < len(made.FieldDims()); j++ {
		at += made.FieldDims()[j]
		if summary.Unseen[j] != all[at-1] {
			t.Errorf("field %d: %d unseen values, want %d", j, summary.Unseen[j], all[at-1])
		}
	}
	// Import other rows with a mapper in a file that numbers the values in a different order.
	var text strings.Builder
	text.WriteString("field,value,id\n")
	ids := make([]map[string]int, len(made.FieldDims()))
	for j, name := range made.Fields() {
		values, err := made.Vocabulary(j)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(values)
		ids[j] = map[string]int{}
		for id, value := range values {
			fmt.Fprintf(&text, "%s,%s,%d\n", name, value, id)
			ids[j][value] = id
		}
	}
	path := filepath.Join(dir, "mapper.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if config.Vocabulary, err = ReadVocabulary(path, DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	day := shapes(t, 1700, "criteo")[0]
	config.Files, config.Out, config.Split = day.files(t, 3, plain), filepath.Join(dir, "day"), "1:0:0"
	if summary, err = ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, open(t, config.Out), 10_000)
	unseen := make([]int64, len(ids))
	for i, record := range day.records[1:] {
		at := 0
		for j, value := range record[1:] {
			id, ok := ids[j][value]
			if !ok {
				id = made.FieldDims()[j] - 1
				unseen[j]++
			}
			if got := rows.Row(i)[j]; int(got) != at+id {
				t.Fatalf("row %d, field %d: %q has the id %d, want %d", i, j, value, got, at+id)
			}
			at += made.FieldDims()[j]
		}
	}
	if !slices.Equal(unseen, summary.Unseen) {
		t.Errorf("unseen %v, want %v", summary.Unseen, unseen)
	}
	// Sizes that are not those of the model are refused, and the error names both.
	config.Out, config.Sizes = filepath.Join(dir, "x"), slices.Clone(config.Sizes)
	config.Sizes[4]++
	_, err = ImportRaw(t.Context(), config)
	size := made.FieldDims()[4]
	wantInput(t, err, fmt.Sprintf("field 4 (I5) has %d values, hence %d features, but the model has %d", size-1, size, size+1))
	config.Sizes = config.Sizes[:38]
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, "but the model has 38: choose the columns")
	config.Sizes, config.Format = nil, KDD()
	config.Files = shapes(t, 10, "kdd")[0].files(t, 1, plain)
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, `the vocabulary has no field "impressions"`)
	_, err = ReadVocabulary(t.TempDir(), DefaultMemory, "")
	wantInput(t, err, "is not a dataset")
}

// The vocabulary of the flights data gives the fields and sizes of its model.
func testFlightsMapper(t *testing.T) {
	fields, sizes := vocabularyOfFlights(t)
	m, err := ReadVocabulary(shared(t, "data", "flights", "vocabulary.json.gz"), DefaultMemory, "")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x")
	_, err = ImportRaw(t.Context(), RawConfig{Files: []string{shared(t, "data", "flights", "flights.raw.tsv.gz")}, Vocabulary: m, Sizes: sizes, Split: "1:0:0", Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if d := open(t, out); !slices.Equal(d.Fields(), fields) || !slices.Equal(d.FieldDims(), sizes) {
		t.Errorf("fields %v, sizes %v", d.Fields(), d.FieldDims())
	}
}

// A value in a table can be longer than a line of text. Such a row is bad, because a
// vocabulary cannot contain the value.
func TestImportTableOfLongValue(t *testing.T) {
	long.Heavy(t)
	names := []string{strings.Repeat("x", rawtext.MaxLine-1), strings.Repeat("y", rawtext.MaxLine)}
	sizes := []int{200, 3}
	a := &model.Architecture{FieldDims: sizes, Dim: 1}
	scores := &tally.Scores{Shape: a.Shape(), Count: make([]int64, 203), Values: tally.NewValues(203)}
	path := filepath.Join(t.TempDir(), "x.parquet")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := columnfile.WriteScoresParquet(file, names, a, scores, func(int) (float64, float64) { return 2, 2 }, nil); err != nil {
		t.Fatal(err)
	}
	format := Tables()
	format.Label, format.From, format.Columns = "id", 5, []Column{{Name: "field"}}
	config := RawConfig{Format: format, Files: []string{path}, Out: filepath.Join(t.TempDir(), "x")}
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, "x.parquet: row 200: column 1 (field): a value of 1048576 bytes, expected fewer than 1048576")
	config.OnBadRow = Skip
	summary, err := ImportRaw(t.Context(), config)
	if err != nil || summary.Skipped != 3 {
		t.Errorf("skipped %v, %v", summary, err)
	}
}

// Arrow and Parquet files are imported. The test uses the rows of a dataset and a scores
// file.
func TestImportTables(t *testing.T) {
	folder := smallDataset(t)
	s := open(t, folder)
	rows := rowsOf(t, s, 1000, dataset.Train)
	records := [][]string{{"label", "a", "bee"}}
	for i := range rows.Len() {
		records = append(records, []string{fmt.Sprint(rows.Label[i]), fmt.Sprint(rows.Row(i)[0]), fmt.Sprint(int(rows.Row(i)[1]) - s.FieldDims()[0])})
	}
	format := Tables()
	format.Columns = []Column{{Name: "a"}, {Name: "b", As: "bee"}}
	config := RawConfig{Format: format, Files: []string{filepath.Join(folder, "train.arrow")}, Out: filepath.Join(t.TempDir(), "x"), Workers: 2, Seed: 4}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	checkBruteForce(t, open(t, config.Out), records, "label", 1, 4, false)

	const n = 150_000 // three row groups
	a := &model.Architecture{FieldDims: []int{7, n - 7}, Dim: 1}
	scores := &tally.Scores{Shape: a.Shape(), Count: make([]int64, n), Values: tally.NewValues(n)}
	records = [][]string{{"label", "count", "field"}}
	for i := range n {
		scores.Count[i] = int64(i % 300)
		name, id := "x", i
		if i >= 7 {
			name, id = "y", i-7
		}
		label := "0"
		if id >= 5 {
			label = "1"
		}
		records = append(records, []string{label, fmt.Sprint(i % 300), name})
	}
	path := filepath.Join(t.TempDir(), "scores.parquet")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := columnfile.WriteScoresParquet(file, []string{"x", "y"}, a, scores, func(int) (float64, float64) { return 2, 2 }, nil); err != nil {
		t.Fatal(err)
	}
	format = Tables()
	format.Label, format.From, format.Columns = "id", 5, []Column{{Name: "count"}, {Name: "field"}}
	for workers := range 2 {
		config = RawConfig{Format: format, Files: []string{path}, MinCount: 2, Out: filepath.Join(t.TempDir(), "x"), Workers: workers + 1, Seed: 4}
		if _, err := ImportRaw(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		checkBruteForce(t, open(t, config.Out), records, "label", 2, 4, false)
	}
	// A file that changes while it is read is an error, even if there is only one scan.
	if config.Vocabulary, err = ReadVocabulary(config.Out, DefaultMemory, ""); err != nil {
		t.Fatal(err)
	}
	config.Workers, config.Out = 1, filepath.Join(t.TempDir(), "x")
	config.Progress = func(int64, int64, int64) { // called after the first row group, when the third is not read yet
		if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}
	if _, err := ImportRaw(t.Context(), config); err == nil || fault.IsInput(err) || !strings.Contains(err.Error(), "the file changed while it was read") {
		t.Errorf("a file that changes during the import: %v", err)
	}
	wantNothing(t, config.Out)
	for _, c := range []struct {
		format Format
		files  []string
		want   string
	}{
		{Tables(), []string{path}, "scores.parquet: no column \"label\" for the label"},
		{Format{Label: "id", tables: true, Columns: []Column{{Name: "nope"}}}, []string{path}, "no column \"nope\""},
		{Format{Label: "id", tables: true, Columns: []Column{{Name: "count"}}}, []string{path}, "row 2: label is \"2\", expected 0 or 1"},
		{Tables(), []string{write(t, "")}, "the file is empty"},
		{Tables(), []string{write(t, "label,a\n0,1\n")}, "a text file, expected a Parquet or Arrow file: shaver dataset import csv reads text"},
	} {
		config := RawConfig{Format: c.format, Files: c.files, Out: filepath.Join(t.TempDir(), "x")}
		_, err := ImportRaw(t.Context(), config)
		wantInput(t, err, c.want)
		wantNothing(t, config.Out)
	}
	_, err = ImportRaw(t.Context(), RawConfig{Format: Tables(), Files: []string{Stdin}, Out: filepath.Join(t.TempDir(), "x")})
	wantUsage(t, err, "cannot be read from standard input")
}

// The fields of a model may have other names than those of its mapper, which are the columns of the
// rows. The error about the missing columns says how to name them.
func TestMapperOfColumns(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mapper.json")
	if err := os.WriteFile(path, []byte(`{"user": {"ann": 1, "bob": 0}, "item": {"x": 0, "y": 1, "z": 2}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := ReadVocabulary(path, DefaultMemory, "none")
	if err != nil {
		t.Fatal(err)
	}
	config := RawConfig{
		Files: []string{write(t, "label,user,item\n0,ann,z\n1,bob,x\n")}, Vocabulary: m, Sizes: []int{2, 3}, Split: "1:0:0", Out: filepath.Join(dir, "out"),
	}
	config.Format.Columns = []Column{{Name: "ids[0]"}, {Name: "ids[1]"}}
	_, err = ImportRaw(t.Context(), config)
	wantInput(t, err, `no column "ids[0]": the columns are ["label" "user" "item"]; NAME=ids[0] makes the field of column NAME`)
	config.Format.Columns = []Column{{Name: "user", As: "ids[0]"}, {Name: "item", As: "ids[1]"}}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	d := open(t, config.Out)
	if !slices.Equal(d.Fields(), []string{"ids[0]", "ids[1]"}) || !slices.Equal(d.FieldDims(), config.Sizes) {
		t.Errorf("fields %v, sizes %v", d.Fields(), d.FieldDims())
	}
}

// A table without a column that the import needs is refused with the purpose of the column, also if
// the fields are chosen.
func TestTableWithoutColumn(t *testing.T) {
	path := filepath.Join(smallDataset(t), "train.arrow")
	for what, c := range map[string]struct {
		label, dense, want string
		setting            string
	}{
		"label": {"clicked", "", `no column "clicked" for the label: the columns are [`, LabelSetting},
		"dense": {"", "years", `; NAME=years makes the dense input of column NAME`, DenseSetting},
	} {
		config := RawConfig{Format: Tables(), Files: []string{path}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "x")}
		config.Format.Label = c.label
		config.Format.Columns = []Column{{Name: open(t, filepath.Dir(path)).Fields()[0]}}
		if c.dense != "" {
			config.Format.Dense.Columns = []DenseColumn{{Name: c.dense}}
		}
		_, err := ImportRaw(t.Context(), config)
		wantInput(t, err, c.want)
		if !slices.Contains(fault.Settings(err), c.setting) {
			t.Errorf("%s: the error does not name the setting: %v", what, err)
		}
	}
}
