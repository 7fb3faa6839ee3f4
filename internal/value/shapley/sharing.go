package shapley

import (
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/vector"
	"shaver/internal/value/tally"
)

// sharing shares the residual of a row out among the row's players, so that their
// contributions sum exactly to the row's loss with everything dropped minus its loss with
// nothing dropped. Let delta be a player's entry minus its baseline, and n the squared norm of
// the weights with which the first hidden layer reads the entry. The player's share is
// proportional to
//
//	delta^2 * (n + leastNorm * the mean of n over the players)
//
// The errors of estimates grow as delta^2, because they come from the curvature of the logit.
// Shares follow from the row alone and not from the draws, because otherwise the values of an
// unbiased estimator would become biased.
type sharing struct {
	weight []float64 // of each player: the factor of delta^2, [D]
	score  []float64 // of each player of the row, in proportion to its share, [players]
}

// leastNorm is the portion of the mean norm that is added to each norm. A player that the
// first hidden layer does not read may act on other parts of the network.
const leastNorm = .001

func newSharing(m *model.Model) *sharing {
	s := &sharing{weight: m.ColumnNorms(), score: make([]float64, m.Players())}
	if free := m.Free(); free != nil && s.weight != nil { // free is ascending
		for i, k := range free {
			s.weight[i] = s.weight[k]
		}
		s.weight = s.weight[:len(free)]
	}
	mean := 0.0
	for _, n := range s.weight {
		mean += n / float64(len(s.weight))
	}
	for i := range s.weight {
		s.weight[i] += float64(leastNorm * mean)
	}
	if mean == 0 { // also if there is no hidden layer
		s.weight = make([]float64, m.Players())
		for i := range s.weight {
			s.weight[i] = 1
		}
	}
	return s
}

// set sets the scores to those of a row, whose players have the given entries and baselines.
// It returns their sum, and the player with the largest score, which is the first one if
// there are several.
func (s *sharing) set(entries, baseline []float32) (total float64, largest int) {
	s.score = s.score[:len(entries)]
	return vector.Scores(s.score, entries, baseline, s.weight)
}

// even adds to the score of each player that has one the mean of these scores, and returns the
// new sum.
func (s *sharing) even() float64 {
	total, _ := vector.Sum(s.score)
	players := 0
	for _, v := range s.score {
		if v > 0 {
			players++
		}
	}
	for i, v := range s.score {
		if v > 0 {
			s.score[i] += total / float64(players)
		}
	}
	total, _ = vector.Sum(s.score)
	return total
}

// withoutNull sets the scores of the players whose contributions are 0 to 0, unless those of
// all players are. It returns the same as set. A null player thus has exactly the value 0, but
// the shares depend on the draws if the contributions do.
func (s *sharing) withoutNull(contributions []int64) (total float64, largest int) {
	if !slices.ContainsFunc(contributions, func(v int64) bool { return v != 0 }) {
		contributions = nil
	}
	for i, v := range contributions {
		if v == 0 {
			s.score[i] = 0
		}
	}
	return vector.Sum(s.score)
}

// share adds to played.Sum the shares of the residual of a row, in integers, and sets
// played.Shared to their sum. Each player's sum is over the given number of passes. Players
// whose sum is 0 get no share, unless all sums are 0. share does nothing if no entry differs
// from its baseline.
func (s *sharing) share(played *tally.Played, passes int, entries, baseline []float32) {
	total, largest := s.set(entries, baseline)
	if _, zero := vector.Total(played.Sum); zero {
		total, largest = s.withoutNull(played.Sum)
	}
	s.shareOut(played, passes, total, largest)
}

// shareFixed is like share, but the shares of all players follow from the row alone, so the
// values of an unbiased estimator remain unbiased.
func (s *sharing) shareFixed(played *tally.Played, passes int, entries, baseline []float32) {
	total, largest := s.set(entries, baseline)
	s.shareOut(played, passes, total, largest)
}

// shareOut shares a residual out in proportion to the scores. total is their sum, and largest
// the player with the largest score.
func (s *sharing) shareOut(played *tally.Played, passes int, total float64, largest int) {
	played.Shared = 0
	if !(total > 0) {
		return
	}
	sum, _ := vector.Total(played.Sum)
	residual := (played.LossEmpty-played.LossFull)*int64(passes) - sum
	shared := vector.Share(played.Sum, s.score, float64(residual)/total)
	played.Sum[largest] += residual - shared // what rounding leaves
	played.Shared = residual
}
