// Package files opens regular files, reads small ones, recognises files by their beginnings, and gives files digests. All
// packages open files with it, so that no pipe or device in a folder of somebody else makes a program wait without end.
package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"shaver/internal/base/fault"
)

// Small reads a regular file of at most most MiB. A folder, a pipe, a device, and a larger file are
// bad input. The error names expected, what the file should be, such as "a YAML file".
func Small(path string, most int64, expected string) ([]byte, error) {
	f, err := Open(path, expected)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path, most, expected)
}

// Read reads r to its end. More than most MiB are bad input. name is that of r in errors, and expected
// as for Small.
func Read(r io.Reader, name string, most int64, expected string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most<<20+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > most<<20 {
		return nil, fault.Inputf("%s is larger than %d MiB: expected %s", name, most, expected)
	}
	return data, nil
}

// Open opens a regular file. Anything else is bad input, which names expected, what the file should
// be.
func Open(path, expected string) (*os.File, error) {
	return open(os.Stat, os.Open, path, path, expected)
}

// OpenIn is Open for a file in root, whose name is relative to it. A link that leads out of root is bad input too.
func OpenIn(root *os.Root, name, expected string) (*os.File, error) {
	path := filepath.Join(root.Name(), name)
	f, err := open(root.Stat, root.Open, name, path, expected)
	reason, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return f, err
	}
	if _, ok := reason.Err.(syscall.Errno); !ok { // os has no name for this error
		return nil, fault.Inputf("%s leads out of %s: expected %s", path, root.Name(), expected)
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: reason.Err}
}

// open opens a regular file, which errors call path. It looks before it opens, because the opening of a pipe waits for a
// writer.
func open(stat func(string) (os.FileInfo, error), open func(string) (*os.File, error), name, path, expected string) (*os.File, error) {
	info, err := stat(name)
	switch {
	case err != nil:
		// what the opening says of the path
	case info.IsDir():
		return nil, fault.Inputf("%s is a folder: expected %s", path, expected)
	case !info.Mode().IsRegular():
		return nil, fault.Inputf("%s is a pipe or a device: expected %s", path, expected)
	}
	return open(name)
}

// Strict decodes data, which must be one JSON value without properties that to lacks.
func Strict(data []byte, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(to); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}

// Beginning returns the first n bytes of the file at path, or fewer if it has fewer or cannot
// be read. It reads only from regular files.
func Beginning(path string, n int64) []byte {
	f, err := Open(path, "")
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, n)) // what cannot be read is not recognised
	return data
}

// Is reports whether the regular file at path is one that the function recognises by its contents
// and its size. A file that cannot be opened is not.
func Is(path string, recognise func(io.ReaderAt, int64) bool) bool {
	f, err := Open(path, "")
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && recognise(f, info.Size())
}

// Digest returns the SHA-256 of the regular file at path, in hexadecimal.
func Digest(path string) (string, error) {
	f, err := Open(path, "a file")
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
