package checkpoint

import (
	"io"

	"shaver/internal/atomicfile"
)

// writeWhole writes content to path, whole or not at all, and returns its bytes.
func writeWhole(path string, content io.WriterTo) (written int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) (err error) {
		written, err = content.WriteTo(w)
		return err
	})
	return written, err
}
