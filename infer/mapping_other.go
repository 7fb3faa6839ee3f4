//go:build !unix

package infer

import "os"

// mapping holds the bytes of a file, read into memory.
type mapping struct{ data []byte }

func openMapping(path string) (*mapping, error) {
	data, err := os.ReadFile(path)
	return &mapping{data: data}, err
}

func (m *mapping) forget() error { return nil }

func (m *mapping) close() error { return nil }
