// Package shapley holds the estimators: rows in, exact sums of contributions
// out. The game of a row has one player per embedding entry that the row
// activates; a dropped player's entry reads its baseline. A contribution is the
// loss without the player minus the loss with it, so that a useful player's is
// above 0, as in the paper's algorithm 1. Every other entry of the table is a null player
// of the row (the paper's theorem 1), which is why m*d players suffice.
package shapley

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"shaver/internal/model"
	"shaver/internal/random"
	"shaver/internal/tally"
)

// The estimators.
const (
	Permutation = "permutation" // Algorithm 1 of the paper: random orders, the loss after each step
	Antithetic  = "antithetic"  // each order, and the same backwards
	Multilinear = "multilinear" // derivatives at random sets of present players; see multilinear
	Exact       = "exact"       // all 2^(m*d) coalitions
	Taylor      = "taylor"      // no Shapley values: derivatives of the loss at the full row; see taylor
)

// Estimators returns all of them.
func Estimators() []string { return []string{Permutation, Antithetic, Multilinear, Exact, Taylor} }

// How Multilinear weighs its draws.
const (
	Plain    = "plain"    // all alike
	Balanced = "balanced" // as if each player were present in every second one; needs four draws
)

// DefaultDraws is what most rows' time is best spent on: more rows are worth more
// than more draws.
const DefaultDraws = 2

// MaxExactPlayers bounds the game that Exact enumerates: 2^20 forward passes a row.
const MaxExactPlayers = 20

// Game is what a row's players play: a model, and what a dropped entry reads.
type Game struct {
	Model    *model.Model
	Baseline []float32 // [D] = [m, d]
}

// Options chooses an estimator.
type Options struct {
	Estimator string
	Passes    int    // independent estimates per row, at least 1: an order; for Antithetic an order and its reverse. Multilinear, Exact and Taylor have 1
	First     int    // the number of the first pass, 0 but where passes are told apart
	Draws     int    // Multilinear: sets of present players per row, even; 0 for others
	Endpoints string // Multilinear: Plain or Balanced; empty for others
	Seed      uint64 // of orders, keyed by (seed, row number, pass), and sets, by (seed, row number, pair)
}

// SetDefaults sets what Multilinear needs and is not set.
func (o *Options) SetDefaults() {
	if o.Estimator != Multilinear {
		return
	}
	if o.Draws == 0 {
		o.Draws = DefaultDraws
	}
	if o.Endpoints == "" {
		o.Endpoints = Plain
	}
}

// Validate reports what cannot be run on rows of the given number of players.
func (o *Options) Validate(players int) error {
	switch {
	case !slices.Contains(Estimators(), o.Estimator):
		return fmt.Errorf("estimator %q: the estimators are %s", o.Estimator, strings.Join(Estimators(), ", "))
	case o.Passes < 1 || o.Passes > 1<<20:
		return fmt.Errorf("%d passes: a row takes 1 to %d", o.Passes, 1<<20)
	case o.precise() && o.Passes != 1:
		return fmt.Errorf("%d passes: the %s estimator takes 1, which has no error to average out", o.Passes, o.Estimator)
	case o.Estimator == Exact && players > MaxExactPlayers:
		return fmt.Errorf("a row has %d players: the exact estimator evaluates 2^players coalitions and takes at most %d; use %s", players, MaxExactPlayers, Permutation)
	case o.Estimator != Multilinear && (o.Draws != 0 || o.Endpoints != ""):
		return fmt.Errorf("draws and endpoints are of the %s estimator, not of %s", Multilinear, o.Estimator)
	case o.Estimator != Multilinear:
		return nil
	case o.Passes != 1:
		return fmt.Errorf("%d passes: the %s estimator takes 1, with more draws", o.Passes, Multilinear)
	case o.Draws < 2 || o.Draws%2 != 0 || o.Draws > MaxDraws:
		return fmt.Errorf("%d draws: a row takes an even number from 2 to %d", o.Draws, MaxDraws)
	case o.Endpoints != Plain && o.Endpoints != Balanced:
		return fmt.Errorf("endpoints %q: they are %s or %s", o.Endpoints, Plain, Balanced)
	case o.Endpoints == Balanced && o.Draws < 4:
		return fmt.Errorf("%d draws: %s endpoints compare a pair of draws with others, and need 4 or more", o.Draws, Balanced)
	}
	return nil
}

// precise reports whether a row's values have no random error.
func (o *Options) precise() bool { return o.Estimator == Exact || o.Estimator == Taylor }

// Tally returns what a job's sums are, for a dataset of so many rows, all of which
// or a sample of which is scored.
func (o *Options) Tally(rows int64) tally.Sampling {
	e := tally.Sampling{Passes: o.Passes, Walks: o.Passes, Rows: rows, Exact: o.precise(), Efficient: o.Estimator != Multilinear && o.Estimator != Taylor}
	if o.Estimator == Antithetic {
		e.Walks *= 2
	}
	return e
}

// Walks returns how many walks a row takes; 0 for estimators without.
func (o *Options) Walks() int {
	switch o.Estimator {
	case Permutation:
		return o.Passes
	case Antithetic:
		return 2 * o.Passes
	}
	return 0
}

// Estimate plays the games of all rows, on the given number of goroutines, and
// returns their sums, which depend on nothing but game, options and rows.
// progress, if not nil, is called with the number of rows that were done since it
// was last, from any goroutine. An error names the row.
func Estimate(ctx context.Context, game Game, options Options, rows *model.Rows, threads int, progress func(rows int)) (*tally.Partial, error) {
	if err := options.Validate(game.Model.Players()); err != nil {
		return nil, err
	}
	first := newWorker(game, options)
	chunk := first.chunk()
	var next atomic.Int64
	workers := make([]*worker, max(1, min(threads, (rows.Len()+chunk-1)/chunk)))
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		w := first
		if i > 0 {
			w = newWorker(game, options)
		}
		workers[i] = w
		group.Go(func() error {
			for {
				to := int(next.Add(int64(chunk)))
				from := to - chunk
				if from >= rows.Len() {
					return nil
				}
				batch := rows.Slice(from, min(to, rows.Len()))
				if err := w.batch(ctx, &batch, progress); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, w := range workers[1:] {
		workers[0].builder.Join(w.builder)
	}
	return workers[0].builder.Partial()
}

// worker plays rows on one goroutine.
type worker struct {
	game    Game
	options Options
	scorer  *model.Scorer
	probe   *model.Probe
	full    []float64 // the batch's logits with nothing dropped
	builder *tally.Builder
	order   []int32
	logits  []float64 // of a walk's states, [D+1]
	losses  []int64   // the same, in LossUnits
	sum     []int64   // of the row's contributions over passes, [D]
	squares []float64 // of what each pass says, over passes, in squared LossUnits, [D]; nil if there is one
	within  []int64   // the variance of sum that follows, in SquareUnits, [D]; nil if there is one pass

	// of one estimator each, else nil
	exact       *coalitions
	derivatives byDerivative
	pair        []int64 // of an order's and its reverse's contributions, [D]
}

func newWorker(game Game, options Options) *worker {
	players, sums := game.Model.Players(), options.Tally(0)
	w := &worker{
		game: game, options: options,
		scorer:  game.Model.NewScorer(),
		probe:   game.Model.NewProbe(game.Baseline),
		builder: tally.NewBuilder(game.Model.Features(), game.Model.Dim, sums.Walks, sums.Within()),
		order:   make([]int32, players), logits: make([]float64, players+1), losses: make([]int64, players+1),
		sum: make([]int64, players),
	}
	if sums.Within() {
		w.squares, w.within = make([]float64, players), make([]int64, players)
	}
	switch options.Estimator {
	case Exact:
		w.exact = newCoalitions(players)
	case Multilinear:
		w.derivatives = newMultilinear(game, options)
	case Taylor:
		w.derivatives = newTaylor(game)
	case Antithetic:
		w.pair = make([]int64, players)
	}
	return w
}

// chunk returns how many rows a goroutine takes at a time, and scores at once: a
// multiple of the kernels' tiles, but for AMX, whose second one is half full.
func (w *worker) chunk() int {
	if w.derivatives != nil {
		return w.derivatives.rows()
	}
	return 24
}

// batch plays some rows, in order, up to the first that has an error.
func (w *worker) batch(ctx context.Context, rows *model.Rows, progress func(rows int)) error {
	var invalid error
	for r := range rows.Len() {
		if invalid = w.game.Model.CheckRow(rows.Row(r)); invalid != nil {
			invalid = fmt.Errorf("row %d: %w", rows.Number[r], invalid)
			*rows = rows.Slice(0, r)
			break
		}
	}
	w.full = slices.Grow(w.full[:0], rows.Len())[:rows.Len()]
	if w.derivatives != nil {
		if err := w.derivatives.play(ctx, w.full, rows); err != nil {
			return err
		}
	} else {
		w.scorer.Logits(w.full, rows)
	}
	for r := range rows.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.row(rows, r, w.full[r]); err != nil {
			return fmt.Errorf("row %d: %w", rows.Number[r], err)
		}
		if progress != nil {
			progress(1)
		}
	}
	return invalid
}

// row plays one row of a batch, whose logit with nothing dropped is given, and adds
// it to the builder.
func (w *worker) row(rows *model.Rows, r int, logit float64) error {
	label, features := rows.Label[r], rows.Row(r)
	w.probe.Reset(features)
	full, err := loss(logit, label)
	if err != nil {
		return fmt.Errorf("with nothing dropped: %w", err)
	}
	empty, err := loss(w.probe.Empty(), label)
	if err != nil {
		return fmt.Errorf("with everything dropped: %w", err)
	}
	switch {
	case w.exact != nil:
		err = w.exact.values(w.sum, w.probe, label)
	case w.derivatives != nil:
		err = w.derivatives.values(w.sum, r)
	default:
		err = w.walks(rows.Number[r], label)
	}
	if err != nil {
		return err
	}
	if err := w.variances(); err != nil {
		return err
	}
	return w.builder.AddRow(full, empty, features, w.sum, w.within)
}

// walks runs Algorithm 1 on the row: per pass one uniform random order of its
// players, and for Antithetic the same backwards. Read backwards the entries of a
// walk are dropped one by one from the full row; the probe lets them appear from
// the baseline, which visits the same states.
func (w *worker) walks(number int64, label uint8) error {
	clear(w.sum)
	clear(w.squares)
	for pass := range w.options.Passes {
		stream := random.At(w.options.Seed, random.Order, uint64(number), uint64(w.options.First+pass))
		stream.Permute(w.order)
		if err := w.walk(label); err != nil {
			return err
		}
		if w.pair == nil {
			for k, player := range w.order {
				w.add(player, w.losses[k]-w.losses[k+1])
			}
			continue
		}
		for k, player := range w.order {
			w.pair[player] = w.losses[k] - w.losses[k+1]
		}
		slices.Reverse(w.order)
		if err := w.walk(label); err != nil {
			return err
		}
		for k, player := range w.order {
			w.add(player, w.pair[player]+w.losses[k]-w.losses[k+1])
		}
	}
	return nil
}

// add counts what one pass says of a player.
func (w *worker) add(player int32, x int64) {
	w.sum[player] += x
	if w.squares != nil {
		w.squares[player] += float64(float64(x) * float64(x))
	}
}

// walk sets losses to those of the states of order.
func (w *worker) walk(label uint8) error {
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

// variances sets within from sum and squares: an estimate, without bias, of the
// variance of the sum of a row's n passes, n/(n-1) * (squares - sum^2/n).
func (w *worker) variances() error {
	n := float64(w.options.Passes)
	for i := range w.within {
		sum := float64(w.sum[i])
		var ok bool
		if w.within[i], ok = tally.Variance(max(0, (w.squares[i]-float64(sum*sum)/n)*n/(n-1))); !ok {
			return fmt.Errorf("the contributions of player %d reach %g nat: their variances overflow", i, math.Abs(sum)*tally.LossUnit)
		}
	}
	return nil
}

// loss returns the loss of a logit in LossUnits, or an error for one that no
// working model has.
func loss(logit float64, label uint8) (int64, error) {
	units, ok := tally.Loss(model.Loss(logit, label))
	if !ok {
		return 0, fmt.Errorf("the logit is %g: its loss is not a number in [0, %d]", logit, tally.MaxLoss)
	}
	return units, nil
}
