package filelock

import (
	"errors"
	"os"
)

// Lock returns an error, because a browser has no locks.
func Lock(path string) (unlock func(), err error) {
	return nil, &os.PathError{Op: "lock", Path: path, Err: errors.ErrUnsupported}
}

// Hold does nothing, because no other process removes files.
func Hold(*os.File) error { return nil }

// RemoveAbandoned leaves the file alone, because it cannot know whether it is in use.
func RemoveAbandoned(string) {}
