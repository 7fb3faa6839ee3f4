// Package shapley computes the estimators: rows in, exact sums of contributions
// out. The game of a row has one player per embedding entry that the row
// activates; a dropped player's entry reads its baseline. A contribution is the
// loss without the player minus the loss with it, so that a useful player's is
// above 0 (the paper's value function). Every other entry of the table is a null
// player of the row (the paper's theorem 1), which is why m*d players suffice.
//
// Package estimator declares the estimators. Each has a file and a constructor
// here.
package shapley

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"shaver/internal/estimator"
	"shaver/internal/model"
	"shaver/internal/tally"
)

// evaluators has the constructor of each estimator.
var evaluators = map[string]func(*setup) evaluator{
	estimator.Permutation: newPermutation,
	estimator.Antithetic:  newAntithetic,
	estimator.Multilinear: newMultilinear,
	estimator.Exact:       newExact,
	estimator.Taylor:      newTaylor,
}

// evaluator is one estimator, for one goroutine.
type evaluator interface {
	// rows returns the largest number of rows that play takes.
	rows() int
	// play begins a batch of rows, whose ids are valid, and sets full to their logits
	// with nothing dropped. The rows must not change before the next play.
	play(ctx context.Context, full []float64, rows *model.Rows) error
	// values sets sum, [D], to the sum over walks (or, without walks, over passes) of
	// the contributions of the players of row r of the batch, in LossUnits; and
	// within, [D], to the variances of sum that its passes show, in SquareUnits.
	// within is nil if there is one pass. The probe of the setup is at the row. The
	// error says why the row has no values.
	values(sum, within []int64, r int) error
}

// setup is what an evaluator is made from.
type setup struct {
	game    Game
	options Options
	probe   *model.Probe
}

// Game is what a row's players play: a model, and what a dropped entry reads.
type Game struct {
	Model    *model.Model
	Baseline []float32 // [D] = [m, d]
}

// Options chooses an estimator and its random numbers.
type Options struct {
	estimator.Options
	Seed  uint64 // of orders, keyed by (seed, row number, pass), and of sets, by (seed, row number, pair)
	First int    // number of the first pass, for a job that computes its passes one by one
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
	chunk := first.evaluator.rows()
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
	model     *model.Model
	probe     *model.Probe
	evaluator evaluator
	full      []float64 // the batch's logits with nothing dropped
	builder   *tally.Builder
	sum       []int64 // of the row's contributions, [D]
	within    []int64 // the variances of sum, [D]; nil if there is one pass
}

func newWorker(game Game, options Options) *worker {
	players, sums := game.Model.Players(), tally.NewSampling(options.Options, 0)
	probe := game.Model.NewProbe(game.Baseline)
	w := &worker{
		model: game.Model, probe: probe,
		evaluator: evaluators[options.Estimator](&setup{game, options, probe}),
		builder:   tally.NewBuilder(game.Model.Features(), game.Model.Dim, sums.Walks, sums.Within()),
		sum:       make([]int64, players),
	}
	if sums.Within() {
		w.within = make([]int64, players)
	}
	return w
}

// batch plays some rows, in order, up to the first that has an error.
func (w *worker) batch(ctx context.Context, rows *model.Rows, progress func(rows int)) error {
	var invalid error
	for r := range rows.Len() {
		if invalid = w.model.CheckRow(rows.Row(r)); invalid != nil {
			invalid = fmt.Errorf("row %d: %w", rows.Number[r], invalid)
			*rows = rows.Slice(0, r)
			break
		}
	}
	w.full = slices.Grow(w.full[:0], rows.Len())[:rows.Len()]
	if err := w.evaluator.play(ctx, w.full, rows); err != nil {
		return err
	}
	for r := range rows.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.row(rows, r); err != nil {
			return fmt.Errorf("row %d: %w", rows.Number[r], err)
		}
		if progress != nil {
			progress(1)
		}
	}
	return invalid
}

// row adds row r of the batch to the builder.
func (w *worker) row(rows *model.Rows, r int) error {
	label, features := rows.Label[r], rows.Row(r)
	w.probe.Reset(features)
	full, err := loss(w.full[r], label)
	if err != nil {
		return fmt.Errorf("with nothing dropped: %w", err)
	}
	empty, err := loss(w.probe.Empty(), label)
	if err != nil {
		return fmt.Errorf("with everything dropped: %w", err)
	}
	if err := w.evaluator.values(w.sum, w.within, r); err != nil {
		return err
	}
	return w.builder.AddRow(full, empty, features, w.sum, w.within)
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

// byProbe scores a batch at once and leaves the rest of a row to the probe.
type byProbe struct {
	*setup
	scorer *model.Scorer
	batch  model.Rows
}

func newByProbe(s *setup) byProbe { return byProbe{setup: s, scorer: s.game.Model.NewScorer()} }

// rows returns a multiple of the kernels' tiles, except for AMX, whose second tile
// is then half full.
func (b *byProbe) rows() int { return 24 }

func (b *byProbe) play(_ context.Context, full []float64, rows *model.Rows) error {
	b.batch = *rows
	b.scorer.Logits(full, rows)
	return nil
}

// round sets phi to a player's value in LossUnits.
func round(phi *int64, value float64, player int) error {
	if !(math.Abs(value) <= tally.MaxLoss/tally.LossUnit) {
		return fmt.Errorf("player %d has the value %g nat, of which no working model is capable", player, value*tally.LossUnit)
	}
	*phi = int64(math.RoundToEven(value))
	return nil
}
