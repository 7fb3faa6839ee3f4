package wire

import (
	"slices"

	"shaver/internal/base/fault"
)

// codes are whole numbers that a file stores.
type codes struct {
	of             *Tensor // of whole numbers; of Uint8 if several codes share a byte
	bits           int     // of a code, if several share a byte, the first one in the lowest bits; 0 = the elements are the codes
	signed         bool
	length, padded int // numbers of codes of a row, without and with those that only fill it
}

// scaled is how a quantised tensor is computed from what a file stores. Its values are
//
//	(code - zero) * scale
//
// in float32, rounded to the type of the tensor, as DequantizeLinear defines them and as onnxruntime computes them in GatherBlockQuantized
// and MatMulNBits. The scale of the element at the position (o, a, i), before,
// on and behind an axis of the given size, has the number o*outer + a/block*step + i*inner.
type scaled struct {
	codes              codes
	zeros              *codes // numbered as the scales; nil = all zero points are zero
	zero               int32
	scales             *Tensor
	size, behind       int // of the axis; number of positions behind it
	outer, step, inner int
	block              int
}

// at returns the position of code i among those that share bytes.
func (c *codes) at(i int) int { return i/c.length*c.padded + i%c.length }

// read reads consecutive codes, beginning at the given one.
func (c *codes) read(dst []int32, first int) error {
	if c.bits == 0 {
		return c.of.each(first, len(dst), func(i int, bits uint64) error {
			dst[i] = int32(bits)
			return nil
		})
	}
	begin := c.at(first) * c.bits / 8
	bytes := make([]byte, c.at(first+len(dst)-1)*c.bits/8+1-begin)
	err := c.of.each(begin, len(bytes), func(i int, bits uint64) error {
		bytes[i] = byte(bits)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range dst {
		bit := c.at(first+i)*c.bits - 8*begin
		dst[i] = int32(bytes[bit/8]>>(bit%8)) & (1<<c.bits - 1)
		if c.signed && dst[i]>>(c.bits-1) == 1 {
			dst[i] -= 1 << c.bits
		}
	}
	return nil
}

// inPlace reports whether reading can start at any element.
func (s *scaled) inPlace() bool {
	return s.codes.of.InPlace() && s.scales.InPlace() && (s.zeros == nil || s.zeros.of.InPlace())
}

// bytes returns the size of what the file stores.
func (s *scaled) bytes() int64 {
	n := s.codes.of.size + s.scales.size
	if s.zeros != nil {
		n += s.zeros.of.size
	}
	return n
}

// number returns the number of the scale of element i.
func (s *scaled) number(i int) int {
	return i/s.behind/s.size*s.outer + i/s.behind%s.size/s.block*s.step + i%s.behind*s.inner
}

// span returns a range of numbers of scales that has those of the elements from first to last.
func (s *scaled) span(first, last int) (from, to int) {
	if s.outer == 0 && first/s.behind/s.size != last/s.behind/s.size {
		return 0, s.scales.Elements()
	}
	return s.number(first - first%s.behind), s.number(last-last%s.behind+s.behind-1) + 1
}

// eachScaled is each for a tensor that is stored as codes.
func (t *Tensor) eachScaled(first, count int, f func(i int, bits uint64) error) error {
	s, part := t.scaled, chunk/8
	if !s.inPlace() { // every read would begin at the first element
		part = count
	}
	for done := 0; done < count; done += part {
		begin, n := first+done, min(part, count-done)
		list := make([]int32, n)
		if err := s.codes.read(list, begin); err != nil {
			return err
		}
		from, to := s.span(begin, begin+n-1)
		scales := make([]float32, to-from)
		if err := s.scales.ReadFloats(scales, from); err != nil {
			return err
		}
		var zeros []int32
		if s.zeros != nil {
			zeros = make([]int32, to-from)
			if err := s.zeros.read(zeros, from); err != nil {
				return err
			}
		}
		for i, code := range list {
			k, zero := s.number(begin+i)-from, s.zero
			if zeros != nil {
				zero = zeros[k]
			}
			if err := f(done+i, t.Type.bits(float32(code-zero)*scales[k])); err != nil {
				return err
			}
		}
	}
	return nil
}

// whole returns the codes that t holds.
func whole(t *Tensor) codes {
	c := codes{of: t, bits: t.Type.packed(), signed: t.Type == Int4 || t.Type == Int2, length: 1, padded: 1}
	if c.bits > 0 {
		bytes := *t
		bytes.Type, bytes.Dims = Uint8, []int{(t.Elements()*c.bits + 7) / 8}
		c.of = &bytes
	}
	return c
}

// unpack makes the codes of s, which are of Uint8, those of the given number of bits, and the last axis of t as long as
// it is then.
func (s *scaled) unpack(t *Tensor, bits int64) error {
	if bits != 2 && bits != 4 && bits != 8 {
		return fault.Inputf("bits is %d, expected 2, 4 or 8", bits)
	}
	s.zero = 1 << (bits - 1)
	if len(t.Dims) == 0 || t.Dims[len(t.Dims)-1] > maxElements/8 {
		return fault.Inputf("tensor %s has the shape %v, expected at least one axis of at most %d", Quote(s.codes.of.Name), t.Dims, int64(maxElements/8))
	}
	last := &t.Dims[len(t.Dims)-1]
	*last *= int(8 / bits)
	s.codes.bits, s.codes.length, s.codes.padded = int(bits), *last, *last
	return nil
}

// along sets how scales are numbered: one for each position of an axis of a tensor of the given shape, or for each block
// of positions if block is not 0.
func (s *scaled) along(dims []int, axis, block int64) error {
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis < 0 || axis >= int64(len(dims)) {
		return fault.Inputf("axis %d of a tensor of the shape %v does not exist", axis, dims)
	}
	s.size, s.behind, s.block = dims[axis], 1, int(max(block, 1))
	for _, size := range dims[axis+1:] {
		s.behind *= size
	}
	want := []int{s.size}
	if block == 0 {
		s.step = 1
	} else {
		want = slices.Clone(dims)
		want[axis] = (s.size-1)/s.block + 1
		s.outer, s.step, s.inner = want[axis]*s.behind, s.behind, 1
	}
	if !slices.Equal(s.scales.Dims, want) {
		return fault.Inputf("the scales %s have the shape %v, expected %v", Quote(s.scales.Name), s.scales.Dims, want)
	}
	return nil
}

// takeZeros gives s the zero points of a tensor, which may be nil. They are of the type of the codes, and as many as the scales, in the shape of these
// or of any other. If codes share bytes, rows of zero points begin with a byte, and the last axis of the scales is that of a row.
func (s *scaled) takeZeros(zeros *Tensor, of Type) error {
	if zeros == nil {
		return nil
	}
	if zeros.Type != of {
		return fault.Inputf("the zero points %s are of %s, expected %s", Quote(zeros.Name), zeros.Type, of)
	}
	z, n := whole(zeros), s.scales.Elements()
	if s.codes.bits > 0 && z.bits == 0 {
		per := 8 / s.codes.bits
		z.bits, z.length = s.codes.bits, s.scales.Dims[len(s.scales.Dims)-1]
		z.padded = (z.length + per - 1) / per * per
	}
	if z.bits > 0 && n > 0 {
		n = z.at(n-1)*z.bits/8 + 1
	}
	if z.of.Elements() != n {
		return fault.Inputf("the zero points %s have the shape %v, which does not fit the shape %v of the scales", Quote(zeros.Name), zeros.Dims, s.scales.Dims)
	}
	s.zeros = &z
	return nil
}
