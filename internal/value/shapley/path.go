package shapley

import (
	"context"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/num/loss"
	"shaver/internal/value/tally"
)

// path computes the terms of a round of a path, which package path turns into an order. The
// tables of the model are those of the round: entries that they do not have read their
// baseline. Let f be the logit, g its derivative with respect to a player's entry, delta the entry minus its
// baseline, and l the loss of the calibrated logit a*f + b. In a round that adds, the entry is that of options.Measured. The player changes the logit by v = g*delta. Its terms are
//
//	first: l' * a*v    second: l'' * (a*v)^2
//
// To second order, dropping the player alone raises the loss by second/2 - first, and adding it by second/2 + first.
type path struct {
	*setup
	gradient    *model.Gradient
	calibration loss.Calibration
	delta       []float64 // delta of the elements, [rows, D]
	change      []float64 // v of the players of a row, [D]
	logits      []float64 // of the batch
	labels      []float32 // of the batch
	measured    []float32 // embedding of a row in options.Measured, [D]
}

func newPath(s *setup) evaluator {
	g, players := s.game.Model.NewGradient(), s.game.Model.Players()
	return &path{setup: s, gradient: g, calibration: s.options.Calibration, delta: make([]float64, g.States()*players), change: make([]float64, players), measured: make([]float32, players)}
}

func (p *path) rows() int { return p.gradient.States() }

func (p *path) play(_ context.Context, full []float64, rows *model.Rows) error {
	p.batch(rows)
	for r := range full {
		entries, delta := p.gradient.Set(r, rows, r), p.delta[r*p.elements:]
		p.game.Model.Embed(entries, rows.Row(r))
		if p.options.Measured != nil {
			entries = p.measured
			p.options.Measured.Embed(entries, rows.Row(r))
		}
		for i, b := range p.baselineOf(r) {
			delta[i] = float64(entries[i]) - float64(b)
		}
	}
	p.gradient.Slopes(full)
	p.logits, p.labels = full, rows.Label
	return nil
}

func (p *path) terms(row *tally.Terms, r int) {
	row.First, row.Second = derivatives(p.game.Loss, p.calibration, p.logits[r], p.labels[r])
	slope, delta := p.gradient.Slope(r)[:p.elements], p.delta[r*p.elements:][:p.elements]
	row.Change = p.change[:p.roster.Players()]
	if !p.roster.Merged() {
		for i, g := range slope {
			row.Change[i] = float64(g) * delta[i]
		}
		return
	}
	for i := range row.Change {
		sum := 0.0
		for _, k := range p.roster.Elements(i) {
			sum += float64(float64(slope[k]) * delta[k])
		}
		row.Change[i] = sum
	}
}

// derivatives returns the first and the second derivative, by the logit, of the loss of the
// calibrated logit.
func derivatives(kind loss.Kind, c loss.Calibration, logit float64, label float32) (first, second float64) {
	z, a := c.Apply(logit), c.Scale
	if kind == loss.Squared {
		return 2 * a * (z - float64(label)), 2 * a * a
	}
	p := 1 / (1 + math.Exp(-z))
	return a * (p - float64(label)), float64(a*a) * p / (1 + math.Exp(z))
}
