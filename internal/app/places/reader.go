package places

import (
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"shaver/internal/base/files"
	"shaver/internal/ops/remote"
)

// Reader returns a function that opens the files of a folder, which may be at a URL. Each call
// reads the file as it then is. The error of a missing file is fs.ErrNotExist. end must be called
// when no more files are opened. It deletes the copies.
//
// The command must have the flag that AddScratch adds.
func Reader(c *cobra.Command, folder string) (read func(name string) (io.ReadCloser, error), end func() error, err error) {
	if !remote.Is(folder) {
		read = func(name string) (io.ReadCloser, error) {
			return files.Open(filepath.Join(folder, name), "a file that shaver wrote")
		}
		return read, func() error { return nil }, nil
	}
	l, err := remote.Parse(folder)
	if err != nil {
		return nil, nil, err
	}
	s, err := openFor(c)
	if err != nil {
		return nil, nil, err
	}
	read = func(name string) (io.ReadCloser, error) {
		path, ok, err := s.FetchIf(c.Context(), l.Join(name))
		if err == nil && !ok {
			err = &fs.PathError{Op: "open", Path: l.Join(name).String(), Err: fs.ErrNotExist}
		}
		if err != nil {
			return nil, err
		}
		return files.Open(path, "a file that shaver wrote")
	}
	return read, s.Close, nil
}
