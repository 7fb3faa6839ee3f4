package atomicfile

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/base/filelock"
)

// The names of temporaries: .NAME.*.tmp for the file NAME, and .NAME.tmp-* for the folder NAME,
// whose lock is .NAME.tmp-*.lock.
const (
	fileSuffix   = ".tmp"
	folderSuffix = ".tmp-"
	lockSuffix   = ".lock"
)

// Leftover reports whether a file with the given name, in the folder of path, is what a process left
// that was killed while it wrote path.
func Leftover(name, path string) bool {
	middle, is := strings.CutPrefix(name, "."+filepath.Base(path)+".")
	middle, ends := strings.CutSuffix(middle, fileSuffix)
	return is && ends && random(middle)
}

// random reports whether a part of a name is the random one of a temporary.
func random(part string) bool {
	return part != "" && strings.Trim(part, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// Sweep removes what processes left that were killed while they wrote the file or the folder at
// path. What a process still writes stays.
func Sweep(path string) {
	path = filepath.Clean(path)
	folder, base := filepath.Dir(path), "."+filepath.Base(path)+folderSuffix
	entries, _ := os.ReadDir(folder) // nothing is swept in a folder that cannot be read
	for _, e := range entries {
		switch name := e.Name(); {
		case e.Type().IsRegular() && Leftover(name, path):
			filelock.RemoveAbandoned(filepath.Join(folder, name))
		case strings.HasPrefix(name, base):
			name, isLock := strings.CutSuffix(name, lockSuffix)
			if (isLock || e.IsDir()) && random(strings.TrimPrefix(name, base)) {
				sweepFolder(filepath.Join(folder, name))
			}
		}
	}
}

// SweepAll removes all files in a folder that processes left that were killed while they wrote them.
// The folder must have only files that shaver writes.
func SweepAll(folder string) {
	entries, _ := os.ReadDir(folder) // nothing is swept in a folder that cannot be read
	for _, e := range entries {
		if name := e.Name(); e.Type().IsRegular() && strings.HasPrefix(name, ".") && strings.HasSuffix(name, fileSuffix) {
			filelock.RemoveAbandoned(filepath.Join(folder, name))
		}
	}
}

// sweepFolder removes a temporary folder, which need not exist, and its lock, unless a process holds
// the lock.
func sweepFolder(path string) {
	unlock, err := filelock.Lock(path + lockSuffix)
	if err != nil {
		return
	}
	defer unlock()
	_ = os.RemoveAll(path)
}

// Folder makes a temporary folder next to out, for a folder that appears whole when the temporary is
// renamed to out. It has the permissions of the folder at out, if there is one. First Folder removes what
// killed processes left that wrote out.
func Folder(out string) (path string, t *Temporary, err error) {
	Sweep(out)
	path = filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+folderSuffix+rand.Text()[:10])
	unlock, err := filelock.Lock(path + lockSuffix) // before the folder exists, so that no process takes it for a leftover
	if err != nil {
		return "", nil, ofFolder(out, err)
	}
	temporaries.Lock() // so that RemoveTemporaries does not miss the new folder
	defer temporaries.Unlock()
	mode, keep := permissions(out, os.ModeDir|0o777)
	if err = os.Mkdir(path, mode); err == nil && keep {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		unlock()
		return "", nil, ofFolder(out, err)
	}
	t = track(path)
	t.unlock = unlock
	return path, t, nil
}

// ofFolder returns the error of a temporary for path, without its name.
func ofFolder(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Inputf("there is no folder %s", filepath.Dir(path))
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
