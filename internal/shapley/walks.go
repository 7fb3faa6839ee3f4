package shapley

import (
	"fmt"
	"math"

	"shaver/internal/random"
	"shaver/internal/tally"
)

// walks runs Algorithm 1 on a row: per pass one uniform random order of its
// players. Read backwards the entries of a walk are dropped one by one from the
// full row; the probe lets them appear from the baseline, which visits the same
// states.
type walks struct {
	byProbe
	order   []int32
	logits  []float64 // of a walk's states, [D+1]
	losses  []int64   // the same, in LossUnits
	squares []float64 // of what each pass says, over passes, in squared LossUnits, [D]; nil if there is one
}

func newWalks(s *setup) walks {
	players := s.game.Model.Players()
	w := walks{byProbe: newByProbe(s), order: make([]int32, players), logits: make([]float64, players+1), losses: make([]int64, players+1)}
	if s.options.Passes > 1 {
		w.squares = make([]float64, players)
	}
	return w
}

// clear forgets the row before.
func (w *walks) clear(sum []int64) {
	clear(sum)
	clear(w.squares)
}

// draw sets the order to that of a pass over row r of the batch.
func (w *walks) draw(r, pass int) {
	stream := random.At(w.options.Seed, random.Order, uint64(w.batch.Number[r]), uint64(w.options.First+pass))
	stream.Permute(w.order)
}

// walk sets losses to those of the states of order.
func (w *walks) walk(label uint8) error {
	w.probe.Walk(w.order, w.logits)
	for k, logit := range w.logits {
		var err error
		if k > 0 && logit == w.logits[k-1] {
			w.losses[k] = w.losses[k-1]
		} else if w.losses[k], err = loss(logit, label); err != nil {
			return fmt.Errorf("with %d of %d entries present: %w", k, len(w.order), err)
		}
	}
	return nil
}

// add counts what one pass says of a player.
func (w *walks) add(sum []int64, player int32, x int64) {
	sum[player] += x
	if w.squares != nil {
		w.squares[player] += float64(float64(x) * float64(x))
	}
}

// variances sets within from sum and squares: an estimate, without bias, of the
// variance of the sum of a row's n passes, n/(n-1) * (squares - sum^2/n).
func (w *walks) variances(sum, within []int64) error {
	n := float64(w.options.Passes)
	for i := range within {
		sum := float64(sum[i])
		var ok bool
		if within[i], ok = tally.Variance(max(0, (w.squares[i]-float64(sum*sum)/n)*n/(n-1))); !ok {
			return fmt.Errorf("the contributions of player %d reach %g nat: their variances overflow", i, math.Abs(sum)*tally.LossUnit)
		}
	}
	return nil
}
