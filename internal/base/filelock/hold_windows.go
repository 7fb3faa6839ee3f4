package filelock

import (
	"os"
	"syscall"
	"time"
)

// Hold marks an open file as in use until it is closed or the process ends. On Windows an open file
// already is.
func Hold(*os.File) error { return nil }

// closing is how long a file may be closed before its owner gives it another name.
const closing = time.Minute

// RemoveAbandoned removes the file at path unless a process has it open, or has changed it in the last
// minute.
func RemoveAbandoned(path string) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < closing {
		return
	}
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_EXISTING, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return // somebody has it open
	}
	_ = syscall.CloseHandle(handle)
	_ = os.Remove(path)
}
