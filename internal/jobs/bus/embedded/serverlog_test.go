package embedded

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"

	"shaver/internal/base/fault"
)

// The lines that a server logs about its folder make a local server fail, with advice.
func TestFolderErrors(t *testing.T) {
	for _, test := range []struct {
		err  any
		want string // "" = no failure
	}{
		{&fs.PathError{Op: "write", Path: "1.blk", Err: syscall.ENOSPC}, "no space left on device (free some space)"},
		{&fs.PathError{Op: "write", Path: "1.blk", Err: syscall.EFBIG}, "file too large (raise the limit on the size of a file with ulimit -f)"},
		{errors.New("open meta.inf.tmp: too many open files (10077)"), "too many open files (raise the limit on open files, for example with ulimit -n 1024)"},
		{errors.New("stream not found"), ""},
		{"no space left on device", ""},
	} {
		for _, local := range []bool{true, false} {
			l := newServerLog(&Config{StoreDir: "folder", Local: local})
			l.Warnf("%s: %v", "stream", test.err)
			l.Errorf("%s: %v", "stream", test.err)
			s := Server{log: l}
			failed := false
			select {
			case <-s.Failed():
				failed = true
			default:
			}
			err := s.Err()
			switch {
			case failed != (err != nil), failed != (local && test.want != ""):
				t.Errorf("%v, local %v: failed %v, error %v", test.err, local, failed, err)
			case failed && err.Error() != "the state of the job cannot be stored in folder: "+test.want:
				t.Errorf("error %q", err)
			case fault.IsInput(err) || fault.IsUsage(err):
				t.Errorf("%v is of the wrong kind", err)
			}
		}
	}
}
