package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks the file at path and creates it if necessary. The lock is held until unlock
// is called or the process ends. In both cases the file is removed. If somebody else holds the
// lock, Lock returns ErrLocked.
func Lock(path string) (unlock func(), err error) {
	const (
		deleteAccess     = 0x00010000
		deleteOnClose    = 0x04000000
		sharingViolation = syscall.Errno(32)
	)
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_WRITE|deleteAccess, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL|deleteOnClose, 0)
	if errors.Is(err, sharingViolation) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { syscall.CloseHandle(handle) }, nil
}
