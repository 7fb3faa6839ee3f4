//go:build !windows

package embedded

import (
	"fmt"
	"syscall"
)

const errDiskFull = syscall.ENOSPC

// leastOpenFiles is the smallest limit on open files with which a local job starts. A job
// of a small dataset has some 20 files open.
const leastOpenFiles = 64

// checkOpenFiles returns an error if this process may open so few files that a local job
// would fail halfway.
func checkOpenFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur >= leastOpenFiles {
		return nil
	}
	return fmt.Errorf("the limit on open files is %d, but a local job needs at least %d (raise it, for example with ulimit -n 1024)", limit.Cur, leastOpenFiles)
}
