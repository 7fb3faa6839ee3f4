package shapley

import (
	"math"
	"math/bits"
)

// coalitions is the number of coalitions that exact evaluates at a time, a power of 2.
const coalitions = 1 << 12

// exact enumerates every coalition of a row's players.
type exact struct {
	byProbe
	weight []float64 // by number s of other players present: s! (P-1-s)! / P!, for the P players of the row, at most D
	loss   []float64 // loss of each coalition, in LossUnits, [2^P]; bit i of the index is set if player i is present
	logits []float64 // logits of some consecutive coalitions
}

func newExact(s *setup) evaluator {
	players := s.players
	e := &exact{byProbe: newByProbe(s), weight: make([]float64, 0, players), loss: make([]float64, 1<<players), logits: make([]float64, min(1<<players, coalitions))}
	e.begin(players)
	return e
}

// begin prepares for a row with the given number of players.
func (e *exact) begin(players int) {
	if len(e.weight) == players {
		return
	}
	e.weight, e.loss, e.logits = e.weight[:players], e.loss[:1<<players], e.logits[:min(1<<players, coalitions)]
	for s := range e.weight {
		logWeight := lgamma(s+1) + lgamma(players-s) - lgamma(players+1)
		e.weight[s] = math.Exp(logWeight)
	}
}

// lgamma returns log((n-1)!).
func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// values sets phi[i] to the Shapley value of player i. This is the sum of weight[|S|] *
// (loss(S) - loss(S with i)) over all coalitions S without i.
func (e *exact) values(phi, _ []int64, r int) error {
	e.begin(len(phi))
	if err := e.enumerate(r); err != nil {
		return err
	}
	for i := range phi {
		phi[i] = e.value(i)
	}
	return nil
}

// enumerate computes the losses of all coalitions of row r of the batch.
func (e *exact) enumerate(r int) error {
	label := e.batch.Label[r]
	for set := 0; set < len(e.loss); set += len(e.logits) {
		e.probe.Coalitions(set, e.logits)
		for i, logit := range e.logits {
			units, err := units(e.game.Loss, logit, label)
			if err != nil {
				return err
			}
			e.loss[set+i] = float64(units)
		}
	}
	return nil
}

// value returns the value of player i.
func (e *exact) value(i int) int64 {
	value := 0.0
	for set, without := range e.loss {
		if set>>i&1 == 0 {
			value += float64(e.weight[bits.OnesCount(uint(set))] * (without - e.loss[set|1<<i]))
		}
	}
	return int64(math.RoundToEven(value))
}
