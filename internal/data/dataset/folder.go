package dataset

import (
	"bufio"
	"io"
	"os"
	"path/filepath"

	"shaver/internal/base/files"
)

// folder is the folder of a dataset. If root is set, the folder is below root, and no file
// outside root is opened, even through a symbolic link.
type folder struct {
	root *os.Root // nil if dir may be any path
	dir  string   // relative to root, if root is set
}

// path returns the path of a file for messages. name is separated by slashes.
func (f folder) path(name string) string {
	dir := f.dir
	if f.root != nil {
		dir = filepath.Join(f.root.Name(), dir)
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

// open opens a file. A pipe or a device is bad input, because its reader could wait without end.
func (f folder) open(name string) (*os.File, error) {
	if f.root == nil {
		return files.Open(f.path(name), "a file of a dataset")
	}
	return files.OpenIn(f.root, filepath.Join(f.dir, filepath.FromSlash(name)), "a file of a dataset")
}

func (f folder) stat(name string) (os.FileInfo, error) {
	name = filepath.Join(f.dir, filepath.FromSlash(name))
	if f.root != nil {
		return f.root.Stat(name)
	}
	return os.Stat(name)
}

// seeker reads a file through a small buffer, and skips bytes without reading them.
type seeker struct {
	*bufio.Reader
	file *os.File
}

func newSeeker(file *os.File) *seeker { return &seeker{bufio.NewReaderSize(file, 1<<12), file} }

// Seek moves forward by offset bytes. whence must be io.SeekCurrent. The position that it
// returns is meaningless if the target was in the buffer.
func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	if offset < 0 || whence != io.SeekCurrent {
		panic("dataset: a seeker can only move forward")
	}
	if buffered := int64(s.Buffered()); offset > buffered {
		at, err := s.file.Seek(offset-buffered, io.SeekCurrent)
		s.Reset(s.file)
		return at, err
	}
	_, err := s.Discard(int(offset))
	return 0, err // no caller uses the position
}
