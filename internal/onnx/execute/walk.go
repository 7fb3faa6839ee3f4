package execute

import (
	"slices"

	"shaver/internal/num/kernel"
)

// update is a linear layer that a Walker updates from state to state.
type update struct {
	step   int // index into Program.each
	layer  *kernel.Update
	always kernel.Mask // by position in the layer's x: whether the input depends on many players
	first  []int32     // [players+1], where the inputs of each player begin
	inputs []int32     // positions in the layer's x of the other inputs, player by player
}

// update chooses the linear layers that a Walker updates. The program must otherwise be
// complete.
//
// A layer is chosen if few of its inputs change in kernel.States steps of a walk. The choice
// depends on numbers of multiplications only, so it is the same on every machine. If eager is
// set, more layers are chosen. A layer with a wild input never is, because a large number that
// comes and goes would leave a rounding error in the sums. Nor is a layer on which a choice
// depends, because a rounding error could decide between equal elements.
func (c *compiler) update(eager bool) {
	c.p.walked = c.p.products
	var reached []reach
	scratch, choosing := 0, c.choosing()
	for i, in := range c.each {
		o, ok := in.(*linearOp)
		if !ok || !eager && (c.p.players <= kernel.States || !worthUpdating(o.m, o.vectors, 0)) {
			continue
		}
		if reached == nil {
			reached = c.reached()
		}
		changing, wild := 0, false
		for _, row := range o.x {
			changing += c.changing(&reached[row])
			wild = wild || reached[row].wild
		}
		weights, most := o.m.In*o.m.Out, kernel.Changes(o.m.In)
		if wild || choosing != nil && slices.ContainsFunc(o.out, func(row int32) bool { return choosing[row] }) || !eager && !worthUpdating(o.m, o.vectors, changing) || most > maxRows-c.p.rows || weights > c.weights {
			continue
		}
		c.weights -= weights // an update has a copy
		scratch = max(scratch, most)
		layer := kernel.NewUpdate(c.p.each[i].(*linearStep).Linear, span{int32(c.p.rows), int32(most)}.list())
		c.p.updates = append(c.p.updates, c.newUpdate(i, layer, pick(reached, o.x)))
		c.p.walked -= (o.vectors*o.m.In - changing/one) * o.m.Out
	}
	c.p.rows += scratch
}

// choosing reports for each row whether a choice depends on it. It is nil if there are no
// choices.
func (c *compiler) choosing() []bool {
	var rows []bool
	for _, in := range slices.Backward(c.each) {
		_, choice := in.(*rankOp)
		if choice && rows == nil {
			rows = make([]bool, len(c.region))
		}
		if rows == nil || !choice && !slices.ContainsFunc(in.results(), func(row int32) bool { return row != none && rows[row] }) {
			continue
		}
		for _, list := range in.operands() {
			for _, row := range list {
				if row != none {
					rows[row] = true
				}
			}
		}
	}
	return rows
}

// one is a probability of 1 in the results of changing.
const one = 1 << 16

// changing returns the probability that a row changes in kernel.States random steps of a
// walk, each of which changes one player.
func (c *compiler) changing(r *reach) int {
	if r.many {
		return one
	}
	players, same := c.p.players, one
	for range r.players {
		same = same * max(0, players-kernel.States) / players
	}
	return one - same
}

// worthUpdating reports whether a layer is faster to update than to compute. changing is the
// sum of the probabilities that its inputs change.
func worthUpdating(m *kernel.Outputs, vectors, changing int) bool {
	const ( // multiplications in a full product that take as long; kernel.BenchmarkUpdate compares them
		layer  = 500 // as finding the inputs that change
		vector = 50  // as a call for a vector
		unit   = 7   // as storing a unit of a vector
		change = 20  // as an input that changes, without its products
	)
	update := layer + vectors*(vector+unit*m.Out) + changing*(m.Out+change)/one
	return update < vectors*m.In*m.Out && changing < vectors*kernel.Changes(m.In)*one
}

// newUpdate returns the update of step i. reached are the reaches of the layer's inputs.
func (c *compiler) newUpdate(i int, layer *kernel.Update, reached []reach) update {
	u := update{step: i, layer: layer, always: kernel.NewMask(len(reached)), first: make([]int32, c.p.players+1)}
	for k, r := range reached {
		if r.many {
			u.always[k/64] |= 1 << (k % 64)
		}
		for _, p := range r.players {
			u.first[p+1]++
		}
	}
	for p := range c.p.players {
		u.first[p+1] += u.first[p]
	}
	u.inputs = make([]int32, u.first[c.p.players])
	next := append([]int32{}, u.first...)
	for k, r := range reached {
		for _, p := range r.players {
			u.inputs[next[p]] = int32(k)
			next[p]++
		}
	}
	return u
}

// WalkProducts is Products for a state of a random walk by a Walker.
func (p *Program) WalkProducts() int { return p.walked }

// Walker is a Runner that also follows walks. Successive states of a walk differ in few
// players, so a Walker updates linear layers whose inputs depend on few players each. The
// sums of such a layer are those of an earlier state plus what the changed inputs add to
// them. All else is computed as by Run.
//
// A result of Continue agrees with that of Run up to rounding: over a whole walk, each change
// of an input rounds each sum once more, as a term of the full sum does.
type Walker struct {
	*Runner
	sums    []*kernel.Sums // of each update
	changed []kernel.Mask  // by update: positions in the layer's x of the inputs that may change
	list    []int32        // list of changed
}

// NewWalker returns a walker for p.
func (p *Program) NewWalker() *Walker {
	w := &Walker{Runner: p.NewRunner()}
	longest := 0
	for _, u := range p.updates {
		w.sums = append(w.sums, u.layer.NewSums())
		w.changed = append(w.changed, make(kernel.Mask, len(u.always)))
		longest = max(longest, 64*len(u.always))
	}
	w.list = kernel.NewList(longest)
	return w
}

// Start returns the output of state 0, which is that of Run to the last bit. Walks begin with
// this state, until the next call.
func (w *Walker) Start() float64 {
	next := 0
	for i, s := range w.p.each {
		if next < len(w.sums) && w.p.updates[next].step == i {
			w.sums[next].Start(w.arena)
			next++
		} else {
			s.run(w.arena, 1)
		}
	}
	return float64(w.arena.Element(int(w.p.output))[0])
}

// Return begins another walk at the state of the last call of Start. The values that depend
// on Others must be the same as then.
func (w *Walker) Return() {
	for _, s := range w.sums {
		s.Return()
	}
}

// Continue sets dst[t] to the output of state t, as Run does. The states continue a walk: they
// follow the last state of the previous call, or of Start. changed lists the elements of
// Players that differ from that state in one of these states, in any order. It may list
// others. dst has at most kernel.States elements.
//
// A result depends on the state, on the walk so far, and on how it was cut into calls. Calls of
// Run and Prepare between those of Continue do not matter if the inputs are the same again.
func (w *Walker) Continue(dst []float64, changed []int32) {
	if len(dst) == 0 {
		return
	}
	next := 0
	for i, s := range w.p.each {
		if next == len(w.sums) || w.p.updates[next].step != i {
			s.run(w.arena, len(dst))
			continue
		}
		u, mask := &w.p.updates[next], w.changed[next]
		copy(mask, u.always)
		for _, p := range changed {
			for _, k := range u.inputs[u.first[p]:u.first[p+1]] {
				mask[k/64] |= 1 << (k % 64)
			}
		}
		w.list = mask.List(w.list[:0])
		w.sums[next].Continue(w.arena, len(dst), w.list)
		next++
	}
	w.output(dst)
}
