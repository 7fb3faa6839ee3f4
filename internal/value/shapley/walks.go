package shapley

import (
	"fmt"
	"math"

	"shaver/internal/num/random"
	"shaver/internal/value/tally"
)

// walks implements Algorithm 1 of the paper for one row. Each pass has a uniform random
// order of the players. The paper starts with the full row and drops the entries one by
// one. The probe starts with the baseline and adds the entries in the reverse order, which
// visits the same states.
type walks struct {
	byProbe
	order   []int32   // players of the row in the order in which they appear, at most D
	logits  []float64 // logits of the states of a walk, at most D+1
	losses  []int64   // losses of the states of a walk, in LossUnits, at most D+1
	squares []float64 // sum over passes of the squared contribution in the pass, in squared LossUnits, [D]; nil if there is one pass
}

func newWalks(s *setup) walks {
	players := s.players
	w := walks{byProbe: newByProbe(s), order: make([]int32, players), logits: make([]float64, players+1), losses: make([]int64, players+1)}
	if s.options.Passes > 1 {
		w.squares = make([]float64, players)
	}
	return w
}

// begin prepares for a row and sets its sums, [players], to 0.
func (w *walks) begin(sum []int64) {
	w.order, w.logits, w.losses = w.order[:len(sum)], w.logits[:len(sum)+1], w.losses[:len(sum)+1]
	clear(sum)
	clear(w.squares)
}

// draw sets order to the random order of the given pass over row r of the batch.
func (w *walks) draw(r, pass int) {
	stream := random.At(w.options.Seed, random.Order, uint64(w.batch.Number[r]), uint64(w.options.First+pass))
	stream.Permute(w.order)
}

// walk sets losses to the losses of the states that a walk along order visits.
func (w *walks) walk(label float32) error {
	w.probe.Walk(w.order, w.logits)
	for k, logit := range w.logits {
		var err error
		if k > 0 && logit == w.logits[k-1] {
			w.losses[k] = w.losses[k-1]
		} else if w.losses[k], err = units(w.game.Loss, logit, label); err != nil {
			return fmt.Errorf("with %d of %d entries present: %w", k, len(w.order), err)
		}
	}
	return nil
}

// add adds x, the contribution of a player in one pass, to the sums. For antithetic, x is
// the sum over both walks of the pass.
func (w *walks) add(sum []int64, player int32, x int64) {
	sum[player] += x
	if w.squares != nil {
		w.squares[player] += float64(float64(x) * float64(x))
	}
}

// variances sets within to unbiased estimates of the variances of sum over the n passes of
// a row: n/(n-1) * (squares - sum^2/n).
func (w *walks) variances(sum, within []int64) error {
	n := float64(w.options.Passes)
	for i := range within {
		sum := float64(sum[i])
		var ok bool
		if within[i], ok = tally.Variance(max(0, (w.squares[i]-float64(sum*sum)/n)*n/(n-1))); !ok {
			return fmt.Errorf("the sum of the contributions of player %d is %g nat, whose variance overflows", i, math.Abs(sum)*tally.LossUnit)
		}
	}
	return nil
}
