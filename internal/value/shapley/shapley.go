// Package shapley implements the estimators. It takes rows and returns exact sums of
// contributions.
//
// The game of a row has one player for each embedding entry that the row activates, except
// those of pad rows and of frozen fields (see model.Roster). An entry that the row reads more than once is one
// player, which is present or dropped in all its elements together. The entry of a dropped
// player reads its baseline. A contribution is the loss without the player minus the loss
// with it, so it is above 0 if the player is useful (the paper's value function). By the
// paper's theorem 1, all other entries of the table are null players of the row. Therefore a
// row needs at most D players, which is m*d without lists.
//
// Package estimator declares the estimators. In this package each of them has a file and a
// constructor.
package shapley

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/num/vector"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// evaluators maps the name of each estimator to its constructor.
var evaluators = map[string]func(*setup) evaluator{
	estimator.Permutation: newPermutation,
	estimator.Antithetic:  newAntithetic,
	estimator.Multilinear: newMultilinear,
	estimator.Debiased:    newDebiased,
	estimator.Exact:       newExact,
	estimator.Taylor:      newTaylor,
	estimator.Path:        newPath,
}

// evaluator computes one estimator. Only one goroutine may use it at a time. It is a valuer,
// or, if the estimator has the trait Ranks, a ranker.
type evaluator interface {
	// rows returns the largest number of rows that play accepts.
	rows() int
	// play begins a batch of rows and sets full to their logits with nothing dropped. The
	// ids of the rows must be valid, and the rows must not change before the next call of
	// play.
	play(ctx context.Context, full []float64, rows *model.Rows) error
}

// valuer computes the contributions of players.
type valuer interface {
	evaluator
	// values computes the contributions of the players of row r of the batch. It sets sum,
	// [players], to their sums over walks, or over passes for estimators without walks, in
	// LossUnits. It sets within, [players], to the variances of these sums, estimated from the
	// passes, in SquareUnits. within is nil if there is only one pass or the variances are not
	// needed. The caller has set the roster of the setup to the row and, unless the estimator
	// needs derivatives, has reset the probe to it. The error says why the row has no values.
	values(sum, within []int64, r int) error
}

// ranker computes the terms by which a path ranks.
type ranker interface {
	evaluator
	// terms sets row to the terms of the players of row r of the batch, except for the loss. The
	// terms are valid until the next call. The caller has set the roster of the setup to the row.
	terms(row *tally.Terms, r int)
}

// sharer is an evaluator that shares the residuals of rows out among their players.
type sharer interface {
	// share completes the contributions of row r of the batch. played has what values
	// computed, and the losses of the row.
	share(played *tally.Played, r int)
}

// setup holds the arguments of an evaluator's constructor.
type setup struct {
	game     Game
	book     *model.Book // nil in a game of fields
	spread   []float32   // memory of baselineOf, [rows of a batch, D]; empty if the book is constant
	options  Options
	players  int // largest number of players of a row, D or that of fields
	elements int // D, the size of a row's embedding
	probe    prober
	roster   *model.Roster
}

// batch begins a batch of rows, which must be valid.
func (s *setup) batch(rows *model.Rows) {
	if s.book.Constant() {
		return
	}
	n := s.elements * rows.Len()
	s.spread = slices.Grow(s.spread[:0], n)[:n]
	for r := range rows.Len() {
		s.book.Spread(s.baselineOf(r), rows.Row(r))
	}
}

// baselineOf returns what row r of the batch reads if everything is dropped, [D].
func (s *setup) baselineOf(r int) []float32 {
	if s.book.Constant() {
		return s.book.Spread(nil, nil)
	}
	return s.spread[r*s.elements:][:s.elements]
}

// Game is a model, a baseline and a loss, which together define the game of each row.
type Game struct {
	Model    *model.Model
	Baseline model.Baseline // what dropped entries read; not used if Fields is set
	Loss     loss.Kind
	Fields   *Fields // nil = the players are embedding entries
}

// Options selects an estimator and its random numbers.
type Options struct {
	estimator.Options
	Seed  uint64           // seed of the random orders, by row number and pass, and of the draws, by row number and pair
	First int              // number of the first pass; above 0 in a job that computes its passes one by one
	Fresh *estimator.Fresh // rows that count more than once; nil in a paired job

	Weights estimator.Weights // how often rows count, with the weight of Fresh; no row may have a larger weight

	// For a path: the entries whose terms are 0, and the calibration of the logits. If the round measures entries that the tables of
	// the game do not have, Measured is the model in which the entries of Unmeasured read their baseline; otherwise it is nil.
	Unmeasured  layout.Mask
	Measured    *model.Model
	Calibration loss.Calibration
}

// check returns an error if the estimator cannot serve a game.
func (o *Options) check(g *Game) error {
	if g.Fields != nil {
		if err := o.ValidateFields(); err != nil {
			return err
		}
		if g.Fields.Pairs {
			if err := estimator.CheckPairs(g.players()); err != nil {
				return err
			}
		}
	}
	if err := o.Validate(g.players()); err != nil {
		return err
	}
	if o.Traits().Derivatives {
		return g.Model.Differentiable()
	}
	return nil
}

// Estimate plays the games of all rows on the given number of goroutines and returns the
// sums. The sums depend only on game, options and rows. If progress is not nil, it is
// called from any of the goroutines with the number of rows done since its last call. An
// error names the row.
//
// For a path, Estimate returns the terms of a round. The tables of game.Model must be those of the
// round, in which the entries that it does not have read their baseline.
func Estimate(ctx context.Context, game Game, options Options, rows *model.Rows, threads int, progress func(rows int)) (*tally.Partial, error) {
	if err := options.check(&game); err != nil {
		return nil, err
	}
	if options.Traits().Ranks {
		if options.Unmeasured == nil {
			options.Unmeasured = layout.NewMask(game.Model.Parameters())
		}
		if options.Calibration == (loss.Calibration{}) {
			options.Calibration = loss.Uncalibrated
		}
	}
	return estimate(ctx, rows, threads, progress, func() *worker { return newWorker(game, options) })
}

// EstimatePair is like Estimate, but plays two games for each row with the same random
// numbers. It returns the partial of a paired job, whose previous model is that of previous.
// rows has the global ids of game.Model. Fields of the previous model may be smaller (see
// model.Translator). A row with an id that the previous model lacks is an error.
func EstimatePair(ctx context.Context, game, previous Game, options Options, rows *model.Rows, threads int, progress func(rows int)) (*tally.Partial, error) {
	translator, err := model.NewTranslator(&game.Model.Architecture, &previous.Model.Architecture)
	if err != nil {
		return nil, err
	}
	if err := options.check(&game); err != nil {
		return nil, err
	}
	if err := options.check(&previous); err != nil {
		return nil, fmt.Errorf("previous model: %w", err)
	}
	return estimate(ctx, rows, threads, progress, func() *worker { return newPairWorker(game, previous, options, translator) })
}

// estimate plays the games of all rows on workers that create returns.
func estimate(ctx context.Context, rows *model.Rows, threads int, progress func(rows int), create func() *worker) (*tally.Partial, error) {
	first := create()
	chunk := first.rowsPerBatch()
	var next atomic.Int64
	workers := make([]*worker, max(1, min(threads, (rows.Len()+chunk-1)/chunk)))
	occurrences := first.occurrences(rows)
	group, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		w, parts := first, 1 // which gets the sums of the others in the end
		if i > 0 {
			w, parts = create(), len(workers)
		}
		workers[i] = w
		w.builder.Expect(occurrences, parts)
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
	return workers[0].builder.Partial(), nil
}

// occurrences returns the number of rows in which each feature occurs, by which the sums are laid out, or nil
// if the players are fields or there are so few rows that it does not pay. Rows that the model cannot read do not count.
func (w *worker) occurrences(rows *model.Rows) []int32 {
	shape := w.model.Shape()
	if w.fields != nil || rows.Len() < shape.Rows()/256 {
		return nil
	}
	all := make([]int32, shape.Rows())
	for r := range rows.Len() {
		if w.model.CheckRow(rows.Row(r)) != nil {
			continue
		}
		w.selectRow(rows, r)
		for _, f := range w.roster.Rows() {
			all[f]++
		}
	}
	return all
}

// player computes the games of one model on one goroutine.
type player struct {
	model     *model.Model
	loss      loss.Kind
	probe     prober
	roster    *model.Roster // of the current row
	fields    []int32       // numbers of the players of a game of fields, which the roster has for each row; nil = the players are entries
	setup     *setup
	walker    *permutation // for rows whose values are too large; nil until the first one
	evaluator evaluator
	valuer    valuer       // evaluator, or nil
	ranker    ranker       // evaluator, or nil
	terms     tally.Terms  // what the current row gives, with a ranker
	full      []float64    // logits of the batch with nothing dropped
	empty     []float64    // logits of the batch with everything dropped; unused if the evaluator uses the probe
	together  bool         // whether empty is used
	sum       []int64      // memory of played.Sum, [D]
	played    tally.Played // what the current row gives
	within    []int64      // variances of played.Sum, [D]; nil if they are not needed
}

func newPlayer(game Game, options Options, within bool) *player {
	layout := game.layout()
	entries := layout.Players()
	s := &setup{game: game, options: options, players: game.players(), elements: game.Model.Players(), roster: model.NewRoster(layout)}
	if game.Fields == nil {
		s.book = game.Model.Book(game.Baseline)
		s.probe = game.Model.NewProbe(s.book)
	} else {
		s.probe = newFieldProbe(&game, options.Seed)
	}
	p := &player{
		model: game.Model, loss: game.Loss, probe: s.probe, roster: s.roster, setup: s,
		evaluator: game.evaluators()[options.Estimator](s),
		together:  options.Traits().Derivatives && !options.Traits().Ranks,
		sum:       make([]int64, entries),
	}
	p.valuer, _ = p.evaluator.(valuer)
	p.ranker, _ = p.evaluator.(ranker)
	if within {
		p.within = make([]int64, entries)
	}
	if game.Fields != nil {
		p.fields = make([]int32, s.players)
		for i := range p.fields {
			p.fields[i] = int32(i)
		}
	}
	return p
}

// selectRow sets the roster to row r of rows.
func (p *player) selectRow(rows *model.Rows, r int) {
	if p.fields != nil {
		p.roster.Set(p.fields)
		return
	}
	p.roster.Set(rows.Row(r))
}

// play begins a batch of rows.
func (p *player) play(ctx context.Context, rows *model.Rows) error {
	p.full = slices.Grow(p.full[:0], rows.Len())[:rows.Len()]
	if p.together {
		p.empty = slices.Grow(p.empty[:0], rows.Len())[:rows.Len()]
		p.probe.Empties(p.empty, rows)
	}
	return p.evaluator.play(ctx, p.full, rows)
}

// row sets played and within, or with a ranker terms, to those of row r of the batch.
func (p *player) row(rows *model.Rows, r int) (err error) {
	weight := rows.Times(r)
	if most := max(1, p.setup.options.Weights.Rows); weight > most {
		return fmt.Errorf("the row has the weight %d, expected at most %d: the dataset differs from that of the job", weight, most)
	}
	weight *= p.setup.options.Fresh.Times(rows.Number[r])
	p.played.Weight, p.terms.Weight = weight, weight
	if p.ranker != nil {
		if p.terms.LossFull, err = units(p.loss, p.full[r], rows.Label[r]); err != nil {
			return err
		}
		p.selectRow(rows, r)
		p.ranker.terms(&p.terms, r)
		return nil
	}
	label, empty := rows.Label[r], 0.0
	if p.together {
		empty = p.empty[r]
	} else {
		p.probe.Reset(rows, r)
		empty = p.probe.Empty()
	}
	if p.played.LossFull, err = units(p.loss, p.full[r], label); err != nil {
		return fmt.Errorf("with nothing dropped: %w", err)
	}
	if p.played.LossEmpty, err = units(p.loss, empty, label); err != nil {
		return fmt.Errorf("with everything dropped: %w", err)
	}
	p.selectRow(rows, r)
	players := p.roster.Players()
	p.played.Sum = p.sum[:players]
	if err := p.valuer.values(p.played.Sum, p.within[:min(players, len(p.within))], r); err != nil {
		return err
	}
	if s, ok := p.evaluator.(sharer); ok {
		s.share(&p.played, r)
	}
	return nil
}

// walk replaces what row has set by what the estimator permutation gives with the same seed and the
// same number of passes. Its contributions are differences of losses that the model has, so they are not
// too large because derivatives are.
func (p *player) walk(rows *model.Rows, r int) error {
	if p.walker == nil {
		p.walker = newPermutation(p.setup).(*permutation)
	}
	p.walker.batch = *rows
	p.probe.Reset(rows, r)
	p.played.Shared = 0
	if p.played.Sum = p.sum[:p.roster.Players()]; p.setup.options.Traits().Flips {
		p.played.Correction = make([]int64, len(p.played.Sum))
	}
	return p.walker.values(p.played.Sum, p.within[:min(len(p.played.Sum), len(p.within))], r)
}

// worker computes rows on one goroutine.
type worker struct {
	*player
	earlier *earlier // nil unless the job is paired
	builder *tally.Builder
}

// earlier is the part of a worker that computes the previous model of a paired job.
type earlier struct {
	*player
	translator *model.Translator
	batch      model.Rows // rows of the batch in the numbering of the previous model
}

func newWorker(game Game, options Options) *worker {
	if options.Traits().Ranks {
		w := &worker{player: newPlayer(game, options, false), builder: tally.NewTermsBuilder(game.Model.Shape(), options.Unmeasured)}
		w.builder.Weigh(options.Weights)
		return w
	}
	sums := tally.NewSampling(options.Options, 0)
	w := &worker{
		player:  newPlayer(game, options, sums.Within()),
		builder: tally.NewBuilder(game.layout().Shape(), sums.Walks, sums.Form(game.Model.Fields())),
	}
	w.builder.Weigh(options.Weights)
	return w
}

func newPairWorker(game, previous Game, options Options, translator *model.Translator) *worker {
	sums := tally.NewSampling(options.Options, 0)
	sums.Paired = true
	return &worker{
		player:  newPlayer(game, options, false),
		earlier: &earlier{player: newPlayer(previous, options, false), translator: translator},
		builder: tally.NewBuilder(game.Model.Shape(), sums.Walks, sums.Form(game.Model.Fields())),
	}
}

// rowsPerBatch returns the largest number of rows that batch accepts.
func (w *worker) rowsPerBatch() int {
	n := w.evaluator.rows()
	if w.earlier != nil {
		n = min(n, w.earlier.evaluator.rows())
	}
	return n
}

// batch plays rows in order and stops at the first error.
func (w *worker) batch(ctx context.Context, rows *model.Rows, progress func(rows int)) error {
	if w.earlier != nil {
		w.earlier.begin(rows)
	}
	var invalid error
	for r := range rows.Len() {
		if invalid = w.check(rows, r); invalid != nil {
			invalid = fmt.Errorf("%s: %w", model.RowName(rows.Number[r]), invalid)
			*rows = rows.Slice(0, r)
			break
		}
	}
	if err := w.play(ctx, rows); err != nil {
		return err
	}
	if w.earlier != nil {
		if err := w.earlier.play(ctx, rows); err != nil {
			return err
		}
	}
	for r := range rows.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.row(rows, r); err != nil {
			return fmt.Errorf("%s: %w", model.RowName(rows.Number[r]), err)
		}
		if progress != nil {
			progress(1)
		}
	}
	return invalid
}

// check returns an error if the models cannot read row r of the batch.
func (w *worker) check(rows *model.Rows, r int) error {
	if err := w.model.CheckRow(rows.Row(r)); err != nil {
		return err
	}
	if w.earlier == nil {
		return nil
	}
	return w.earlier.translator.Translate(w.earlier.batch.Row(r), rows.Row(r))
}

// begin prepares batch for the translation of rows. Only the ids differ.
func (e *earlier) begin(rows *model.Rows) {
	features := slices.Grow(e.batch.Features[:0], len(rows.Features))[:len(rows.Features)]
	e.batch = *rows
	e.batch.Features = features
}

// play is like player.play. The rows are those of batch, of which the last may be left
// out.
func (e *earlier) play(ctx context.Context, rows *model.Rows) error {
	e.batch = e.batch.Slice(0, rows.Len())
	return e.player.play(ctx, &e.batch)
}

// row computes row r of the batch and adds it to the builder. If an estimator that shares residuals out has values
// that are too large, under one of the models, the row has those of walks, under all of them.
func (w *worker) row(rows *model.Rows, r int) error {
	err := w.values(rows, r)
	if w.setup.options.Traits().Shares && (errors.Is(err, errLarge) || err == nil && !w.fits()) {
		w.builder.AddWalked()
		err = w.walks(rows, r)
	}
	switch {
	case err != nil:
		return err
	case w.ranker != nil:
		return w.builder.AddTerms(w.roster.Rows(), &w.terms)
	case w.earlier == nil:
		return w.advise(w.builder.Add(w.roster.Rows(), &w.played, w.within))
	}
	return w.advise(w.builder.AddPair(w.roster.Rows(), w.roster.Fields(), &w.played, &w.earlier.played))
}

// values computes row r under all models, also if the values under the first one are too large.
func (w *worker) values(rows *model.Rows, r int) error {
	err := w.player.row(rows, r)
	if w.earlier == nil || err != nil && !errors.Is(err, errLarge) {
		return err
	}
	if was := w.earlier.row(&w.earlier.batch, r); was != nil && (err == nil || !errors.Is(was, errLarge)) {
		return fmt.Errorf("previous model: %w", was)
	}
	return err
}

// walks replaces what values has set by walks.
func (w *worker) walks(rows *model.Rows, r int) error {
	err := w.player.walk(rows, r)
	if err != nil || w.earlier == nil {
		return err
	}
	if err := w.earlier.walk(&w.earlier.batch, r); err != nil {
		return fmt.Errorf("previous model: %w", err)
	}
	return nil
}

// fits reports whether the builder has room for what values has set.
func (w *worker) fits() bool {
	if w.earlier == nil {
		return w.builder.Fits(&w.played)
	}
	return w.builder.FitsPair(&w.played, &w.earlier.played)
}

// errLarge says that a row has values, but that they are too large.
var errLarge = errors.New("use walks (" + estimator.Antithetic + ") or another baseline")

// advise adds to the error of a row whose contributions are too large what a
// user can do about it.
func (w *worker) advise(err error) error {
	if err != nil && w.loss == loss.Squared {
		return fmt.Errorf("%w: %s", err, rescale)
	}
	return err
}

// rescale is the advice for a squared loss that is too large.
const rescale = "divide the labels by a constant and train the model with them"

// units returns the loss of a logit in LossUnits. It returns an error if the loss is not a
// number in [0, tally.MaxLoss], because the model is then broken, or the labels need another
// scale.
func units(kind loss.Kind, logit float64, label float32) (int64, error) {
	units, ok := tally.Loss(kind.Of(logit, label))
	switch {
	case ok:
		return units, nil
	case math.IsNaN(logit):
		return 0, errors.New("the logit is NaN" + model.AdviceNaN)
	case kind == loss.Squared:
		return 0, fmt.Errorf("the output is %g and the label %v, whose squared loss is not a number in [0, %d]: %s", logit, label, tally.MaxLoss, rescale)
	}
	return 0, fmt.Errorf("the logit is %g, whose loss is not a number in [0, %d]: if only rows with dropped entries have such a logit, use the codebook as baseline", logit, tally.MaxLoss)
}

// byProbe is the common part of evaluators that use the probe. It scores the full rows of
// a batch together. The evaluators compute all other states of a row with the probe.
type byProbe struct {
	*setup
	scorer *model.Scorer
	batch  model.Rows
}

func newByProbe(s *setup) byProbe { return byProbe{setup: s, scorer: s.game.Model.NewScorer()} }

// rows returns a multiple of the tile height of all kernels except AMX, which then fills
// only half of its second tile.
func (b *byProbe) rows() int { return 24 }

func (b *byProbe) play(_ context.Context, full []float64, rows *model.Rows) error {
	b.batch = *rows
	b.scorer.Logits(full, rows)
	return nil
}

// round sets phi to the values of the players, in LossUnits, rounded to whole numbers.
func round(phi []int64, values []float64) error {
	if i := vector.Round(phi, values, tally.MaxLoss/tally.LossUnit); i >= 0 {
		err := fmt.Errorf("player %d has the value %g nat, expected at most %d in magnitude: the logit is too steep there for an estimator that uses derivatives, so %w", i, values[i]*tally.LossUnit, tally.MaxLoss, errLarge)
		if slices.ContainsFunc(values, math.IsNaN) {
			return errors.New(err.Error()) // no walks, because a derivative is not defined
		}
		return err
	}
	return nil
}
