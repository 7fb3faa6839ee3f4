package composed

import "slices"

// chain computes products of the cores of a tensor train, for one feature after the other. It reads
// only a part of the last rank, which is that between the last two cores.
type chain struct {
	t          *Table
	low, high  int         // part of the last rank
	digits     []int       // of the last feature, one for each core
	next       []int       // of the feature to come
	left       [][]float32 // left[i] is the product of cores 0 ... i, [columns, rank]
	into       [][]float32 // gradients of the cores; nil if they are not needed
	dLeft      [][]float32 // gradients of left, not yet added to into
	hasProduct bool        // whether there is a last feature
}

func newChain(t *Table, low, high int, into [][]float32) *chain {
	cores := len(t.Shape.Rows)
	c := &chain{t: t, low: low, high: high, digits: make([]int, cores), next: make([]int, cores), into: into}
	columns := 1
	for i, q := range t.Shape.Columns {
		columns *= q
		from, to := c.ranks(i + 1)
		c.left = append(c.left, make([]float32, columns*(to-from)))
		if into != nil {
			c.dLeft = append(c.dLeft, make([]float32, columns*(to-from)))
		}
	}
	return c
}

// ranks returns the part of the rank before core i that c reads.
func (c *chain) ranks(i int) (from, to int) {
	if i == len(c.digits)-1 {
		return c.low, c.high
	}
	return 0, c.t.Shape.rank(i)
}

// matrix is the part of one row of a core that a chain reads, [ranks, columns, size]. The numbers of
// column q of rank r begin at r*stride + q*step.
type matrix struct {
	values         []float32 // from the first number on
	at             int       // position of the first number in the core
	ranks, columns int
	size           int
	stride, step   int
}

// matrix returns the matrix of core i that the last feature selects.
func (c *chain) matrix(i int) matrix {
	s := &c.t.Shape
	q, rank := s.Columns[i], s.rank(i+1)
	from, to := c.ranks(i)
	first, last := c.ranks(i + 1)
	at := (c.digits[i]*s.rank(i)+from)*q*rank + first
	m := matrix{c.t.Tensors[i].Values[at:], at, to - from, q, last - first, q * rank, rank}
	if m.size == rank { // the columns follow each other
		m.columns, m.size, m.step = 1, m.stride, m.stride
	}
	return m
}

// seek computes the products for a feature. It keeps those that depend only on the first digits, if
// the last feature has the same, and adds the gradients of the others.
func (c *chain) seek(feature int) {
	for i := len(c.next) - 1; i >= 0; i-- {
		c.next[i] = feature % c.t.Shape.Rows[i]
		feature /= c.t.Shape.Rows[i]
	}
	first := 0 // of the digits that differ
	for c.hasProduct && first < len(c.next) && c.next[first] == c.digits[first] {
		first++
	}
	c.flush(first)
	copy(c.digits, c.next)
	c.hasProduct = true
	for i := first; i < len(c.digits); i++ {
		if c.into == nil || i < len(c.digits)-1 { // gradients do not need the whole product
			c.multiply(i)
		}
	}
}

// multiply sets left[i] to the product of left[i-1] and the matrix of core i.
func (c *chain) multiply(i int) {
	g, into := c.matrix(i), c.left[i]
	one := []float32{1}
	a := one
	if i > 0 {
		a = c.left[i-1]
	}
	clear(into)
	width := g.columns * g.size
	for h := range len(a) / g.ranks {
		row := a[h*g.ranks : (h+1)*g.ranks]
		if width == 4 && g.columns == 1 { // the last core of most tables
			combine4(into[h*4:h*4+4], row, g.values)
			continue
		}
		for r, x := range row {
			for q := range g.columns {
				axpy(into[h*width+q*g.size:][:g.size], x, g.values[r*g.stride+q*g.step:])
			}
		}
	}
}

// flush adds the gradients of the products from left[first] on.
func (c *chain) flush(first int) {
	if c.into == nil || !c.hasProduct {
		return
	}
	for i := len(c.digits) - 1; i >= first; i-- {
		g, d := c.matrix(i), c.dLeft[i]
		into, width := c.into[i][g.at:], g.columns*g.size
		if i == 0 {
			for q := range g.columns {
				axpy(into[q*g.step:][:g.size], 1, d[q*g.size:])
			}
			clear(d)
			continue
		}
		a, da := c.left[i-1], c.dLeft[i-1]
		for h := range len(a) / g.ranks {
			for r := range g.ranks {
				sum := float32(0)
				for q := range g.columns {
					part, at := d[h*width+q*g.size:][:g.size], r*g.stride+q*g.step
					axpy(into[at:][:g.size], a[h*g.ranks+r], part)
					sum += dot(part, g.values[at:])
				}
				da[h*g.ranks+r] += sum
			}
		}
		clear(d)
	}
}

// combine4 sets into to the sum of a[r] * values[4r:4r+4].
func combine4(into, a, values []float32) {
	var s0, s1, s2, s3 float32
	values = values[:4*len(a)]
	for _, x := range a {
		s0 += float32(x * values[0])
		s1 += float32(x * values[1])
		s2 += float32(x * values[2])
		s3 += float32(x * values[3])
		values = values[4:]
	}
	into[0], into[1], into[2], into[3] = s0, s1, s2, s3
}

// axpy adds a*x to y.
func axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for len(x) >= 4 && len(y) >= 4 {
		y[0] += float32(a * x[0])
		y[1] += float32(a * x[1])
		y[2] += float32(a * x[2])
		y[3] += float32(a * x[3])
		x, y = x[4:], y[4:]
	}
	for i, v := range x {
		y[i] += float32(a * v)
	}
}

// dot returns the sum of x[i]*y[i], in four partial sums.
func dot(x, y []float32) float32 {
	y = y[:len(x)]
	var a, b, c, d float32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += float32(x[i] * y[i])
		b += float32(x[i+1] * y[i+1])
		c += float32(x[i+2] * y[i+2])
		d += float32(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		a += float32(x[i] * y[i])
	}
	return (a + b) + (c + d)
}

// slot returns the row of a feature in the cache.
func (t *Table) slot(feature int32) (row int, cached bool) {
	return slices.BinarySearch(t.Cache, feature)
}

func (t *Table) lastRank() int { return t.Shape.rank(len(t.Shape.Rows) - 1) }

func (t *Table) embedTrain(e []float32, features []int32) {
	d := t.Shape.Dim
	c := newChain(t, 0, t.lastRank(), nil)
	for k, f := range features {
		if row, cached := t.slot(f); cached {
			copy(e[k*d:(k+1)*d], t.Tensors[len(t.Tensors)-1].Values[row*d:])
			continue
		}
		c.seek(int(f))
		copy(e[k*d:(k+1)*d], c.left[len(c.left)-1])
	}
}

// sliceRanks is the largest number of values of the last rank that one core works on. It decides
// where sums over this rank are cut, so it must not depend on the number of cores.
const sliceRanks = 32

// addTrain cuts the last rank. The gradients of the last two cores have one part for each value of
// this rank. Those of the other cores are sums over it.
func (t *Table) addTrain(into [][]float32, lists []Gradients) {
	rank, cores := t.lastRank(), len(t.Shape.Rows)
	slices := quotient(rank, sliceRanks)
	sums := make([][][]float32, slices)
	each(slices, func(i int) {
		own := append([][]float32{}, into[:cores]...)
		for k := range max(0, cores-2) {
			own[k] = make([]float32, len(into[k]))
		}
		sums[i] = own
		c := newChain(t, i*rank/slices, (i+1)*rank/slices, own)
		d := t.Shape.Dim
		for _, list := range lists {
			for k, f := range list.Features {
				g := list.Embedding[k*d : (k+1)*d]
				row, cached := t.slot(f)
				switch {
				case !cached:
					c.seek(int(f))
					axpy(c.dLeft[cores-1], 1, g)
				case i == 0:
					axpy(into[cores][row*d:][:d], 1, g)
				}
			}
		}
		c.flush(0)
	})
	for k := range max(0, cores-2) {
		for _, own := range sums {
			axpy(into[k], 1, own[k])
		}
	}
}
