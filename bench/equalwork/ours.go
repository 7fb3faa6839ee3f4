//go:build unix

package main

import (
	"context"
	"fmt"
	"math"

	"shaver/internal/base/cputime"
	"shaver/internal/click/model"
	"shaver/internal/num/random"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// values are the values of each player in each run of each row, [rows, seeds, players]. The game of
// a mean loss has one row.
type values [][][]float64

// statePasses is what a state costs whose derivatives and kink terms are computed, in evaluations:
// one forward pass, one backward pass and one for the kink terms.
const statePasses = 3

// mostPairs is the largest number of pairs of draws of multilinear. More of them change its error little, which is then bias.
const mostPairs = 64

// method is one of our estimators with one effort.
type method struct {
	name    string
	options estimator.Options
	passes  float64 // evaluations of a row
	rows    int     // number of rows that it scores, in the game of a mean loss
}

// methods returns our estimators with the efforts that fit the game.
func methods(g *game) []method {
	var all []method
	p := float64(g.players)
	walk := func(o estimator.Options) float64 { return float64(o.Walks()) * (p + 1) }
	if g.mean {
		for _, name := range []string{estimator.Permutation, estimator.Antithetic} {
			for _, rows := range []int{125, 250, 500} {
				o := estimator.Options{Estimator: name, Passes: 1}
				all = append(all, method{name, o, walk(o) * float64(rows) / float64(g.rows.Len()), rows})
			}
			for _, passes := range []int{2, 4} {
				o := estimator.Options{Estimator: name, Passes: passes}
				all = append(all, method{name, o, walk(o), g.rows.Len()})
			}
		}
		return all
	}
	most := 2 * float64(g.budgets[len(g.budgets)-1])
	add := func(o estimator.Options, passes float64) {
		if passes <= most {
			all = append(all, method{o.Estimator, o, passes, 0})
		}
	}
	for _, name := range []string{estimator.Permutation, estimator.Antithetic} {
		for passes := 1; passes <= 1<<10; passes *= 2 {
			o := estimator.Options{Estimator: name, Passes: passes}
			add(o, walk(o))
		}
	}
	if g.game.Fields == nil {
		for effort := 1; effort <= 1<<10; effort *= 2 {
			o := estimator.Options{Estimator: estimator.Debiased, Passes: effort, Draws: 2, Endpoints: estimator.Plain, Flips: estimator.DefaultFlips}
			add(o, 2+float64(o.Passes*(statePasses*o.Draws+o.Flips)))
		}
		for effort := 1; effort <= mostPairs; effort *= 2 {
			o := estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2 * effort, Endpoints: estimator.Plain}
			add(o, 2+float64(statePasses*o.Draws))
		}
	}
	if g.players <= 16 {
		add(estimator.Options{Estimator: estimator.Exact, Passes: 1}, math.Ldexp(1, g.players))
	}
	return all
}

// play returns the values of some rows, one after the other, and each as the mean of the given number of
// copies with random numbers of their own.
func play(ctx context.Context, g *game, o estimator.Options, seed uint64, rows *model.Rows, copies int) ([][]float64, error) {
	all := make([][]float64, rows.Len())
	for r := range all {
		some := &model.Rows{}
		for c := range copies {
			some.Append(rows, r)
			some.Number[c] += int64(c) << 32
		}
		p, err := shapley.Estimate(ctx, g.game, shapley.Options{Options: o, Seed: seed}, some, 1, nil)
		if err != nil {
			return nil, err
		}
		all[r] = meanOf(p, o, copies)
	}
	return all, nil
}

// meanOf returns the mean values over n rows. The features of a partial are in the order of the fields,
// so its entries are in the order of the players.
func meanOf(p *tally.Partial, o estimator.Options, n int) []float64 {
	walks := tally.NewSampling(o, 0).Walks
	mean := make([]float64, len(p.Sum))
	for i, sum := range p.Sum {
		if p.Correction != nil {
			sum += p.Correction[i]
		}
		mean[i] = float64(sum) * tally.LossUnit / float64(walks*n)
	}
	return mean
}

// ours returns the values of a method in each run.
func ours(ctx context.Context, g *game, m *method) (values, error) {
	var all values
	for seed := range g.seeds {
		var runs [][]float64
		var err error
		if g.mean {
			// The rows are in random order, so those from any place on are a sample.
			some, from := &model.Rows{}, seed*g.rows.Len()/g.seeds
			for i := range m.rows {
				some.Append(g.rows, (from+i)%g.rows.Len())
			}
			p, err := shapley.Estimate(ctx, g.game, shapley.Options{Options: m.options, Seed: uint64(seed + 1)}, some, 1, nil)
			if err != nil {
				return nil, err
			}
			runs = [][]float64{meanOf(p, m.options, m.rows)}
		} else {
			o, copies := m.options, 1
			if o.Flips > 0 { // copies of a row fill a batch, and do what passes do
				o.Passes, copies = 1, o.Passes
			}
			if runs, err = play(ctx, g, o, uint64(seed+1), g.rows, copies); err != nil {
				return nil, err
			}
		}
		if all == nil {
			all = make(values, len(runs))
		}
		for r, v := range runs {
			all[r] = append(all[r], v)
		}
	}
	return all, nil
}

// timingRows is the least number of rows of a measurement of time, and leastSeconds its least processor time.
const (
	timingRows   = 384
	leastSeconds = 0.3
)

// timeOf returns the processor time of a method for a row, in seconds, in a job of many rows on one thread.
func timeOf(ctx context.Context, g *game, m *method) (float64, error) {
	rows := &model.Rows{}
	for i := 0; i < g.rows.Len() || i < timingRows; i++ {
		rows.Append(g.rows, i%g.rows.Len())
	}
	part := 1.0
	if g.mean {
		some := rows.Slice(0, m.rows)
		rows, part = &some, float64(m.rows)/float64(g.rows.Len())
	}
	begun, runs := cputime.Process(), 0
	for ; runs < 1 || (cputime.Process()-begun).Seconds() < leastSeconds; runs++ {
		if _, err := shapley.Estimate(ctx, g.game, shapley.Options{Options: m.options, Seed: 1}, rows, 1, nil); err != nil {
			return 0, err
		}
	}
	return (cputime.Process() - begun).Seconds() / float64(runs*rows.Len()) * part, nil
}

// evaluation returns the processor time of one evaluation of the model, in seconds: of the logit of a
// random state, as one of many.
func evaluation(g *game) float64 {
	m := g.game.Model
	gradient := m.NewGradient()
	base := m.Book(g.game.Baseline).Spread(nil, nil)
	stream := random.At(1, random.Coalition, 0, 0)
	logits := make([]float64, gradient.States())
	for i := range logits {
		r := i % g.rows.Len()
		x := gradient.Set(i, g.rows, r)
		m.Embed(x, g.rows.Row(r))
		for k, b := range base {
			if stream.Below(2) == 0 {
				x[k] = b
			}
		}
	}
	begun, n := cputime.Process(), 0
	for (cputime.Process() - begun).Seconds() < leastSeconds {
		gradient.Logits(logits)
		n += len(logits)
	}
	return (cputime.Process() - begun).Seconds() / float64(n)
}

// truth has the values that errors refer to.
type truth struct {
	Values [][]float64 `json:"values"` // [rows, players]
	Noise  float64     `json:"noise"`  // its own error, relative to the values
	// Walks is how far antithetic walks of the same rows are from it, and Expected how far they are expected to
	// be because of their noise. Both are 0 if the values are exact.
	Walks    float64 `json:"walks"`
	Expected float64 `json:"expected"`
}

// Passes of the walks that check a truth, and copies of a row that fill a batch of debiased.
const (
	checkPasses = 128
	copies      = 96
)

// truthOf computes the truth of a game.
func truthOf(ctx context.Context, g *game, passes int) (*truth, error) {
	if g.players <= 16 {
		o := estimator.Options{Estimator: estimator.Exact, Passes: 1}
		found, err := play(ctx, g, o, 1, g.rows, 1)
		if err != nil || !g.mean {
			return &truth{Values: found}, err
		}
		mean := make([]float64, g.players)
		for _, v := range found {
			for i := range mean {
				mean[i] += v[i] / float64(len(found))
			}
		}
		return &truth{Values: [][]float64{mean}}, nil
	}
	o := estimator.Options{Estimator: estimator.Debiased, Passes: max(1, passes/2/copies), Draws: 2, Endpoints: estimator.Plain, Flips: estimator.DefaultFlips}
	t := new(truth)
	var err error
	if t.Values, t.Noise, err = halves(ctx, g, o, copies); err != nil {
		return nil, err
	}
	walks, noise, err := halves(ctx, g, estimator.Options{Estimator: estimator.Antithetic, Passes: checkPasses / 2}, 1)
	if err != nil {
		return nil, err
	}
	t.Expected = math.Hypot(noise, t.Noise)
	for r, v := range walks {
		t.Walks += distance(v, t.Values[r]) / norm(t.Values[r]) / float64(len(walks))
	}
	return t, nil
}

// halves returns the mean values of two runs, and their error, estimated from the difference of the runs.
func halves(ctx context.Context, g *game, o estimator.Options, copies int) ([][]float64, float64, error) {
	a, err := play(ctx, g, o, 1001, g.rows, copies)
	if err != nil {
		return nil, 0, err
	}
	b, err := play(ctx, g, o, 1002, g.rows, copies)
	if err != nil {
		return nil, 0, err
	}
	noise := 0.0
	for r := range a {
		off := distance(a[r], b[r]) / 2
		for i := range a[r] {
			a[r][i] = (a[r][i] + b[r][i]) / 2
		}
		noise += off / norm(a[r]) / float64(len(a))
	}
	if math.IsNaN(noise) {
		return nil, 0, fmt.Errorf("a row has only values of 0")
	}
	return a, noise, nil
}
