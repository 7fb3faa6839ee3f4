package shapley

import (
	"math"
	"math/bits"
)

// exact enumerates every coalition of a row's players.
type exact struct {
	byProbe
	weight  []float64 // by number s of other players present: s! (D-1-s)! / D!, [D]
	loss    []float64 // loss of each coalition, in LossUnits, [2^D]; bit i of the index is set if player i is present
	present []bool    // the current coalition, [D]
}

func newExact(s *setup) evaluator {
	players := s.game.Model.Players()
	e := &exact{byProbe: newByProbe(s), weight: make([]float64, players), loss: make([]float64, 1<<players), present: make([]bool, players)}
	for s := range e.weight {
		logWeight := lgamma(s+1) + lgamma(players-s) - lgamma(players+1)
		e.weight[s] = math.Exp(logWeight)
	}
	return e
}

// lgamma returns log((n-1)!).
func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// values sets phi[i] to the Shapley value of player i. This is the sum of weight[|S|] *
// (loss(S) - loss(S with i)) over all coalitions S without i.
func (e *exact) values(phi, _ []int64, r int) error {
	label := e.batch.Label[r]
	for set := range e.loss {
		for i := range e.present {
			e.present[i] = set>>i&1 == 1
		}
		units, err := loss(e.probe.Coalition(e.present), label)
		if err != nil {
			return err
		}
		e.loss[set] = float64(units)
	}
	for i := range phi {
		value := 0.0
		for set, without := range e.loss {
			if set>>i&1 == 0 {
				value += float64(e.weight[bits.OnesCount(uint(set))] * (without - e.loss[set|1<<i]))
			}
		}
		phi[i] = int64(math.RoundToEven(value))
	}
	return nil
}
