package shapley

import (
	"context"

	"shaver/internal/click/model"
)

// taylor approximates the loss as linear around the full row. The contribution of a
// player is -(dl/df)*g*delta. Here l is the loss, f the logit, g the derivative of f with
// respect to the player's entry, and delta the entry minus its baseline. g is the sum of
// the derivatives with respect to the player's elements. With the zero
// baseline this is minus gradient times weight, which is the paper's rival Taylor.
type taylor struct {
	*setup
	gradient *model.Gradient
	phi      []float64 // contributions of the elements, in LossUnits, [rows, D]
	value    []float64 // contributions of the players of a row, [D]
}

func newTaylor(s *setup) evaluator {
	g, players := s.game.Model.NewGradient(), s.game.Model.Players()
	return &taylor{s, g, make([]float64, g.States()*players), make([]float64, players)}
}

func (t *taylor) rows() int { return t.gradient.States() }

func (t *taylor) play(_ context.Context, full []float64, rows *model.Rows) error {
	t.batch(rows)
	for r := range full {
		entries := t.gradient.Set(r, rows, r)
		t.game.Model.Embed(entries, rows.Row(r))
		phi := t.phi[r*t.elements:]
		for i, b := range t.baselineOf(r) {
			phi[i] = float64(entries[i]) - float64(b)
		}
	}
	t.gradient.Slopes(full)
	for r, logit := range full {
		curve := newCurve(t.game.Loss, logit, rows.Label[r])
		slope, phi := t.gradient.Slope(r), t.phi[r*t.elements:][:t.elements]
		for i, g := range slope {
			phi[i] *= -curve.a[0] * float64(g)
		}
	}
	return nil
}

func (t *taylor) values(phi, _ []int64, r int) error {
	elements := t.phi[r*t.elements:]
	if !t.roster.Merged() {
		return round(phi, elements[:len(phi)])
	}
	for i := range phi {
		t.value[i] = 0
		for _, k := range t.roster.Elements(i) {
			t.value[i] += elements[k]
		}
	}
	return round(phi, t.value[:len(phi)])
}
