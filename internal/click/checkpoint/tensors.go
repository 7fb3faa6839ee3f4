package checkpoint

import (
	"shaver/internal/base/fault"
	"shaver/internal/base/files"
	"shaver/internal/base/seal"
	"shaver/internal/click/tensor"
)

// Vector is a named list of numbers in a file of WriteVectors.
type Vector struct {
	Name   string
	Values []float32
}

// metaVectors is the metadata of a file of WriteVectors.
const metaVectors = "shaver.vectors"

// WriteVectors writes vectors and a text that describes them to path, all of it or nothing.
// The names differ. The file is a safetensors file with a digest of its content.
func WriteVectors(path, text string, vectors []Vector) error {
	tensors := make(map[string]Tensor, len(vectors))
	for _, v := range vectors {
		tensors[v.Name] = tensor.FromFloat32s([]int{len(v.Values)}, v.Values)
	}
	f := tensor.NewFile(tensors, map[string]string{metaVectors: text, metaDigest: seal.Blank})
	if err := f.Seal(metaDigest); err != nil {
		return err
	}
	_, err := writeWhole(path, f)
	return err
}

// ReadVectors reads a file of WriteVectors. It calls begin with the text, which returns the
// vectors to fill, and then fills them with the values of the vectors with the same names. The
// numbers of values must be equal.
func ReadVectors(path string, begin func(text string) ([]Vector, error)) error {
	file, err := files.Open(path, "the state of a training")
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	data, err := readWhole(path, file, info.Size(), nil)
	if err != nil {
		return err
	}
	return parseVectors(path, data, begin)
}

func parseVectors(name string, data []byte, begin func(text string) ([]Vector, error)) error {
	entries, metadata, err := parseSafetensors(name, data)
	if err != nil {
		return err
	}
	text, ok := metadata[metaVectors]
	if !ok || metadata[metaDigest] == "" {
		return fault.Inputf("%s is not the state of a training: metadata %s or %s is missing", name, metaVectors, metaDigest)
	}
	if err := checkDigest(name, data, metadata); err != nil {
		return err
	}
	into, err := begin(text)
	if err != nil {
		return err
	}
	found := make(map[string]Tensor, len(entries))
	for _, e := range entries {
		found[e.Key] = e.Tensor
	}
	for _, v := range into {
		t, ok := found[v.Name]
		if !ok || t.DType != F32 || t.Elements() != len(v.Values) {
			return fault.Inputf("%s: tensor %s is missing or is not F32 [%d]", name, v.Name, len(v.Values))
		}
		values, err := t.Float32s()
		if err != nil {
			return fault.Inputf("%s: tensor %s %w", name, v.Name, err)
		}
		copy(v.Values, values)
	}
	return nil
}
