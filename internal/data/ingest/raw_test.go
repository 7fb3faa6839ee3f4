package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/dataset"
	"shaver/internal/num/random"
)

// bruteForce encodes raw records in the simplest way. The first record is the header. If
// all is false, only the rows of train count for minCount.
func bruteForce(records [][]string, label string, minCount int, seed uint64, all bool) (sizes []int, values [][]string, rows map[string][][]int32, labels map[string][]float32) {
	at := slices.Index(records[0], label)
	split := func(i int) string {
		stream := random.At(seed, random.Split, uint64(i), 0)
		switch x := stream.Below(10); {
		case x < 8:
			return dataset.Train
		case x < 9:
			return dataset.Val
		}
		return dataset.Test
	}
	rows, labels = map[string][][]int32{}, map[string][]float32{}
	offset := 0
	encoded := make([][]int32, len(records)-1)
	for column := range records[0] {
		if column == at {
			continue
		}
		counts := map[string]int{}
		for i, record := range records[1:] {
			if all || split(i) == dataset.Train {
				counts[record[column]]++
			}
		}
		maps.DeleteFunc(counts, func(_ string, count int) bool { return count < minCount })
		sorted := slices.Sorted(maps.Keys(counts))
		for i, record := range records[1:] {
			id, ok := slices.BinarySearch(sorted, record[column])
			if !ok {
				id = len(sorted)
			}
			encoded[i] = append(encoded[i], int32(offset+id))
		}
		offset += len(sorted) + 1
		sizes, values = append(sizes, len(sorted)+1), append(values, sorted)
	}
	for i, record := range records[1:] {
		rows[split(i)] = append(rows[split(i)], encoded[i])
		labels[split(i)] = append(labels[split(i)], float32(record[at][0]-'0'))
	}
	return sizes, values, rows, labels
}

// checkBruteForce checks that a dataset has the ids, values and rows of bruteForce.
func checkBruteForce(t *testing.T, d *dataset.Dataset, records [][]string, label string, minCount int, seed uint64, all bool) {
	t.Helper()
	sizes, values, rows, labels := bruteForce(records, label, minCount, seed, all)
	if !slices.Equal(d.FieldDims(), sizes) {
		t.Fatalf("sizes %v, want %v", d.FieldDims(), sizes)
	}
	for j := range values {
		got, err := d.Vocabulary(j)
		if err != nil || !slices.Equal(got, values[j]) {
			t.Errorf("field %d has a wrong vocabulary, %v", j, err)
		}
	}
	for _, split := range dataset.SplitNames[:3] {
		got := rowsOf(t, d, 1000, split)
		if !slices.Equal(got.Label, labels[split]) || !slices.Equal(got.Features, slices.Concat(rows[split]...)) {
			t.Errorf("%s has wrong rows", split)
		}
	}
}

func testImportRawFlights(t *testing.T) {
	path := shared(t, "data", "flights", "flights.raw.tsv.gz")
	out := filepath.Join(t.TempDir(), "flights")
	summary, err := ImportRaw(t.Context(), RawConfig{Files: []string{path}, MinCount: 2, Seed: 11, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	var records [][]string
	for line := range strings.Lines(string(text)) {
		records = append(records, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	d := open(t, out)
	if d.Digest() != summary.Digest {
		t.Error("the summary does not describe this dataset")
	}
	checkBruteForce(t, d, records, "label", 2, 11, false)
	// The sizes differ from those of the model, because its split is different. They are
	// close, because nearly all values are frequent.
	_, sizes := vocabularyOfFlights(t)
	for j, size := range d.FieldDims() {
		if size < sizes[j]*98/100 || size > sizes[j]*102/100 {
			t.Errorf("field %d has size %d, expected about %d", j, size, sizes[j])
		}
	}
}

// odd returns random records whose values contain special characters, and their text.
func odd(t testing.TB, comma bool) (text string, records [][]string) {
	values := []string{"", "a", "b\\n", `\`, "x y", " x", "é", "0", "-1", "zz"}
	if comma {
		values = append(values, "a,b", `quote"s`, "two\nlines", "tab\there")
	} else {
		values = append(values, "a,b", `"`, `quote"s`)
	}
	random := rand.New(rand.NewPCG(4, 4))
	records = [][]string{{"first", "click", `odd name é/..`}}
	for range 500 {
		records = append(records, []string{values[random.IntN(len(values))], []string{"0", "1"}[random.IntN(2)], values[random.IntN(len(values))]})
	}
	var out bytes.Buffer
	if comma {
		if err := csv.NewWriter(&out).WriteAll(records); err != nil {
			t.Fatal(err)
		}
	} else {
		for _, record := range records {
			fmt.Fprintln(&out, strings.Join(record, "\t"))
		}
	}
	return out.String(), records
}

func TestImportRawOddValues(t *testing.T) {
	for _, comma := range []bool{false, true} {
		for _, minCount := range []int64{0, 30} {
			text, records := odd(t, comma)
			config := RawConfig{Files: []string{write(t, text)}, Format: Format{Label: "click"}, MinCount: minCount, Seed: 2, Out: filepath.Join(t.TempDir(), "x")}
			if _, err := ImportRaw(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			d := open(t, config.Out)
			checkBruteForce(t, d, records, "click", int(max(minCount, 1)), 2, false)
			// The same rows in two files give the same dataset.
			lines := strings.SplitAfter(text, "\n")
			if comma {
				continue
			}
			config.Files = []string{write(t, strings.Join(lines[:100], "")), write(t, lines[0]+strings.Join(lines[100:], ""))}
			config.Out = filepath.Join(t.TempDir(), "x")
			if _, err := ImportRaw(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			checkBruteForce(t, open(t, config.Out), records, "click", int(max(minCount, 1)), 2, false)
		}
	}
}

func TestImportRawIsDeterministic(t *testing.T) {
	text, _ := odd(t, true)
	var all []string
	for range 2 {
		out := filepath.Join(t.TempDir(), "x")
		if _, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, text)}, Format: Format{Label: "click"}, Out: out}); err != nil {
			t.Fatal(err)
		}
		all = append(all, folderBytes(t, out))
	}
	if all[0] != all[1] {
		t.Error("the same import gave different bytes")
	}
	for _, name := range []string{"vocabulary/0-first.txt", "vocabulary/1-odd_name_____.txt"} {
		if !strings.Contains(all[0], filepath.FromSlash(name)+"\n") {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestImportRawRefuses(t *testing.T) {
	good := "label,a\n" + strings.Repeat("0,x\n1,y\n", 100)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"header only", "label,a\n", "a header and no rows"},
		{"no label", "click,a\n0,1\n", `rows.csv:1: no column "label" for the label`},
		{"two labels", "label,a,label\n0,x,0\n", `rows.csv:1: two columns "label" for the label`},
		{"name in Latin 1", "label,caf\xe9\n" + good[8:], `rows.csv:1: field 0 has the name "caf\xe9", which is not UTF-8`},
		{"one column", "label\n0\n", "rows.csv:1: 1 column"},
		{"name", "label,a,row\n0,1,1\n", `rows.csv:1: field 1 has the name "row"`},
		{"columns", good + "0,1,2\n", "rows.csv:202: 3 columns, expected 2"},
		{"label", good + "yes,1\n", `rows.csv:202: label is "yes"`},
		{"NUL", good + "0,\x00\n", "rows.csv:202: column 1 (a): NUL byte"},
		{"bare quote", good + "0,a\"b\"\n", `rows.csv:202: not CSV: bare "`},
		{"open quote", good + "0,\"b\n0,c\n", "rows.csv:202: a quote is opened and not closed"},
		{"second line of a record", good + "0,\"b\n\",c\n", "rows.csv:202: 3 columns, expected 2"},
		{"empty split", "label,a\n0,x\n", "has no rows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "x")
			_, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, c.text)}, Out: out})
			wantInput(t, err, c.want)
			wantNothing(t, out)
		})
	}
	out := filepath.Join(t.TempDir(), "x")
	_, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, "label,a,a\n0,x,y\n")}, Format: Format{Columns: []Column{{Name: "a"}}}, Out: out})
	wantInput(t, err, `rows.csv:1: two columns "a"`)
	summary, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, good+"0,\"b\n\",c\n2,y\n")}, OnBadRow: Skip, Out: out})
	if err != nil || summary.Skipped != 3 || len(summary.Bad) != 2 {
		t.Errorf("skipped %+v, %v", summary, err)
	}
}

// Writing the vocabulary may take long, so it stops when ctx ends.
func TestWriteVocabularyStops(t *testing.T) {
	b, err := newBuilder(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.abort()
	ctx, cancel := context.WithCancel(t.Context())
	values := 0
	_, err = b.writeVocabulary(ctx, &dataset.Manifest{}, []string{"a"}, 1, func(_ int, visit func([]byte, bool) error) error {
		for ; values < 1_000_000; values++ {
			if values == 5000 {
				cancel()
			}
			if err := visit(fmt.Append(nil, values), true); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || values > 10_000 {
		t.Errorf("after %d values: %v", values, err)
	}
}

// Files of val and test are those splits, and train alone makes the vocabulary. The counts of an
// import that was cut off are those of its own files only.
func TestRawSplitsGiven(t *testing.T) {
	train, val, test := write(t, "label,city\n1,Oslo\n0,Rome\n1,Oslo\n"), write(t, "label,city\n0,Paris\n"), write(t, "label,city\n1,Rome\n0,Bonn\n")
	out := filepath.Join(t.TempDir(), "data")
	config := RawConfig{Files: []string{train}, Val: []string{val}, Test: []string{test}, Out: out, Workers: 2}
	summary, err := ImportRaw(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int64{}
	for _, s := range summary.Splits {
		rows[s.Name] = s.Rows
	}
	words, err := d.Vocabulary(0)
	if want := map[string]int64{dataset.Train: 3, dataset.Val: 1, dataset.Test: 2}; err != nil || !maps.Equal(rows, want) || !slices.Equal(words, []string{"Oslo", "Rome"}) || summary.Division != nil {
		t.Errorf("splits %v, values %q, division %v: %v", rows, words, summary.Division, err)
	}

	// The same rows in one file with the positions of splits give the same ids.
	config.Vocabulary, err = ReadVocabulary(out, 1<<30, "")
	if err != nil {
		t.Fatal(err)
	}
	config.Out = filepath.Join(t.TempDir(), "again")
	again, err := ImportRaw(t.Context(), config)
	if err != nil || !slices.EqualFunc(again.Splits, summary.Splits, func(a, b dataset.Split) bool { return a.File == b.File }) {
		t.Errorf("with its vocabulary: %v, %v", again, err)
	}

	config.Split, config.Out = "8:1:1", filepath.Join(t.TempDir(), "both")
	if _, err := ImportRaw(t.Context(), config); err == nil || !slices.Equal(fault.Settings(err), []string{SplitSetting}) {
		t.Errorf("files of splits and a ratio: %v", err)
	}
}
