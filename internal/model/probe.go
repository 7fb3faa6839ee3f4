package model

// Probe evaluates one row while its entries appear one by one in place of the
// baseline. The first linear maps and the FM term follow each step by an exact
// rank-one update; the rest of the network is computed anew, for a tile of steps
// at once. It is for one goroutine, and allocates nothing after NewProbe.
type Probe struct {
	m        *Model
	baseline []float32 // [D]
	scorer   *Scorer

	// the state with no entry present, the same for all rows
	emptyPre     pre
	emptySum     pairSum
	emptyNetwork float64 // logit without the row's constant

	// the row
	row      []int32
	entries  []float32 // its embedding, [D]
	constant float64

	// the walk
	x   []float32
	pre pre
	sum pairSum

	// a tile of its steps, those that change something
	step   []int     // number of the step in the walk
	player []int32   // who appears
	change []float32 // of the player's entry
	beside []float64 // the logit but for the network's, after the step
}

// NewProbe returns a probe of m with the given baseline: what an entry reads
// while it is dropped, [D] = [m, d]. The probe keeps the slice.
func (m *Model) NewProbe(baseline []float32) *Probe {
	if len(baseline) != m.Players() {
		panic("model: NewProbe: baseline has the wrong length")
	}
	scorer := m.NewScorer()
	rows := len(scorer.slots)
	p := &Probe{
		m: m, baseline: baseline, scorer: scorer,
		emptyPre: m.head.newPre(), emptySum: newPairSum(m),
		entries: make([]float32, m.Players()),
		x:       make([]float32, m.Players()), pre: m.head.newPre(), sum: newPairSum(m),
		step: make([]int, 0, rows), player: make([]int32, 0, rows), change: make([]float32, 0, rows), beside: make([]float64, 0, rows),
	}
	s := p.scorer.s
	s.begin(p.emptyPre, baseline)
	p.pre.copyFrom(p.emptyPre)
	s.start(baseline)
	slot := p.scorer.slots[:1] // after a step that changes nothing
	s.stepLogits(slot, p.pre, &steps{player: []int32{0}, change: []float32{0}, x: baseline})
	p.emptyNetwork = slot[0]
	p.emptySum.set(baseline)
	return p
}

// Reset turns to another row, which must have passed CheckRow.
func (p *Probe) Reset(row []int32) {
	p.row = row
	p.m.Embed(p.entries, row)
	p.constant = p.m.constant(row)
}

// Empty returns the row's logit with everything dropped.
func (p *Probe) Empty() float64 { return p.constant + p.emptySum.value() + p.emptyNetwork }

// Walk lets the row's entries appear in the given order of its D players, and
// sets logits[k] to the logit with the first k of them present; logits has
// D+1 elements. It begins at Empty and ends at the row's logit, but for the rounding
// of its updates. An entry that equals its baseline changes nothing, to the bit.
func (p *Probe) Walk(order []int32, logits []float64) {
	copy(p.x, p.baseline)
	p.pre.copyFrom(p.emptyPre)
	p.sum.copyFrom(&p.emptySum)
	p.scorer.s.start(p.x)
	logits[0] = p.Empty()
	for from := 0; from < len(order); {
		to := p.gather(order, from)
		slots := p.scorer.slots[:len(p.step)]
		p.scorer.s.stepLogits(slots, p.pre, &steps{p.player, p.change, p.x, order[to:min(to+cap(p.step), len(order))]})
		i := 0
		for k := from; k < to; k++ {
			if i < len(p.step) && p.step[i] == k {
				logits[k+1] = p.beside[i] + slots[i]
				i++
			} else {
				logits[k+1] = logits[k]
			}
		}
		from = to
	}
}

// gather takes the next tile of steps that change something, begins them, and
// returns the step after the last that it looked at.
func (p *Probe) gather(order []int32, from int) (to int) {
	p.step, p.player, p.change, p.beside = p.step[:0], p.player[:0], p.change[:0], p.beside[:0]
	for to = from; to < len(order) && len(p.step) < cap(p.step); to++ {
		player := order[to]
		before, after := p.x[player], p.entries[player]
		if before == after {
			continue
		}
		p.x[player] = after
		p.sum.change(int(player), before, after)
		p.step, p.player, p.change = append(p.step, to), append(p.player, player), append(p.change, after-before)
		p.beside = append(p.beside, p.constant+p.sum.value())
	}
	return to
}

// Coalition returns the logit with exactly the given players present, computed
// from scratch; present has D elements. With all of them it is a Scorer's, to the bit.
func (p *Probe) Coalition(present []bool) float64 {
	for i, in := range present {
		if in {
			p.x[i] = p.entries[i]
		} else {
			p.x[i] = p.baseline[i]
		}
	}
	return p.scorer.logit(p.row, p.x)
}

// pairSum is FM's second-order term, 1/2 sum over columns of (the square of the
// sum over fields - the sum of squares), in float64, for models that have one.
type pairSum struct {
	on      bool
	column  []float64 // sums over fields, [d]
	squares float64   // sum of all squares
	total   float64   // sum over columns of column^2
}

func newPairSum(m *Model) pairSum {
	return pairSum{on: m.pairwise(), column: make([]float64, m.Dim)}
}

func (s *pairSum) copyFrom(o *pairSum) {
	copy(s.column, o.column)
	s.squares, s.total = o.squares, o.total
}

// set computes the term of x, [D], from scratch.
func (s *pairSum) set(x []float32) {
	clear(s.column)
	s.squares, s.total = 0, 0
	for i, v := range x {
		e := float64(v)
		s.column[i%len(s.column)] += e
		s.squares += float64(e * e)
	}
	for _, c := range s.column {
		s.total += float64(c * c)
	}
}

// change follows the change of one entry.
func (s *pairSum) change(player int, before, after float32) {
	b, a := float64(before), float64(after)
	c := player % len(s.column)
	old := s.column[c]
	s.column[c] += a - b
	s.total += float64(s.column[c]*s.column[c]) - float64(old*old)
	s.squares += float64(a*a) - float64(b*b)
}

// value returns the term; 0 for models without one.
func (s *pairSum) value() float64 {
	if !s.on {
		return 0
	}
	return (s.total - s.squares) / 2
}
