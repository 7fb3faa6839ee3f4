package model

import "shaver/internal/kernel"

// Probe evaluates one row while its entries appear one by one in place of the
// baseline. The first linear map and the FM term follow each step by an exact
// rank-one update; the rest of the network is computed anew. It is for one
// goroutine, and allocates nothing after NewProbe.
type Probe struct {
	m        *Model
	baseline []float32 // [D]
	scorer   *Scorer

	// the state with no entry present, the same for all rows
	emptyPre     []float32
	emptySum     pairSum
	emptyNetwork float64 // logit without the row's constant

	// the row
	row      []int32
	entries  []float32 // its embedding, [D]
	constant float64
	full     float64 // logit with every entry present

	// the walk
	x   []float32
	pre []float32
	sum pairSum
}

// NewProbe returns a probe of m with the given baseline: what an entry reads
// while it is dropped, [D] = [m, d]. The probe keeps the slice.
func (m *Model) NewProbe(baseline []float32) *Probe {
	if len(baseline) != m.Players() {
		panic("model: NewProbe: baseline has the wrong length")
	}
	p := &Probe{
		m: m, baseline: baseline, scorer: m.NewScorer(),
		emptyPre: make([]float32, len(m.head.firstBias)), emptySum: newPairSum(m),
		entries: make([]float32, m.Players()),
		x:       make([]float32, m.Players()), pre: make([]float32, len(m.head.firstBias)), sum: newPairSum(m),
	}
	m.head.begin(p.emptyPre, baseline)
	p.emptyNetwork = m.head.finish(p.scorer.s, baseline, p.emptyPre)
	p.emptySum.set(baseline)
	return p
}

// Reset turns to another row, which must have passed CheckRow.
func (p *Probe) Reset(row []int32) {
	p.row = row
	p.m.Embed(p.entries, row)
	p.constant = p.m.constant(row)
	p.full = p.scorer.logit(row, p.entries)
}

// Full returns the row's logit with nothing dropped, as a Scorer gives it.
func (p *Probe) Full() float64 { return p.full }

// Empty returns the row's logit with everything dropped.
func (p *Probe) Empty() float64 { return p.constant + p.emptyNetwork + p.emptySum.value() }

// Walk lets the row's entries appear in the given order of its D players, and
// sets logits[k] to the logit with the first k of them present; logits has
// D+1 elements. It begins at Empty and ends at Full but for the rounding of its
// updates. An entry that equals its baseline changes nothing, to the bit.
func (p *Probe) Walk(order []int32, logits []float64) {
	copy(p.x, p.baseline)
	copy(p.pre, p.emptyPre)
	p.sum.copyFrom(&p.emptySum)
	logits[0] = p.Empty()
	width := len(p.pre)
	for k, player := range order {
		before, after := p.x[player], p.entries[player]
		if before == after {
			logits[k+1] = logits[k]
			continue
		}
		p.x[player] = after
		kernel.Axpy(p.pre, after-before, p.m.head.first[int(player)*width:(int(player)+1)*width])
		p.sum.change(int(player), before, after)
		logits[k+1] = p.constant + p.m.head.finish(p.scorer.s, p.x, p.pre) + p.sum.value()
	}
}

// Coalition returns the logit with exactly the given players present, computed
// from scratch; present has D elements.
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
