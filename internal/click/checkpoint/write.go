package checkpoint

import (
	"io"

	"shaver/internal/base/atomicfile"
	"shaver/internal/click/tensor"
)

// Written reports whether the file at path is a model that this package wrote, dense or
// compact. It reads only the header.
func Written(path string) bool {
	_, ok := written(path)
	return ok
}

// TrainingOf returns Training of the model at path if this package wrote the file, or else "". It
// reads only the header.
func TrainingOf(path string) string {
	metadata, _ := written(path)
	return metadata[metaTraining]
}

// OriginsOf returns Origins of the model at path. pruned reports whether the file has them or is
// compact, as all files of shaver prune were before. It reads only the header.
func OriginsOf(path string) (origins []string, pruned bool) {
	metadata, ok := written(path)
	if !ok {
		return nil, false
	}
	origins, err := originsOf(metadata)
	_, isCompact := metadata[metaCompact]
	return origins, err == nil && (isCompact || origins != nil)
}

// written returns the metadata of the file at path if this package wrote it.
func written(path string) (metadata map[string]string, ok bool) {
	metadata, err := tensor.Metadata(path)
	return metadata, err == nil && metadata[metaArchitecture] != ""
}

// writeWhole writes content to path, all of it or nothing, and returns its length in
// bytes.
func writeWhole(path string, content io.WriterTo) (written int64, err error) {
	err = atomicfile.Write(path, func(w io.Writer) (err error) {
		written, err = content.WriteTo(w)
		return err
	})
	return written, err
}
