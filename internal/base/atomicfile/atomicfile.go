// Package atomicfile writes files that appear completely or not at all, even after a
// crash. It writes to a temporary file in the same folder, calls fsync, and renames the
// file.
package atomicfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"shaver/internal/base/filelock"
)

// Write replaces the file at path by what content writes. If it returns an error, the
// previous file, if any, is unchanged. The new file has the permissions of the previous one, or
// those that the umask gives a new one. While it is written it is not open to more users.
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
	if mode, keep := permissions(path, 0o666); err == nil && keep {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if runtime.GOOS == "windows" || err != nil { // Windows does not rename an open file
		if closing := f.Close(); err == nil {
			err = closing
		}
	}
	if err != nil {
		return err
	}
	if err := temporary.Rename(path); err != nil {
		f.Close()
		return err
	}
	f.Close() // only now, so that no other process takes the temporary for a leftover; Sync found its errors
	return SyncFolder(folder)
}

// Probe returns an error if Write could not create its temporary file for path. It removes what
// killed processes left that wrote path.
func Probe(path string) error {
	Sweep(path)
	f, temporary, err := create(path)
	if err != nil {
		return ofFolder(path, err)
	}
	return errors.Join(f.Close(), temporary.Remove())
}

// create creates a temporary file in the folder of path, which no other process removes as long as it
// is open.
func create(path string) (*os.File, *Temporary, error) {
	temporaries.Lock() // so that RemoveTemporaries does not miss the new file
	defer temporaries.Unlock()
	for try := 0; ; try++ {
		name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:10]+fileSuffix)
		mode, _ := permissions(path, 0o666)
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode|0o600)
		if err != nil {
			return nil, nil, err
		}
		switch held, err := hold(f); {
		case err != nil:
			return nil, nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
		case held || try == mostTries: // a system may not show a new file under its name
			return f, track(f.Name()), nil
		}
		f.Close() // another process took it for a leftover before it was held
	}
}

// permissions returns the permissions of a file or folder that replaces the one at path, which has them if
// keep is true. Otherwise they are fresh, from which the umask takes some. A new hidden file .NAME.WORD gets those of
// the file NAME, because it holds content of NAME while a command writes that.
func permissions(path string, fresh os.FileMode) (mode os.FileMode, keep bool) {
	info, err := os.Stat(path)
	if of, hidden := strings.CutPrefix(filepath.Base(path), "."); err != nil && hidden {
		info, err = os.Stat(filepath.Join(filepath.Dir(path), strings.TrimSuffix(of, filepath.Ext(of))))
	}
	if err != nil || info.Mode().Type() != fresh.Type() {
		return fresh, false
	}
	return info.Mode(), true
}

// mostTries is how often other processes may take a new file for a leftover.
const mostTries = 100

// hold holds a new file. It reports whether the file still exists then.
func hold(f *os.File) (bool, error) {
	err := filelock.Hold(f)
	if errors.Is(err, filelock.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(f.Name())
	return err == nil, nil
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
