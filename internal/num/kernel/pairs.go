package kernel

import "math"

// Discarded stands for an output of NewPairs that has no element, because its value is not
// needed.
const Discarded = -1

// discarded is the offset in Pairs.out of an output that is Discarded.
const discarded = math.MaxUint32

// Pairs is a batch of products of matrices whose elements are elements of a block. It is
// read-only and may be shared by all goroutines.
type Pairs struct {
	rows, columns, inner int // of one product
	out, x, y            []uint32
	size                 int // number of elements that a block needs

	// At levels in assembly, the products are cut into tiles of one shape, which words
	// describes as the functions of the level need it. If the shape is diagonal, steps is
	// empty.
	shape int // index into level.shapes
	tiles int
	words []uint32
	steps []int32
}

// pairsShape is a shape of tiles for which a level has a function. A tile computes
// rows*columns outputs. For each k it loads rows + columns operands. A diagonal tile
// computes rows outputs that need not share operands.
type pairsShape struct {
	rows, columns int
	diagonal      bool
}

// cost estimates the time of a tile for each k. It is the number of multiply-adds or of
// loads, whichever is larger. A diagonal tile also loads the index of each operand.
func (s pairsShape) cost() int {
	if s.diagonal {
		return 4 * s.rows
	}
	return max(s.rows*s.columns, s.rows+s.columns+2)
}

// NewPairs prepares Compute for a batch of products of matrices. x is [batch, rows,
// inner], y is [batch, columns, inner], and out is [batch, rows, columns]. All three are
// lists of elements in row-major order. Elements of x and y may occur several times. No
// element of out may occur twice, or be an element of x or y. An output may be Discarded. A
// tile whose outputs are all Discarded takes no time, so half of the outputs of a symmetric
// product should be Discarded.
//
// The lists are packed for the level in use.
func NewPairs(out, x, y []int32, batch, rows, columns, inner int) *Pairs {
	if batch < 0 || rows < 0 || columns < 0 || inner < 0 || len(out) != batch*rows*columns || len(x) != batch*rows*inner || len(y) != batch*columns*inner {
		panic("kernel: NewPairs: a list has the wrong length")
	}
	a, b := NewElements(x), NewElements(y)
	p := &Pairs{rows: rows, columns: columns, inner: inner, out: make([]uint32, len(out)), x: a.offset, y: b.offset, size: max(a.size, b.size)}
	for i, k := range out {
		switch {
		case k == Discarded:
			p.out[i] = discarded
			continue
		case k < 0 || k >= maxElements:
			panic("kernel: NewPairs: element is negative or too large")
		}
		p.out[i], p.size = uint32(k)*States, max(p.size, int(k)+1)
	}
	if !disjoint(out, x, y) {
		panic("kernel: NewPairs: an element of out occurs twice or is an operand")
	}
	if rows > columns { // tiles are at least as wide as high
		p.transpose(batch)
	}
	p.cut(current.shapes)
	return p
}

// transpose exchanges the roles of x and y.
func (p *Pairs) transpose(batch int) {
	out := make([]uint32, 0, len(p.out))
	for n := range batch {
		for j := range p.columns {
			for i := range p.rows {
				out = append(out, p.out[(n*p.rows+i)*p.columns+j])
			}
		}
	}
	p.out, p.x, p.y, p.rows, p.columns = out, p.y, p.x, p.columns, p.rows
}

// xRow and yRow return the rows of x and y whose product is output o. Rows are numbered
// through the whole batch.
func (p *Pairs) xRow(o int) int { return o / p.columns }
func (p *Pairs) yRow(o int) int { return o/p.columns/p.rows*p.columns + o%p.columns }

// cut cuts the products into tiles of the shape that costs least.
func (p *Pairs) cut(shapes []pairsShape) {
	if len(shapes) == 0 || len(p.out) == 0 {
		return
	}
	xSteps, x := p.stepsOf(p.x)
	ySteps, y := p.stepsOf(p.y)
	least := math.MaxInt
	for i, s := range shapes {
		n := 0
		p.visit(s, func([]int) { n++ })
		if cost := n * s.cost(); cost < least && (s.diagonal || x && y) {
			least, p.shape, p.tiles = cost, i, n
		}
	}
	s := shapes[p.shape]
	if s.diagonal {
		p.visit(s, func(outputs []int) {
			for _, o := range outputs {
				p.words = append(p.words, p.out[o])
			}
			for k := range p.inner {
				for _, o := range outputs {
					p.words = append(p.words, p.x[p.xRow(o)*p.inner+k])
				}
				for _, o := range outputs {
					p.words = append(p.words, p.y[p.yRow(o)*p.inner+k])
				}
			}
		})
		return
	}
	for k := range p.inner {
		p.steps = append(p.steps, xSteps[k], ySteps[k])
	}
	p.visit(s, func(outputs []int) {
		first := len(p.words)
		p.words = append(p.words, 0)
		for i := range s.rows {
			p.words = append(p.words, at(p.x, p.xRow(outputs[i*s.columns])*p.inner))
		}
		for _, o := range outputs[:s.columns] {
			p.words = append(p.words, at(p.y, p.yRow(o)*p.inner))
		}
		for _, o := range outputs {
			p.words = append(p.words, p.out[o])
			if p.out[o] == discarded {
				p.words[first] = 1
			}
		}
	})
}

// at returns list[i], or 0 if the list is empty because the sums have no terms.
func at(list []uint32, i int) uint32 {
	if len(list) == 0 {
		return 0
	}
	return list[i]
}

// stepsOf returns the distances from the first operand of a row to the others. It reports
// whether they are the same in all rows.
func (p *Pairs) stepsOf(list []uint32) (steps []int32, ok bool) {
	for i, v := range list {
		step := int32(v) - int32(list[i-i%p.inner])
		if i < p.inner {
			steps = append(steps, step)
		} else if step != steps[i%p.inner] {
			return nil, false
		}
	}
	return steps, true
}

// pairsBytes is the size of a part of y that tiles with different rows of x use one after
// the other. It is less than half of a core's first cache.
const pairsBytes = 20 << 10

// visit calls f with the outputs of each tile that does not consist of discarded outputs
// only. An incomplete tile is filled with copies of its last row and column. f must not keep
// the slice.
func (p *Pairs) visit(s pairsShape, f func(outputs []int)) {
	outputs := make([]int, 0, s.rows*s.columns)
	if s.diagonal {
		for o, to := range p.out {
			if to != discarded {
				outputs = append(outputs, o)
			}
			if len(outputs) == s.rows || o == len(p.out)-1 && len(outputs) > 0 {
				for len(outputs) < s.rows {
					outputs = append(outputs, outputs[len(outputs)-1])
				}
				f(outputs)
				outputs = outputs[:0]
			}
		}
		return
	}
	part := max(1, pairsBytes/(max(1, p.inner)*Columns*4*s.columns)) * s.columns
	for first := 0; first < len(p.out); first += p.rows * p.columns {
		for begin := 0; begin < p.columns; begin += part {
			for i := 0; i < p.rows; i += s.rows {
				for j := begin; j < min(begin+part, p.columns); j += s.columns {
					needed := false
					for r := range s.rows {
						for c := range s.columns {
							o := first + min(i+r, p.rows-1)*p.columns + min(j+c, p.columns-1)
							needed = needed || p.out[o] != discarded
							outputs = append(outputs, o)
						}
					}
					if needed {
						f(outputs)
					}
					outputs = outputs[:0]
				}
			}
		}
	}
}

// Compute computes all products for the states t < states, at most 48. It rounds states up
// to a multiple of 16.
//
//	out[n][i][j] = 0; for k < inner: out[n][i][j] += x[n][i][k] * y[n][j][k]
//
// A state's result depends on that state alone. Compute allocates no memory.
func (p *Pairs) Compute(b Block, states int) {
	b.check(states)
	if len(b)/States < p.size {
		panic("kernel: an element is outside the block")
	}
	if p.size > 0 {
		current.pairs(p, b, panelsOf(states))
	}
}

func pairsPortable(p *Pairs, b Block, panels int) {
	for o, to := range p.out {
		if to == discarded {
			continue
		}
		x, y := p.x[p.xRow(o)*p.inner:][:p.inner], p.y[p.yRow(o)*p.inner:][:p.inner]
		for t := uint32(0); t < uint32(panels*Columns); t += 8 {
			var a0, a1, a2, a3, a4, a5, a6, a7 float32
			for i, k := range x {
				v, w := (*[8]float32)(b[k+t:]), (*[8]float32)(b[y[i]+t:])
				a0 += float32(v[0] * w[0])
				a1 += float32(v[1] * w[1])
				a2 += float32(v[2] * w[2])
				a3 += float32(v[3] * w[3])
				a4 += float32(v[4] * w[4])
				a5 += float32(v[5] * w[5])
				a6 += float32(v[6] * w[6])
				a7 += float32(v[7] * w[7])
			}
			*(*[8]float32)(b[to+t:]) = [8]float32{a0, a1, a2, a3, a4, a5, a6, a7}
		}
	}
}
