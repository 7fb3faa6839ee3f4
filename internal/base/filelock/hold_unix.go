//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Hold marks an open file as in use until it is closed or the process ends. It returns ErrLocked if
// another process is about to remove the file as abandoned. On a file system without locks it does
// nothing.
func Hold(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		case err != nil && !lockless(err):
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

// RemoveAbandoned removes the file at path unless a process holds it. It leaves a file alone if it
// cannot know.
func RemoveAbandoned(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // NFS locks need a file that is open for writing
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		_ = os.Remove(path)
	}
}
