//go:build unix

package delta_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/click/compact"
	"shaver/internal/prune/delta"
	"shaver/internal/prune/delta/deltatest"
)

// A delta with a pipe or a device in place of a file is refused, and nothing waits for a writer or reads without end.
func TestPipes(t *testing.T) {
	nights := deltatest.Nights(t, 2, compact.Float32)
	folder := deltas(t, nights)[1]
	for _, name := range []string{"kept.parquet", "dropped.parquet", "baseline.parquet", "head.safetensors", "delta.json"} {
		path := filepath.Join(folder, name)
		whole := contents(t, path)
		for what, make := range map[string]func() error{
			"a pipe":   func() error { return syscall.Mkfifo(path, 0o600) },
			"a device": func() error { return os.Symlink("/dev/zero", path) },
		} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := make(); err != nil {
				t.Fatal(err)
			}
			_, err := delta.Apply(nights[0], []string{folder}, filepath.Join(t.TempDir(), "out.safetensors"))
			if !fault.IsInput(err) || !strings.Contains(err.Error(), path+" is a pipe or a device") {
				t.Errorf("%s is %s: %v", name, what, err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
