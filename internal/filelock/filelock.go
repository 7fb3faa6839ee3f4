// Package filelock lets one process at a time do what several would spoil.
package filelock

import "errors"

// ErrLocked means that another process, or another part of this one, has the lock.
var ErrLocked = errors.New("locked")
