package shapley

import (
	"context"
	"fmt"
	"math"

	"shaver/internal/model"
	"shaver/internal/random"
	"shaver/internal/tally"
)

// MaxDraws bounds Options.Draws.
const MaxDraws = 1 << 16

// leastQ is the least probability that the weights of balanced end points divide
// by, so that a player who is rarely present does not weigh without bound.
const leastQ = 0.06

// multilinear plays rows by the multilinear estimator. The Shapley value is the
// integral over q in (0, 1) of the expected contribution of a player to a set of
// the others that holds each with probability q. A draw is a set S; one derivative
// of the logit f by the whole embedding gives every player's contribution to it,
// as if the logit were linear in that player's entry:
//
//	present: l(f - g*delta) - l(f)    dropped: l(f) - l(f + g*delta)
//
// where l is the loss, exactly; g the derivative by the player's entry; and delta
// the entry minus its baseline. Draws come in pairs, a set and its complement, whose
// mean is T: pair k of n has its q in the k-th of n equal strata of (0, 1/2).
//
// Plain end points take the mean of T over the pairs, so that states in which a
// player is present weigh q, in place of the half that they should. Balanced ones
// weigh T's distance from m, the mean over the row's other pairs:
//
//	m + w*(T - m), w = 1/(2*max(q, leastQ)) if present in S, else (1 - q/(2*max(q, leastQ)))/(1-q)
//
// w is 1 on average, for every q.
type multilinear struct {
	game     Game
	options  Options
	gradient *model.Gradient
	logits   []float64 // [gradient.States]
	mask     []uint64  // a row's players present in S, a bit each, [rows, words]
	words    int       // of a row's mask
	q        []float64 // [rows]
	entries  []float32 // [rows, D]
	total    []float64 // sum of T over pairs, in LossUnits, [rows, D]
	weighed  []float64 // balanced: sum of w*T, [rows, D]
	weight   []float64 // balanced: sum of w, [rows, D]
	failed   []error   // [rows]
}

func newMultilinear(game Game, options Options) *multilinear {
	gradient, players := game.Model.NewGradient(), game.Model.Players()
	rows := gradient.States() / 2
	m := &multilinear{
		game: game, options: options, gradient: gradient, logits: make([]float64, gradient.States()), words: (players + 63) / 64,
		q: make([]float64, rows), entries: make([]float32, rows*players), total: make([]float64, rows*players), failed: make([]error, rows),
	}
	m.mask = make([]uint64, rows*m.words)
	if options.Endpoints == Balanced {
		m.weighed, m.weight = make([]float64, rows*players), make([]float64, rows*players)
	}
	return m
}

// rows returns how many rows play takes at most.
func (m *multilinear) rows() int { return len(m.q) }

// fullLogits sets dst to the logits of the rows with nothing dropped.
func (m *multilinear) fullLogits(dst []float64, rows *model.Rows) {
	for i := range dst {
		m.game.Model.Embed(m.gradient.Set(i, rows.Row(i)), rows.Row(i))
	}
	m.gradient.Logits(dst)
}

// play sets the totals of all rows, and failed where a row has no values.
func (m *multilinear) play(ctx context.Context, rows *model.Rows) error {
	n, players := rows.Len(), m.game.Model.Players()
	for r := range n {
		m.game.Model.Embed(m.entries[r*players:(r+1)*players], rows.Row(r))
	}
	clear(m.total)
	clear(m.weighed)
	clear(m.weight)
	clear(m.failed)
	for pair := range m.options.Draws / 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		for r := range n {
			m.draw(r, pair, rows)
		}
		m.gradient.Slopes(m.logits[:2*n])
		for r := range n {
			m.take(r, rows.Label[r])
		}
	}
	return nil
}

// draw puts S of row r and pair k into slot 2r, its complement into 2r+1.
func (m *multilinear) draw(r, pair int, rows *model.Rows) {
	stream := random.At(m.options.Seed, random.Mask, uint64(rows.Number[r]), uint64(pair))
	m.q[r] = (float64(pair) + stream.Float64()) / float64(m.options.Draws)
	baseline := m.game.Baseline
	mask, entries := m.maskOf(r), m.entries[r*len(baseline):][:len(baseline)]
	stream.Coins(mask, len(baseline), uint64(math.Ldexp(m.q[r], 64)))
	set, rest := m.gradient.Set(2*r, rows.Row(r))[:len(baseline)], m.gradient.Set(2*r+1, rows.Row(r))[:len(baseline)]
	for i, v := range baseline { // without a branch, which would be a guess each time
		in := -uint32(mask[i/64] >> (i % 64) & 1)
		b, e := math.Float32bits(v), math.Float32bits(entries[i])
		swap := (b ^ e) & in
		set[i], rest[i] = math.Float32frombits(b^swap), math.Float32frombits(e^swap)
	}
}

func (m *multilinear) maskOf(r int) []uint64 { return m.mask[r*m.words : (r+1)*m.words] }

// take adds T of row r's pair to its totals.
func (m *multilinear) take(r int, label uint8) {
	for _, logit := range m.logits[2*r : 2*r+2] {
		if _, err := loss(logit, label); err != nil && m.failed[r] == nil {
			m.failed[r] = fmt.Errorf("with some entries present: %w", err)
		}
	}
	baseline := m.game.Baseline
	players := len(baseline)
	from, to := r*players, (r+1)*players
	entries, total := m.entries[from:to], m.total[from:to]
	set, rest := m.gradient.Slope(2 * r)[:players], m.gradient.Slope(2*r + 1)[:players]
	a, b := newCurve(m.logits[2*r], label), newCurve(m.logits[2*r+1], label)
	mask := m.maskOf(r)
	sign := [2]float64{-1, 1}
	balanced := m.weighed != nil
	var weight [2]float64
	if balanced {
		weight = balance(m.q[r])
	}
	for i, v := range baseline {
		in := mask[i/64] >> (i % 64) & 1
		delta := float64(entries[i]) - float64(v)
		t := (a.contribution(float64(set[i])*delta, sign[in]) + b.contribution(float64(rest[i])*delta, -sign[in])) / 2
		total[i] += t
		if balanced {
			m.weighed[from+i] += float64(weight[in] * t)
			m.weight[from+i] += weight[in]
		}
	}
}

// balance returns the weight of a player who is not in S, and of one who is.
func balance(q float64) [2]float64 {
	in := 1 / (2 * max(q, leastQ))
	return [2]float64{(1 - float64(q*in)) / (1 - q), in}
}

// values sets phi to row r's values in LossUnits, or reports why it has none.
func (m *multilinear) values(phi []int64, r int) error {
	if m.failed[r] != nil {
		return m.failed[r]
	}
	n, from := float64(m.options.Draws/2), r*len(phi)
	for i := range phi {
		total := m.total[from+i]
		value := total / n
		if m.weighed != nil {
			value += (m.weighed[from+i] - float64(value*m.weight[from+i])) / (n - 1)
		}
		if !(math.Abs(value) <= tally.MaxLoss/tally.LossUnit) {
			return fmt.Errorf("player %d has the value %g nat, of which no working model is capable", i, value*tally.LossUnit)
		}
		phi[i] = int64(math.RoundToEven(value))
	}
	return nil
}
