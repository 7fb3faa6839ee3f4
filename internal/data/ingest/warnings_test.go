package ingest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
		"in splits":    {EncodedConfig{Train: []string{rows}, Val: []string{rows}, Test: []string{copied}}, slices.Concat(twice, twice)},
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
		"others":    {raw(200, "%d;7"), []string{"field b: most of its 156 values contain | ; or a comma"}, 0},
		"commas":    {raw(200, "\"%d,7\""), []string{"field b: most of its 156 values contain | ; or a comma"}, 0},
		"places":    {raw(200, "\"C%d, NY|D, MA\""), []string{"field b: most of its 156 values contain | ; or a comma"}, 0},
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
