package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// free has the operators that compute nothing from a row, except Cast. They only move
// elements, or their result depends on shapes and constants alone.
var free = map[string]operator{
	"Constant": {
		attributes: "value:t value_float:f value_floats:fs value_int:i value_ints:is",
		infer:      inferConstant, evaluate: evaluateConstant, given: true,
	},
	"Identity":        {inputs: "A", infer: inferSame, same: true},
	"Dropout":         {inputs: "A f?! b?!", attributes: "seed:i", infer: inferDropout, same: true},
	"Cast":            {inputs: "x", attributes: "to:i saturate:i", infer: inferCast, evaluate: evaluateCast},
	"Shape":           {inputs: "x", attributes: "start:i end:i", infer: inferShape, evaluate: evaluateShape, static: true},
	"Size":            {inputs: "x", infer: inferSize, evaluate: evaluateSize, static: true},
	"EyeLike":         {inputs: "x", attributes: "dtype:i k:i", infer: inferEyeLike, evaluate: evaluateEyeLike, static: true},
	"Reshape":         {inputs: "A i!", attributes: "allowzero:i", infer: inferReshape, same: true},
	"Flatten":         {inputs: "A", attributes: "axis:i", infer: inferFlatten, same: true},
	"Squeeze":         {inputs: "A i?!", infer: inferSqueeze, same: true},
	"Unsqueeze":       {inputs: "A i!", infer: inferUnsqueeze, same: true},
	"Transpose":       {inputs: "A", attributes: "perm:is", infer: inferTranspose, relabel: relabelTranspose},
	"Slice":           {inputs: "A i! i! i?! i?!", infer: inferSlice, relabel: relabelSlice},
	"Split":           {inputs: "A i?!", attributes: "axis:i num_outputs:i", infer: inferSplit, relabel: relabelSplit},
	"Concat":          {inputs: "A*", attributes: "axis:i", infer: inferConcat, relabel: relabelConcat},
	"Expand":          {inputs: "A i!", infer: inferExpand, relabel: relabelExpand},
	"Tile":            {inputs: "A i!", infer: inferTile, relabel: relabelTile},
	"Pad":             {inputs: "A i! A?~ i?!", attributes: "mode:s", infer: inferPad, relabel: relabelPad},
	"Trilu":           {inputs: "A i?!", attributes: "upper:i", infer: inferTrilu, relabel: relabelTrilu},
	"Range":           {inputs: "N! N! N!", infer: inferRange, evaluate: evaluateRange},
	"ConstantOfShape": {inputs: "i!", attributes: "value:t", infer: inferConstantOfShape, evaluate: evaluateConstantOfShape},
	"NonZero":         {inputs: "x!", infer: inferNonZero, evaluate: evaluateNonZero},
	"OneHot":          {inputs: "n! n! x!", attributes: "axis:i", infer: inferOneHot, evaluate: evaluateOneHot},
}

func inferSame(c *call) ([]Info, error) { return one(c.in[0].Type, c.shape(0)), nil }

// inferConstant describes the tensor in the attribute. There must be exactly one attribute.
func inferConstant(c *call) ([]Info, error) {
	if len(c.attributes) != 1 {
		return nil, fmt.Errorf("%d attributes, expected one that holds the value", len(c.attributes))
	}
	t := c.value()
	return one(t.Type, t.Shape), nil
}

// value returns the tensor of a Constant.
func (c *call) value() *Tensor {
	for _, value := range c.attributes {
		switch v := value.(type) {
		case float32:
			return NewFloats([]float32{v})
		case []float32:
			return NewFloats(v, len(v))
		case int64:
			return NewInts([]int64{v})
		case []int64:
			return NewInts(v, len(v))
		case *Tensor:
			return v
		}
	}
	return nil
}

func evaluateConstant(c *call, out []*Tensor) error {
	out[0] = c.value()
	return nil
}

func inferDropout(c *call) ([]Info, error) {
	if c.has(2) && (c.tensor(2).Len() != 1 || c.tensor(2).Bools[0]) {
		return nil, errors.New("training mode is not supported, expected a model for inference")
	}
	return inferSame(c)
}

// Types of elements in ONNX files, TensorProto.DataType.
const (
	onnxFloat    = 1
	onnxUint8    = 2
	onnxInt8     = 3
	onnxUint16   = 4
	onnxInt16    = 5
	onnxInt32    = 6
	onnxInt64    = 7
	onnxBool     = 9
	onnxFloat16  = 10
	onnxDouble   = 11
	onnxUint32   = 12
	onnxUint64   = 13
	onnxBfloat16 = 16
)

// typeOf returns the Type for an element type of ONNX.
func typeOf(onnx int64) (Type, error) {
	switch onnx {
	case onnxFloat, onnxFloat16, onnxDouble, onnxBfloat16:
		return Float, nil
	case onnxUint8, onnxInt8, onnxUint16, onnxInt16, onnxInt32, onnxInt64, onnxUint32, onnxUint64:
		return Int, nil
	case onnxBool:
		return Bool, nil
	default:
		return 0, fmt.Errorf("element type %d of ONNX is not supported, expected floats, ints or bools", onnx)
	}
}

func inferCast(c *call) ([]Info, error) {
	t, err := typeOf(c.int("to", 0))
	return one(t, c.shape(0)), err
}

// evaluateCast rounds floats towards zero. A number that does not fit into an integer type
// wraps, and one below 0 is refused for uint64. A float that does not fit into an int64 first becomes the nearest int64, and NaN
// becomes 0. A cast between floating-point types keeps the float32.
func evaluateCast(c *call, out []*Tensor) error {
	from, to := c.tensor(0), c.int("to", 0)
	for i := range out[0].Len() {
		var number int64
		var truth bool
		switch from.Type {
		case Float:
			f := from.float(i)
			number, truth = truncate(f), f != 0
			if out[0].Type == Float {
				out[0].setFloat(i, f)
				continue
			}
		case Int:
			number = from.Ints[i]
			truth = number != 0
		case Bool:
			if truth = from.Bools[i]; truth {
				number = 1
			}
		}
		if to == onnxUint64 && number < 0 {
			return fmt.Errorf("%d as a uint64, expected at least 0", number)
		}
		switch out[0].Type {
		case Float:
			out[0].Floats[i] = float32(number)
		case Int:
			out[0].Ints[i] = wrap(number, to)
		case Bool:
			out[0].Bools[i] = truth
		}
	}
	return nil
}

// truncate rounds towards zero.
func truncate(f float64) int64 {
	switch {
	case f != f:
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	default:
		return int64(f)
	}
}

// wrap returns a number as the given element type of ONNX stores it.
func wrap(number, onnx int64) int64 {
	switch onnx {
	case onnxUint8:
		return int64(uint8(number))
	case onnxInt8:
		return int64(int8(number))
	case onnxUint16:
		return int64(uint16(number))
	case onnxInt16:
		return int64(int16(number))
	case onnxInt32:
		return int64(int32(number))
	case onnxUint32:
		return int64(uint32(number))
	default:
		return number
	}
}

// shapeRange returns the part of the shape between the attributes start and end of Shape.
func (c *call) shapeRange() []int {
	shape := c.shape(0)
	rank := int64(len(shape))
	clamp := func(a int64) int64 {
		if a < 0 {
			a += rank
		}
		return min(max(a, 0), rank)
	}
	start, end := clamp(c.int("start", 0)), clamp(c.int("end", rank))
	return shape[start:max(start, end)]
}

func inferShape(c *call) ([]Info, error) { return one(Int, []int{len(c.shapeRange())}), nil }

func evaluateShape(c *call, out []*Tensor) error {
	for i, size := range c.shapeRange() {
		out[0].Ints[i] = int64(size)
	}
	return nil
}

func inferSize(*call) ([]Info, error) { return one(Int, nil), nil }

func evaluateSize(c *call, out []*Tensor) error {
	out[0].Ints[0] = int64(count(c.shape(0)))
	return nil
}

func inferEyeLike(c *call) ([]Info, error) {
	if len(c.shape(0)) != 2 {
		return nil, fmt.Errorf("shape %v, expected a matrix", c.shape(0))
	}
	if _, ok := c.attributes["dtype"]; ok {
		t, err := typeOf(c.int("dtype", 0))
		return one(t, c.shape(0)), err
	}
	return inferSame(c)
}

func evaluateEyeLike(c *call, out []*Tensor) error {
	rows, columns := c.shape(0)[0], c.shape(0)[1]
	k := c.int("k", 0)
	if k < -int64(rows) || k > int64(columns) {
		return nil
	}
	for i := range rows {
		j := i + int(k)
		if j < 0 || j >= columns {
			continue
		}
		switch at := i*columns + j; out[0].Type {
		case Float:
			out[0].setFloat(at, 1)
		case Int:
			out[0].Ints[at] = 1
		case Bool:
			out[0].Bools[at] = true
		}
	}
	return nil
}

func inferReshape(c *call) ([]Info, error) {
	list, err := c.list(1)
	if err != nil {
		return nil, err
	}
	if len(list) > MaxRank {
		return nil, fmt.Errorf("%d axes, expected at most %d", len(list), MaxRank)
	}
	from := c.shape(0)
	to := make([]int, len(list))
	open := -1
	for i, size := range list {
		switch {
		case size == -1 && open < 0:
			open = i
			to[i] = 1
		case size == 0 && c.int("allowzero", 0) == 0:
			if i >= len(from) {
				return nil, fmt.Errorf("the shape %v keeps axis %d, which %v does not have", list, i, from)
			}
			to[i] = from[i]
		case size < 0 || size > MaxElements:
			return nil, fmt.Errorf("invalid shape %v", list)
		default:
			to[i] = int(size)
		}
	}
	have, want := count(from), 0
	if want, err = Count(to); err != nil {
		return nil, err
	}
	if open >= 0 && want > 0 && have%want == 0 {
		to[open] = have / want
		want = have
	}
	if have != want {
		return nil, fmt.Errorf("%v does not have as many elements as %v", list, from)
	}
	return one(c.in[0].Type, to), nil
}

func inferFlatten(c *call) ([]Info, error) {
	shape := c.shape(0)
	a := c.int("axis", 1)
	if a != int64(len(shape)) {
		i, err := axis(a, len(shape))
		if err != nil {
			return nil, err
		}
		a = int64(i)
	}
	return one(c.in[0].Type, []int{count(shape[:a]), count(shape[a:])}), nil
}

func inferSqueeze(c *call) ([]Info, error) {
	shape := c.shape(0)
	list, err := c.list(1)
	if err != nil {
		return nil, err
	}
	drop, err := axes(list, len(shape))
	if err != nil {
		return nil, err
	}
	out := []int{}
	for i, size := range shape {
		switch {
		case !c.has(1) && size == 1:
		case !drop[i]:
			out = append(out, size)
		case size != 1:
			return nil, fmt.Errorf("axis %d of the shape %v does not have size 1", i, shape)
		}
	}
	return one(c.in[0].Type, out), nil
}

func inferUnsqueeze(c *call) ([]Info, error) {
	shape := c.shape(0)
	list, err := c.list(1)
	if err != nil {
		return nil, err
	}
	if len(list) > MaxRank {
		return nil, fmt.Errorf("%d new axes, expected at most %d", len(list), MaxRank)
	}
	insert, err := axes(list, len(shape)+len(list))
	if err != nil {
		return nil, err
	}
	out := make([]int, len(insert))
	for i := range out {
		if insert[i] {
			out[i] = 1
		} else {
			out[i], shape = shape[0], shape[1:]
		}
	}
	return one(c.in[0].Type, out), nil
}

// permutation returns the input's axis for each axis of the output of Transpose.
func (c *call) permutation() []int64 {
	if p, ok := c.attributes["perm"]; ok {
		return p.([]int64)
	}
	out := make([]int64, len(c.shape(0)))
	for i := range out {
		out[i] = int64(len(out) - 1 - i)
	}
	return out
}

func inferTranspose(c *call) ([]Info, error) {
	shape, perm := c.shape(0), c.permutation()
	if len(perm) != len(shape) {
		return nil, fmt.Errorf("%d axes in perm, expected %d", len(perm), len(shape))
	}
	if _, err := axes(perm, len(shape)); err != nil {
		return nil, fmt.Errorf("perm: %w", err)
	}
	out := make([]int, len(shape))
	for i, p := range perm {
		if p < 0 {
			return nil, fmt.Errorf("perm has the axis %d, expected 0 to %d", p, len(shape)-1)
		}
		out[i] = shape[p]
	}
	return one(c.in[0].Type, out), nil
}

func relabelTranspose(c *call, emit func(output, input, element int)) {
	own := strides(c.shape(0))
	to, step := make([]int, len(own)), make([]int, len(own))
	for i, p := range c.permutation() {
		to[i], step[i] = c.shape(0)[p], own[p]
	}
	each(to, func(at []int) { emit(0, 0, at[0]) }, step)
}

// window is what Slice takes of an axis.
type window struct{ start, step, size int }

// windows returns what Slice takes of each axis.
func (c *call) windows() ([]window, error) {
	shape := c.shape(0)
	out := make([]window, len(shape))
	for i, size := range shape {
		out[i] = window{step: 1, size: size}
	}
	var lists [4][]int64
	for i := range lists {
		var err error
		if lists[i], err = c.list(i + 1); err != nil {
			return nil, err
		}
		if c.has(i+1) && len(lists[i]) != len(lists[0]) {
			return nil, fmt.Errorf("input %d has %d numbers, expected as many as there are starts, %d", i+2, len(lists[i]), len(lists[0]))
		}
	}
	which := lists[2]
	if !c.has(3) {
		if len(lists[0]) > len(shape) {
			return nil, fmt.Errorf("%d starts for the shape %v", len(lists[0]), shape)
		}
		for i := range lists[0] {
			which = append(which, int64(i))
		}
	}
	if _, err := axes(which, len(shape)); err != nil {
		return nil, err
	}
	for i, a := range which {
		at, _ := axis(a, len(shape))
		step := int64(1)
		if c.has(4) {
			step = lists[3][i]
		}
		if step == 0 {
			return nil, errors.New("a step is 0")
		}
		out[at] = slice(lists[0][i], lists[1][i], step, int64(shape[at]))
	}
	return out, nil
}

// slice returns the window that Slice takes of an axis of the given size.
func slice(start, end, step, size int64) window {
	low, high := int64(0), size
	if step < 0 {
		low, high = -1, size-1
	}
	clamp := func(a int64) int64 {
		if a < 0 {
			a += size
		}
		return min(max(a, low), high)
	}
	start, end = clamp(start), clamp(end)
	if start == end || start < end != (step > 0) {
		return window{step: 1}
	}
	n := (end - start) / step
	if n*step != end-start {
		n++
	}
	if n == 1 {
		step = 1 // the given step may be huge
	}
	return window{start: int(start), step: int(step), size: int(n)}
}

func inferSlice(c *call) ([]Info, error) {
	windows, err := c.windows()
	out := make([]int, len(windows))
	for i, w := range windows {
		out[i] = w.size
	}
	return one(c.in[0].Type, out), err
}

func relabelSlice(c *call, emit func(output, input, element int)) {
	windows, _ := c.windows()
	own, to := strides(c.shape(0)), make([]int, len(windows))
	start := 0
	for i, w := range windows {
		start += w.start * own[i]
		own[i] *= w.step
		to[i] = w.size
	}
	each(to, func(at []int) { emit(0, 0, start+at[0]) }, own)
}

// maxOutputs bounds the attribute num_outputs of Split.
const maxOutputs = 1 << 16

// parts returns the axis of a Split and the sizes of its outputs along this axis.
func (c *call) parts() (int, []int, error) {
	shape := c.shape(0)
	at, err := c.axis(0, len(shape))
	if err != nil {
		return 0, nil, err
	}
	size := int64(shape[at])
	n, equal := c.attributes["num_outputs"]
	if equal == c.has(1) {
		return 0, nil, errors.New("expected either sizes or num_outputs")
	}
	if !equal {
		list, err := c.list(1)
		if err != nil {
			return 0, nil, err
		}
		if len(list) == 0 {
			return 0, nil, errors.New("there are no sizes")
		}
		out := make([]int, len(list))
		for i, part := range list {
			if part < 0 || part > size {
				return 0, nil, fmt.Errorf("the sizes %v do not add up to %d", list, size)
			}
			out[i] = int(part)
			size -= part
		}
		if size != 0 {
			return 0, nil, fmt.Errorf("the sizes %v do not add up to %d", list, shape[at])
		}
		return at, out, nil
	}
	parts := n.(int64)
	if parts < 1 || parts > min(size, maxOutputs) {
		return 0, nil, fmt.Errorf("%d outputs for an axis of size %d", parts, size)
	}
	chunk := (size + parts - 1) / parts
	out := slices.Repeat([]int{int(chunk)}, int(parts))
	last := size - chunk*(parts-1)
	if last < 0 {
		return 0, nil, fmt.Errorf("%d outputs of size %d for an axis of size %d", parts, chunk, size)
	}
	out[parts-1] = int(last)
	return at, out, nil
}

func inferSplit(c *call) ([]Info, error) {
	at, sizes, err := c.parts()
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(sizes))
	for i, size := range sizes {
		shape := slices.Clone(c.shape(0))
		shape[at] = size
		out[i] = Info{Type: c.in[0].Type, Shape: shape}
	}
	return out, nil
}

func relabelSplit(c *call, emit func(output, input, element int)) {
	at, sizes, _ := c.parts()
	own, to := strides(c.shape(0)), slices.Clone(c.shape(0))
	start := 0
	for i, size := range sizes {
		to[at] = size
		each(to, func(offsets []int) { emit(i, 0, start+offsets[0]) }, own)
		start += size * own[at]
	}
}

func inferConcat(c *call) ([]Info, error) {
	if _, ok := c.attributes["axis"]; !ok {
		return nil, errors.New("the attribute axis is missing")
	}
	out := slices.Clone(c.shape(0))
	at, err := c.axis(0, len(out))
	if err != nil {
		return nil, err
	}
	for i := range c.in[1:] {
		shape := c.shape(i + 1)
		for a := range max(len(out), len(shape)) {
			if len(shape) != len(out) || a != at && shape[a] != out[a] {
				return nil, fmt.Errorf("input %d has the shape %v, and input 1 has %v", i+2, shape, c.shape(0))
			}
		}
		out[at] += shape[at]
	}
	return one(c.in[0].Type, out), nil
}

func relabelConcat(c *call, emit func(output, input, element int)) {
	at, _ := c.axis(0, len(c.shape(0)))
	for i := range count(c.shape(0)[:at]) {
		for k := range c.in {
			size := count(c.shape(k)[at:])
			for j := range size {
				emit(0, k, i*size+j)
			}
		}
	}
}

// sizes returns a constant input of sizes.
func (c *call) sizes(i int) ([]int, error) {
	list, err := c.list(i)
	if err != nil {
		return nil, err
	}
	if len(list) > MaxRank {
		return nil, fmt.Errorf("%d axes, expected at most %d", len(list), MaxRank)
	}
	out := make([]int, len(list))
	for k, size := range list {
		if size < 0 || size > MaxElements {
			return nil, fmt.Errorf("input %d has the size %d, expected 0 to %d", i+1, size, MaxElements)
		}
		out[k] = int(size)
	}
	return out, nil
}

func inferExpand(c *call) ([]Info, error) {
	sizes, err := c.sizes(1)
	if err != nil {
		return nil, err
	}
	out, err := broadcast(c.shape(0), sizes)
	return one(c.in[0].Type, out), err
}

func relabelExpand(c *call, emit func(output, input, element int)) {
	sizes, _ := c.sizes(1)
	to, _ := broadcast(c.shape(0), sizes)
	each(to, func(at []int) { emit(0, 0, at[0]) }, broadcastStrides(c.shape(0), to))
}

func inferTile(c *call) ([]Info, error) {
	repeats, err := c.sizes(1)
	if err != nil {
		return nil, err
	}
	if len(repeats) != len(c.shape(0)) {
		return nil, fmt.Errorf("%d repeats for the shape %v, expected one for each axis", len(repeats), c.shape(0))
	}
	for i, size := range c.shape(0) {
		repeats[i] *= size
	}
	return one(c.in[0].Type, repeats), nil
}

func relabelTile(c *call, emit func(output, input, element int)) {
	// Each axis becomes two: the repeats, and the axis itself.
	var to, step []int
	repeats, _ := c.sizes(1)
	for i, s := range strides(c.shape(0)) {
		to = append(to, repeats[i], c.shape(0)[i])
		step = append(step, 0, s)
	}
	each(to, func(at []int) { emit(0, 0, at[0]) }, step)
}

// pads returns how many elements are added before and after each axis. A negative number
// removes elements.
func (c *call) pads() (before, after []int, err error) {
	shape := c.shape(0)
	list, err := c.list(1)
	if err != nil {
		return nil, nil, err
	}
	var which []int64
	if c.has(3) {
		if which, err = c.list(3); err != nil {
			return nil, nil, err
		}
	} else {
		for i := range shape {
			which = append(which, int64(i))
		}
	}
	if _, err := axes(which, len(shape)); err != nil {
		return nil, nil, err
	}
	if len(list) != 2*len(which) {
		return nil, nil, fmt.Errorf("%d pads for %d axes, expected twice as many", len(list), len(which))
	}
	before, after = make([]int, len(shape)), make([]int, len(shape))
	for i, a := range which {
		at, _ := axis(a, len(shape))
		for k, side := range [][]int{before, after} {
			pad := list[i+k*len(which)]
			if pad < -MaxElements || pad > MaxElements {
				return nil, nil, fmt.Errorf("a pad is %d", pad)
			}
			side[at] = int(pad)
		}
	}
	return before, after, nil
}

func inferPad(c *call) ([]Info, error) {
	if mode := c.string("mode", "constant"); mode != "constant" {
		return nil, fmt.Errorf("mode %.100q is not supported, expected constant", mode)
	}
	if c.has(2) && count(c.shape(2)) != 1 {
		return nil, fmt.Errorf("input 3 has the shape %v, expected one number", c.shape(2))
	}
	before, after, err := c.pads()
	if err != nil {
		return nil, err
	}
	out := slices.Clone(c.shape(0))
	for i := range out {
		if before[i] < -out[i] || after[i] < -out[i] || before[i]+after[i] < -out[i] {
			return nil, fmt.Errorf("pads %v and %v remove more than %v has", before, after, c.shape(0))
		}
		out[i] += before[i] + after[i]
	}
	return one(c.in[0].Type, out), nil
}

func relabelPad(c *call, emit func(output, input, element int)) {
	before, after, _ := c.pads()
	shape, own := c.shape(0), strides(c.shape(0))
	value := Nothing
	if c.has(2) {
		value = 2
	}
	var visit func(axis, start int, inside bool)
	visit = func(axis, start int, inside bool) {
		if axis == len(shape) {
			if inside {
				emit(0, 0, start)
			} else {
				emit(0, value, 0)
			}
			return
		}
		for i := -before[axis]; i < shape[axis]+after[axis]; i++ {
			visit(axis+1, start+i*own[axis], inside && i >= 0 && i < shape[axis])
		}
	}
	visit(0, 0, true)
}

func inferTrilu(c *call) ([]Info, error) {
	if len(c.shape(0)) < 2 {
		return nil, fmt.Errorf("shape %v, expected at least two axes", c.shape(0))
	}
	if c.has(1) {
		if _, err := c.one(1); err != nil {
			return nil, err
		}
	}
	return inferSame(c)
}

func relabelTrilu(c *call, emit func(output, input, element int)) {
	shape := c.shape(0)
	rows, columns := shape[len(shape)-2], shape[len(shape)-1]
	k := int64(0)
	if c.has(1) {
		k, _ = c.one(1)
	}
	k = min(max(k, -int64(rows)-1), int64(columns)+1)
	upper := c.int("upper", 1) != 0
	for at := range count(shape) {
		i, j := at/columns%rows, at%columns
		above := int64(j-i) - k // above the diagonal
		if upper && above >= 0 || !upper && above <= 0 {
			emit(0, 0, at)
		} else {
			emit(0, Nothing, 0)
		}
	}
}

func inferRange(c *call) ([]Info, error) {
	for i := range c.in {
		if count(c.shape(i)) != 1 {
			return nil, fmt.Errorf("input %d has the shape %v, expected one number", i+1, c.shape(i))
		}
	}
	n := 0.0
	if c.in[0].Type == Float {
		start, limit, delta := float64(c.tensor(0).Floats[0]), float64(c.tensor(1).Floats[0]), float64(c.tensor(2).Floats[0])
		n = math.Ceil((limit - start) / delta)
	} else {
		start, limit, delta := c.tensor(0).Ints[0], c.tensor(1).Ints[0], c.tensor(2).Ints[0]
		n = math.Ceil((float64(limit) - float64(start)) / float64(delta))
	}
	if !(n <= MaxElements) { // or n is NaN
		return nil, fmt.Errorf("the range has %g elements, expected at most %d", n, MaxElements)
	}
	return one(c.in[0].Type, []int{int(max(n, 0))}), nil
}

func evaluateRange(c *call, out []*Tensor) error {
	for i := range out[0].Floats {
		start, delta := float64(c.tensor(0).Floats[0]), float64(c.tensor(2).Floats[0])
		out[0].Floats[i] = float32(start + float64(i)*delta)
	}
	for i := range out[0].Ints {
		out[0].Ints[i] = c.tensor(0).Ints[0] + int64(i)*c.tensor(2).Ints[0]
	}
	return nil
}

func inferConstantOfShape(c *call) ([]Info, error) {
	sizes, err := c.sizes(0)
	if err != nil {
		return nil, err
	}
	v, ok := c.attributes["value"]
	if !ok {
		return one(Float, sizes), nil
	}
	value := v.(*Tensor)
	if value.Len() != 1 {
		return nil, fmt.Errorf("the value has the shape %v, expected one element", value.Shape)
	}
	return one(value.Type, sizes), nil
}

func evaluateConstantOfShape(c *call, out []*Tensor) error {
	v, ok := c.attributes["value"]
	for i := range out[0].Len() {
		if ok {
			out[0].set(i, v.(*Tensor), 0)
		}
	}
	return nil
}

// nonZero reports whether an element is not 0.
func (t *Tensor) nonZero(i int) bool {
	switch t.Type {
	case Float:
		return t.Floats[i] != 0
	case Int:
		return t.Ints[i] != 0
	default:
		return t.Bools[i]
	}
}

func inferNonZero(c *call) ([]Info, error) {
	t, n := c.tensor(0), 0
	for i := range t.Len() {
		if t.nonZero(i) {
			n++
		}
	}
	return one(Int, []int{len(t.Shape), n}), nil
}

func evaluateNonZero(c *call, out []*Tensor) error {
	t, n, columns := c.tensor(0), 0, out[0].Shape[1]
	own := strides(t.Shape)
	for i := range t.Len() {
		if !t.nonZero(i) {
			continue
		}
		for axis, size := range t.Shape {
			out[0].Ints[axis*columns+n] = int64(i / own[axis] % size)
		}
		n++
	}
	return nil
}

// whole returns element i of t, which has numbers, as a whole number. It is the least one
// for a float beyond 2^31.
func (t *Tensor) whole(i int) int64 {
	if t.Type != Float {
		return t.Ints[i]
	}
	if f := t.Floats[i]; f > -1<<31 && f < 1<<31 {
		return int64(f)
	}
	return math.MinInt64
}

func inferOneHot(c *call) ([]Info, error) {
	depth, values := c.tensor(1), c.tensor(2)
	if depth.Len() != 1 || values.Len() != 2 {
		return nil, fmt.Errorf("the depth has the shape %v and the values have %v, expected one number and two values", depth.Shape, values.Shape)
	}
	if n := depth.whole(0); n < 1 || n > MaxElements {
		return nil, fmt.Errorf("the depth is %d, expected 1 to %d", n, MaxElements)
	}
	shape := c.shape(0)
	axis, err := c.axis(-1, len(shape)+1)
	if err != nil {
		return nil, err
	}
	return one(values.Type, slices.Insert(slices.Clone(shape), axis, int(depth.whole(0)))), nil
}

func evaluateOneHot(c *call, out []*Tensor) error {
	indices, values, depth := c.tensor(0), c.tensor(2), c.tensor(1).whole(0)
	axis, err := c.axis(-1, len(indices.Shape)+1)
	if err != nil {
		return err
	}
	inner := 1
	for _, size := range indices.Shape[axis:] {
		inner *= size
	}
	for i := range out[0].Len() {
		class := int64(i / inner % int(depth))
		index := indices.whole(i/inner/int(depth)*inner + i%inner)
		if index < 0 {
			index += depth // which remains negative if the index is out of range
		}
		which := 0
		if index == class {
			which = 1
		}
		out[0].set(i, values, which)
	}
	return nil
}
