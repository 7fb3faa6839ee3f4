package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"shaver/internal/click/compact"
	"shaver/internal/click/tensor"
)

// A compact file of version 5 may store weights of the head in fewer bits than the model has.
// The metadata name these tensors. A tensor of type I8 has one scale for each row, or one in all
// if it has a single row, and its elements are q*scale, rounded to float32. A tensor of type F16
// has no scale. A tensor of type I8 whose numbers take fewer bytes as compact.EncodeBytes codes
// them is a tensor of type U8 with this code, and the metadata have its shape. Readers get float32 numbers, so all programs compute with the same weights.
const (
	metaPacked   = "shaver.packed" // JSON array of the keys, ascending
	metaCoded    = "shaver.coded"  // JSON object of the shapes of coded tensors, by their keys
	tensorScales = "shaver.scales" // F32 [scales]: those of all tensors of type I8, in the order of the keys
)

// packed is a tensor as the file stores it, and what readers get.
type packed struct {
	stored   Tensor // I8 or F16
	scales   []float32
	unpacked Tensor // F32
}

// leastPacked is the least number of elements of a tensor that may be packed.
const leastPacked = 64

// Packable returns the keys of the tensors that Pack can store in fewer bits, ascending. They are
// matrices of floating-point numbers, and columns, such as first-order weights. Biases and the tables are
// not among them.
func (c *Checkpoint) Packable() (keys []string) {
	for key, t := range c.Tensors {
		if key != c.EmbeddingKey && (t.DType == F32 || t.DType == BF16 || t.DType == F16) && t.Elements() >= leastPacked && (matrix(t.Shape) || column(t.Shape)) {
			if _, err := t.Float32View(); err == nil {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// matrix reports whether at least two dimensions of a shape are above 1.
func matrix(shape []int) bool {
	n := 0
	for _, size := range shape {
		if size > 1 {
			n++
		}
	}
	return n >= 2
}

// column reports whether a shape is that of a table of one column.
func column(shape []int) bool { return len(shape) == 2 && shape[0] > 1 && shape[1] == 1 }

// rowLength returns the number of elements that share a scale in a tensor of the given shape. It
// is the last dimension above 1 of a matrix, and all elements of any other tensor.
func rowLength(shape []int) int {
	if matrix(shape) {
		for _, size := range slices.Backward(shape) {
			if size > 1 {
				return size
			}
		}
	}
	n, _ := tensor.Count(shape)
	return n
}

// Pack returns c with some tensors rounded to what a type can store, I8 or F16. WriteMixed stores
// them so. Every other file has them as float32. types holds the types by the keys, which are
// among Packable. A value that F16 cannot hold is an input error.
func (c *Checkpoint) Pack(types map[string]DType) (*Checkpoint, error) {
	changed := *c
	changed.Tensors, changed.packed = maps.Clone(c.Tensors), maps.Clone(c.packed)
	if changed.packed == nil {
		changed.packed = map[string]packed{}
	}
	for key, dtype := range types {
		values, err := c.floats(key)
		if err != nil {
			return nil, err
		}
		p := packed{stored: Tensor{DType: dtype, Shape: c.Tensors[key].Shape}}
		switch dtype {
		case I8:
			p.quantize(values)
		case F16:
			for i, v := range values {
				h, near := compact.Quantizer{Bits: 16}.Nearest(v)
				if max(v, -v) >= 65520 {
					return nil, c.inputf("tensor %s has the value %v at position %d, expected at most %v in magnitude for float16", key, v, i, near)
				}
				p.stored.Data = binary.LittleEndian.AppendUint16(p.stored.Data, uint16(h))
			}
		default:
			panic("checkpoint: Pack: type " + string(dtype))
		}
		p.unpack()
		changed.Tensors[key], changed.packed[key] = p.unpacked, p
	}
	return &changed, nil
}

// quantize sets stored and scales to values, rounded to 255 even levels from -max to max of a row.
func (p *packed) quantize(values []float32) {
	n := rowLength(p.stored.Shape)
	for at := 0; at < len(values); at += n {
		row := values[at : at+n]
		most := float32(0)
		for _, v := range row {
			most = max(most, v, -v)
		}
		scale := most / 127
		p.scales = append(p.scales, scale)
		for _, v := range row {
			q := 0.0
			if scale > 0 {
				q = min(max(math.RoundToEven(float64(v)/float64(scale)), -127), 127)
			}
			p.stored.Data = append(p.stored.Data, byte(int8(q)))
		}
	}
}

// unpack sets unpacked to the values of stored and scales.
func (p *packed) unpack() {
	values := make([]float32, p.stored.Elements())
	n := rowLength(p.stored.Shape)
	for i := range values {
		if p.stored.DType == I8 {
			values[i] = float32(int8(p.stored.Data[i])) * p.scales[i/n]
		} else {
			values[i] = float32(tensor.Half(binary.LittleEndian.Uint16(p.stored.Data[2*i:])))
		}
	}
	p.unpacked = tensor.FromFloat32s(p.stored.Shape, values)
}

// pack replaces tensors of the file to be written by their packed form, and adds what the metadata
// say about them. A tensor that has changed since it was packed is written as it is.
func (c *Checkpoint) pack(tensors map[string]Tensor, metadata map[string]string) {
	var keys []string
	var scales []float32
	coded := map[string][]int{}
	for _, key := range slices.Sorted(maps.Keys(c.packed)) {
		p := c.packed[key]
		if t, ok := tensors[key]; ok && t.Same(p.unpacked) {
			tensors[key] = p.stored
			keys, scales = append(keys, key), append(scales, p.scales...)
			if p.stored.DType != I8 {
				continue
			}
			if code := compact.EncodeBytes(p.stored.Data); len(code) < len(p.stored.Data) {
				tensors[key], coded[key] = Tensor{DType: U8, Shape: []int{len(code)}, Data: code}, p.stored.Shape
			}
		}
	}
	if keys == nil {
		return
	}
	metadata[metaPacked] = string(mustMarshal(keys))
	if len(coded) > 0 {
		metadata[metaCoded] = string(mustMarshal(coded))
	}
	tensors[tensorScales] = tensor.FromFloat32s([]int{len(scales)}, scales)
}

// PackedTypes returns the types in which the file of WriteMixed stores tensors in fewer bits, by
// their keys.
func (c *Checkpoint) PackedTypes() map[string]DType {
	types := map[string]DType{}
	for key, p := range c.packed {
		if c.Tensors[key].Same(p.unpacked) {
			types[key] = p.stored.DType
		}
	}
	return types
}

// takePacked replaces the packed tensors of a file by their values.
func (c *Checkpoint) takePacked(metadata map[string]string) error {
	text, ok := metadata[metaPacked]
	if !ok {
		if _, ok := metadata[metaCoded]; ok {
			return c.inputf("metadata has %s without %s", metaCoded, metaPacked)
		}
		return nil
	}
	if !isMixed(metadata) {
		return c.inputf("metadata %s: only a compact file of version %s has it", metaPacked, mixedVersion)
	}
	var keys []string
	if json.Unmarshal([]byte(text), &keys) != nil || len(keys) == 0 || !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		return c.inputf("metadata %s is %s, expected a JSON array of different keys, ascending", metaPacked, tensor.Quote(text))
	}
	coded, err := c.takeCoded(keys, metadata)
	if err != nil {
		return err
	}
	own := c.Tensors[tensorScales]
	if own.DType != F32 || len(own.Shape) != 1 {
		return c.inputf("expected tensor %s of type F32 and shape [*], found %s %s", tensorScales, own.DType, tensor.ShapeText(own.Shape))
	}
	scales, err := own.Float32s()
	if err != nil {
		return c.inputf("tensor %s %w", tensorScales, err)
	}
	c.packed = map[string]packed{}
	for _, key := range keys {
		p := packed{stored: c.Tensors[key]}
		if t, ok := coded[key]; ok {
			p.stored = t
		}
		n := p.stored.Elements()
		if (p.stored.DType != I8 && p.stored.DType != F16) || n < 1 {
			return c.inputf("metadata %s has the key %s, expected that of a tensor of type I8 or F16", metaPacked, tensor.Quote(key))
		}
		if p.stored.DType == I8 {
			rows := n / rowLength(p.stored.Shape)
			if rows > len(scales) {
				return c.inputf("tensor %s ends before the %d scales of %s", tensorScales, rows, key)
			}
			p.scales, scales = scales[:rows], scales[rows:]
			if slices.ContainsFunc(p.scales, func(s float32) bool { return s < 0 || s > math.MaxFloat32/128 }) {
				return c.inputf("tensor %s has a scale of %s outside [0, %g]", tensorScales, key, math.MaxFloat32/128)
			}
		}
		p.unpack()
		if _, err := p.unpacked.Float32View(); err != nil {
			return c.inputf("tensor %s %w", key, err)
		}
		c.Tensors[key], c.packed[key] = p.unpacked, p
	}
	if len(scales) > 0 {
		return c.inputf("tensor %s has %d numbers after the last scale", tensorScales, len(scales))
	}
	delete(c.Tensors, tensorScales)
	c.keepKeys()
	return nil
}

// takeCoded returns the coded tensors of a file as those of type I8. keys are those of all packed
// tensors.
func (c *Checkpoint) takeCoded(keys []string, metadata map[string]string) (map[string]Tensor, error) {
	text, ok := metadata[metaCoded]
	if !ok {
		return nil, nil
	}
	var shapes map[string][]int
	if json.Unmarshal([]byte(text), &shapes) != nil || len(shapes) == 0 {
		return nil, c.inputf("metadata %s is %s, expected a JSON object of shapes by the keys of tensors", metaCoded, tensor.Quote(text))
	}
	coded := map[string]Tensor{}
	for _, key := range slices.Sorted(maps.Keys(shapes)) {
		t, shape := c.Tensors[key], shapes[key]
		n, ok := tensor.Count(shape)
		switch _, listed := slices.BinarySearch(keys, key); {
		case !listed:
			return nil, c.inputf("metadata %s has the key %s, expected one of those of %s", metaCoded, tensor.Quote(key), metaPacked)
		case t.DType != U8 || len(t.Shape) != 1:
			return nil, c.inputf("metadata %s has the key %s of a tensor %s %s, expected type U8 and shape [*]", metaCoded, tensor.Quote(key), t.DType, tensor.ShapeText(t.Shape))
		case !ok:
			return nil, c.inputf("metadata %s has the shape %s for %s: expected sizes of at least 0 whose product is one of a tensor", metaCoded, tensor.ShapeText(shape), key)
		}
		data, err := compact.DecodeBytes(t.Data, n)
		if err != nil {
			return nil, c.inputf("tensor %s has %w", key, err)
		}
		coded[key] = Tensor{DType: I8, Shape: shape, Data: data}
	}
	return coded, nil
}
