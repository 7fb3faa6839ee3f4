// Package files reads small files, recognises files by their beginnings, and gives files digests.
package files

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"shaver/internal/base/fault"
)

// Small reads a file of at most most MiB. It returns bad input if the file is larger.
func Small(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most<<20+1))
	if err == nil && int64(len(data)) > most<<20 {
		err = fault.Inputf("larger than %d MiB", most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Beginning returns the first n bytes of the file at path, or fewer if it has fewer or cannot
// be read.
func Beginning(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, n)) // what cannot be read is not recognised
	return data
}

// Is reports whether the file at path is one that the function recognises by its contents and its
// size. A file that cannot be opened is not.
func Is(path string, recognise func(io.ReaderAt, int64) bool) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && recognise(f, info.Size())
}

// Digest returns the SHA-256 of the file at path, in hexadecimal.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
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
