//go:build unix

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Lock takes the file at path for this process, until unlock, which removes it, or
// the process ends; ErrLocked means that somebody has it. A file system without
// locks is believed to have one user.
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
		case errors.Is(err, syscall.EINTR): // by a signal, on a network's file system
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
		file.Close() // who had it removed it meanwhile
	}
}

// lockless reports whether a file system has no locks: NFS says so in its own way
// where nothing hands them out.
func lockless(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK)
}
