package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// names returns the sorted names in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Of an output's temporaries, the next process that writes it removes those that nobody holds, and no
// others.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	held, temporary, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	folder, made, err := Folder(path)
	if err != nil {
		t.Fatal(err)
	}
	kept := []string{filepath.Base(held.Name()), filepath.Base(folder), filepath.Base(folder) + ".lock", ".other.12.tmp", ".out.mine.tmp", ".out.tmp-mine", "out", "out.12.tmp"}
	left := []string{".out.12.tmp", ".out.345.tmp", ".out.tmp-77", ".out.tmp-AB", ".out.tmp-AB.lock", ".out.tmp-CD.lock"}
	for _, name := range slices.Concat(kept[3:], left) {
		at := filepath.Join(dir, name)
		if strings.Contains(name, ".tmp-") && !strings.HasSuffix(name, ".lock") {
			err = errors.Join(os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "rows"), nil, 0o600))
		} else {
			err = os.WriteFile(at, nil, 0o600)
		}
		old := time.Now().Add(-time.Hour) // Windows has only the age of a closed file
		if err := errors.Join(err, os.Chtimes(at, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(kept)
	for range 2 {
		if err := Probe(path); err != nil {
			t.Fatal(err)
		}
		if found := names(t, dir); !slices.Equal(found, kept) {
			t.Errorf("%q stay, expected %q", found, kept)
		}
	}
	if err := errors.Join(held.Close(), temporary.Remove(), made.Rename(filepath.Join(dir, "made"))); err != nil {
		t.Fatal(err)
	}
	if found := names(t, dir); !slices.Equal(found, []string{".other.12.tmp", ".out.mine.tmp", ".out.tmp-mine", "made", "out", "out.12.tmp"}) {
		t.Errorf("%q stay after the end", found)
	}
	SweepAll(dir)
	if found := names(t, dir); slices.Contains(found, ".other.12.tmp") || !slices.Contains(found, "out.12.tmp") {
		t.Errorf("%q stay after SweepAll", found)
	}
}

// Processes that write one file and sweep at the same time do not remove each other's temporaries.
func TestSweepOfMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	done := make(chan error)
	for range 4 {
		go func() {
			var err error
			for i := 0; i < 50 && err == nil; i++ {
				var f *os.File
				var temporary *Temporary
				if f, temporary, err = create(path); err == nil {
					Sweep(path)
					_, err = os.Lstat(f.Name())
					err = errors.Join(err, f.Close(), temporary.Remove())
				}
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
