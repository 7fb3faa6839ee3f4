package checkpoint

import (
	"io"

	"shaver/internal/atomicfile"
)

// writeWhole writes content to path, all of it or nothing, and returns its length in
// bytes.
func writeWhole(path string, content io.WriterTo) (written int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) (err error) {
		written, err = content.WriteTo(w)
		return err
	})
	return written, err
}
