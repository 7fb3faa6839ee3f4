package shapley

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
	"shaver/internal/num/vector"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// leastQ replaces a smaller q in the denominators of the weights of balanced end points.
// It thus bounds the weight of a player that is rarely present.
const leastQ = 0.06

// multilinear is the multilinear estimator. Let a random coalition hold each of the other
// players with probability q. The Shapley value of a player is its expected contribution
// to this coalition, integrated over q in (0, 1).
//
// A draw is one random coalition S. The derivative of the logit f with respect to the
// whole embedding gives the contributions of all players to S. The estimator treats the
// logit as linear in the player's entry, except for the kinks of the first hidden layer. It
// computes the loss l exactly:
//
//	present: l(f - g*delta + k) - l(f)    dropped: l(f) - l(f + g*delta + k)
//
// Here g is the derivative with respect to the player's entry, and delta is the entry
// minus its baseline. k is the kink term of the change of the entry (see package model), or
// 0 for models that have none. Draws come in pairs, a coalition and its complement. T is the mean
// of a player's two contributions in a pair. If there are n pairs, pair k draws q from
// the k-th of n equal strata of (0, 1/2).
//
// Plain end points use the mean of T over the pairs. States in which the player is present
// then have weight q, although the Shapley value needs weight 1/2. Balanced end points
// correct this. Let m be the mean of T over the other pairs of the row. In place of T they
// use
//
//	m + w*(T - m), w = 1/(2*max(q, leastQ)) if present in S, else (1 - q/(2*max(q, leastQ)))/(1-q)
//
// For every q, the expected value of w is 1.
//
// At the end, the residual of a row is shared out among its players (see sharing).
type multilinear struct {
	*setup
	gradient  *model.Gradient
	logits    []float64 // logits of the states: 2r for S of row r, 2r+1 for its complement, [gradient.States()]
	coalition []uint64  // S of each row, one bit per player, [rows, words]
	words     int       // number of words of a coalition
	q         []float64 // q of the current pair, [rows]
	entries   []float32 // embeddings of the rows, [rows, D]
	total     []float64 // sum of T over pairs, in LossUnits, [rows, D]
	weighed   []float64 // balanced: sum of w*T, [rows, D]
	weight    []float64 // balanced: sum of w, [rows, D]
	t         []float64 // T of one row in the current pair, or its values, [D]
	far       []uint64  // players of one row that move a logit too far for the series, one bit per player, [words]
	failed    []error   // why a row has no values, or nil, [rows]
	merged    *merged   // nil if the players are the elements
	kinks     bool      // whether the model has kink terms
	straight  []float32 // zeros in place of kink terms, [D]
	sharing   *sharing
}

func newMultilinear(s *setup) evaluator {
	game, options := s.game, s.options
	gradient, players := game.Model.NewGradient(), game.Model.Players()
	rows := gradient.States() / 2
	m := &multilinear{
		setup: s, gradient: gradient, logits: make([]float64, gradient.States()), words: (players + 63) / 64,
		q: make([]float64, rows), entries: make([]float32, rows*players), total: make([]float64, rows*players), t: make([]float64, players), failed: make([]error, rows),
	}
	m.kinks, m.straight, m.sharing = gradient.KeepKinks(), make([]float32, players), newSharing(game.Model)
	m.coalition, m.far = make([]uint64, rows*m.words), make([]uint64, m.words)
	if options.Endpoints == estimator.Balanced {
		m.weighed, m.weight = make([]float64, rows*players), make([]float64, rows*players)
	}
	if s.roster.Merged() {
		m.merged = newMerged(s, rows)
	} else if s.book.Constant() {
		gradient.KeepPairs(s.book.Spread(nil, nil))
	}
	return m
}

func (m *multilinear) rows() int { return len(m.q) }

// begin begins a batch of rows and sets full to their logits with nothing dropped.
func (m *multilinear) begin(full []float64, rows *model.Rows) {
	m.batch(rows)
	players := m.elements
	for r := range full {
		entries := m.entries[r*players : (r+1)*players]
		m.game.Model.Embed(entries, rows.Row(r))
		copy(m.gradient.Set(r, rows, r), entries)
	}
	m.gradient.Full(full)
	if m.merged != nil {
		m.merged.begin(rows)
	}
	clear(m.failed)
}

// play computes the totals of all rows. It sets failed for rows that have no values.
func (m *multilinear) play(ctx context.Context, full []float64, rows *model.Rows) error {
	m.begin(full, rows)
	n := rows.Len()
	clear(m.weighed)
	clear(m.weight)
	for pair := range m.options.Draws / 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		for r := range n {
			m.draw(r, pair, pair, rows)
		}
		m.gradient.Slopes(m.logits[:2*n])
		if m.kinks {
			m.gradient.Kinks(2 * n)
		}
		for r := range n {
			m.accumulate(r, pair, rows.Label[r])
		}
	}
	return nil
}

// draw draws S for row r and a pair of draws of a pass. index is the number of the pair over
// all passes. draw puts the embedding with S present into state 2r of the
// gradient, and the embedding with the complement of S present into state 2r+1. The changes
// of a state are those that add or drop one player.
func (m *multilinear) draw(r, pair, index int, rows *model.Rows) {
	stream := random.At(m.options.Seed, random.Coalition, uint64(rows.Number[r]), uint64(index))
	m.q[r] = (float64(pair) + stream.Float64()) / float64(m.options.Draws)
	baseline := m.baselineOf(r)
	coalition, entries := m.coalitionOf(r), m.entries[r*len(baseline):][:len(baseline)]
	set, rest := m.gradient.Set(2*r, rows, r)[:len(baseline)], m.gradient.Set(2*r+1, rows, r)[:len(baseline)]
	if limit := uint64(math.Ldexp(m.q[r], 64)); m.merged != nil {
		stream.Coins(coalition, m.merged.rosters[r].Players(), limit)
		m.merged.fill(r, coalition, 0, entries, set)
		m.merged.fill(r, coalition, 1, entries, rest)
	} else {
		stream.Coins(coalition, len(baseline), limit)
		vector.Split(set, rest, baseline, entries, coalition)
	}
	if m.kinks { // an entry changes from its value in one state to that in the other
		vector.Changes(m.gradient.Change(2 * r)[:len(baseline)], m.gradient.Change(2*r+1), set, rest)
	}
}

// players returns the baselines and the entries of the players of row r. The results are
// valid until the next call.
func (m *multilinear) players(r int) (baseline, entries []float32) {
	entries = m.entries[r*m.elements:][:m.elements]
	if m.merged == nil {
		return m.baselineOf(r), entries
	}
	return m.merged.values(r, entries)
}

// slope returns the derivatives of the logit with respect to the players of row r in one of
// the two states of the pair. The result is valid until the next call for this state.
func (m *multilinear) slope(r, state int) []float32 {
	slope := m.gradient.Slope(2*r + state)
	if m.merged == nil {
		return slope
	}
	return m.merged.sum(m.merged.slopes[state], r, slope)
}

// bend is like slope for the kink terms. The term of a player with several elements is the
// sum of theirs, which is only an approximation.
func (m *multilinear) bend(r, state int) []float32 {
	if !m.kinks {
		return m.straight
	}
	bend := m.gradient.Kink(2*r + state)
	if m.merged == nil {
		return bend
	}
	return m.merged.sum(m.merged.bends[state], r, bend)
}

func (m *multilinear) coalitionOf(r int) []uint64 { return m.coalition[r*m.words : (r+1)*m.words] }

// accumulate adds T of row r in the current pair to the totals of the row. Pair 0 replaces
// them.
func (m *multilinear) accumulate(r, pair int, label float32) {
	for _, logit := range m.logits[2*r : 2*r+2] {
		if _, err := units(m.game.Loss, logit, label); err != nil && m.failed[r] == nil {
			m.failed[r] = fmt.Errorf("with some entries present: %w", err)
		}
	}
	players := m.elements
	from, to := r*players, (r+1)*players
	a, b := newCurve(m.game.Loss, m.logits[2*r], label), newCurve(m.game.Loss, m.logits[2*r+1], label)
	coalition := m.coalitionOf(r)
	baseline, own := m.players(r)
	total, t := m.total[from:to], m.t[:len(own)]
	if pair == 0 {
		t = total[:len(own)]
	}
	m.pairs(t, &a, &b, coalition, baseline, own, r)
	if pair > 0 {
		for i, v := range t {
			total[i] += v
		}
	}
	if m.weighed == nil {
		return
	}
	share, weighed, weight := balance(m.q[r]), m.weighed[from:to], m.weight[from:to]
	for i, v := range t {
		w := share[coalition[i/64]>>(i%64)&1]
		weighed[i] += float64(w * v)
		weight[i] += w
	}
}

// pairs sets t to T of each player of row r. a is the loss curve at the coalition, and b the one
// at its complement.
func (m *multilinear) pairs(t []float64, a, b *curve, coalition []uint64, baseline, entries []float32, r int) {
	in := vector.State{Loss: a.a, Slope: m.slope(r, 0), Bend: m.bend(r, 0)}
	out := vector.State{Loss: b.a, Slope: m.slope(r, 1), Bend: m.bend(r, 1)}
	if !vector.Contributions(t, &in, &out, coalition, baseline, entries, a.radius, m.far) {
		return
	}
	for w, far := range m.far[:(len(t)+63)/64] {
		for ; far != 0; far &= far - 1 {
			i := 64*w + bits.TrailingZeros64(far)
			delta := float64(entries[i]) - float64(baseline[i])
			sign := 2*float64(coalition[w]>>(i%64)&1) - 1
			u := float64(float64(in.Slope[i])*delta) - float64(sign*float64(in.Bend[i]))
			v := float64(float64(out.Slope[i])*delta) + float64(sign*float64(out.Bend[i]))
			t[i] = (a.contribution(u, sign) + b.contribution(v, -sign)) / 2
		}
	}
}

// balance returns the weight w of balanced end points for a player that is not in S, and
// for a player that is in S.
func balance(q float64) [2]float64 {
	in := 1 / (2 * max(q, leastQ))
	return [2]float64{(1 - float64(q*in)) / (1 - q), in}
}

func (m *multilinear) share(played *tally.Played, r int) {
	baseline, entries := m.players(r)
	m.sharing.share(played, 1, entries, baseline)
}

func (m *multilinear) values(phi, _ []int64, r int) error {
	if m.failed[r] != nil {
		return m.failed[r]
	}
	n, from, value := float64(m.options.Draws/2), r*m.elements, m.t[:len(phi)]
	if n == 1 && m.weighed == nil {
		return round(phi, m.total[from:from+len(phi)])
	}
	for i := range value {
		total := m.total[from+i]
		value[i] = total / n
		if m.weighed != nil {
			value[i] += (m.weighed[from+i] - float64(value[i]*m.weight[from+i])) / (n - 1)
		}
	}
	return round(phi, value)
}
