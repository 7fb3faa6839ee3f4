package shapley

import (
	"math"
	"math/bits"

	"shaver/internal/model"
)

// coalitions enumerates every coalition of one row's players.
type coalitions struct {
	players int
	weight  []float64 // of a coalition of s others: s! (D-1-s)! / D!, [D]
	loss    []float64 // of each set of present players, a bit per player, in LossUnits, [2^D]
	present []bool
}

func newCoalitions(players int) *coalitions {
	c := &coalitions{players: players, weight: make([]float64, players), loss: make([]float64, 1<<players), present: make([]bool, players)}
	for s := range c.weight {
		logWeight := lgamma(s+1) + lgamma(players-s) - lgamma(players+1)
		c.weight[s] = math.Exp(logWeight)
	}
	return c
}

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}

// values sets phi[i] to player i's Shapley value in the row that probe is at,
// in LossUnits: the sum over sets S without i of weight(|S|) * (loss(S) -
// loss(S and i)), S being what is present.
func (c *coalitions) values(phi []int64, probe *model.Probe, label uint8) error {
	for set := range c.loss {
		for i := range c.present {
			c.present[i] = set>>i&1 == 1
		}
		units, err := loss(probe.Coalition(c.present), label)
		if err != nil {
			return err
		}
		c.loss[set] = float64(units)
	}
	for i := range phi {
		value := 0.0
		for set, without := range c.loss {
			if set>>i&1 == 0 {
				value += float64(c.weight[bits.OnesCount(uint(set))] * (without - c.loss[set|1<<i]))
			}
		}
		phi[i] = int64(math.RoundToEven(value))
	}
	return nil
}
