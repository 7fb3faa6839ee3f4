//go:build unix

package infer

import (
	"fmt"

	"golang.org/x/sys/unix"

	"shaver/internal/base/fault"
	"shaver/internal/base/files"
)

// mapping holds the bytes of a file.
type mapping struct {
	data   []byte
	mapped bool // read-only, and not memory of the caller
}

func openMapping(path string) (*mapping, error) {
	f, err := files.Open(path, "a safetensors file")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, fault.Inputf("%s is empty: expected a safetensors file", path)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &mapping{data, true}, nil
}

// forget releases the resident pages. Pages that are needed again are read from the file
// or from the system's file cache.
func (m *mapping) forget() error { return unix.Madvise(m.data, unix.MADV_DONTNEED) }

func (m *mapping) close() error {
	if !m.mapped {
		return nil
	}
	return unix.Munmap(m.data)
}
