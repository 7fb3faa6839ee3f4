package execute

import (
	"slices"

	"shaver/internal/num/kernel"
)

// reach is what a compiler knows about how a row depends on the players. The zero value is
// that of a row that depends on none.
type reach struct {
	players []int32 // ascending; shared by rows
	many    bool    // whether the row may depend on any player; players is then nil
	wild    bool    // whether the row may be large in some states although the players are not
}

// maxReach is the number of players from which on a row counts as one that depends on many.
const maxReach = 64

// maxReaches bounds the players that all reaches list. Rows of larger graphs count as rows
// that depend on many.
const maxReaches = 1 << 24

// reaches follows instructions from the players on.
type reaches struct {
	*compiler
	of   []reach // by row
	left int     // number of players that further reaches may list
	special
}

// reached returns the reach of every row.
func (c *compiler) reached() []reach {
	r := &reaches{c, make([]reach, len(c.region)), maxReaches, c.findSpecial()}
	for p := range c.p.players {
		r.of[p].players = []int32{int32(p)}
	}
	for _, in := range c.each {
		r.instruction(in)
	}
	return r.of
}

// instruction sets the reaches of the results of an instruction.
func (r *reaches) instruction(in instruction) {
	results, operands := in.results(), in.operands()
	switch o := in.(type) {
	case *softmaxOp:
		r.vectors(results, o.x, o.n)
	case *linearOp:
		r.spread(results, r.vectors(nil, o.x, o.m.In), o.m.Out)
	case *reduceOp:
		r.spread(results, r.vectors(nil, o.x, len(o.x)/len(results)), 1)
	case *rankOp:
		r.spread(results, r.vectors(nil, o.x, o.n), o.k)
	case *selectOp:
		for i, sum := range r.vectors(nil, o.x, o.n()) {
			r.of[results[i]] = r.join(sum, r.of[o.index[i]])
		}
	case *pairsOp:
		x, y := r.vectors(nil, o.x, o.k), r.vectors(nil, o.y, o.k)
		for i, row := range results {
			if row != none {
				r.of[row] = r.join(x[i/o.n], y[i/(o.m*o.n)*o.n+i%o.n])
			}
		}
	case *applyOp, *combineOp, *multiplyAddOp, *chooseOp, *affineOp, *slowOp:
		for i, row := range results { // which reads the operands at its position
			var sum reach
			for _, rows := range operands {
				sum = r.join(sum, r.of[rows[i]])
			}
			r.of[row] = sum
		}
	default:
		for _, row := range results {
			if row != none {
				r.of[row] = reach{many: true, wild: true}
			}
		}
		return
	}
	grows, bounded := magnitude(in)
	if r.has(results) { // an infinite number that comes and goes would leave NaN in the sums
		bounded = false
		if o, ok := in.(*chooseOp); ok {
			grows = r.depends(o.x)
		}
	}
	for _, row := range results {
		if row != none {
			r.of[row].wild = grows || r.of[row].wild && !bounded
		}
	}
}

// magnitude reports whether the results of an instruction may be much larger than the
// operands, and whether they are small even if the operands are large.
func magnitude(in instruction) (grows, bounded bool) {
	switch o := in.(type) {
	case *applyOp:
		grows = o.f == kernel.Exp || o.f == kernel.Log || o.f == kernel.Reciprocal
		bounded = o.f == kernel.Sigmoid || o.f == kernel.HyperbolicTangent || o.f == kernel.Erf
	case *combineOp:
		grows = o.op == kernel.Divide
		bounded = o.op == kernel.Equal || o.op == kernel.Less || o.op == kernel.LessOrEqual
	case *softmaxOp, *rankOp:
		bounded = true
	case *slowOp:
		grows = true
	}
	return grows, bounded
}

// vectors returns the joint reach of each n successive rows of x. Unless results is nil, it
// sets the reaches of the results at the same positions to it.
func (r *reaches) vectors(results, x []int32, n int) []reach {
	var all []reach
	for at := 0; at < len(x); at += n {
		var sum reach
		for _, row := range x[at : at+n] {
			sum = r.join(sum, r.of[row])
		}
		all = append(all, sum)
	}
	if results != nil {
		r.spread(results, all, n)
	}
	return all
}

// spread sets the reaches of each n successive results.
func (r *reaches) spread(results []int32, all []reach, n int) {
	for i, row := range results {
		if row != none {
			r.of[row] = all[i/n]
		}
	}
}

// join returns the reach of a row that depends on what either row depends on.
func (r *reaches) join(x, y reach) reach {
	wild := x.wild || y.wild
	switch {
	case x.many || y.many:
		return reach{many: true, wild: wild}
	case len(y.players) == 0 || slices.Equal(x.players, y.players):
		return reach{x.players, false, wild}
	case len(x.players) == 0:
		return reach{y.players, false, wild}
	}
	var players []int32
	a, b := x.players, y.players
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			players, a = append(players, a[0]), a[1:]
		case len(a) == 0 || b[0] < a[0]:
			players, b = append(players, b[0]), b[1:]
		default:
			players, a, b = append(players, a[0]), a[1:], b[1:]
		}
	}
	if r.left -= len(players); r.left < 0 || len(players) > maxReach {
		return reach{many: true, wild: wild}
	}
	return reach{players, false, wild}
}
