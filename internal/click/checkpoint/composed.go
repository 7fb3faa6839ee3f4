package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/base/seal"
	"shaver/internal/click/compact"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/tensor"
)

// A file with a composed table is a safetensors file in which the tensors from which the table is
// computed replace the table, under the keys of the reference models. The metadata hold the shape.
const (
	composedKey    = "embedding.weight" // of the table
	composedPrefix = "embedding."       // before the name of each of the tensors
	tensorCached   = "shaver.tt_cache"  // I32 [cached], ascending features with rows of their own

	metaComposed = "shaver.composed" // version of this form
	metaTable    = "shaver.table"    // JSON object, a composed.Shape

	composedVersion = "1"
)

// keptKeys are the keys of the masks of CERP's tables. A mask has 1 for a kept entry and 0 for others.
var keptKeys = [2]string{composedPrefix + "p_mask", composedPrefix + "q_mask"}

// WriteComposed writes c to path with the tensors of c.Composed in place of the table, all of it or
// nothing, and returns the file's length in bytes. c must have shaver's own names, as New gives them. A
// table that is more than compact.MaxInflation times as large as the file is an input error, because
// no command would read it.
func WriteComposed(path string, c *Checkpoint) (int64, error) {
	f, err := c.composedFile()
	if err != nil {
		return 0, err
	}
	if err := f.Seal(metaDigest); err != nil {
		return 0, err
	}
	return writeWhole(path, f)
}

// composedFile returns the file of WriteComposed, not yet sealed.
func (c *Checkpoint) composedFile() (*tensor.File, error) {
	t := c.Composed
	if err := c.checkComposed(t); err != nil {
		return nil, c.inputf("composed table: %w", err)
	}
	if c.EmbeddingKey != composedKey {
		return nil, c.inputf("the key of the table is %s: a composed table needs %s", tensor.Quote(c.EmbeddingKey), composedKey)
	}
	tensors := c.split()
	delete(tensors, composedKey)
	for k, w := range t.Tensors {
		tensors[composedPrefix+w.Name] = tensor.FromFloat32s(w.Shape, w.Values)
		if t.Shape.Scheme == composed.CERP {
			tensors[keptKeys[k]] = maskTensor(w.Shape, t.Kept[k])
		}
	}
	if t.Shape.Cached > 0 {
		data := make([]byte, 0, 4*len(t.Cache))
		for _, f := range t.Cache {
			data = binary.LittleEndian.AppendUint32(data, uint32(f))
		}
		tensors[tensorCached] = Tensor{DType: I32, Shape: []int{t.Shape.Cached}, Data: data}
	}
	metadata := c.metadata(map[string]string{metaComposed: composedVersion, metaTable: string(mustMarshal(t.Shape)), metaDigest: seal.Blank})
	c.describe(metadata)
	f := tensor.NewFile(tensors, metadata)
	if err := checkInflation(&c.Architecture, f.Size()); err != nil {
		return nil, c.inputf("composed table: %w", err)
	}
	return f, nil
}

// ComposedFootprint returns the footprint of the file of WriteComposed. Package infer needs the
// memory of the whole table.
func (c *Checkpoint) ComposedFootprint() (Footprint, error) {
	f, err := c.composedFile()
	if err != nil {
		return Footprint{}, err
	}
	size := Footprint{File: f.Size(), Memory: 4 * int64(c.Architecture.Parameters())}
	for _, w := range c.Composed.Tensors {
		size.Table += 4 * int64(w.Elements())
		if c.Composed.Shape.Scheme == composed.CERP {
			size.Table += int64(w.Elements()) // of the mask
		}
	}
	size.Table += 4 * int64(len(c.Composed.Cache))
	return size, nil
}

// maskTensor returns the mask of a tensor. A nil kept keeps everything.
func maskTensor(shape []int, kept []bool) Tensor {
	data := slices.Repeat([]byte{1}, shape[0]*shape[1])
	for i, in := range kept {
		if !in {
			data[i] = 0
		}
	}
	return Tensor{DType: U8, Shape: shape, Data: data}
}

// checkComposed returns an error if a table does not fit c or is not complete.
func (c *Checkpoint) checkComposed(t *composed.Table) error {
	if err := t.Check(); err != nil {
		return err
	}
	a := &c.Architecture
	if t.Shape.Features != a.Features() || t.Shape.Dim != a.Dim {
		return fmt.Errorf("it has %d features and %d columns, but the model has %d and %d", t.Shape.Features, t.Shape.Dim, a.Features(), a.Dim)
	}
	if len(t.Cache) != t.Shape.Cached {
		return fmt.Errorf("the cache has %d features, expected %d", len(t.Cache), t.Shape.Cached)
	}
	return nil
}

// checkInflation returns an input error if the table is too large for a file of the given size.
func checkInflation(a *model.Architecture, fileSize int64) error {
	if 4*int64(a.Features())*int64(a.Dim) > compact.MaxInflation*fileSize {
		return fault.Inputf("it claims %s in a file of %d bytes, expected at most %d times as many bytes as the file", a.Size(), fileSize, compact.MaxInflation)
	}
	return nil
}

// takeComposed sets Composed from the tensors of a composed table. In Tensors it replaces them by
// the table, without data. fileSize, in bytes, bounds the table.
func (c *Checkpoint) takeComposed(metadata map[string]string, fileSize int64) error {
	if v := metadata[metaComposed]; v != composedVersion {
		return fault.Inputf("version %s, expected %s", tensor.Quote(v), composedVersion)
	}
	t := &composed.Table{}
	if err := json.Unmarshal([]byte(metadata[metaTable]), &t.Shape); err != nil {
		return fault.Inputf("metadata %s: %w", metaTable, err)
	}
	if err := t.Shape.Validate(); err != nil {
		return fault.Inputf("metadata %s: %w", metaTable, err)
	}
	s, err := layoutIn(metadata)
	if err != nil {
		return err
	}
	if c.has(composedKey) {
		return fault.Inputf("tensor %s is stored next to the tensors that replace it", composedKey)
	}
	c.Architecture = model.Architecture{FieldDims: s.FieldDims, Dim: t.Shape.Dim}
	if err := checkInflation(&c.Architecture, fileSize); err != nil {
		return err
	}
	if err := c.takeTensors(t); err != nil {
		return err
	}
	if err := c.checkComposed(t); err != nil {
		return fault.Inputf("%w", err)
	}
	c.Architecture = model.Architecture{} // recognise finds it
	c.keepKeys()
	c.add(composedKey, Tensor{DType: F32, Shape: []int{t.Shape.Features, t.Shape.Dim}})
	c.Composed = t
	return nil
}

// takeTensors moves the tensors of a table from Tensors to t.
func (c *Checkpoint) takeTensors(t *composed.Table) error {
	take := func(key string, dtype DType, shape []int) (Tensor, error) {
		found, ok := c.Tensors[key]
		if !ok || found.DType != dtype || !slices.Equal(found.Shape, shape) {
			return found, fault.Inputf("expected tensor %s of type %s and shape %s, found %s %s", key, dtype, tensor.ShapeText(shape), found.DType, tensor.ShapeText(found.Shape))
		}
		delete(c.Tensors, key)
		return found, nil
	}
	for k, w := range t.Shape.Tensors() {
		key := composedPrefix + w.Name
		found, err := take(key, F32, w.Shape)
		if err != nil {
			return err
		}
		if w.Values, err = found.Float32s(); err != nil {
			return fault.Inputf("tensor %s %w", key, err)
		}
		t.Tensors = append(t.Tensors, w)
		if t.Shape.Scheme == composed.CERP {
			mask, err := take(keptKeys[k], U8, w.Shape)
			if err != nil {
				return err
			}
			t.Kept[k] = make([]bool, len(mask.Data))
			for i, b := range mask.Data {
				if b > 1 {
					return fault.Inputf("tensor %s has the value %d at %d, expected 0 or 1", keptKeys[k], b, i)
				}
				t.Kept[k][i] = b == 1
			}
		}
	}
	if t.Shape.Cached > 0 {
		ids, err := take(tensorCached, I32, []int{t.Shape.Cached})
		if err != nil {
			return err
		}
		for at := 0; at < len(ids.Data); at += 4 {
			t.Cache = append(t.Cache, int32(binary.LittleEndian.Uint32(ids.Data[at:])))
		}
	}
	return nil
}

// compose adds the data of the table's tensor.
func (c *Checkpoint) compose() error {
	table := c.Tensors[composedKey]
	values := make([]float32, table.Elements())
	c.Composed.All(values)
	for i, x := range values {
		if !tensor.Finite(x) {
			return c.inputf("composed table: entry %d is %v, expected finite numbers", i, x)
		}
	}
	c.Tensors[composedKey] = tensor.FromFloat32s(table.Shape, values)
	return nil
}
