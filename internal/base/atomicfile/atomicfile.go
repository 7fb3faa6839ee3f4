// Package atomicfile writes files that appear completely or not at all, even after a
// crash. It writes to a temporary file in the same folder, calls fsync, and renames the
// file.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	f, temporary, err := create(path)
	if err != nil {
		return err
	}
	defer temporary.Remove() // does nothing after the rename
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
	if err := temporary.Rename(path); err != nil {
		return err
	}
	return SyncFolder(folder)
}

// Probe returns an error if Write could not create its temporary file for path.
func Probe(path string) error {
	f, temporary, err := create(path)
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			return at.Err // without the temporary name
		}
		return err
	}
	return errors.Join(f.Close(), temporary.Remove())
}

// create creates a temporary file in the folder of path.
func create(path string) (*os.File, *Temporary, error) {
	temporaries.Lock() // so that RemoveTemporaries does not miss the new file
	defer temporaries.Unlock()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, nil, err
	}
	return f, track(f.Name()), nil
}

// Leftover reports whether a file with the given name, in the folder of path, is what a process left
// that was killed while it wrote path.
func Leftover(name, path string) bool {
	return strings.HasPrefix(name, "."+filepath.Base(path)+".") && strings.HasSuffix(name, ".tmp")
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
