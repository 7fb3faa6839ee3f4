// Package shapley holds the estimators: rows in, exact sums of contributions
// out. The game of a row has one player per embedding entry that the row
// activates; a dropped player's entry reads its baseline. A contribution is the
// loss without the player minus the loss with it, so that a useful player's is
// above 0 (REFERENCE: value). Every other entry of the table is a null player
// of the row (the paper's theorem 1), which is why m*d players suffice.
package shapley

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"shaver/internal/model"
	"shaver/internal/random"
	"shaver/internal/tally"
)

// The estimators.
const (
	Permutation = "permutation" // Algorithm 1 of the paper: random orders, the loss after each step
	Exact       = "exact"       // all 2^(m*d) coalitions
)

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
	Passes    int    // random orders per row, at least 1; exact has 1
	Seed      uint64 // of the orders, which are keyed by (seed, row number, pass)
}

// Validate reports what cannot be run on rows of the given number of players.
func (o *Options) Validate(players int) error {
	switch {
	case o.Estimator != Permutation && o.Estimator != Exact:
		return fmt.Errorf("estimator %q: the estimators are %s and %s", o.Estimator, Permutation, Exact)
	case o.Passes < 1 || o.Passes > 1<<20:
		return fmt.Errorf("%d passes: a row takes 1 to %d", o.Passes, 1<<20)
	case o.Estimator == Exact && o.Passes != 1:
		return fmt.Errorf("%d passes: the exact estimator takes 1, which has no error to average out", o.Passes)
	case o.Estimator == Exact && players > MaxExactPlayers:
		return fmt.Errorf("a row has %d players: the exact estimator evaluates 2^players coalitions and takes at most %d; use %s", players, MaxExactPlayers, Permutation)
	}
	return nil
}

// Spread returns what the squares of a partial hold. Two or more passes over
// every row of the dataset tell the variance within rows, which is all the error
// there is; one pass, or a sample of the rows, needs the variance between rows.
func (o *Options) Spread(sampled bool) tally.Spread {
	if !sampled && (o.Passes > 1 || o.Estimator == Exact) {
		return tally.WithinRow
	}
	return tally.RowToRow
}

// Estimate plays the games of all rows, on the given number of goroutines, and
// returns their sums, which depend on nothing but its first five arguments.
// progress, if not nil, is called with the number of rows that were done since it
// was last, from any goroutine. An error names the row.
func Estimate(ctx context.Context, game Game, options Options, spread tally.Spread, rows *model.Rows, threads int, progress func(rows int)) (*tally.Partial, error) {
	if err := options.Validate(game.Model.Players()); err != nil {
		return nil, err
	}
	const chunk = 24 // rows a goroutine takes at a time, and scores at once: a multiple of the kernels' tiles
	var next atomic.Int64
	workers := make([]*worker, max(1, min(threads, (rows.Len()+chunk-1)/chunk)))
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		w := newWorker(game, options, spread)
		workers[i] = w
		group.Go(func() error {
			for {
				to := int(next.Add(chunk))
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
	spread  tally.Spread
	scorer  *model.Scorer
	probe   *model.Probe
	full    []float64 // the batch's logits with nothing dropped
	builder *tally.Builder
	order   []int32
	logits  []float64 // of a walk's states, [D+1]
	losses  []int64   // the same, in LossUnits
	sum     []int64   // of the row's contributions over passes, [D]
	square  []int64   // see tally.Spread, [D]
	squares []float64 // of single contributions over passes, in squared LossUnits, [D]
	exact   *coalitions
}

func newWorker(game Game, options Options, spread tally.Spread) *worker {
	players := game.Model.Players()
	w := &worker{
		game: game, options: options, spread: spread,
		scorer:  game.Model.NewScorer(),
		probe:   game.Model.NewProbe(game.Baseline),
		builder: tally.NewBuilder(game.Model.Features(), game.Model.Dim),
		order:   make([]int32, players), logits: make([]float64, players+1), losses: make([]int64, players+1),
		sum: make([]int64, players), square: make([]int64, players), squares: make([]float64, players),
	}
	if options.Estimator == Exact {
		w.exact = newCoalitions(players)
	}
	return w
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
	w.scorer.Logits(w.full, rows)
	for r := range rows.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.row(rows.Number[r], rows.Label[r], rows.Row(r), w.full[r]); err != nil {
			return fmt.Errorf("row %d: %w", rows.Number[r], err)
		}
		if progress != nil {
			progress(1)
		}
	}
	return invalid
}

// row plays one row, whose logit with nothing dropped is given, and adds it to
// the builder.
func (w *worker) row(number int64, label uint8, features []int32, logit float64) error {
	w.probe.Reset(features)
	full, err := loss(logit, label)
	if err != nil {
		return fmt.Errorf("with nothing dropped: %w", err)
	}
	empty, err := loss(w.probe.Empty(), label)
	if err != nil {
		return fmt.Errorf("with everything dropped: %w", err)
	}
	if w.exact != nil {
		err = w.exact.values(w.sum, w.probe, label)
		clear(w.squares)
	} else {
		err = w.walks(number, label)
	}
	if err != nil {
		return err
	}
	if err := w.spreads(); err != nil {
		return err
	}
	w.builder.AddRow(full, empty, features, w.sum, w.square)
	return nil
}

// walks runs Algorithm 1 on the row: per pass one uniform random order of its
// players. Read backwards the entries of a walk are dropped one by one from the
// full row; the probe lets them appear from the baseline, which visits the same
// states.
func (w *worker) walks(number int64, label uint8) error {
	clear(w.sum)
	clear(w.squares)
	for pass := range w.options.Passes {
		stream := random.At(w.options.Seed, random.Order, uint64(number), uint64(pass))
		stream.Permute(w.order)
		w.probe.Walk(w.order, w.logits)
		for k, logit := range w.logits {
			var err error
			if k > 0 && logit == w.logits[k-1] {
				w.losses[k] = w.losses[k-1]
			} else if w.losses[k], err = loss(logit, label); err != nil {
				return fmt.Errorf("with %d of %d entries present: %w", k, len(w.order), err)
			}
		}
		for k, player := range w.order {
			x := w.losses[k] - w.losses[k+1]
			w.sum[player] += x
			w.squares[player] += float64(float64(x) * float64(x))
		}
	}
	return nil
}

// spreads sets square from sum and squares.
func (w *worker) spreads() error {
	for i, sum := range w.sum {
		var ok bool
		if w.spread == tally.RowToRow {
			w.square[i], ok = tally.Square(sum)
		} else {
			w.square[i], ok = tally.Variance(varianceOfSum(float64(sum), w.squares[i], w.options))
		}
		if !ok {
			return fmt.Errorf("the contributions of player %d reach %g nat: their squares overflow", i, math.Abs(float64(sum))*tally.LossUnit)
		}
	}
	return nil
}

// varianceOfSum estimates, without bias, the variance of the sum of a row's n
// draws from the draws' sum and sum of squares: n/(n-1) * (squares - sum^2/n).
func varianceOfSum(sum, squares float64, options Options) float64 {
	if options.Estimator == Exact {
		return 0
	}
	n := float64(options.Passes)
	return max(0, (squares-float64(sum*sum)/n)*n/(n-1))
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
