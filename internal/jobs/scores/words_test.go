package scores

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// A file has the words of its baseline, also if the head of a large table's is read alone, and one of a baseline with one
// word for each range says nothing of words.
func TestWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	check := func(f *File) []byte {
		t.Helper()
		if err := Write(path, f); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(string) (*File, error){Read, ReadHead} {
			if got, err := read(path); err != nil || !got.Baseline.Equal(&f.Baseline) {
				t.Fatalf("the baseline is not the one that was written, error %v", err)
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	if bytes.Contains(check(example()), []byte(keyWords)) {
		t.Error("a file without words has metadata of words")
	}
	check(worded())

	const rows = 1 << 22
	large := example()
	large.Fields, large.Layout.FieldDims, large.Layout.Dim, large.Shape = []string{"a"}, []int{rows}, 1, layout.Of(rows, 1)
	large.Count, large.Values = make([]int64, rows), tally.NewValues(rows)
	large.Baseline = model.Baseline{Values: []float32{1, 2}, Words: []int{2}, Numbers: bytes.Repeat([]byte{0, 1}, rows/2)}
	check(large)
}

// worded returns example with three words of field a.
func worded() *File {
	f := example()
	f.Baseline.Values, f.Baseline.Words, f.Baseline.Numbers = append(f.Baseline.Values, 5, 6, 7, 8), []int{3, 1}, []uint8{2, 0, 0}
	return f
}

// Words that do not fit the tables are bad input.
func TestWrongWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for want, change := range map[string]func(b *model.Baseline){
		"row 1 of field 0 reads word 3 of 3":     func(b *model.Baseline) { b.Numbers[1] = 3 },
		"8 values, expected 6":                   func(b *model.Baseline) { b.Words[0] = 2 },
		"300 words for field 0":                  func(b *model.Baseline) { b.Words[0] = 300 },
		"words for 1 ranges of rows, expected 2": func(b *model.Baseline) { b.Words = b.Words[:1] },
		"the words of 2 rows, expected 3":        func(b *model.Baseline) { b.Numbers = b.Numbers[:2] },
	} {
		f := worded()
		change(&f.Baseline)
		if err := Write(path, f); err != nil {
			t.Fatal(err)
		}
		for _, read := range []func(string) (*File, error){Read, ReadHead} {
			if _, err := read(path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, expected %q", err, want)
			}
		}
	}
}

// WordsText names the fields with several words, those with the most first.
func TestWordsText(t *testing.T) {
	f := worded()
	if got := f.WordsText(&f.Baseline); got != "3 for a" {
		t.Error(got)
	}
	f.Baseline.Words = []int{2, 7}
	if got := f.WordsText(&f.Baseline); got != "7 for b; 2 for a" {
		t.Error(got)
	}
	f.Baseline.Words = []int{2, 2}
	if got := f.WordsText(&f.Baseline); got != "2 for a, b" {
		t.Error(got)
	}
	for _, words := range [][]int{nil, {1, 1}} {
		if f.Baseline.Words = words; f.WordsText(&f.Baseline) != "" {
			t.Errorf("%v: %q", words, f.WordsText(&f.Baseline))
		}
	}
}
