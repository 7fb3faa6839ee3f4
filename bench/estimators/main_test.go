//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// An interrupted run leaves no temporary folder.
func TestInterrupted(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	for _, name := range []string{"deepfm.pth", "dcn-mix.pth"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "testdata", "golden", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"train.csv.gz", "val.csv.gz"} {
		var data bytes.Buffer
		zipped := gzip.NewWriter(&data)
		_, err := zipped.Write([]byte("label,a,b,c,d,e\n0,0,0,0,0,0\n1,1,1,1,1,1\n"))
		if err := errors.Join(err, zipped.Close(), os.WriteFile(filepath.Join(dir, name), data.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TMPDIR", temporary)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := run(ctx, dir, options{seconds: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("run returned %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v (%v)", left, err)
	}
}
