//go:build !unix

package infer

import (
	"io"

	"shaver/internal/base/files"
)

// mapping holds the bytes of a file, read into memory.
type mapping struct{ data []byte }

func openMapping(path string) (*mapping, error) {
	f, err := files.Open(path, "a safetensors file")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return &mapping{data: data}, err
}

func (m *mapping) forget() error { return nil }

func (m *mapping) close() error { return nil }
