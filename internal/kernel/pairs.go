package kernel

import (
	"math"
	"slices"
)

// Left is the element that NewPairs takes for an output that nobody needs.
const Left = -1

// unneeded is the offset of an output that is Left.
const unneeded = math.MaxUint32

// Pairs is a batch of products of matrices whose elements are elements of a block. It is
// read-only and may be shared by all goroutines.
type Pairs struct {
	rows, columns, inner int // of one product
	out, x, y            []uint32
	size                 int // number of elements that a block needs

	// At levels in assembly, the products are cut into tiles of one shape. index contains
	// the lists of the tiles.
	shape int // index into level.shapes
	tiles []pairsTile
	index []uint32
}

// pairsTile has the beginnings of a tile's lists in Pairs.index.
type pairsTile struct{ out, x, y int }

// pairsShape is a form of tile that a level has a function for. A tile computes
// rows*columns outputs. A diagonal tile computes rows outputs that share no operands.
type pairsShape struct {
	rows, columns int
	diagonal      bool
}

// width returns the number of elements that a tile reads from y for each k.
func (s pairsShape) width() int {
	if s.diagonal {
		return s.rows
	}
	return s.columns
}

// cost estimates the time of a tile for each k: the number of multiply-adds or of loads,
// whichever is larger. An operand takes two loads, because its index is loaded as well.
func (s pairsShape) cost() int { return max(s.rows*s.columns, 2*(s.rows+s.width())) }

// NewPairs prepares Compute for a batch of products of matrices. x is [batch, rows,
// inner], y is [batch, columns, inner], and out is [batch, rows, columns]. All three are
// lists of elements in row-major order. Elements of x and y may occur several times. No
// element of out may occur twice, nor in x or y. An output that is Left has no element, and
// its value is discarded. Tiles of which all outputs are Left take no time, so a symmetric
// product should leave out half of its outputs.
//
// The lists are packed for the level in use.
func NewPairs(out, x, y []int32, batch, rows, columns, inner int) *Pairs {
	if batch < 0 || rows < 0 || columns < 0 || inner < 0 || len(out) != batch*rows*columns || len(x) != batch*rows*inner || len(y) != batch*columns*inner {
		panic("kernel: NewPairs: a list has the wrong length")
	}
	a, b := NewElements(x), NewElements(y)
	p := &Pairs{rows: rows, columns: columns, inner: inner, out: make([]uint32, len(out)), x: a.offset, y: b.offset, size: max(a.size, b.size)}
	seen := map[int32]bool{}
	for i, k := range out {
		switch {
		case k == Left:
			p.out[i] = unneeded
			continue
		case k < 0 || k >= maxElements:
			panic("kernel: NewPairs: element is negative or too large")
		case seen[k]:
			panic("kernel: NewPairs: an element of out occurs twice")
		}
		seen[k] = true
		p.out[i], p.size = uint32(k)*States, max(p.size, int(k)+1)
	}
	if both := func(k int32) bool { return seen[k] }; slices.ContainsFunc(x, both) || slices.ContainsFunc(y, both) {
		panic("kernel: NewPairs: an element of out is an operand")
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

// x and y have a row for each output. xRow and yRow return the number of that row, counting
// through the batch.
func (p *Pairs) xRow(o int) int { return o / p.columns }
func (p *Pairs) yRow(o int) int { return o/p.columns/p.rows*p.columns + o%p.columns }

// cut cuts the products into tiles of the shape that costs least.
func (p *Pairs) cut(shapes []pairsShape) {
	least := math.MaxInt
	for i, s := range shapes {
		n := 0
		p.visit(s, func([]int) { n++ })
		if cost := n * s.cost(); cost < least {
			least, p.shape = cost, i
		}
	}
	if len(shapes) == 0 {
		return
	}
	s := shapes[p.shape]
	shared := map[[2]int]int{} // tiles with the same first row of x have the same list
	list := func(side int, from []uint32, rows []int) int {
		key := [2]int{side, rows[0]}
		if at, ok := shared[key]; ok && !s.diagonal {
			return at
		}
		at := len(p.index)
		shared[key] = at
		for k := range p.inner {
			for _, row := range rows {
				p.index = append(p.index, from[row*p.inner+k])
			}
		}
		return at
	}
	x, y := make([]int, s.rows), make([]int, s.width())
	p.visit(s, func(outputs []int) {
		t := pairsTile{out: len(p.index)}
		for i, o := range outputs {
			p.index = append(p.index, p.out[o])
			x[i/s.columns], y[i%len(y)] = p.xRow(o), p.yRow(o)
		}
		t.x, t.y = list(0, p.x, x), list(1, p.y, y)
		p.tiles = append(p.tiles, t)
	})
}

// visit calls f with the outputs of each tile that has outputs which are needed. An
// incomplete tile is filled with copies of its last row and column. f must not keep the
// slice.
func (p *Pairs) visit(s pairsShape, f func(outputs []int)) {
	outputs := make([]int, 0, s.rows*s.columns)
	if s.diagonal {
		for o, to := range p.out {
			if to != unneeded {
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
	for first := 0; first < len(p.out); first += p.rows * p.columns {
		for i := 0; i < p.rows; i += s.rows {
			for j := 0; j < p.columns; j += s.columns {
				needed := false
				for r := range s.rows {
					for c := range s.columns {
						o := first + min(i+r, p.rows-1)*p.columns + min(j+c, p.columns-1)
						needed = needed || p.out[o] != unneeded
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
	if len(p.out) > 0 {
		current.pairs(p, b, panelsOf(states))
	}
}

func pairsPortable(p *Pairs, b Block, panels int) {
	for o, to := range p.out {
		if to == unneeded {
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
