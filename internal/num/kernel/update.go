package kernel

import "slices"

// Update computes a Linear in walks, whose successive states differ in few elements of x. It
// adds what the changed elements contribute to the sums of an earlier state, instead of
// computing the sums from the bias on. An Update is read-only and may be shared by all
// goroutines, each of which has its own Sums.
type Update struct {
	l       *Linear
	width   int        // m.Out, at levels in assembly rounded up to whole groups, which repeat the last unit
	weights *RowMatrix // [In, width]
	outputs []uint32   // [batch, width]
	changes []uint32   // the scratch elements
	size    int        // number of elements that a block needs
}

// Changes returns the largest number of inputs that Sums.Continue updates in all states at once, in a
// vector of in inputs. If more change, it is as fast to compute the vector in full.
func Changes(in int) int { return in / 4 * 3 }

// atOnce is the number of listed inputs times units up to which it is faster to update a vector in all states at
// once than state by state.
const atOnce = 4096

// steps returns the largest number of changes that Sums.Continue adds state by state, in a vector with the given
// number of listed inputs. If there are more, it is faster to update the vector in all states at once.
func steps(listed, states int) int { return listed * states / 8 }

// refresh bounds the terms that are added to a sum, in multiples of the terms of a full sum.
const refresh = 16

// NewUpdate prepares updates of l, and copies its weights. scratch has Changes(m.In) elements
// of the block, which are not elements of l. Sums.Continue overwrites them.
func NewUpdate(l *Linear, scratch []int32) *Update {
	m, e := l.m, NewElements(scratch)
	used := make(map[uint32]bool, len(l.out)+len(l.x))
	for _, o := range slices.Concat(l.out, l.x) {
		used[o] = true
	}
	if len(scratch) != Changes(m.In) || !disjoint(scratch) || slices.ContainsFunc(e.offset, func(o uint32) bool { return used[o] }) {
		panic("kernel: NewUpdate: wrong number of scratch elements, or one occurs twice or is an element of the layer")
	}
	u := &Update{l: l, width: m.Out, changes: e.offset, size: max(l.size, e.size)}
	if n := current.units; n > 0 {
		u.width = (m.Out + n - 1) / n * n
	}
	weight := slices.Clip(m.weight)
	for range u.width - m.Out {
		weight = append(weight, weight[len(weight)-m.In:]...)
	}
	u.weights = NewRowMatrix(weight, m.In, u.width)
	for n := range l.batch {
		for i := range u.width {
			u.outputs = append(u.outputs, l.out[n*m.Out+min(i, m.Out-1)])
		}
	}
	return u
}

// Sums holds the sums of an Update during walks. Only one goroutine may use it at a time. Its
// methods allocate no memory.
type Sums struct {
	u      *Update
	stride int       // Pad(width)
	sums   []float32 // [batch, stride], sums of the last state, without ReLU
	x      []float32 // [batch, In], x of the last state
	terms  []int     // [batch], number of terms that were added to the sums since they were computed in full
	start  []float32 // sums and x of the state of Start
	vector Linear    // a vector that is computed in full
	ones   []float32 // [Changes(In)]
	before []float32 // [Changes(In)], the changed elements of the last state, negated
	from   []uint32  // [Changes(In)], the changed elements
	rows   []uint32  // [Changes(In)], where their weights begin

	// Memory for a vector that is updated state by state.
	found  []change    // its changes, input by input
	ends   [States]int // by state: number of changes in this state and those before
	input  []int32     // [steps(In, States)], the inputs that change, state by state
	amount []float32   // [steps(In, States)], by how much
	tile   Tile        // [States, stride], outputs
	square Block       // [Columns], some of the outputs
}

// change is the change of an input from one state to the next.
type change struct {
	state, input int32
	amount       float32
}

// NewSums returns Sums for u. The first call must be Start.
func (u *Update) NewSums() *Sums {
	l, most, steps, stride := u.l, len(u.changes), steps(u.l.m.In, States), Pad(u.width)
	s := &Sums{
		u: u, stride: stride, sums: make([]float32, l.batch*stride), x: make([]float32, len(l.x)), terms: make([]int, l.batch), start: make([]float32, l.batch*stride+len(l.x)), vector: *l,
		found: make([]change, 0, steps), input: make([]int32, steps), amount: make([]float32, steps), tile: NewTile(States+1, stride), square: NewBlock(Columns),
		ones: slices.Repeat([]float32{1}, most), before: make([]float32, most), from: make([]uint32, most), rows: make([]uint32, most),
	}
	s.vector.batch = 1
	return s
}

// Start computes the layer for state 0 as Linear.Compute does. This state becomes the last
// state, and the one to which Return goes back.
func (s *Sums) Start(b Block) {
	s.check(b, 1)
	for n := range s.u.vectors() {
		s.compute(b, 1, n)
	}
	copy(s.start, s.sums)
	copy(s.start[len(s.sums):], s.x)
}

// Return makes the state of Start the last state.
func (s *Sums) Return() {
	copy(s.sums, s.start)
	copy(s.x, s.start[len(s.sums):])
	clear(s.terms)
}

// Continue computes the layer for the states t < states, at most 48, and makes state states-1
// the last state. changed lists the positions in x of all elements that differ from the last
// state in one of these states. It is ascending and may also list elements that do not
// differ. For a vector n with at most Changes(m.In) listed elements, the result is
//
//	out[n][u] = sums[n][u]; for listed k: out[n][u] += (x[n][k] - last[n][k]) * m[u][k]
//	if relu: out[n][u] = max(out[n][u], 0)
//
// Here sums is out of the last state without ReLU, and last is its x. A vector whose listed
// elements times m.Out are more than 4096 is updated state by state, if on average at most one
// in eight of them differs from the state before, always by a finite number. Then sums and last
// are those of the state before, and only elements that differ are added. All other vectors are
// computed as by Linear.Compute. So is a vector to whose sums 16*m.In terms would have been added since it was
// last computed in full, which bounds the rounding errors of long walks. A state's result depends
// on that state, on the walk since Start or Return, and on how the walk was cut into calls.
// Continue rounds states up to a multiple of 16.
func (s *Sums) Continue(b Block, states int, changed []int32) {
	s.check(b, states)
	if len(changed) > 0 && (changed[0] < 0 || int(changed[len(changed)-1]) >= len(s.x)) {
		panic("kernel: Continue: a changed element is outside x")
	}
	in := s.u.l.m.In
	for n := range s.u.vectors() {
		k := 0
		for k < len(changed) && int(changed[k]) < (n+1)*in {
			k++
		}
		few := k*s.u.l.m.Out > atOnce && s.find(b, states, n, changed[:k])
		if few {
			s.terms[n] += len(s.found)
		} else {
			s.terms[n] += k
		}
		switch {
		case s.terms[n] > refresh*in || !few && k > len(s.from):
			s.compute(b, states, n)
		case few:
			s.step(b, states, n, changed[:k])
		default:
			s.update(b, states, n, changed[:k])
		}
		changed = changed[k:]
	}
}

// vectors returns the number of vectors, 0 if they have no units.
func (u *Update) vectors() int {
	if u.l.m.Out == 0 {
		return 0
	}
	return u.l.batch
}

func (s *Sums) check(b Block, states int) {
	b.check(states)
	if len(b)/States < s.u.size {
		panic("kernel: an element is outside the block")
	}
}

// compute computes vector n in full.
func (s *Sums) compute(b Block, states, n int) {
	l, v := s.u.l, &s.vector
	s.terms[n] = 0
	v.out, v.x = l.out[n*l.m.Out:(n+1)*l.m.Out], l.x[n*l.m.In:(n+1)*l.m.In]
	for k, from := range v.x {
		s.x[n*l.m.In+k] = b[int(from)+states-1]
	}
	if l.product {
		l.m.Product(b[v.out[0]:], b[v.x[0]:], states, nil, nil, false)
	} else {
		v.outputs = s.u.outputs[n*s.u.width:][:s.u.width]
		current.linear(v, b, panelsOf(states), floor(false))
	}
	s.finish(b, states, n)
}

// update adds the changes of the listed elements to the sums of vector n.
func (s *Sums) update(b Block, states, n int, listed []int32) {
	l, width, panels := s.u.l, s.u.width, panelsOf(states)
	out, sums, changes := s.u.outputs[n*width:(n+1)*width], s.sums[n*s.stride:][:width], s.u.changes[:len(listed)]
	if len(listed) == 0 {
		current.update(b, out, nil, nil, nil, sums, panels, floor(l.relu))
		return
	}
	for i, k := range listed {
		s.from[i], s.before[i], s.rows[i] = l.x[k], -s.x[k], uint32((int(k)-n*l.m.In)*s.stride)
		s.x[k] = b[int(l.x[k])+states-1]
	}
	current.affine(b, changes, s.from[:len(listed)], s.ones[:len(listed)], s.before[:len(listed)], panels)
	current.update(b, out, changes, s.rows[:len(listed)], s.u.weights.values, sums, panels, floor(false))
	s.finish(b, states, n)
}

// finish keeps the sums of vector n in the last state, and applies ReLU.
func (s *Sums) finish(b Block, states, n int) {
	l, width := s.u.l, s.u.width
	for i, o := range s.u.outputs[n*width : (n+1)*width] {
		s.sums[n*s.stride+i] = b[int(o)+states-1]
	}
	if l.relu {
		out := l.out[n*l.m.Out : (n+1)*l.m.Out]
		current.apply(ReLU, b, out, out, panelsOf(states))
	}
}

// find finds the changes of the listed elements of vector n from state to state. It reports whether they are few and finite.
func (s *Sums) find(b Block, states, n int, listed []int32) bool {
	s.found = s.found[:0]
	most := steps(len(listed), states)
	for _, k := range listed {
		before := s.x[k]
		for t, v := range b[s.u.l.x[k]:][:states] {
			if v == before {
				continue
			}
			amount := v - before
			if amount-amount != 0 || len(s.found) == most { // NaN and infinity would stay in the sums
				return false
			}
			s.found = append(s.found, change{int32(t), k - int32(n*s.u.l.m.In), amount})
			before = v
		}
	}
	return true
}

// step adds the changes that find found to the sums of vector n, state by state.
func (s *Sums) step(b Block, states, n int, listed []int32) {
	for _, k := range listed {
		s.x[k] = b[int(s.u.l.x[k])+states-1]
	}
	clear(s.ends[:])
	for _, c := range s.found {
		s.ends[c.state]++
	}
	at := 0
	for t, changes := range s.ends {
		s.ends[t] = at
		at += changes
	}
	for _, c := range s.found { // sort by state
		i := s.ends[c.state]
		s.input[i], s.amount[i] = c.input, c.amount
		s.ends[c.state]++
	}
	s.u.weights.Prefetch(s.input[:len(s.found)])
	sums, relu, from := s.sums[n*s.stride:(n+1)*s.stride], s.u.l.relu, 0
	for t := range states {
		row, to := s.tile.Row(t), s.ends[t]
		switch {
		case to > from:
			s.u.weights.Steps(Tile{Values: row}, sums, s.input[from:to], s.amount[from:to], relu, nil)
		case t > 0:
			copy(row, s.tile.Row(t-1))
		default:
			copy(row, sums)
			clamp(row, 0, floor(relu), nil)
		}
		from = to
	}
	outputs := s.u.outputs[n*s.u.width : (n+1)*s.u.width]
	for u := 0; u < s.u.width; u += Columns {
		ToBlock(s.square, Tile{s.tile.Values[u:], s.stride}, states, Columns)
		for i, o := range outputs[u:min(u+Columns, s.u.width)] {
			copy(b[o:][:Pad(states)], s.square.Element(i))
		}
	}
}

func updatePortable(b Block, out, x, rows []uint32, w, bias []float32, panels int, floor float32) {
	for u, o := range out {
		to := b[o:][:panels*Columns]
		for t := range to {
			to[t] = bias[u]
		}
		for i, from := range x {
			Axpy(to, w[int(rows[i])+u], b[from:])
		}
		clamp(to, 0, floor, nil)
	}
}
