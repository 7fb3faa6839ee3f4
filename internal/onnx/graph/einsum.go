package graph

import (
	"errors"
	"fmt"
	"strings"
)

// Einsum is the equation of an Einsum node for given shapes. Each element of the output is
// a sum of products of the inputs' elements. The first Kept labels are those of the output.
// The sum runs over all positions of the other labels. Axes with the same label have the
// same position.
type Einsum struct {
	Sizes   []int   // size of each label; the output's labels come first, in its order
	Kept    int     // labels of the output
	Strides [][]int // for each input, how far apart its elements are along each label
}

// ellipsis is the label from which those of the axes of an ellipsis count. Such labels are
// not letters.
const ellipsis = rune(1000)

// ParseEinsum parses the equation of an Einsum with one or two inputs.
func ParseEinsum(equation string, shapes [][]int) (*Einsum, error) {
	if len(shapes) > 2 {
		return nil, fmt.Errorf("%d inputs, expected one or two", len(shapes))
	}
	if len(equation) > 1000 {
		return nil, errors.New("the equation is too long")
	}
	left, right, explicit := strings.Cut(strings.ReplaceAll(equation, " ", ""), "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(shapes) {
		return nil, fmt.Errorf("equation %q has %d inputs, and the node has %d", equation, len(terms), len(shapes))
	}
	sizes := map[rune]int{}
	uses := map[rune]int{}
	labels := make([][]rune, len(terms))
	dots := 0 // axes of the longest ellipsis
	for i, term := range terms {
		var err error
		var extra int
		if labels[i], extra, err = einsumLabels(term, len(shapes[i])); err != nil {
			return nil, fmt.Errorf("equation %q: %w", equation, err)
		}
		dots = max(dots, extra)
		for axis, label := range labels[i] {
			size, seen := shapes[i][axis], uses[label] > 0
			uses[label]++
			switch {
			case !seen || sizes[label] == 1:
				sizes[label] = size
			case size != 1 && size != sizes[label]:
				return nil, fmt.Errorf("equation %q: shapes %v do not fit", equation, shapes)
			}
		}
	}
	var output []rune
	if explicit {
		var err error
		n := len([]rune(strings.ReplaceAll(right, "...", "")))
		if strings.Contains(right, "...") {
			n += dots
		}
		if output, _, err = einsumLabels(right, n); err != nil {
			return nil, fmt.Errorf("equation %q: %w", equation, err)
		}
	} else {
		for i := dots; i > 0; i-- {
			output = append(output, ellipsis+rune(i))
		}
		for label := 'A'; label <= 'z'; label++ {
			if uses[label] == 1 {
				output = append(output, label)
			}
		}
	}
	e := &Einsum{Kept: len(output), Strides: make([][]int, len(shapes))}
	index := map[rune]int{}
	add := func(label rune) bool {
		if _, ok := index[label]; ok {
			return false
		}
		index[label] = len(e.Sizes)
		e.Sizes = append(e.Sizes, sizes[label])
		return true
	}
	for _, label := range output {
		if uses[label] == 0 || !add(label) {
			return nil, fmt.Errorf("equation %q: invalid output", equation)
		}
	}
	for _, list := range labels {
		for _, label := range list {
			add(label)
		}
	}
	for i, list := range labels {
		e.Strides[i] = make([]int, len(e.Sizes))
		for axis, step := range strides(shapes[i]) {
			if shapes[i][axis] != 1 {
				e.Strides[i][index[list[axis]]] += step
			}
		}
	}
	return e, nil
}

// einsumLabels returns the label of each axis of a term. The axes of an ellipsis count
// from the last, whose label is ellipsis+1.
func einsumLabels(term string, rank int) (labels []rune, dots int, err error) {
	before, after, found := strings.Cut(term, "...")
	dots = rank - len(before) - len(after)
	if dots < 0 || dots > 0 && !found {
		return nil, 0, fmt.Errorf("%q does not fit %d axes", term, rank)
	}
	for _, label := range before + after {
		if (label < 'a' || label > 'z') && (label < 'A' || label > 'Z') {
			return nil, 0, fmt.Errorf("invalid label %q", label)
		}
	}
	labels = []rune(before)
	for i := dots; i > 0; i-- {
		labels = append(labels, ellipsis+rune(i))
	}
	return append(labels, []rune(after)...), dots, nil
}

func (c *call) einsum() (*Einsum, error) {
	shapes := make([][]int, len(c.in))
	for i := range c.in {
		shapes[i] = c.shape(i)
	}
	return ParseEinsum(c.string("equation", ""), shapes)
}

func inferEinsum(c *call) ([]Info, error) {
	e, err := c.einsum()
	if err != nil {
		return nil, err
	}
	return one(Float, e.Sizes[:e.Kept]), nil
}

func workEinsum(c *call, out []Info) int64 {
	e, _ := c.einsum()
	work := int64(1)
	for _, size := range e.Sizes {
		if size > 0 && work > maxRowWork/int64(size) {
			return maxRowWork + 1
		}
		work *= int64(size)
	}
	return work
}

func evaluateEinsum(c *call, out []*Tensor) error {
	e, err := c.einsum()
	if err != nil {
		return err
	}
	x, y := c.tensor(0), NewFloats([]float32{1})
	stepX, stepY := e.Strides[0], make([]int, len(e.Sizes))
	if len(c.in) > 1 {
		y, stepY = c.tensor(1), e.Strides[1]
	}
	// The last label of the sum has a loop of its own, because each is slow.
	last := len(e.Sizes) - 1
	size, right, down := 1, 0, 0
	if last >= e.Kept {
		size, right, down = e.Sizes[last], stepX[last], stepY[last]
	}
	last = max(last, e.Kept)
	n := 0
	each(e.Sizes[:e.Kept], func(at []int) {
		sum := 0.0
		each(e.Sizes[e.Kept:last], func(inner []int) {
			a, b := at[0]+inner[0], at[1]+inner[1]
			for range size {
				sum += x.float(a) * y.float(b)
				a += right
				b += down
			}
		}, stepX[e.Kept:last], stepY[e.Kept:last])
		out[0].setFloat(n, sum)
		n++
	}, stepX[:e.Kept], stepY[:e.Kept])
	return nil
}
