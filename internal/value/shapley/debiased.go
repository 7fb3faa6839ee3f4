package shapley

import (
	"context"
	"fmt"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
	"shaver/internal/value/tally"
)

// debiased is multilinear without its bias. It evaluates the true logit for some single flips
// of each row. A flip of a player in a draw adds the player if it is dropped, and drops it if
// it is present. Let p be a player's portion of the scores of the row (see sharing), r the
// number of flips of each draw, and n the number of times that a player is chosen. Systematic
// sampling chooses players so that the expected value of n is r*p. Let C be the contribution
// that multilinear predicts in this draw, and D the one that follows from the true logit. The
// player's correction is the mean over the draws of n/(r*p) * (D - C). Its expected value is
// the error of the prediction, so multilinear plus the correction has no bias. A small p is no
// harm where a small score means a small error. If the logit jumps, it does not, and a player
// that is rarely chosen has a large weight. Half of each p is then the same for all players.
//
// The contributions of multilinear, with residuals shared out, are the base. The noise of flips
// is large compared with them, so absolute values and squares are those of the base.
type debiased struct {
	*multilinear
	probe      prober
	jumps      bool         // whether the logit may jump
	flips      [2][]flip    // of the current pair, in each of its states
	changes    []model.Flip // of some flips; nil if the gradient has no Flips
	empty      []float64    // logits of the rows with everything dropped, [rows]
	found      []float64    // logits after flips, [gradient.States()]
	correction []float64    // sum of corrections in the current pass, in LossUnits, [rows, D]
	base       []float64    // sum over passes of the contributions of multilinear, [rows, D]
	value      []float64    // the same with corrections, [rows, D]
	squares    []float64    // sum over passes of the squared value, after sharing, [rows, D]; nil if there is one pass
	worth      []float64    // what all players of the row are worth together, in LossUnits, [rows]
	sum        []int64      // memory of corrected.Sum, [D]
	corrected  tally.Played // of the current row, with corrections
}

// flip is a flip of one player in one of the two states of a pair.
type flip struct {
	row, state, player int
	weight             float64 // n/(r*p), divided by the number of draws
	predicted          float64 // C
}

func newDebiased(s *setup) evaluator {
	m := newMultilinear(s).(*multilinear)
	size := len(m.total)
	d := &debiased{multilinear: m, probe: s.probe, jumps: s.game.Model.Jumps(), empty: make([]float64, m.rows()), found: make([]float64, m.gradient.States()),
		correction: make([]float64, size), base: make([]float64, size), value: make([]float64, size), worth: make([]float64, m.rows()),
		sum: make([]int64, m.elements),
	}
	for state := range d.flips {
		d.flips[state] = make([]flip, 0, m.rows()*(1+s.options.Flips))
	}
	if m.merged == nil && m.gradient.KeepFlips() {
		d.changes = make([]model.Flip, len(d.found))
	}
	if s.options.Passes > 1 {
		d.squares = make([]float64, size)
	}
	return d
}

// play computes the base and the values of all rows. It sets failed for rows that have none.
func (d *debiased) play(ctx context.Context, full []float64, rows *model.Rows) error {
	d.begin(full, rows)
	d.probe.Empties(d.empty[:rows.Len()], rows)
	n := rows.Len()
	for r := range n {
		d.worth[r] = (d.game.Loss.Of(d.empty[r], rows.Label[r]) - d.game.Loss.Of(full[r], rows.Label[r])) * unitsPerNat
	}
	clear(d.base)
	clear(d.value)
	clear(d.squares)
	pairs := d.options.Draws / 2
	for pass := range d.options.Passes {
		clear(d.correction)
		for pair := range pairs {
			if err := ctx.Err(); err != nil {
				return err
			}
			index := (d.options.First+pass)*pairs + pair
			for r := range n {
				d.draw(r, pair, index, rows)
			}
			d.gradient.Slopes(d.logits[:2*n])
			if d.kinks {
				d.gradient.Kinks(2 * n)
			}
			d.flips[0], d.flips[1] = d.flips[0][:0], d.flips[1][:0]
			for r := range n {
				d.accumulate(r, pair, rows.Label[r])
				d.choose(r, index, rows, float64(d.options.Flips)/float64(d.options.Draws))
			}
			d.correct(d.flips[0], rows)
			d.correct(d.flips[1], rows)
		}
		for r := range n {
			d.endPass(r)
		}
	}
	return nil
}

// choose appends to flips those of row r in the current pair. rate is the expected number of
// flips of a draw.
func (d *debiased) choose(r, index int, rows *model.Rows, rate float64) {
	baseline, entries := d.players(r)
	total, _ := d.sharing.set(entries, baseline)
	if !(total > 0) {
		return
	}
	if d.jumps {
		total = d.sharing.even()
	}
	stream := random.At(d.options.Seed, random.Flip, uint64(rows.Number[r]), uint64(index))
	coalition, step := d.coalitionOf(r), total/rate
	for state := range 2 {
		slot := 2*r + state
		curve := newCurve(d.game.Loss, d.logits[slot], rows.Label[r])
		slope, bend := d.slope(r, state), d.bend(r, state)
		u := stream.Float64()
		// A player is chosen once for each point (u+j)*step within its part of the total.
		sum, j, next := 0.0, 0.0, u*step
		for i, score := range d.sharing.score {
			if sum += score; sum <= next {
				continue
			}
			n := 0.0
			for sum > next {
				n++
				j++
				next = (u + j) * step
			}
			sign := d.sign(coalition, state, i)
			delta := float64(entries[i]) - float64(baseline[i])
			move := float64(float64(slope[i])*delta) - float64(sign*float64(bend[i]))
			d.flips[state] = append(d.flips[state], flip{r, state, i, n * step / score / float64(d.options.Draws), curve.contribution(move, sign)})
		}
	}
}

// sign returns 1 if player i is present in a state of the pair, and otherwise -1.
func (d *debiased) sign(coalition []uint64, state, i int) float64 {
	return 2*float64(coalition[i/64]>>(i%64)&1^uint64(state)) - 1
}

// correct evaluates flips and adds their corrections.
func (d *debiased) correct(flips []flip, rows *model.Rows) {
	for from := 0; from < len(flips); from += len(d.found) {
		part := flips[from:min(from+len(d.found), len(flips))]
		d.evaluate(d.found[:len(part)], part, rows)
		for k, f := range part {
			label, before := rows.Label[f.row], d.logits[2*f.row+f.state]
			if _, err := units(d.game.Loss, d.found[k], label); err != nil && d.failed[f.row] == nil {
				d.failed[f.row] = fmt.Errorf("with some entries present: %w", err)
			}
			curve := newCurve(d.game.Loss, before, label)
			sign := d.sign(d.coalitionOf(f.row), f.state, f.player)
			actual := curve.contribution(sign*(before-d.found[k]), sign)
			d.correction[f.row*d.elements+f.player] += float64(f.weight * (actual - f.predicted))
		}
	}
}

// evaluate sets dst to the logits after the given flips, at most one for each slot.
func (d *debiased) evaluate(dst []float64, flips []flip, rows *model.Rows) {
	if d.changes == nil {
		for k := range flips {
			d.fill(&flips[k], d.gradient.Set(k, rows, flips[k].row))
		}
		d.gradient.Logits(dst)
		return
	}
	for k, f := range flips {
		change := d.entries[f.row*d.elements+f.player] - d.baselineOf(f.row)[f.player]
		if d.sign(d.coalitionOf(f.row), f.state, f.player) > 0 {
			change = -change
		}
		d.changes[k] = model.Flip{Slot: 2*f.row + f.state, Player: f.player, Change: change}
	}
	d.gradient.Flips(dst, d.changes[:len(dst)])
}

// fill sets x to the embedding after a flip.
func (d *debiased) fill(f *flip, x []float32) {
	baseline, coalition := d.baselineOf(f.row), d.coalitionOf(f.row)
	entries := d.entries[f.row*len(baseline):][:len(baseline)]
	from := baseline // where the player's elements come from
	if d.sign(coalition, f.state, f.player) < 0 {
		from = entries
	}
	if d.merged != nil {
		d.merged.fill(f.row, coalition, uint64(f.state), entries, x)
		for _, k := range d.merged.rosters[f.row].Elements(f.player) {
			x[k] = from[k]
		}
		return
	}
	flipped := uint64(f.state)
	for i, v := range baseline {
		in := -uint32(coalition[i/64]>>(i%64)&1 ^ flipped)
		b, e := math.Float32bits(v), math.Float32bits(entries[i])
		x[i] = math.Float32frombits(b ^ (b^e)&in)
	}
	x[f.player] = from[f.player]
}

// endPass adds the contributions of row r in a pass to the sums over passes.
func (d *debiased) endPass(r int) {
	baseline, entries := d.players(r)
	from := r * d.elements
	to := from + len(entries)
	total, correction, base, value := d.total[from:to], d.correction[from:to], d.base[from:to], d.value[from:to]
	n, left := float64(d.options.Draws/2), d.worth[r]
	for i, v := range total {
		c := v / n
		base[i] += c
		c += correction[i]
		value[i] += c
		correction[i] = c
		left -= c
	}
	if d.squares == nil {
		return
	}
	squares := d.squares[from:to]
	sum, _ := d.sharing.set(entries, baseline)
	rate := left / sum
	if !(sum > 0) {
		rate = 0
	}
	for i, c := range correction {
		c += float64(rate * d.sharing.score[i])
		squares[i] += float64(c * c)
	}
}

// values sets sum to the base of row r. within is the variance of the corrected contributions.
func (d *debiased) values(sum, within []int64, r int) error {
	if d.failed[r] != nil {
		return d.failed[r]
	}
	from := r * d.elements
	d.corrected.Sum = d.sum[:len(sum)]
	if err := round(sum, d.base[from:from+len(sum)]); err != nil {
		return err
	}
	if err := round(d.corrected.Sum, d.value[from:from+len(sum)]); err != nil {
		return err
	}
	if within == nil {
		return nil
	}
	// The squares are of values with shared residuals, so their sum has its residual shared too.
	n, total := float64(d.options.Passes), 0.0
	for _, v := range d.value[from : from+len(sum)] {
		total += v
	}
	baseline, entries := d.players(r)
	scores, _ := d.sharing.set(entries, baseline)
	rate := (float64(n*d.worth[r]) - total) / scores
	if !(scores > 0) {
		rate = 0
	}
	for i := range within {
		v := d.value[from+i] + float64(rate*d.sharing.score[i])
		var ok bool
		if within[i], ok = tally.Variance(max(0, (d.squares[from+i]-float64(v*v)/n)*n/(n-1))); !ok {
			return fmt.Errorf("the sum of the contributions of player %d is %g nat, whose variance overflows: %w", i, math.Abs(v)*tally.LossUnit, errLarge)
		}
	}
	return nil
}

// share shares the residuals of the base and of the corrected contributions out. The shares of
// the latter do not depend on the draws.
func (d *debiased) share(played *tally.Played, r int) {
	baseline, entries := d.players(r)
	d.sharing.share(played, d.options.Passes, entries, baseline)
	c := &d.corrected
	c.LossFull, c.LossEmpty = played.LossFull, played.LossEmpty
	d.sharing.shareFixed(c, d.options.Passes, entries, baseline)
	played.Shared, played.Correction = c.Shared, c.Sum
	for i, v := range played.Sum {
		c.Sum[i] -= v
	}
}
