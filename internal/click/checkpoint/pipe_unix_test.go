//go:build unix

package checkpoint

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A pipe without a writer is refused, because opening it would block.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.pth")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := Read(path)
		refused <- err
	}()
	select {
	case err := <-refused:
		wantInput(t, err, "model.pth is a pipe or a device: expected a .pth, safetensors or .onnx file")
	case <-time.After(10 * time.Second):
		t.Fatal("Read waits for a writer")
	}
}
