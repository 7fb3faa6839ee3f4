package dataset

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
)

// folder is where a dataset is: a path, below root if there is one. With a root
// nothing outside it is opened, whatever symbolic links there are.
type folder struct {
	root *os.Root // nil = the path is any
	dir  string
}

// path returns the path of a file for messages; name has slashes.
func (f folder) path(name string) string {
	dir := f.dir
	if f.root != nil {
		dir = filepath.Join(f.root.Name(), dir)
	}
	return filepath.Join(dir, filepath.FromSlash(name))
}

func (f folder) open(name string) (*os.File, error) {
	name = filepath.Join(f.dir, filepath.FromSlash(name))
	if f.root != nil {
		return f.root.Open(name)
	}
	return os.Open(name)
}

func (f folder) stat(name string) (os.FileInfo, error) {
	name = filepath.Join(f.dir, filepath.FromSlash(name))
	if f.root != nil {
		return f.root.Stat(name)
	}
	return os.Stat(name)
}

// seeker is a file with a small buffer, which passes over bytes without reading
// them.
type seeker struct {
	*bufio.Reader
	file *os.File
}

func newSeeker(file *os.File) *seeker { return &seeker{bufio.NewReaderSize(file, 1<<12), file} }

// Seek moves forward from where it is.
func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	if offset < 0 || whence != io.SeekCurrent {
		panic("dataset: a seeker moves forward")
	}
	if buffered := int64(s.Buffered()); offset > buffered {
		at, err := s.file.Seek(offset-buffered, io.SeekCurrent)
		s.Reset(s.file)
		return at, err
	}
	_, err := s.Discard(int(offset))
	return 0, err // nobody asks where
}
