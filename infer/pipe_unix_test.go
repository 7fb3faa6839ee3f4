//go:build unix

package infer_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"shaver/infer"
)

// A pipe without a writer is refused and not waited for.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := infer.Open(path); err == nil || !strings.Contains(err.Error(), "a pipe or a device") {
		t.Errorf("the error is %v", err)
	}
}
