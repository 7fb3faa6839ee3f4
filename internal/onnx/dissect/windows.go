package dissect

import (
	"slices"

	"shaver/internal/onnx/graph"
)

// windows are the elements that a Conv or a pool reads, along each axis after the channels.
type windows struct {
	in, out []int
	kernel  []int
	stride  []int
	step    []int // between the elements of a window, which ONNX calls dilations
	before  []int // pads before the first element
	after   []int // pads after the last element
}

const (
	maxWindow  = 1 << 16 // sizes, strides and pads of windows
	maxWindows = 1 << 23 // elements of all windows of a build
)

// newWindows returns the windows of a node whose input has the given sizes. kernel has the
// sizes of a window.
func (c *call) newWindows(in, kernel []int) (*windows, error) {
	w := &windows{in: in, kernel: kernel}
	rank := len(in)
	list := func(name string, n int, otherwise, least int64) ([]int, error) {
		values, ok := c.attributes[name].([]int64)
		if !ok || len(values) == 0 {
			values = slices.Repeat([]int64{otherwise}, n)
		}
		if len(values) != n || slices.ContainsFunc(values, func(v int64) bool { return v < least || v > maxWindow }) {
			return nil, c.refuse("%s %v, expected %d numbers from %d to %d", name, values, n, least, maxWindow)
		}
		out := make([]int, n)
		for i, v := range values {
			out[i] = int(v)
		}
		return out, nil
	}
	var err error
	if w.stride, err = list("strides", rank, 1, 1); err != nil {
		return nil, err
	}
	if w.step, err = list("dilations", rank, 1, 1); err != nil {
		return nil, err
	}
	pads, err := list("pads", 2*rank, 0, 0)
	if err != nil {
		return nil, err
	}
	w.before, w.after, w.out = pads[:rank], pads[rank:], make([]int, rank)
	auto, _ := c.attributes["auto_pad"].(string)
	for i := range rank {
		if in[i] < 1 || in[i] > maxWindow || kernel[i] < 1 || kernel[i] > maxWindow {
			return nil, c.refuse("windows of the shape %v over the shape %v, expected sizes from 1 to %d", kernel, in, maxWindow)
		}
		extent := w.step[i]*(kernel[i]-1) + 1
		switch auto {
		case "", "NOTSET":
		case "VALID":
			w.before[i], w.after[i] = 0, 0
		case "SAME_UPPER", "SAME_LOWER":
			w.out[i] = (in[i] + w.stride[i] - 1) / w.stride[i]
			pad := max(0, (w.out[i]-1)*w.stride[i]+extent-in[i])
			if w.before[i], w.after[i] = pad/2, pad-pad/2; auto == "SAME_LOWER" {
				w.before[i], w.after[i] = w.after[i], w.before[i]
			}
			continue
		default:
			return nil, c.refuse("auto_pad %.100q, expected NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto)
		}
		free := in[i] + w.before[i] + w.after[i] - extent
		if free < 0 {
			return nil, c.refuse("windows of %d elements on axis %d, which has %d with its pads", extent, i+2, free+extent)
		}
		w.out[i] = free/w.stride[i] + 1
		if c.integer("ceil_mode", 0) != 0 && free%w.stride[i] != 0 && w.out[i]*w.stride[i] < in[i]+w.before[i] {
			w.out[i]++
		}
	}
	n, err := graph.Count(slices.Concat(w.out, kernel))
	if err != nil || n > maxWindows-c.windowed {
		return nil, c.refuse("%v windows of the shape %v, and those of the graph together have more than %d elements", w.out, kernel, maxWindows)
	}
	c.windowed += n
	return w, nil
}

// plain reports whether each window is one element, at its own position.
func (w *windows) plain() bool {
	for i, size := range w.kernel {
		if size != 1 || w.out[i] != w.in[i] || w.before[i] != 0 {
			return false
		}
	}
	return true
}

// each calls visit for each element of each window, window by window. element is the number of
// the element in the input, or -1 for one that is not in it. inside reports whether a pad of
// the node is there if element is -1, rather than what ceil_mode adds.
func (w *windows) each(visit func(window, place, element int, inside bool)) {
	shape := slices.Concat(w.out, w.kernel)
	total, places, rank := 1, 1, len(w.in)
	for i, size := range shape {
		if total *= size; i >= rank {
			places *= size
		}
	}
	position := make([]int, len(shape))
	for n := range total {
		element, inside, outside := 0, true, false
		for i, size := range w.in {
			at := position[i]*w.stride[i] + position[rank+i]*w.step[i] - w.before[i]
			element = element*size + at
			outside = outside || at < 0 || at >= size
			inside = inside && at < size+w.after[i]
		}
		if outside {
			element = -1
		}
		visit(n/places, n%places, element, inside)
		for i := len(shape) - 1; i >= 0; i-- {
			if position[i]++; position[i] < shape[i] {
				break
			}
			position[i] = 0
		}
	}
}

// flat returns v with the axes after the channels as one.
func (o *operators) flat(v *value, shape []int) *value {
	n, err := graph.Count(shape[2:])
	if err != nil {
		o.err = o.refuse("%w", err)
	}
	return o.reshape(v, shape[0], shape[1], n)
}

func (o *operators) reshape(v *value, shape ...int) *value {
	target := make([]int64, len(shape))
	for i, size := range shape {
		target[i] = int64(size)
	}
	return o.do("Reshape", nil, v, o.ints(target...))
}

// image returns the shape of the first input, which has rows, channels and further axes.
func (c *call) image() ([]int, error) {
	kind, shape, err := c.shape(0)
	if err == nil && (kind != graph.Float || len(shape) < 3 || slices.Contains(shape, 0)) {
		err = c.refuse("input 1 is %v%v, expected floats with rows, channels and at least one more axis", kind, shape)
	}
	return shape, err
}

// rewriteConv converts a convolution to one whose kernel has a single element. Its input has
// the elements of a window as channels.
func rewriteConv(c *call) ([]*value, error) {
	shape, err := c.image()
	if err != nil {
		return nil, err
	}
	_, weights, err := c.shape(1)
	if err != nil {
		return nil, err
	}
	if len(weights) != len(shape) || slices.Contains(weights, 0) {
		return nil, c.refuse("shapes %v and %v, expected [rows channels ...] and [outputs channels ...]", shape, weights)
	}
	w, err := c.newWindows(shape[2:], weights[2:])
	if err != nil || w.plain() {
		return nil, err
	}
	if list, ok := c.attributes["kernel_shape"].([]int64); ok {
		for i, size := range list {
			if len(list) != len(w.kernel) || size != int64(w.kernel[i]) {
				return nil, c.refuse("kernel_shape %v, expected %v, the shape of the weights", list, w.kernel)
			}
		}
	}
	o := &operators{call: c}
	places := 1
	for _, size := range w.kernel {
		places *= size
	}
	positions, pad := 1, 1
	for _, size := range w.in {
		pad *= size
	}
	for _, size := range w.out {
		positions *= size
	}
	index, padded := make([]int64, places*positions), false
	w.each(func(window, place, element int, _ bool) {
		if element < 0 {
			element, padded = pad, true
		}
		index[place*positions+window] = int64(element)
	})
	x := o.flat(c.in[0], shape)
	if padded { // the last element is 0
		x = o.do("Pad", nil, x, o.ints(0, 0, 0, 0, 0, 1))
	}
	x = o.do("Gather", graph.Attributes{"axis": int64(2)}, x, inHead(c.head.AddConstant(graph.NewInts(index, places*positions))))
	x = o.reshape(x, shape[0], shape[1]*places, positions)
	inputs := []*value{x, o.reshape(c.in[1], weights[0], weights[1]*places, 1)}
	x = o.do("Conv", graph.Attributes{"group": c.integer("group", 1)}, append(inputs, c.in[2:]...)...)
	return []*value{o.reshape(x, slices.Concat([]int{shape[0], weights[0]}, w.out)...)}, o.err
}

// rewritePool converts MaxPool and AveragePool to reductions of windows.
func rewritePool(c *call) ([]*value, error) {
	shape, err := c.image()
	if err != nil {
		return nil, err
	}
	list, _ := c.attributes["kernel_shape"].([]int64)
	kernel := make([]int, len(shape)-2)
	if len(list) != len(kernel) {
		return nil, c.refuse("kernel_shape %v, expected %d sizes", list, len(kernel))
	}
	for i, size := range list {
		kernel[i] = int(min(size, maxWindow+1))
	}
	w, err := c.newWindows(shape[2:], kernel)
	if err != nil {
		return nil, err
	}
	places, positions, pad := 1, 1, 1
	for i := range kernel {
		places, positions, pad = places*kernel[i], positions*w.out[i], pad*w.in[i]
	}
	index, counts := make([]int64, positions*places), make([]float32, positions)
	padded, largest := false, c.op == "MaxPool"
	w.each(func(window, place, element int, inside bool) {
		if element >= 0 || inside && c.integer("count_include_pad", 0) != 0 {
			counts[window]++
		}
		if element < 0 {
			element, padded = pad, true
		}
		index[window*places+place] = int64(element)
	})
	o := &operators{call: c}
	x := o.flat(c.in[0], shape)
	for i := range counts {
		window := index[i*places:][:places]
		first := slices.IndexFunc(window, func(e int64) bool { return e < int64(pad) })
		if first < 0 {
			return nil, c.refuse("a window has pads only, expected pads that are smaller than the windows")
		}
		for k, e := range window {
			if e == int64(pad) && largest { // a pad is never the largest
				window[k] = window[first]
			}
		}
	}
	if padded && !largest {
		x = o.do("Pad", nil, x, o.ints(0, 0, 0, 0, 0, 1))
	}
	x = o.do("Gather", graph.Attributes{"axis": int64(2)}, x, inHead(c.head.AddConstant(graph.NewInts(index, positions, places))))
	switch keep := (graph.Attributes{"keepdims": int64(0)}); {
	case largest:
		x = o.do("ReduceMax", keep, x, o.ints(3))
	case !slices.ContainsFunc(counts, func(n float32) bool { return n != float32(places) }):
		x = o.do("ReduceMean", keep, x, o.ints(3))
	default:
		x = o.do("ReduceSum", keep, x, o.ints(3))
		x = o.do("Div", nil, x, inHead(c.head.AddConstant(graph.NewFloats(counts, positions))))
	}
	return []*value{o.reshape(x, slices.Concat(shape[:2], w.out)...)}, o.err
}

// rewriteGlobalPool converts a pool over all positions to a reduction.
func rewriteGlobalPool(c *call) ([]*value, error) {
	shape, err := c.image()
	if err != nil {
		return nil, err
	}
	var axes []int64
	for a := 2; a < len(shape); a++ {
		axes = append(axes, int64(a))
	}
	op := "ReduceMean"
	if c.op == "GlobalMaxPool" {
		op = "ReduceMax"
	}
	return c.apply(c.name(), op, nil, c.in[0], c.ints(axes...))
}

// rewriteInstanceNormalization converts an InstanceNormalization to a LayerNormalization of
// each channel.
func rewriteInstanceNormalization(c *call) ([]*value, error) {
	shape, err := c.image()
	if err != nil {
		return nil, err
	}
	for i := 1; i <= 2; i++ {
		if _, have, err := c.shape(i); err != nil || !slices.Equal(have, shape[1:2]) {
			return nil, c.refuse("input %d has the shape %v, expected %v", i+1, have, shape[1:2])
		}
	}
	epsilon, ok := c.attributes["epsilon"].(float32)
	if !ok {
		epsilon = 1e-5
	}
	o := &operators{call: c}
	one := inHead(c.head.AddConstant(graph.NewFloats([]float32{1}, 1)))
	x := o.do("LayerNormalization", graph.Attributes{"axis": int64(-1), "epsilon": epsilon}, o.flat(c.in[0], shape), one)
	x = o.do("Mul", nil, x, o.reshape(c.in[1], shape[1], 1))
	x = o.do("Add", nil, x, o.reshape(c.in[2], shape[1], 1))
	return []*value{o.reshape(x, shape...)}, o.err
}
