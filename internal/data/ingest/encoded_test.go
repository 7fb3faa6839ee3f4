package ingest

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/data/dataset"
	"shaver/internal/data/rawtext"
)

const small = "label,a,b\n1,0,2\n0,3,1\n1,1,0\n"

func TestImportEncodedForms(t *testing.T) {
	want := &model.Rows{Width: 2, Number: []int64{0, 1, 2}, Label: []float32{1, 0, 1}, Features: []int32{0, 6, 3, 5, 1, 4}}
	globals := "label,a,b\n1,0,6\n0,3,5\n1,1,4\n"
	for _, c := range []struct {
		name, text string
		sizes      []int
		global     bool
		fields     []string
	}{
		{name: "plain", text: small},
		{name: "sizes", text: small, sizes: []int{4, 3}},
		{name: "global", text: globals, sizes: []int{4, 3}, global: true},
		{name: "tabs", text: strings.ReplaceAll(small, ",", "\t")},
		{name: "gzip", text: gzipped(t, small)},
		{name: "gzip of several members", text: gzipped(t, small[:14]) + gzipped(t, small[14:])},
		{name: "zstd", text: zstded(t, small)},
		{name: "Windows", text: strings.ReplaceAll(small, "\n", "\r\n")},
		{name: "no last line end", text: strings.TrimSpace(small)},
		{name: "byte order mark", text: "\xef\xbb\xbf" + small},
		{name: "quoted header", text: strings.Replace(small, "label,a,b", `"click","a","b"`, 1)},
		{name: "no header", text: small[len("label,a,b\n"):], fields: []string{"f0", "f1"}},
		{name: "no header, byte order mark", text: "\xef\xbb\xbf" + small[len("label,a,b\n"):], fields: []string{"f0", "f1"}},
		{name: "leading zeros", text: strings.Replace(small, "3,1", "003,01", 1)},
		{name: "floats", text: "label,a,b\n1.0,0.0,2\n0.0,3,1.0\n1.0,1.0,0.0\n"},
		{name: "floats without header", text: "1.0,0.0,2\n0.0,3,1.0\n1.0,1.0,0.0\n", fields: []string{"f0", "f1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "dataset")
			summary, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{write(t, c.text)}, Sizes: c.sizes, Global: c.global, Out: out})
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, out)
			if got := rowsOf(t, d, 2); !reflect.DeepEqual(got, want) {
				t.Errorf("rows %+v", got)
			}
			if c.fields == nil {
				c.fields = []string{"a", "b"}
			}
			if !slices.Equal(d.Fields(), c.fields) || !slices.Equal(d.FieldDims(), []int{4, 3}) {
				t.Errorf("fields %v, sizes %v", d.Fields(), d.FieldDims())
			}
			if d.Digest() != summary.Digest || !reflect.DeepEqual(d.Manifest, summary.Manifest) {
				t.Errorf("the summary does not describe this dataset")
			}
			if d.Rows(dataset.Train) != 3 || d.Splits[0].Name != dataset.Train || *d.Splits[0].Positives != 2 || d.Rows(dataset.Val) != 0 {
				t.Errorf("splits %+v", d.Splits)
			}
			counts, err := d.Frequencies()
			if err != nil || !slices.Equal(counts, []int64{1, 1, 0, 1, 1, 1, 1}) {
				t.Errorf("frequencies %v, %v", counts, err)
			}
		})
	}
}

func TestImportEncodedRefuses(t *testing.T) {
	long := "label,a\n0,1\n0," + strings.Repeat("1", rawtext.MaxLine)
	for _, c := range []struct {
		name, text string
		config     EncodedConfig
		want       string
	}{
		{"empty", "", EncodedConfig{}, "the file is empty"},
		{"header only", "label,a\n", EncodedConfig{}, "a header and no rows"},
		{"one column", "label\n0\n", EncodedConfig{}, "rows.csv:1: 1 column"},
		{"half a header", "label,1\n0,1\n", EncodedConfig{}, "rows.csv:1: 1 of 2 columns are integers"},
		{"names twice", "label,a,a\n0,1,1\n", EncodedConfig{}, `rows.csv:1: fields 0 and 1 have the same name "a"`},
		{"unnamed", "label,,a\n0,1,1\n", EncodedConfig{}, "rows.csv:1: column 2 of 3 has no name: name it"},
		{"index", ",click,a\n0,1,1\n", EncodedConfig{}, "rows.csv:1: column 1 of 3 has no name: name it"},
		{"folder", "", EncodedConfig{Train: []string{"testdata/variants/hive-disagrees"}}, "the folder's name gives the column \"day\", but encoded rows have only ids"},
		{"standard input", "", EncodedConfig{Train: []string{Stdin}}, "-: no such file: encoded rows are not read from standard input"},
		{"label", small + "2,0,0\n", EncodedConfig{}, `rows.csv:5: label is "2", expected 0 or 1`},
		{"label of another column", "user,click\n7,1\n", EncodedConfig{}, `rows.csv:2: the label, which is the first column, "user", is "7", expected 0 or 1`},
		{"order", small, EncodedConfig{Sizes: []int{3, 4}, Names: []string{"b", "a"}}, `rows.csv:1: the columns of the fields are ["a" "b"], expected the order of the model's fields, ["b" "a"]`},
		{"place of another field", small, EncodedConfig{Sizes: []int{3, 4}, Names: []string{"b", "c"}}, `rows.csv:1: the columns of the fields are ["a" "b"], expected the order of the model's fields, ["b" "c"]`},
		{"missing column", small, EncodedConfig{Sizes: []int{3, 4, 5}, Names: []string{"a", "b", "c"}}, `rows.csv:1: the file has 2 fields, expected 3: there is no column ["c"]`},
		{"other names", small, EncodedConfig{Sizes: []int{3, 4, 5}, Names: []string{"x[0]", "x[1]", "x[2]"}}, `rows.csv:1: the file has 2 fields, expected 3`},
		{"extra column", small, EncodedConfig{Sizes: []int{3}, Names: []string{"b"}}, `rows.csv:1: column "a" is not a field of the model, whose fields are ["b"]: leave the column out, or make it a dense input`},
		{"columns", small + "0,1\n", EncodedConfig{}, "rows.csv:5: 2 columns, expected 3"},
		{"quotes", small + "0,1,\"[1, 2]\"\n", EncodedConfig{}, "rows.csv:5: 4 columns, expected 3: quotes have no meaning in rows of ids, so no cell may contain ','"},
		{"more columns", small + "0,1,1,1\n", EncodedConfig{}, "rows.csv:5: 4 columns, expected 3"},
		{"empty line", small + "\n0,1,1\n", EncodedConfig{}, "rows.csv:5: the line is empty"},
		{"empty value", small + "0,,1\n", EncodedConfig{}, "rows.csv:5: field 0 (a): empty value"},
		{"no integer", small + "0,1,x7\n", EncodedConfig{}, `rows.csv:5: field 1 (b): "x7" is not an integer`},
		{"space", small + "0,1, 7\n", EncodedConfig{}, `rows.csv:5: field 1 (b): " 7" is not an integer`},
		{"negative", small + "0,-1,1\n", EncodedConfig{}, "rows.csv:5: field 0 (a): id -1 is negative"},
		{"NUL", small + "0,1,\x00\n", EncodedConfig{}, "rows.csv:5: column b: NUL byte"},
		{"huge", small + "0,1,2147483647\n", EncodedConfig{}, "rows.csv:5: field 1 (b): id 2147483647 is outside [0,2147483647)"},
		{"local range", small, EncodedConfig{Sizes: []int{4, 2}}, "rows.csv:2: field 1 (b): id 2 is outside [0,2), because ids count from 0"},
		{"local range of global ids", "label,a,date\n1,0,5\n1,4,6\n", EncodedConfig{Sizes: []int{5, 4}}, "rows.csv:2: field 1 (date): id 5 is outside [0,4): all ids up to here fit if they are global"},
		{"global range", "label,a,date\n1,0,5\n1,0,9\n", EncodedConfig{Sizes: []int{5, 4}, Global: true}, "rows.csv:3: field 1 (date): id 9 is outside [5,9)"},
		{"global of another field", "label,a,date\n1,0,4\n", EncodedConfig{Sizes: []int{5, 4}, Global: true}, "id 4 is outside [5,9)"},
		{"sizes", small, EncodedConfig{Sizes: []int{4}}, "rows.csv:1: the file has 2 fields, expected 1"},
		{"sum of sizes", "label,a,b\n1,2147483646,1\n", EncodedConfig{}, "field 1 (b) has size 2"},
		{"long line", long, EncodedConfig{}, "rows.csv:3: the line is longer than 1048576 bytes"},
		{"broken gzip", gzipped(t, small+strings.Repeat("1,2,2\n", 50))[:40], EncodedConfig{}, "compressed data are broken: unexpected EOF"},
		{"broken zstd", zstded(t, small+strings.Repeat("1,2,2\n", 50))[:30], EncodedConfig{}, "compressed data are broken"},
		{"other compressed", "PK\x03\x04\x00\x00", EncodedConfig{}, "rows.csv: the file is compressed with zip, expected text, gzip or zstd"},
		{"empty split", small, EncodedConfig{Split: "1:0:1000000", Seed: 3}, "the split train has no rows"},
		{"label elsewhere", "a,b,label\n0,0,1\n", EncodedConfig{}, `rows.csv:1: the first column must be the label, but it is "a", and "label" is column 3`},
		{"global taken for local", "label,a,b,c\n" + strings.Repeat("1,0,2,4\n0,1,3,5\n", 50), EncodedConfig{}, "so they look like global ids: give the sizes of the fields"},
		{"nothing left", "label,a\n0,x\n", EncodedConfig{OnBadRow: Skip}, "no valid rows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.config.Train == nil {
				c.config.Train = []string{write(t, c.text)}
			}
			c.config.Out = filepath.Join(t.TempDir(), "dataset")
			_, err := ImportEncoded(t.Context(), c.config)
			wantInput(t, err, c.want)
			wantNothing(t, c.config.Out)
		})
	}
}

func TestImportEncodedOfSeveralFiles(t *testing.T) {
	train, val := write(t, small), write(t, "label,a,b\n0,9,9\n")
	out := filepath.Join(t.TempDir(), "dataset")
	if _, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{train, train}, Test: []string{val}, Out: out}); err != nil {
		t.Fatal(err)
	}
	d := open(t, out)
	if !slices.Equal(d.SplitNames(), []string{dataset.Train, dataset.Test}) || !slices.Equal(d.FieldDims(), []int{10, 10}) || len(d.Sources) != 3 {
		t.Errorf("%+v", d.Manifest)
	}
	// Row numbers do not depend on which splits are read.
	if got := rowsOf(t, d, 5, dataset.Test); !slices.Equal(got.Number, []int64{6}) || !slices.Equal(got.Features, []int32{9, 19}) {
		t.Errorf("test rows %+v", got)
	}
	if got := rowsOf(t, d, 5, dataset.Test, dataset.Train).Number; !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("row numbers %v", got)
	}
	if counts, err := d.Frequencies(dataset.Test); err != nil || counts[9] != 1 || counts[0] != 0 {
		t.Errorf("frequencies %v, %v", counts, err)
	}
	if _, err := d.Frequencies(dataset.Val); !fault.IsUsage(err) {
		t.Errorf("frequencies of a missing split: %v", err)
	}
	for _, c := range []struct{ text, want string }{
		{"label,a,c\n0,1,1\n", `:1: the columns are ["label" "a" "c"], but the earlier files have`},
		{"label,a\n0,1\n", ":1: 2 columns, but the first file has 3"},
		{"0,1,1\n", ":1: only some of the files have a header"},
	} {
		_, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{train}, Val: []string{write(t, c.text)}, Out: filepath.Join(t.TempDir(), "x")})
		wantInput(t, err, c.want)
	}
}

func TestImportEncodedUsage(t *testing.T) {
	file, dir := write(t, small), t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	one := []string{file}
	for _, c := range []struct {
		config EncodedConfig
		want   string
	}{
		{EncodedConfig{Out: empty}, "no file for the split train"},
		{EncodedConfig{Train: one}, "no folder is given"},
		{EncodedConfig{Train: one, Out: full}, "not empty"},
		{EncodedConfig{Train: one, Out: file}, "is not a folder"},
		{EncodedConfig{Train: one, Out: filepath.Join(dir, "no", "where")}, "does not exist"},
		{EncodedConfig{Train: one, Out: empty, Global: true}, "global ids need the sizes"},
		{EncodedConfig{Train: one, Val: one, Out: empty, Split: "8:1:1"}, "one file"},
		{EncodedConfig{Train: one, Out: empty, Split: "8:1"}, `split is "8:1"`},
		{EncodedConfig{Train: one, Out: empty, Split: "0:0:0"}, `split is "0:0:0"`},
		{EncodedConfig{Train: one, Out: empty, OnBadRow: "guess"}, "guess"},
	} {
		_, err := ImportEncoded(t.Context(), c.config)
		wantUsage(t, err, c.want)
	}
	if _, err := ImportEncoded(t.Context(), EncodedConfig{Train: one, Out: empty}); err != nil {
		t.Errorf("into an empty folder: %v", err)
	}
	_, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{filepath.Join(dir, "none.csv")}, Out: filepath.Join(dir, "x")})
	wantInput(t, err, "none.csv: no such file")
}

// The rows, the messages about bad rows and the first error are those in the order of the input, however many goroutines
// parse it and however it is cut into files.
func TestImportEncodedInOrder(t *testing.T) {
	const header, n = "label,user,x,items\n", 90_000 // several blocks
	rows := func(first, last int, bad ...int) string {
		var text strings.Builder
		text.WriteString(header)
		for i := first; i < last; i++ {
			x := strconv.Itoa(i % 97)
			if slices.Contains(bad, i) {
				x = "?" + x
			}
			fmt.Fprintf(&text, "%d,%d,%s,%d|%d\n", i/3%2, i%1000, x, i%7, i*i%50)
		}
		return text.String()
	}
	config := EncodedConfig{Dense: Dense{Columns: denseColumns("x:zscore")}, Lists: Lists{Columns: []ListColumn{{Name: "items", Length: 3}}}}
	read := func(procs int, policy string, texts ...string) (*Summary, *model.Rows, error) {
		t.Helper()
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		config.Train, config.OnBadRow, config.Out = rowFiles(t, ".csv", texts...), policy, filepath.Join(t.TempDir(), "x")
		summary, err := ImportEncoded(t.Context(), config)
		if err != nil {
			return nil, nil, err
		}
		return summary, rowsWith(t, open(t, config.Out)), nil
	}
	bad := []int{5, 30_000, 60_000, 89_999}
	want, wantRows, err := read(1, Skip, rows(0, n, bad...))
	if err != nil {
		t.Fatal(err)
	}
	for i, message := range want.Bad {
		if line := fmt.Sprintf(":%d: ", bad[i]+2); !strings.Contains(message, line) || len(want.Bad) != len(bad) || want.Skipped != 4 {
			t.Errorf("message %q, expected line %s", message, line)
		}
	}
	for procs, texts := range map[int][]string{4: {rows(0, n, bad...)}, 3: {rows(0, 7, bad...), rows(7, 50_000, bad...), rows(50_000, n, bad...)}} {
		summary, got, err := read(procs, Skip, texts...)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, wantRows) || len(texts) == 1 && (summary.Digest != want.Digest || len(summary.Bad) != len(bad)) {
			t.Errorf("%d goroutines and %d files give other rows", procs, len(texts))
		}
	}
	_, _, err = read(4, Fail, rows(0, n, bad[1:]...))
	wantInput(t, err, `part-0.csv:30002: column x: "?27" is not a finite number`)
}

// An error says that ids may be global if all up to the bad row would fit as such, in all blocks of its file.
func TestGlobalIDsAsLocal(t *testing.T) {
	const n = 100_000 // several blocks
	rows := func(odd int) string {
		var text strings.Builder
		text.WriteString("label,a,b\n")
		for i := range n {
			b := 10 + i%(n-10)
			switch i {
			case odd:
				b = 0 // no global id
			case n - 1:
				b = n + 5
			}
			fmt.Fprintf(&text, "%d,%d,%d\n", i%2, i%10, b)
		}
		return text.String()
	}
	for name, c := range map[string]struct {
		files []string
		hint  bool
	}{
		"all fit":            {[]string{rows(-1)}, true},
		"one does not":       {[]string{rows(n - 2)}, false},
		"the first does not": {[]string{rows(0)}, false},
		"another file":       {[]string{"label,a,b\n0,1,1\n", rows(-1)}, true},
	} {
		config := EncodedConfig{Train: rowFiles(t, ".csv", c.files...), Sizes: []int{10, n}, Out: filepath.Join(t.TempDir(), "x")}
		_, err := ImportEncoded(t.Context(), config)
		wantInput(t, err, fmt.Sprintf(".csv:%d: field 1 (b): id %d is outside [0,%d)", n+1, n+5, n))
		config.OnBadRow = Skip
		summary, skipped := ImportEncoded(t.Context(), config)
		if skipped != nil || len(summary.Bad) != 1 {
			t.Fatalf("%s: %v, %v", name, summary, skipped)
		}
		for _, text := range []string{err.Error(), summary.Bad[0]} {
			if strings.Contains(text, "all ids up to here fit if they are global") != c.hint {
				t.Errorf("%s: %s", name, text)
			}
		}
		if hinted := slices.Contains(fault.Settings(err), IDsSetting); hinted != c.hint {
			t.Errorf("%s: settings %q", name, fault.Settings(err))
		}
	}
}

// A single huge id is refused, because it would take too much memory. With explicit sizes
// it is valid.
func TestImportEncodedImplausibleID(t *testing.T) {
	config := EncodedConfig{Train: []string{write(t, "label,a,b\n0,5,1\n1,3,17000000\n")}, Out: filepath.Join(t.TempDir(), "dataset")}
	_, err := ImportEncoded(t.Context(), config)
	wantInput(t, err, "field 1 (b): the largest id is 17000000, in only 2 rows")
	wantNothing(t, config.Out)
	config.Sizes = []int{6, 17_000_001}
	if _, err := ImportEncoded(t.Context(), config); err != nil {
		t.Error(err)
	}
}

func TestImportEncodedSkips(t *testing.T) {
	var text strings.Builder
	text.WriteString("label,a\n")
	for i := range 20 {
		fmt.Fprintf(&text, "%d,%d\n0,x%d\n", i%2, i, i)
	}
	out := filepath.Join(t.TempDir(), "dataset")
	summary, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{write(t, text.String())}, OnBadRow: Skip, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if summary.Skipped != 20 || len(summary.Bad) != 5 || !strings.HasSuffix(summary.Bad[1], `rows.csv:5: field 0 (a): "x1" is not an integer`) {
		t.Errorf("skipped %d: %q", summary.Skipped, summary.Bad)
	}
	if d := open(t, out); d.Skipped != 20 || d.Rows(dataset.Train) != 20 {
		t.Errorf("%d rows, %d skipped", d.Rows(dataset.Train), d.Skipped)
	}
}

// The split of a row depends only on the seed and the row's position. About 8 of 10 rows
// are in train. Two equal imports give the same bytes.
func TestSplitOfOneFile(t *testing.T) {
	const n = 20_000
	var text strings.Builder
	text.WriteString("label,position\n")
	for i := range n {
		fmt.Fprintf(&text, "%d,%d\n", i%2, i)
	}
	importTo := func(text string, seed uint64, policy string) (string, *dataset.Dataset) {
		out := filepath.Join(t.TempDir(), "dataset")
		_, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{write(t, text)}, Split: "8:1:1", Seed: seed, Sizes: []int{n}, OnBadRow: policy, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		return out, open(t, out)
	}
	dir, d := importTo(text.String(), 5, Fail)
	if again, _ := importTo(text.String(), 5, Fail); folderBytes(t, dir) != folderBytes(t, again) {
		t.Error("the same import gave different bytes")
	}
	if _, other := importTo(text.String(), 6, Fail); d.Digest() == other.Digest() {
		t.Error("a different seed gave the same split")
	}
	for split, want := range map[string]float64{dataset.Train: .8, dataset.Val: .1, dataset.Test: .1} {
		if got := float64(d.Rows(split)) / n; got < want-.012 || got > want+.012 { // 4 standard deviations
			t.Errorf("%s has %.4f of the rows", split, got)
		}
	}
	if *d.Division != (dataset.Division{Ratio: "8:1:1", Seed: 5}) {
		t.Errorf("division %+v", d.Division)
	}
	// A row that is left out does not change the splits of the other rows.
	_, bad := importTo(strings.Replace(text.String(), "\n1,7\n", "\n1,x\n", 1), 5, Skip)
	for _, split := range d.SplitNames() {
		want := slices.DeleteFunc(rowsOf(t, d, n, split).Features, func(g int32) bool { return g == 7 })
		if got := rowsOf(t, bad, n, split).Features; !slices.Equal(got, want) {
			t.Errorf("split %s has different rows", split)
		}
	}
}

func TestImportStops(t *testing.T) {
	file := write(t, small+strings.Repeat("1,2,2\n", 300_000))
	out := filepath.Join(t.TempDir(), "dataset")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var calls int
	var last [3]int64
	progress := func(rows, read, total int64) {
		calls++
		last = [3]int64{rows, read, total}
		if calls == 6 { // in the second scan
			cancel()
		}
	}
	_, err := ImportEncoded(ctx, EncodedConfig{Train: []string{file}, Out: out, Progress: progress})
	if !errors.Is(err, context.Canceled) || calls < 6 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	wantNothing(t, out)
	calls = 100
	if _, err := ImportEncoded(t.Context(), EncodedConfig{Train: []string{file}, Out: out, Progress: progress}); err != nil {
		t.Fatal(err)
	}
	if last[0] != 2*300_003 || last[1] != last[2] {
		t.Errorf("last progress %v", last)
	}
}

func vocabularyOfFlights(t testing.TB) (fields []string, sizes []int) {
	t.Helper()
	file, err := os.Open(shared(t, "data", "flights", "vocabulary.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Fields    []string `json:"fields"`
		FieldDims []int    `json:"field_dims"`
	}
	if err := json.NewDecoder(r).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v.Fields, v.FieldDims
}

// TestFlights imports files of real flights.
func TestFlights(t *testing.T) {
	long.Heavy(t)
	shared(t, "data", "flights")
	t.Run("encoded", testImportFlights)
	t.Run("raw", testImportRawFlights)
	t.Run("mapper", testFlightsMapper)
}

func testImportFlights(t *testing.T) {
	fields, sizes := vocabularyOfFlights(t)
	flights := func(name string) []string { return []string{shared(t, "data", "flights", name+".csv.gz")} }
	out := filepath.Join(t.TempDir(), "flights")
	_, err := ImportEncoded(t.Context(), EncodedConfig{Train: flights("train"), Val: flights("val"), Test: flights("test"), Sizes: sizes, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, out)
	if !slices.Equal(d.Fields(), fields) || !slices.Equal(d.FieldDims(), sizes) || d.Features() != 7813 {
		t.Errorf("fields %v, sizes %v", d.Fields(), d.FieldDims())
	}
	if d.Rows(dataset.Train) != 261_876 || d.Rows(dataset.Val) != 32_735 || d.Rows(dataset.Test) != 32_735 {
		t.Errorf("%d, %d, %d rows", d.Rows(dataset.Train), d.Rows(dataset.Val), d.Rows(dataset.Test))
	}
	if err := fit(d, &model.Architecture{FieldDims: sizes}); err != nil {
		t.Error(err)
	}
	other := slices.Clone(sizes)
	other[5]--
	wantInput(t, fit(d, &model.Architecture{FieldDims: other}), "field 5 (carrier) has 17 features in the dataset and 16 in the model")
	wantInput(t, fit(d, &model.Architecture{FieldDims: sizes[:10]}), " and the model 10")
	got := rowsOf(t, d, 1<<20, dataset.Test)
	if !reflect.DeepEqual(got, slowRows(t, flights("test")[0], sizes, d.Rows(dataset.Train)+d.Rows(dataset.Val))) {
		t.Error("the test rows are not those of the file")
	}
	// Sizes found from the largest ids of one file are at most those of the vocabulary.
	guessed := filepath.Join(t.TempDir(), "guessed")
	if _, err := ImportEncoded(t.Context(), EncodedConfig{Train: flights("test"), Out: guessed}); err != nil {
		t.Fatal(err)
	}
	for j, size := range open(t, guessed).FieldDims() {
		if size > sizes[j] {
			t.Errorf("field %d has the size %d, more than in the vocabulary", j, size)
		}
	}
}

// slowRows reads a file of local ids in the simplest way.
func slowRows(t testing.TB, path string, sizes []int, first int64) *model.Rows {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(r).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	rows := &model.Rows{Width: len(sizes)}
	offsets := model.Offsets(sizes)
	for i, record := range records[1:] {
		rows.Number = append(rows.Number, first+int64(i))
		rows.Label = append(rows.Label, float32(record[0][0]-'0'))
		for j, cell := range record[1:] {
			id, err := strconv.Atoi(cell)
			if err != nil {
				t.Fatal(err)
			}
			rows.Features = append(rows.Features, offsets[j]+int32(id))
		}
	}
	return rows
}

func TestImportGolden(t *testing.T) {
	goldens := filepath.Join("..", "..", "..", "testdata", "golden")
	for _, name := range []string{"fm", "deepfm", "dcn-mix", "dcnv2-stacked", "dcnv2-parallel"} {
		text, err := os.ReadFile(filepath.Join(goldens, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var golden struct {
			FieldDims []int `json:"field_dims"`
			Rows      int64
		}
		if err := json.Unmarshal(text, &golden); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), name)
		_, err = ImportEncoded(t.Context(), EncodedConfig{Train: []string{filepath.Join(goldens, name+".rows.csv")}, Sizes: golden.FieldDims, Global: true, Out: out})
		if err != nil {
			t.Fatal(err)
		}
		if d := open(t, out); d.Rows(dataset.Train) != golden.Rows || d.IDs != dataset.GlobalIDs {
			t.Errorf("%s: %d rows of ids %s", name, d.Rows(dataset.Train), d.IDs)
		}
	}
}

func BenchmarkImport(b *testing.B) {
	_, sizes := vocabularyOfFlights(b)
	path := shared(b, "data", "flights", "train.csv.gz")
	for b.Loop() {
		if _, err := ImportEncoded(b.Context(), EncodedConfig{Train: []string{path}, Sizes: sizes, Out: filepath.Join(b.TempDir(), "x")}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(261_876*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkScan measures only decompression and parsing, and BenchmarkImport also writing.
func BenchmarkScan(b *testing.B) {
	path := []string{shared(b, "data", "flights", "train.csv.gz")}
	r := &importer{config: RawConfig{Format: Format{encoded: true}, Files: path, Workers: runtime.GOMAXPROCS(0), OnBadRow: Fail, Out: filepath.Join(b.TempDir(), "x")}, encoded: &encoded{}}
	if err := r.divide(encodedFiles); err != nil {
		b.Fatal(err)
	}
	_, err := r.run(b.Context(), 1, func(*builder) (*Summary, error) {
		if err := r.openFirst(); err != nil {
			return nil, err
		}
		for b.Loop() {
			if _, err := r.survey(func(dense *denseWriter) rowIDs { return r.newEncodedIDs(nil, false, dense) }); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(r.rows)/b.Elapsed().Seconds(), "rows/s")
}

// fit returns an error unless d has the fields of a model.
func fit(d *dataset.Dataset, a *model.Architecture) error {
	_, err := d.For(a, nil)
	return err
}
