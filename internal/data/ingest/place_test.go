package ingest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// filesOf writes files of the given texts below a new folder and returns the folder.
func filesOf(t *testing.T, texts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// The label and the chosen fields may be columns of folders, and whole numbers have one
// spelling in files and folders.
func TestPartitionsAsLabelAndField(t *testing.T) {
	folder := filesOf(t, map[string]string{"label=1/n=3.0/x.csv": "a,m\nx,3\n", "label=0/n=3/x.csv": "a,m\ny,3.0\n"})
	out := filepath.Join(t.TempDir(), "out")
	config := RawConfig{Files: []string{folder}, MinCount: 1, Split: "1:0:0", Out: out, Format: Format{Columns: []Column{{Name: "n"}, {Name: "m"}, {"a", "b"}}}}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	fields, rows := stringsOf(t, out)
	if !slices.Equal(fields, []string{"n", "m", "b"}) || !slices.EqualFunc(rows, [][]string{{"0", "3", "3", "y"}, {"1", "3", "3", "x"}}, slices.Equal) {
		t.Errorf("%q: %q", fields, rows)
	}
	// Fixed formats have no such columns.
	kdd := filesOf(t, map[string]string{"day=3/x.tsv": "1\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\n"})
	config = RawConfig{Files: []string{kdd}, MinCount: 1, Split: "1:0:0", Out: filepath.Join(t.TempDir(), "out"), Format: KDD()}
	if _, err := ImportRaw(t.Context(), config); err != nil {
		t.Error(err)
	}
}

// Ids from a mapper or an earlier dataset hold for both spellings of a whole number.
func TestWholeNumbersWithVocabulary(t *testing.T) {
	floats, integers := "label,a\n0,3.0\n1,\n0,-7.0\n", "label,a\n0,3\n1,\n0,-7\n"
	for _, c := range []struct{ first, second string }{{floats, integers}, {integers, floats}} {
		dir := t.TempDir()
		mapper := filepath.Join(dir, "mapper.csv")
		text := "field,value,id\na,,0\n"
		for id, line := range strings.Split(strings.TrimSpace(c.first), "\n")[1:] {
			if value := line[2:]; value != "" {
				text += "a," + value + "," + string(rune('0'+(id+2)/2)) + "\n"
			}
		}
		if err := os.WriteFile(mapper, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, c.first)}, MinCount: 1, Split: "1:0:0", Out: filepath.Join(dir, "first")}); err != nil {
			t.Fatal(err)
		}
		for name, path := range map[string]string{"mapper": mapper, "dataset": filepath.Join(dir, "first")} {
			v, err := ReadVocabulary(path, 1<<28, "")
			if err != nil {
				t.Fatal(err)
			}
			summary, err := ImportRaw(t.Context(), RawConfig{Files: []string{write(t, c.second)}, Vocabulary: v, Split: "1:0:0", Out: filepath.Join(dir, name)})
			if err != nil || summary.Unseen[0] != 0 {
				t.Errorf("%s of %q: %v unseen, %v", name, c.first, summary, err)
			}
		}
	}
}
