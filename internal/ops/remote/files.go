package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"shaver/internal/base/atomicfile"
	"shaver/internal/base/filelock"
	"shaver/internal/base/files"
)

// disk is the folders of this machine, or of a network file system, as a store. The version of
// a file is its size and the time of its last change.
type disk struct{}

func openFiles() bucket { return disk{} }

// lockSuffix ends the name of the hidden file that is locked while a file is written under a
// condition.
const lockSuffix = ".shaver-lock"

func (disk) path(key string) string { return filepath.FromSlash("/" + key) }

// failure returns an error of the file system as a *statusError, if it is an answer.
func (disk) failure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &statusError{404, "no such file"}
	case errors.Is(err, fs.ErrPermission):
		return &statusError{403, "permission denied"}
	}
	return local(err)
}

func (disk) object(key string, info fs.FileInfo) object {
	return object{key: key, size: info.Size(), version: fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())}
}

func (f disk) head(_ context.Context, key string) (object, error) {
	info, err := os.Stat(f.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return object{}, f.failure(err)
	}
	return f.object(key, info), nil
}

func (f disk) get(_ context.Context, key, version string, offset int64) (io.ReadCloser, object, error) {
	file, err := files.Open(f.path(key), "a file")
	if err != nil {
		return nil, object{}, f.failure(err)
	}
	info, err := file.Stat()
	if err == nil && offset > 0 {
		_, err = file.Seek(offset, io.SeekStart)
	}
	if err == nil && version != "" && f.object(key, info).version != version {
		err = &statusError{412, "the file has changed"}
	}
	if err != nil {
		file.Close()
		return nil, object{}, f.failure(err)
	}
	o := f.object(key, info)
	return steady{file, o}, o, nil
}

// steady reads a file, and fails if the file changes meanwhile. A writer that leaves the size
// and the time as they were is not noticed.
type steady struct {
	file *os.File
	was  object
}

func (s steady) Read(p []byte) (int, error) {
	n, err := s.file.Read(p)
	info, failed := s.file.Stat()
	if failed != nil {
		return 0, local(failed)
	}
	if (disk{}).object(s.was.key, info).version != s.was.version {
		return 0, &statusError{412, "the file has changed"}
	}
	return n, err
}

func (s steady) Close() error { return s.file.Close() }

func (f disk) put(ctx context.Context, key string, data io.ReaderAt, size int64, _ object, c condition) (version string, err error) {
	path := f.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return "", f.failure(err)
	}
	if c != (condition{}) {
		lock := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+lockSuffix)
		unlock, err := filelock.Lock(lock)
		if errors.Is(err, filelock.ErrLocked) {
			return "", &statusError{503, "another process writes the file"}
		}
		if err != nil {
			return "", f.failure(err)
		}
		defer unlock()
		there, err := f.head(ctx, key)
		switch {
		case err == nil && (c.absent || there.version != c.version), err != nil && judge(err) == missing && !c.absent:
			return "", &statusError{412, "the file has changed"}
		case err != nil && judge(err) != missing:
			return "", err
		}
	}
	err = atomicfile.Write(path, func(w io.Writer) error {
		_, err := io.Copy(w, contextReader{ctx, io.NewSectionReader(data, 0, size)})
		return err
	})
	if err != nil {
		return "", f.failure(err)
	}
	there, err := f.head(ctx, key)
	return there.version, err
}

// contextReader reads until its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (f disk) list(ctx context.Context, prefix string, shallow bool, visit func(object) error) error {
	base := prefix[:strings.LastIndexByte(prefix, '/')+1]
	folder := strings.TrimSuffix(base, "/")
	// The slash makes it follow a symbolic link to the folder.
	err := filepath.WalkDir(f.path(folder)+string(filepath.Separator), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		relative, err := filepath.Rel(f.path(folder), path)
		if err != nil || relative == "." {
			return err
		}
		key := base + filepath.ToSlash(relative)
		info, err := os.Stat(path) // follows symbolic links
		switch {
		case !strings.HasPrefix(key, prefix) && e.IsDir():
			return fs.SkipDir
		case err != nil, !strings.HasPrefix(key, prefix):
			return nil // it is gone, leads nowhere, or has another name
		case info.IsDir() && shallow:
			if err := visit(object{key: key + "/"}); err != nil || !e.IsDir() {
				return err
			}
			return fs.SkipDir
		case !info.Mode().IsRegular(), strings.HasSuffix(key, lockSuffix), strings.HasPrefix(e.Name(), ".") && strings.HasSuffix(e.Name(), ".tmp"):
			return nil
		}
		return visit(f.object(key, info))
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return f.visited(err)
}

// visited returns an error of list. Those of visit stay as they are.
func (f disk) visited(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return f.failure(err)
	}
	return err
}

func (f disk) remove(_ context.Context, key string) error {
	path := f.path(key)
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f.failure(err)
	}
	_ = os.Remove(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+lockSuffix)) // there may be none
	return nil
}
