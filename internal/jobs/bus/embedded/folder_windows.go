package embedded

import "syscall"

const errDiskFull = syscall.Errno(112) // ERROR_DISK_FULL

// checkOpenFiles returns nil, because Windows has no limit on open files that a user sets.
func checkOpenFiles() error { return nil }
