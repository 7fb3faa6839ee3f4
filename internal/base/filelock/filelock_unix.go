//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks the file at path and creates it if necessary. The lock is held until unlock
// is called, which removes the file, or until the process ends. If somebody else holds
// the lock, Lock returns ErrLocked. On a file system without locks, Lock assumes that
// there is only one user and succeeds.
func Lock(path string) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			file.Close()
			return nil, ErrLocked
		case errors.Is(err, syscall.EINTR): // a signal interrupts flock on network file systems
			file.Close()
			continue
		case err != nil && !lockless(err):
			file.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		held, err := file.Stat()
		if now, gone := os.Stat(path); err == nil && gone == nil && os.SameFile(held, now) {
			return func() { os.Remove(path); file.Close() }, nil
		}
		file.Close() // the previous holder removed the file after we opened it
	}
}

// lockless reports whether err means that the file system has no locks. NFS returns
// ENOLCK if no lock service runs.
func lockless(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK)
}
