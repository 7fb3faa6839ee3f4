//go:build unix

package files_test

import (
	"io"
	"path/filepath"
	"syscall"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// What is not a regular file is refused and not recognised. A pipe without a writer is not waited for.
func TestIrregular(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{dir: "a folder", pipe: "a pipe or a device", "/dev/null": "a pipe or a device"} {
		_, err := files.Small(path, 1, "a letter")
		if want := path + " is " + kind + ": expected a letter"; !fault.IsInput(err) || err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
		if head := files.Beginning(path, 3); head != nil {
			t.Errorf("%s begins with %q", path, head)
		}
		if _, err := files.Digest(path); !fault.IsInput(err) {
			t.Errorf("%s: the digest gives %v", path, err)
		}
		if files.Is(path, func(io.ReaderAt, int64) bool { return true }) {
			t.Errorf("%s was recognised", path)
		}
	}
}
