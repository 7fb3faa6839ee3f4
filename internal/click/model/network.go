package model

import "slices"

// networkScorer is the scorer of a head.
type networkScorer struct {
	m     *Model
	s     *tile
	x     []float32 // [size, D]: embeddings of a tile's rows
	sum   pairSum
	slots []float64 // [size]: the network's logits of a tile
}

func (h *head) newScorer(m *Model) scorer { return h.newNetworkScorer(m) }

func (h *head) newNetworkScorer(m *Model) *networkScorer {
	t := newTile(h)
	return &networkScorer{m: m, s: t, x: make([]float32, t.size*m.Players()), sum: newPairSum(m), slots: make([]float64, t.size)}
}

func (s *networkScorer) logits(dst []float64, rows *Rows) {
	for from := 0; from < rows.Len(); from += len(s.slots) {
		slots := s.slots[:min(len(s.slots), rows.Len()-from)]
		players := s.m.Players()
		s.m.Embed(s.x, rows.Features[from*rows.Width:(from+len(slots))*rows.Width])
		for i := range slots {
			x := s.x[i*players : (i+1)*players]
			dst[from+i] = s.shallow(rows.Row(from+i), x)
			s.s.put(i, x)
		}
		s.s.logits(slots)
		for i, v := range slots {
			dst[from+i] += v
		}
	}
}

// shallow returns the part of the logit that does not come from the network: the constant
// and the terms of pairSum.
func (s *networkScorer) shallow(row []int32, x []float32) float64 {
	logit := s.m.constant(row)
	if s.sum.reads() {
		s.sum.set(x)
		logit += s.sum.value()
	}
	return logit
}

// logit evaluates a row with the embedding x instead of its own.
func (s *networkScorer) logit(row []int32, x []float32) float64 {
	slots := s.slots[:1]
	s.s.put(0, x)
	s.s.logits(slots)
	return s.shallow(row, x) + slots[0]
}

// networkProbe is the prober of a head. Each step of a walk updates the first linear maps
// and the FM term by an exact rank-one update. The rest of the network is computed from
// scratch, for a tile of steps at once.
type networkProbe struct {
	m        *Model
	book     *Book
	own      bool      // whether the baseline may differ between rows
	baseline []float32 // [D], the row with everything dropped: its own entries in frozen fields
	free     []int32   // element of each player; nil if they have the same numbers
	scorer   *networkScorer

	// The state with no entry present, which is the same for all rows unless own is set.
	emptyPre     pre
	emptySum     pairSum
	emptyNetwork float64 // logit of the network alone

	// The current row.
	row      []int32
	entries  []float32 // [D], the row's embedding
	constant float64

	// The current walk.
	x       []float32
	present []bool // the current coalition
	pre     pre
	sum     pairSum

	// The current tile: steps of the walk that change an input of the network.
	step   []int     // number of each step in the walk
	player []int32   // player that appears at each step
	change []float32 // change of the player's entry

	shallow []float64 // [D], logit after each step of the walk, without the network's part
}

func (h *head) newProbe(m *Model, book *Book) prober {
	scorer := h.newNetworkScorer(m)
	rows := len(scorer.slots)
	p := &networkProbe{
		m: m, book: book, baseline: book.spread, free: m.Free(), scorer: scorer,
		emptyPre: h.newPre(), emptySum: newPairSum(m),
		entries: make([]float32, m.Players()),
		x:       make([]float32, m.Players()), present: make([]bool, m.Players()), pre: h.newPre(), sum: newPairSum(m),
		step: make([]int, 0, rows), player: make([]int32, 0, rows), change: make([]float32, 0, rows), shallow: make([]float64, m.Players()),
	}
	if p.free != nil {
		p.present = p.present[:len(p.free)]
	}
	if p.own = p.free != nil || !book.Constant(); p.own {
		p.baseline = slices.Clone(p.baseline)
	}
	p.begin()
	return p
}

// begin computes the state with no entry present.
func (p *networkProbe) begin() {
	s := p.scorer.s
	s.begin(p.emptyPre, p.baseline)
	p.pre.copyFrom(p.emptyPre)
	s.start(p.baseline)
	slot := p.scorer.slots[:1] // evaluate the state after one step that changes nothing
	s.stepLogits(slot, p.pre, &steps{player: []int32{0}, change: []float32{0}, x: p.baseline})
	p.emptyNetwork = slot[0]
	p.emptySum.set(p.baseline)
}

// element returns the element of the embedding that a player's entry gives.
func (p *networkProbe) element(player int32) int32 {
	if p.free == nil {
		return player
	}
	return p.free[player]
}

func (p *networkProbe) reset(rows *Rows, r int) {
	row := rows.Row(r)
	p.row = row
	p.m.Embed(p.entries, row)
	p.constant = p.m.constant(row)
	if !p.own {
		return
	}
	p.book.Spread(p.baseline, row)
	if p.free != nil {
		next := p.free
		for k, v := range p.entries {
			if len(next) > 0 && int(next[0]) == k {
				next = next[1:]
			} else {
				p.baseline[k] = v
			}
		}
	}
	p.begin()
}

func (p *networkProbe) empty() float64 { return p.constant + p.emptySum.value() + p.emptyNetwork }

func (p *networkProbe) empties(dst []float64, rows *Rows) {
	shared := p.emptySum.value()
	for r := range dst {
		if p.own {
			p.reset(rows, r)
			shared = p.emptySum.value()
		}
		dst[r] = p.m.constant(rows.Row(r)) + shared + p.emptyNetwork
	}
}

func (p *networkProbe) walk(order []int32, logits []float64) {
	copy(p.x, p.baseline)
	p.pre.copyFrom(p.emptyPre)
	p.sum.copyFrom(&p.emptySum)
	p.scorer.s.start(p.x)
	logits[0] = p.empty()
	network := p.emptyNetwork
	for from := 0; from < len(order); {
		to := p.gather(order, from)
		slots := p.scorer.slots[:len(p.step)]
		p.scorer.s.stepLogits(slots, p.pre, &steps{p.player, p.change, p.x, order[to:min(to+cap(p.step), len(order))]})
		i := 0
		for k := from; k < to; k++ {
			if i < len(p.step) && p.step[i] == k {
				network = slots[i]
				i++
			}
			logits[k+1] = p.shallow[k] + network
		}
		from = to
	}
}

// gather collects the next tile of steps that change an input of the network. It applies the
// changes of all steps that it examines to x and sum, and sets shallow for them. It returns
// the first step that it did not examine.
func (p *networkProbe) gather(order []int32, from int) (to int) {
	p.step, p.player, p.change = p.step[:0], p.player[:0], p.change[:0]
	shallow := p.constant + p.sum.value()
	for to = from; to < len(order) && len(p.step) < cap(p.step); to++ {
		player := p.element(order[to])
		before, after := p.x[player], p.entries[player]
		if before != after {
			p.x[player] = after
			p.sum.change(int(player), before, p.x)
			shallow = p.constant + p.sum.value()
			if !p.sum.alone(int(player)) {
				p.step, p.player, p.change = append(p.step, to), append(p.player, player), append(p.change, after-before)
			}
		}
		p.shallow[to] = shallow
	}
	return to
}

func (p *networkProbe) coalition(present []bool) float64 {
	copy(p.x, p.baseline)
	for i, in := range present {
		if in {
			k := p.element(int32(i))
			p.x[k] = p.entries[k]
		}
	}
	return p.scorer.logit(p.row, p.x)
}

func (p *networkProbe) coalitions(first int, logits []float64) {
	for i := range logits {
		for k := range p.present {
			p.present[k] = (first+i)>>k&1 == 1
		}
		logits[i] = p.coalition(p.present)
	}
}

// pairSum computes, in float64, the part of the logit that reads the entries directly. It is
// FM's second-order term, 1/2 * sum over columns of (square of the sum over fields - sum of
// squares), plus the term of Weights.Linear, plus NeuMF's sum over the GMF columns of the
// weight times the user's entry times the item's.
type pairSum struct {
	on      bool      // whether the model has FM's term
	linear  []float32 // [D], Weights.Linear, or nil
	product []float32 // [d/2], Weights.Product, or nil
	first   float64   // the linear term and NeuMF's
	column  []float64 // [d], sums over fields
	squares float64   // sum of all squares
	total   float64   // sum over columns of column^2
}

func newPairSum(m *Model) pairSum {
	return pairSum{on: m.pairwise(), linear: m.Weights.Linear, product: m.Weights.Product, column: make([]float64, m.Dim)}
}

// reads reports whether the model has any of the terms.
func (s *pairSum) reads() bool { return s.on || s.linear != nil || s.product != nil }

// alone reports whether only these terms read a player's entry, and not the network.
func (s *pairSum) alone(player int) bool { return s.product != nil && isProduct(player, len(s.column)) }

// isProduct reports whether a player of a NeuMF with the given number of columns is in a GMF
// column.
func isProduct(player, dim int) bool { return player%dim >= dim/2 }

// factor returns the derivative of NeuMF's term with respect to an entry in a GMF column. x
// is the embedding, and product Weights.Product.
func factor(product, x []float32, player int) float64 {
	half, dim := len(product), len(x)/2
	return float64(float64(product[player%dim-half]) * float64(x[(player+dim)%len(x)]))
}

func (s *pairSum) copyFrom(o *pairSum) {
	copy(s.column, o.column)
	s.squares, s.total, s.first = o.squares, o.total, o.first
}

// set computes the term for x, [D], from scratch.
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
	s.first = 0
	for i, w := range s.linear {
		s.first += float64(float64(w) * float64(x[i]))
	}
	s.first += productTerm(s.product, x)
}

// productTerm returns NeuMF's term, or 0 for another model. x is the embedding, and product
// Weights.Product.
func productTerm(product, x []float32) (sum float64) {
	half := len(product)
	for c := range product {
		sum += float64(factor(product, x, half+c) * float64(x[half+c]))
	}
	return sum
}

// change updates the terms after one entry of x has changed from the given value.
func (s *pairSum) change(player int, before float32, x []float32) {
	b, a := float64(before), float64(x[player])
	c := player % len(s.column)
	old := s.column[c]
	s.column[c] += a - b
	s.total += float64(s.column[c]*s.column[c]) - float64(old*old)
	s.squares += float64(a*a) - float64(b*b)
	if s.linear != nil {
		s.first += float64(float64(s.linear[player]) * (a - b))
	}
	if s.alone(player) {
		s.first += float64(factor(s.product, x, player) * (a - b))
	}
}

// value returns the sum of the terms, or 0 for a model without any.
func (s *pairSum) value() float64 {
	if !s.on {
		return s.first
	}
	return (s.total-s.squares)/2 + s.first
}
