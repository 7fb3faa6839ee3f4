package shapley

import (
	"math"
	"math/bits"
	"slices"

	"shaver/internal/value/estimator"
)

// pairEvaluators are those of evaluators that also give pairs of fields values. The value of a pair is the mean of
//
//	loss(S with i) + loss(S with j) - loss(S) - loss(S with i and j)
//
// over the uniform random orders in which i and j follow each other, where S are the players before both. This is their
// Shapley interaction index (Grabisch and Roubens, 1999), which is above 0 if the two are worth more together than each
// alone. In a game of P players two of them follow each other in 2/P of all orders. Entries hold the mean over all
// orders, which is 2/P of the index, so that a walk contributes second differences as they are.
var pairEvaluators = map[string]func(*setup) evaluator{
	estimator.Permutation: func(s *setup) evaluator { return newPairWalks(s, false) },
	estimator.Antithetic:  func(s *setup) evaluator { return newPairWalks(s, true) },
	estimator.Exact:       newExactPairs,
}

// evaluators returns the constructors of the evaluators of g.
func (g *Game) evaluators() map[string]func(*setup) evaluator {
	if g.Fields != nil && g.Fields.Pairs {
		return pairEvaluators
	}
	return evaluators
}

// addPair adds the second difference x of players i and j to the entries of a row, [players, players].
func addPair(entries []int64, players, i, j int, x int64) {
	i, j = min(i, j), max(i, j)
	entries[i*players+j] += x
	entries[j*players+i] -= x
}

// pairWalks takes the walks of permutation, or of antithetic, and evaluates in each of them also the states in
// which the last player is missing.
type pairWalks struct {
	walks
	antithetic bool
	pass       []int64   // contributions in the current pass, [players, players]
	skips      []float64 // see fieldProbe.Skips, [players-1]
}

func newPairWalks(s *setup, antithetic bool) evaluator {
	n := s.players
	w := &pairWalks{walks: newWalks(s), antithetic: antithetic, pass: make([]int64, n*n), skips: make([]float64, n-1)}
	if w.squares != nil {
		w.squares = make([]float64, n*n)
	}
	return w
}

func (w *pairWalks) values(sum, within []int64, r int) error {
	clear(sum)
	clear(w.squares)
	for pass := range w.options.Passes {
		w.draw(r, pass)
		clear(w.pass)
		if err := w.both(r); err != nil {
			return err
		}
		for i, x := range w.pass {
			w.add(sum, int32(i), x)
		}
	}
	return w.variances(sum, within)
}

// both adds the walks of a pass to its contributions.
func (w *pairWalks) both(r int) error {
	if err := w.one(r); err != nil || !w.antithetic {
		return err
	}
	slices.Reverse(w.order)
	return w.one(r)
}

// one adds a walk to the contributions of the pass.
func (w *pairWalks) one(r int) error {
	label, n := w.batch.Label[r], w.players
	if err := w.walk(label); err != nil {
		return err
	}
	w.probe.(*fieldProbe).Skips(w.order, w.skips)
	for k, player := range w.order {
		i := int(player)
		w.pass[i*n+i] += w.losses[k] - w.losses[k+1]
		if k == n-1 {
			break
		}
		skip, err := units(w.game.Loss, w.skips[k], label)
		if err != nil {
			return err
		}
		addPair(w.pass, n, i, int(w.order[k+1]), w.losses[k+1]+skip-w.losses[k]-w.losses[k+2])
	}
	return nil
}

// exactPairs enumerates every coalition.
type exactPairs struct {
	*exact
	second []float64 // by number s of other players present: 2 s! (P-2-s)! / P!
}

func newExactPairs(s *setup) evaluator {
	e := &exactPairs{exact: newExact(s).(*exact), second: make([]float64, s.players-1)}
	for n := range e.second {
		e.second[n] = 2 * math.Exp(lgamma(n+1)+lgamma(s.players-1-n)-lgamma(s.players+1))
	}
	return e
}

func (e *exactPairs) values(sum, _ []int64, r int) error {
	if err := e.enumerate(r); err != nil {
		return err
	}
	clear(sum)
	n := e.players
	for i := range n {
		sum[i*n+i] = e.value(i)
		for j := range i {
			addPair(sum, n, i, j, e.pair(i, j))
		}
	}
	return nil
}

// pair returns the mean second difference of players i and j over all orders.
func (e *exactPairs) pair(i, j int) int64 {
	value, with := 0.0, 1<<i|1<<j
	for set, without := range e.loss {
		if set&with == 0 {
			value += float64(e.second[bits.OnesCount(uint(set))] * (e.loss[set|1<<i] + e.loss[set|1<<j] - without - e.loss[set|with]))
		}
	}
	return int64(math.RoundToEven(value))
}
