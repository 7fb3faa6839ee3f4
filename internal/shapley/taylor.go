package shapley

import (
	"context"

	"shaver/internal/model"
)

// taylor approximates the loss as linear around the full row. The contribution of a
// player is -(dl/df)*g*delta. Here l is the loss, f the logit, g the derivative of f with
// respect to the player's entry, and delta the entry minus its baseline. With the zero
// baseline this is minus gradient times weight, which is the paper's rival Taylor.
type taylor struct {
	game     Game
	gradient *model.Gradient
	phi      []float64 // contributions, in LossUnits, [rows, D]
}

func newTaylor(s *setup) evaluator {
	g := s.game.Model.NewGradient()
	return &taylor{s.game, g, make([]float64, g.States()*s.game.Model.Players())}
}

func (t *taylor) rows() int { return t.gradient.States() }

func (t *taylor) play(_ context.Context, full []float64, rows *model.Rows) error {
	baseline := t.game.Baseline
	for r := range full {
		entries := t.gradient.Set(r, rows, r)
		t.game.Model.Embed(entries, rows.Row(r))
		phi := t.phi[r*len(baseline):]
		for i, b := range baseline {
			phi[i] = float64(entries[i]) - float64(b)
		}
	}
	t.gradient.Slopes(full)
	for r, logit := range full {
		curve := newCurve(t.game.Loss, logit, rows.Label[r])
		slope, phi := t.gradient.Slope(r), t.phi[r*len(baseline):][:len(baseline)]
		for i, g := range slope {
			phi[i] *= -curve.a[0] * float64(g)
		}
	}
	return nil
}

func (t *taylor) values(phi, _ []int64, r int) error {
	for i := range phi {
		if err := round(&phi[i], t.phi[r*len(phi)+i], i); err != nil {
			return err
		}
	}
	return nil
}
