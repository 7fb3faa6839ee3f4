package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"shaver/internal/data/dense"
)

// An import warns about rows that are there twice, splits with labels of one kind, a train split that is smaller than another,
// a column that repeats the label, ids that count from 1, and fields that are measures, timestamps or lists. It says nothing about usual rows.
func TestWarnings(t *testing.T) {
	var usual, echo, one strings.Builder
	usual.WriteString("label,a,b\n")
	echo.WriteString("label,a,b\n")
	one.WriteString("label,a,b\n")
	for i := range 40 {
		fmt.Fprintf(&usual, "%d,%d,%d\n", i%3&1, i%2, i%5)
		fmt.Fprintf(&echo, "%d,%d,%d\n", i%2, i%5, 1-i%2)
		fmt.Fprintf(&one, "%d,%d,%d\n", i%3&1, 1+i%2, i%5)
	}
	rows, copied, other := write(t, usual.String()), write(t, usual.String()), write(t, usual.String()+"1,1,1\n")
	number := func(x float64) *float64 { return &x }
	repeated := []string{"field b says the label in all 40 rows"}
	twice := []string{"rows.csv was read twice"}
	for name, test := range map[string]struct {
		config EncodedConfig
		want   []string // beginnings of the warnings
	}{
		"usual":        {EncodedConfig{Train: []string{rows}, Val: []string{other}}, nil},
		"in one split": {EncodedConfig{Train: []string{rows, rows}}, twice},
		"in splits":    {EncodedConfig{Train: []string{rows}, Val: []string{rows}, Test: []string{copied}}, []string{"rows.csv was read twice, so its rows are in the dataset twice: name each file once, in one split; in all, 2 files repeat an earlier one"}},
		"echo":         {EncodedConfig{Train: []string{write(t, echo.String())}}, repeated},
		"dense echo":   {EncodedConfig{Train: []string{write(t, echo.String())}, Dense: Dense{Columns: []DenseColumn{{Name: "b", Input: dense.Input{Rule: dense.None}}}}}, []string{"dense input b says the label in all 40 rows"}},
		"near":         {EncodedConfig{Train: []string{rows}, Dense: Dense{Columns: []DenseColumn{{Name: "b", Input: dense.Input{Rule: dense.ZScore, Mean: number(4), Deviation: number(1.5)}}}}}, nil},
		"far":          {EncodedConfig{Train: []string{rows}, Dense: Dense{Columns: []DenseColumn{{Name: "b", Input: dense.Input{Rule: dense.ZScore, Mean: number(40), Deviation: number(1.5)}}}}}, []string{"dense input b: the mean of its numbers is 2, which is 25 deviations from the mean 40 of its rule zscore"}},
		"from one":     {EncodedConfig{Train: []string{write(t, one.String())}}, []string{"field a: the least id is 1, but ids count from 0"}},
		"with sizes":   {EncodedConfig{Train: []string{write(t, one.String())}, Sizes: []int{3, 5}}, nil},
		"one label":    {EncodedConfig{Train: []string{rows}, Val: []string{write(t, "label,a,b\n1,0,0\n1,1,1\n")}, Test: []string{write(t, "label,a,b\n0,0,0\n0,1,1\n")}}, []string{"split val: all 2 rows have the label 1, ", "split test: all 2 rows have the label 0, "}},
		"small train":  {EncodedConfig{Train: []string{write(t, "label,a,b\n0,0,0\n1,1,1\n")}, Test: []string{rows}}, []string{"split test has 40 rows and split train only 2: "}},
		"few":          {EncodedConfig{Train: []string{write(t, "label,a,b\n0,0,0\n1,1,1\n")}}, nil},
		"numbers":      {EncodedConfig{Train: []string{write(t, echo.String())}, Numbers: true}, nil},
	} {
		test.config.Out = filepath.Join(t.TempDir(), "out")
		summary, err := ImportEncoded(t.Context(), test.config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantWarnings(t, name, summary, test.want)
	}
	raw := func(rows int, form string) []string {
		var text strings.Builder
		text.WriteString("label,a,b\n")
		for i := range rows {
			fmt.Fprintf(&text, "%d,%d,"+form+"\n", i%3&1, i%2, i)
		}
		return []string{write(t, text.String())}
	}
	for name, test := range map[string]struct {
		files []string
		want  []string
		least int64
	}{
		"raw":       {[]string{rows, other}, nil, 0},
		"raw twice": {[]string{rows, rows}, twice, 0},
		"prices":    {raw(2000, "-%d.25"), []string{"field b: most of its 1596 values have decimals"}, 0},
		"versions":  {raw(2000, "%d.1.2"), nil, 0},
		"seconds":   {raw(2000, "%d.0"), nil, 0},
		"times":     {raw(200, "2024-01-02T03:04:%02d"), []string{"field b: most of its 156 values are timestamps"}, 0},
		"dates":     {raw(200, "2024-01-%02d"), nil, 0},
		"lists":     {raw(200, "%d|7"), []string{"field b: most of its 156 values contain |"}, 0},
		"others":    {raw(200, "%d;7"), []string{"field b: most of its 156 values contain | ; ^ or a comma"}, 0},
		"carets":    {raw(200, "%d^7"), []string{"field b: most of its 156 values contain | ; ^ or a comma"}, 0},
		"commas":    {raw(200, "\"%d,7\""), []string{"field b: most of its 156 values contain | ; ^ or a comma"}, 0},
		"places":    {raw(200, "\"C%d, NY|D, MA\""), []string{"field b: most of its 156 values contain | ; ^ or a comma"}, 0},
		"phrases":   {raw(200, "\"%d, 7\""), nil, 0},
		"ends":      {raw(200, "%d|"), nil, 0},
		"rare":      {raw(200, "id%d"), []string{"field b: the values of 100.0% of the rows occur in fewer than 2 rows of train, so"}, 2},
		"few rows":  {raw(90, "id%d"), nil, 2},
		"raw echo":  {[]string{write(t, echo.String())}, repeated, 0},
	} {
		summary, err := ImportRaw(t.Context(), RawConfig{Files: test.files, MinCount: test.least, Out: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantWarnings(t, name, summary, test.want)
	}
}

// wantWarnings fails the test unless the warnings begin with the given texts.
func wantWarnings(t *testing.T, name string, s *Summary, want []string) {
	t.Helper()
	same := len(s.Warnings) == len(want)
	for i := 0; same && i < len(want); i++ {
		same = strings.HasPrefix(s.Warnings[i], want[i])
	}
	if !same {
		t.Errorf("%s: %q, expected %q", name, s.Warnings, want)
	}
}

// However many files have the same content, one warning says so, with their number. Another one names a folder with files of
// several jobs.
func TestRepeatedFiles(t *testing.T) {
	folder := t.TempDir()
	for i := range 40 {
		job := "3f1c2d5e-0000-4000-8000-000000000001"
		if i == 7 {
			job = "9a8b7c6d-0000-4000-8000-000000000002"
		}
		text := "label,a,b\n0,1,2\n1,0,0\n"
		if i < 3 {
			text += strings.Repeat("1,2,2\n", i+1)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("part-%05d-%s-c000.csv", i, job)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "_SUCCESS"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(out string) (*Summary, error){
		"raw": func(out string) (*Summary, error) {
			return ImportRaw(t.Context(), RawConfig{Files: []string{folder}, Out: out, Split: "1:0:0"})
		},
		"encoded": func(out string) (*Summary, error) {
			return ImportEncoded(t.Context(), EncodedConfig{Train: []string{folder}, Out: out})
		},
	} {
		summary, err := run(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(summary.Warnings) != 2 || !strings.HasSuffix(summary.Warnings[0], "; in all, 36 files repeat an earlier one") || !strings.HasPrefix(summary.Warnings[1], "files of several jobs of Spark are in one folder, as in "+folder+": ") {
			t.Errorf("%s: %q", name, summary.Warnings)
		}
	}
}

// A column whose values are of another kind than in an earlier file is refused, unless it is the label, or numbers and
// strings.
func TestKindsOfFiles(t *testing.T) {
	types := map[string]arrow.DataType{
		"1": arrow.PrimitiveTypes.Int64, "1.5": arrow.PrimitiveTypes.Float64, "text": arrow.BinaryTypes.String, "": arrow.Null, "true": arrow.FixedWidthTypes.Boolean,
		"2024-01-02": arrow.FixedWidthTypes.Date32, "2024-01-02 03:04:05": &arrow.TimestampType{Unit: arrow.Second}, "2024-01-02 03:04:05Z": arrow.FixedWidthTypes.Timestamp_s,
	}
	table := func(label, a string) string { // writes a file with a row of these two values
		fields := arrow.NewSchema([]arrow.Field{{Name: "label", Type: types[label]}, {Name: "a", Type: types[a], Nullable: true}}, nil)
		build := array.NewRecordBuilder(memory.DefaultAllocator, fields)
		for i, value := range []string{label, a} {
			if value == "" {
				build.Field(i).AppendNull()
			} else if err := build.Field(i).AppendValueFromString(value); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		w := ipc.NewWriter(&out, ipc.WithSchema(fields))
		if err := errors.Join(w.Write(build.NewRecord()), w.Close()); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.arrow")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fits := func(a, b string) bool {
		plain := []string{"1", "1.5", "text"}
		return a == b || a == "" || b == "" || slices.Contains(plain, a) && slices.Contains(plain, b)
	}
	for a := range types {
		for b := range types {
			files := []string{table("1", a), table("true", b)}
			_, err := ImportRaw(t.Context(), RawConfig{Format: Tables(), Files: files, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "out")})
			if fits(a, b) && err != nil {
				t.Errorf("%q, then %q: %v", a, b, err)
			}
			if !fits(a, b) {
				wantInput(t, err, files[1]+": column \"a\" has ")
			}
		}
	}
	// The first file may have only missing values.
	_, err := ImportRaw(t.Context(), RawConfig{Format: Tables(), Files: []string{table("1", ""), table("1", "1"), table("1", "true")}, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "out")})
	wantInput(t, err, "has truth values, but the earlier files have numbers")
}
