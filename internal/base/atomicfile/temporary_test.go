package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

// A temporary that was renamed or kept stays. Every other one is deleted.
func TestTemporary(t *testing.T) {
	dir := t.TempDir()
	made := map[string]*Temporary{}
	for _, name := range []string{"renamed", "kept", "removed"} {
		path := filepath.Join(dir, name+".tmp")
		if err := os.MkdirAll(filepath.Join(path, "inside"), 0o755); err != nil {
			t.Fatal(err)
		}
		made[name] = Track(path)
	}
	if err := made["renamed"].Rename(filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	made["kept"].Keep()
	for _, temporary := range made {
		if err := temporary.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != "kept.tmp" || entries[1].Name() != "renamed" {
		t.Errorf("%v, %v", entries, err)
	}
}
