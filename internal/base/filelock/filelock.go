// Package filelock provides a lock that only one process at a time can hold.
package filelock

import "errors"

// ErrLocked means that another process, or another part of this process, holds the lock.
var ErrLocked = errors.New("locked")
