package embedded

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// folderErrors are the errors of a folder that repeating a request does not cure, with
// what to do.
var folderErrors = []struct {
	errno  syscall.Errno
	advice string
}{
	{syscall.ENOSPC, "free some space"},
	{errDiskFull, "free some space"},
	{syscall.EDQUOT, "free some space or raise the quota"},
	{syscall.EFBIG, "raise the limit on the size of a file with ulimit -f"},
	{syscall.EMFILE, "raise the limit on open files, for example with ulimit -n 1024"},
	{syscall.ENFILE, "the machine has too many open files"},
	{syscall.EROFS, "choose another folder for --out"},
	{syscall.EACCES, "check the permissions of the folder"},
	{syscall.EPERM, "check the permissions of the folder"},
	{syscall.EIO, "check the disk"},
}

// folderError returns the error of the folder among the arguments of a log line, with
// advice, or nil. The server turns some of these errors into text before it logs them.
func folderError(arguments []any) error {
	for _, a := range arguments {
		err, ok := a.(error)
		if !ok {
			continue
		}
		for _, known := range folderErrors {
			if errors.Is(err, known.errno) || strings.Contains(err.Error(), known.errno.Error()) {
				return fmt.Errorf("%w (%s)", known.errno, known.advice)
			}
		}
	}
	return nil
}
