package folders

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
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

// The files of a folder come in the order of their names, without those that writers hide.
func TestFiles(t *testing.T) {
	folder := filesOf(t, map[string]string{
		"b.csv": "", "a/z.csv": "", "_day=3/c.csv": "", "_SUCCESS": "", ".a.csv.crc": "", "_old/0/x.csv": "", ".git/x.csv": "", "_metadata": "",
	})
	got, err := Files([]string{folder, "-", "nowhere"})
	want := []string{filepath.Join(folder, "_day=3", "c.csv"), filepath.Join(folder, "a", "z.csv"), filepath.Join(folder, "b.csv"), "-", "nowhere"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, name := range []string{"a.csv.gz", "a.tsv", "a"} {
		mixed := filesOf(t, map[string]string{"b.csv": "", name: ""})
		if _, err := Files([]string{mixed}); !fault.IsInput(err) || !strings.Contains(err.Error(), "have different extensions") {
			t.Errorf("b.csv and %s: %v", name, err)
		}
	}
	if err := os.Symlink(filepath.Join(folder, "a"), filepath.Join(folder, "link")); err != nil {
		t.Skip(err)
	}
	if got, err := Files([]string{filepath.Join(folder, "link")}); err != nil || !slices.Equal(got, []string{filepath.Join(folder, "link", "z.csv")}) {
		t.Errorf("files of a link to a folder: %q, %v", got, err)
	}
	if _, err := Files([]string{folder}); !fault.IsInput(err) || !strings.Contains(err.Error(), "link is a link to a folder") {
		t.Errorf("a link to a folder: %v", err)
	}
}

func TestColumns(t *testing.T) {
	for path, want := range map[string][]string{
		"log/day=3/part-0.csv": {"day", "3"}, "day=3": nil, "log/x/part-0.csv": nil, "log/=3/x.csv": nil,
		"a=1/b=x=y/c=/d=__HIVE_DEFAULT_PARTITION__/x.csv": {"a", "1", "b", "x=y", "c", "", "d", ""},
		"at=2024-01-02%2003%3A04%3A05/caf%C3%A9=50%/x":    {"at", "2024-01-02 03:04:05", "café", "50%"},
	} {
		columns, err := Columns(filepath.FromSlash(path))
		var got []string
		for _, c := range columns {
			got = append(got, c.Name, c.Value)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{"a=1/a=2/x": "two folders", "a=%FF/x": "not UTF-8", "a=%00/x": "NUL"} {
		if _, err := Columns(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
