package modelfile

import (
	"io"

	"shaver/internal/click/model"
)

// Source is a model in the file of a user, in whatever form. It is read-only, and may be shared between goroutines.
type Source interface {
	// Digest returns the SHA-256 of the canonical file, in hexadecimal, which identifies the model.
	Digest() string
	// Size returns the length of the canonical file in bytes.
	Size() int64
	// WriterTo writes the canonical file.
	io.WriterTo
	// Model returns the model, which may share memory with the source.
	Model() (*model.Model, error)
	// Known returns what the file says about the fields and dense inputs.
	Known() *model.Known
}
