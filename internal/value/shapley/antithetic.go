package shapley

import "slices"

// antithetic takes two walks in each pass. The second visits the players in the reverse
// order of the first.
type antithetic struct {
	walks
	pair []int64 // contributions of the players in the first walk of a pass, [D], in LossUnits
}

func newAntithetic(s *setup) evaluator {
	return &antithetic{newWalks(s), make([]int64, s.players)}
}

func (a *antithetic) values(sum, within []int64, r int) error {
	a.begin(sum)
	for pass := range a.options.Passes {
		a.draw(r, pass)
		if err := a.walk(a.batch.Label[r]); err != nil {
			return err
		}
		for k, player := range a.order {
			a.pair[player] = a.losses[k] - a.losses[k+1]
		}
		slices.Reverse(a.order)
		if err := a.walk(a.batch.Label[r]); err != nil {
			return err
		}
		for k, player := range a.order {
			a.add(sum, player, a.pair[player]+a.losses[k]-a.losses[k+1])
		}
	}
	return a.variances(sum, within)
}
