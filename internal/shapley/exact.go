package shapley

import (
	"math"
	"math/bits"
)

// exact enumerates every coalition of a row's players.
type exact struct {
	byProbe
	weight  []float64 // of a coalition of s others: s! (D-1-s)! / D!, [D]
	loss    []float64 // of each set of present players, a bit per player, in LossUnits, [2^D]
	present []bool
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

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// values sets phi[i] to player i's Shapley value: the sum over sets S without i of
// weight(|S|) * (loss(S) - loss(S and i)), where S is what is present.
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
