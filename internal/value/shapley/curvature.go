package shapley

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
)

// Curvature is the mean, over rows, of the second derivative of the loss by each value of
// pruned tables. It leaves out the second derivative of the logit, as Gauss and Newton do.
type Curvature struct {
	Entries  []float64 // by entry, [Parameters]; 0 for dropped entries and for those of pad rows
	Baseline []float64 // by value of the baseline, which the dropped entries read, [len(Baseline.Values)]
}

// MeasureCurvature returns the curvature of game at the tables of game.Model, in which the
// entries of dropped have their baseline. c is the calibration of the logits. The result
// depends neither on the number of goroutines nor on how fast they are. The error names the
// row.
func MeasureCurvature(ctx context.Context, game Game, dropped layout.Mask, c loss.Calibration, rows *model.Rows) (*Curvature, error) {
	a := &game.Model.Architecture
	if err := game.Model.Differentiable(); err != nil {
		return nil, err
	}
	for r := range rows.Len() {
		if err := game.Model.CheckRow(rows.Row(r)); err != nil {
			return nil, fmt.Errorf("%s: %w", model.RowName(rows.Number[r]), err)
		}
	}
	h := &Curvature{Entries: make([]float64, a.Parameters()), Baseline: make([]float64, len(game.Baseline.Values))}
	sum := newCurvatureSum(a, a.Book(game.Baseline), dropped, h)
	workers := make([]*slopes, max(1, runtime.GOMAXPROCS(0)))
	for i := range workers {
		workers[i] = newSlopes(game.Model)
	}
	total := 0.0 // weight of the rows
	for at := 0; at < rows.Len(); {
		from, used := at, 0
		group, ctx := errgroup.WithContext(ctx)
		for _, w := range workers {
			if at == rows.Len() {
				break
			}
			w.batch = rows.Slice(at, min(at+w.gradient.States(), rows.Len()))
			at += w.batch.Len()
			used++
			group.Go(func() error {
				w.compute(game, c)
				return ctx.Err()
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for _, w := range workers[:used] { // in the order of the rows, so that the rounding is always the same
			for r := range w.batch.Len() {
				times := float64(w.batch.Times(r))
				total += times
				if !finite(w.second[r]) || !sum.add(w.batch.Row(r), w.gradient.Slope(r), times*w.second[r]) {
					return nil, fmt.Errorf("%s: %w", model.RowName(rows.Number[from]), errSteepRow)
				}
				from++
			}
		}
	}
	for _, list := range [][]float64{h.Entries, h.Baseline} {
		for i := range list {
			list[i] /= max(total, 1)
		}
	}
	return h, nil
}

var errSteepRow = fmt.Errorf("a derivative of the logit is not finite: the model is too steep there for a measurement of its curvature")

func finite(v float64) bool { return math.Abs(v) <= math.MaxFloat64 }

// slopes computes the derivatives of the logits of some rows.
type slopes struct {
	gradient *model.Gradient
	batch    model.Rows
	logits   []float64
	second   []float64 // second derivative of the loss by the logit
}

func newSlopes(m *model.Model) *slopes {
	g := m.NewGradient()
	return &slopes{gradient: g, logits: make([]float64, g.States()), second: make([]float64, g.States())}
}

func (s *slopes) compute(game Game, c loss.Calibration) {
	n := s.batch.Len()
	for r := range n {
		game.Model.Embed(s.gradient.Set(r, &s.batch, r), s.batch.Row(r))
	}
	s.gradient.Slopes(s.logits[:n])
	for r, logit := range s.logits[:n] {
		_, s.second[r] = derivatives(game.Loss, c, logit, s.batch.Label[r])
	}
}

// curvatureSum adds up what rows give.
type curvatureSum struct {
	to      *Curvature
	dropped layout.Mask
	shape   layout.Shape
	roster  *model.Roster
	book    *model.Book
	places  []int32   // position of each element's value in the baseline, [D]
	change  []float64 // derivatives of a row by the values of the baseline; 0 between rows
}

func newCurvatureSum(a *model.Architecture, book *model.Book, dropped layout.Mask, to *Curvature) *curvatureSum {
	s := &curvatureSum{to: to, dropped: dropped, shape: a.Shape(), roster: model.NewRoster(a), book: book, places: make([]int32, a.Players()), change: make([]float64, len(to.Baseline))}
	if book.Constant() {
		book.Places(s.places, nil)
	}
	return s
}

// add adds a row with the given derivatives of the logit, [D], and the second derivative of
// the loss by the logit. It returns false if a derivative is not finite.
func (s *curvatureSum) add(features []int32, slope []float32, second float64) bool {
	s.roster.Set(features)
	if !s.book.Constant() {
		s.book.Places(s.places, features)
	}
	player, fine := 0, true
	for _, row := range s.roster.Rows() {
		from, to := s.shape.Row(int(row))
		for i := from; i < to; i++ {
			elements := s.roster.Elements(player)
			player++
			if s.dropped.Dropped(i) {
				for _, k := range elements {
					s.change[s.places[k]] += float64(slope[k])
				}
				continue
			}
			sum := 0.0
			for _, k := range elements {
				sum += float64(slope[k])
			}
			value := second * sum * sum
			fine = fine && finite(value)
			s.to.Entries[i] += value
		}
	}
	for _, i := range s.places { // several elements may have the same place
		sum := s.change[i]
		s.change[i] = 0
		value := second * sum * sum
		fine = fine && finite(value)
		s.to.Baseline[i] += value
	}
	return fine
}
