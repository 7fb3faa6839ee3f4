package graph

import (
	"fmt"
	"math"
	"slices"
)

// Limits of a single value.
const (
	MaxRank     = 16            // axes of a value
	MaxElements = math.MaxInt32 // elements of a value
)

// String returns the name of the type in ONNX.
func (t Type) String() string {
	switch t {
	case Float:
		return "float"
	case Int:
		return "int64"
	case Bool:
		return "bool"
	default:
		return fmt.Sprintf("type %d", uint8(t))
	}
}

// Count returns the number of elements of a shape. It fails if the shape has more than
// MaxRank axes, a negative size, or more than MaxElements elements.
func Count(shape []int) (int, error) {
	if len(shape) > MaxRank {
		return 0, fmt.Errorf("%d axes, expected at most %d", len(shape), MaxRank)
	}
	product, empty := int64(1), false
	for _, size := range shape {
		switch {
		case size < 0:
			return 0, fmt.Errorf("shape %v has a negative size", shape)
		case size == 0:
			empty = true
		case int64(size) > MaxElements/product:
			return 0, fmt.Errorf("shape %v has more than %d elements", shape, MaxElements)
		default:
			product *= int64(size)
		}
	}
	if empty {
		return 0, nil
	}
	return int(product), nil
}

// count is Count for a shape that was checked.
func count(shape []int) int {
	product := 1
	for _, size := range shape {
		product *= size
	}
	return product
}

// Check returns an error if the type or the shape is invalid, or if the slices do not have
// the lengths that type and shape require.
func (t *Tensor) Check() error {
	elements, err := Count(t.Shape)
	if err != nil {
		return fmt.Errorf("tensor %.100q: %w", t.Name, err)
	}
	want := [3]int{}
	switch t.Type {
	case Float, Int, Bool:
		want[t.Type-Float] = elements
	default:
		return fmt.Errorf("tensor %.100q: unknown %v", t.Name, t.Type)
	}
	if have := [3]int{len(t.Floats), len(t.Ints), len(t.Bools)}; have != want {
		return fmt.Errorf("tensor %.100q: %d floats, %d ints and %d bools for %v%v", t.Name, have[0], have[1], have[2], t.Type, t.Shape)
	}
	return nil
}

// Len returns the number of elements.
func (t *Tensor) Len() int { return len(t.Floats) + len(t.Ints) + len(t.Bools) }

// NewFloats returns a tensor of floats, which it does not copy.
func NewFloats(data []float32, shape ...int) *Tensor {
	return &Tensor{Type: Float, Shape: shape, Floats: data}
}

// NewDoubles returns a tensor of floats whose elements are known in float64. Evaluate and Run
// compute with these, and their results have such elements too. It is for finite
// differences.
func NewDoubles(data []float64, shape ...int) *Tensor {
	t := &Tensor{Type: Float, Shape: shape, Floats: make([]float32, len(data)), doubles: data}
	for i, v := range data {
		t.Floats[i] = float32(v)
	}
	return t
}

// Doubles returns the elements of a tensor of floats in float64.
func (t *Tensor) Doubles() []float64 {
	list := make([]float64, len(t.Floats))
	for i := range list {
		list[i] = t.float(i)
	}
	return list
}

// float returns an element of a tensor of floats.
func (t *Tensor) float(i int) float64 {
	if t.doubles != nil {
		return t.doubles[i]
	}
	return float64(t.Floats[i])
}

// setFloat sets an element of a tensor of floats.
func (t *Tensor) setFloat(i int, v float64) {
	if t.Floats[i] = float32(v); t.doubles != nil {
		t.doubles[i] = v
	}
}

// NewInts returns a tensor of whole numbers, which it does not copy.
func NewInts(data []int64, shape ...int) *Tensor {
	return &Tensor{Type: Int, Shape: shape, Ints: data}
}

// NewBools returns a tensor of truth values, which it does not copy.
func NewBools(data []bool, shape ...int) *Tensor {
	return &Tensor{Type: Bool, Shape: shape, Bools: data}
}

// newTensor allocates a tensor of zeros.
func newTensor(t Type, shape []int) *Tensor {
	out := &Tensor{Type: t, Shape: shape}
	switch n := count(shape); t {
	case Float:
		out.Floats = make([]float32, n)
	case Int:
		out.Ints = make([]int64, n)
	case Bool:
		out.Bools = make([]bool, n)
	}
	return out
}

// set copies an element of from, which has the same type as t, to position at.
func (t *Tensor) set(at int, from *Tensor, element int) {
	switch t.Type {
	case Float:
		t.setFloat(at, from.float(element))
	case Int:
		t.Ints[at] = from.Ints[element]
	case Bool:
		t.Bools[at] = from.Bools[element]
	}
}

// strides returns how far apart neighbours along each axis are.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		out[i] = step
		step *= shape[i]
	}
	return out
}

// broadcastStrides returns the strides with which a tensor of the shape from is read as a
// tensor of the shape to. from must broadcast to to.
func broadcastStrides(from, to []int) []int {
	out := make([]int, len(to))
	own := strides(from)
	for i, size := range from {
		if size != 1 {
			out[len(to)-len(from)+i] = own[i]
		}
	}
	return out
}

// broadcast returns the shape to which all shapes broadcast.
func broadcast(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := slices.Repeat([]int{1}, rank)
	for _, s := range shapes {
		for i, size := range s {
			at := &out[rank-len(s)+i]
			switch {
			case *at == 1:
				*at = size
			case size != 1 && size != *at:
				return nil, fmt.Errorf("shapes %v do not broadcast", shapes)
			}
		}
	}
	return out, nil
}

// each visits all positions of a shape in row-major order. For each element of strides,
// which are the strides of a tensor, it passes the offset of the position in that tensor.
func each(shape []int, visit func(offsets []int), strides ...[]int) {
	total := count(shape)
	position := make([]int, len(shape))
	offsets := make([]int, len(strides))
	for range total {
		visit(offsets)
		for axis := len(shape) - 1; axis >= 0; axis-- {
			position[axis]++
			for i, s := range strides {
				offsets[i] += s[axis]
			}
			if position[axis] < shape[axis] {
				break
			}
			for i, s := range strides {
				offsets[i] -= s[axis] * shape[axis]
			}
			position[axis] = 0
		}
	}
}

// axis returns the index of an axis, which counts from the end if it is negative.
func axis(a int64, rank int) (int, error) {
	if a < -int64(rank) || a >= int64(rank) {
		return 0, fmt.Errorf("axis %d of a value with %d axes", a, rank)
	}
	if a < 0 {
		a += int64(rank)
	}
	return int(a), nil
}

// axes reports for each axis whether a list names it. It fails if the list names an axis
// twice.
func axes(list []int64, rank int) ([]bool, error) {
	out := make([]bool, rank)
	for _, a := range list {
		i, err := axis(a, rank)
		if err != nil {
			return nil, err
		}
		if out[i] {
			return nil, fmt.Errorf("axis %d is given twice", a)
		}
		out[i] = true
	}
	return out, nil
}
