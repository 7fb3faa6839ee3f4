// Package atomicfile writes files that appear completely or not at all, even after a
// crash. It writes to a temporary file in the same folder, calls fsync, and renames the
// file.
package atomicfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write replaces the file at path by what content writes. If it returns an error, the
// previous file, if any, is unchanged.
func Write(path string, content func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing %s: %w", path, err)
		}
	}()
	folder := filepath.Dir(path)
	f, err := os.CreateTemp(folder, "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing after the rename
	err = content(f)
	if err == nil {
		err = f.Chmod(0o644) // CreateTemp creates it with mode 0600
	}
	if err == nil {
		err = f.Sync()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncFolder(folder)
}

// SyncFolder makes the names in a folder durable, on systems that support it.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	_ = folder.Sync() // some file systems do not support this; the names are correct in any case
	return nil
}
