//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"shaver/bench/stage"
)

// point is the outcome of a method with one effort.
type point struct {
	Method  string  `json:"method"`
	Effort  string  `json:"effort"`
	Passes  float64 `json:"passes"`  // evaluations of a row
	Seconds float64 `json:"seconds"` // processor time of a row
	Model   float64 `json:"model"`   // of these, in the model; 0 for our own estimators
	// Error is the mean over rows and runs of |found - true| / |true|, and Half the half-width of its 95% interval.
	Error float64 `json:"error"`
	Half  float64 `json:"half"`
	// Bias is the root of the mean over rows of |bias|^2 / |true|^2, from products of different runs, which have no
	// noise in common. It is negative if the square is estimated as negative.
	Bias float64 `json:"bias"`
}

// result is what was measured for a game.
type result struct {
	game   *game
	truth  *truth
	ours   []point
	others others
	each   float64 // processor time of one evaluation of our model, in seconds; 0 if the players are fields
}

// measure returns what the folder of the game has, and measures the rest.
func measure(ctx context.Context, g *game, o *options) (*result, error) {
	work := stage.Folder(filepath.Join(o.work, strings.NewReplacer(" ", "-", ",", "").Replace(g.name)))
	if err := os.MkdirAll(string(work), 0o777); err != nil {
		return nil, err
	}
	r := &result{game: g}
	if err := export(ctx, g, string(work)); err != nil {
		return nil, err
	}
	if err := work.Measure("truth.json", &r.truth, func() (err error) { r.truth, err = truthOf(ctx, g, o.truth); return err }); err != nil {
		return nil, err
	}
	if err := work.Measure("ours.json", &r.ours, func() (err error) { r.ours, err = pointsOf(ctx, g, r.truth); return err }); err != nil {
		return nil, err
	}
	var err error
	if r.others, err = runOthers(ctx, g, r.truth, string(work), o); err != nil {
		return nil, err
	}
	if g.game.Fields == nil {
		r.each = evaluation(g)
	}
	return r, nil
}

// pointsOf returns the points of our own estimators.
func pointsOf(ctx context.Context, g *game, t *truth) ([]point, error) {
	var points []point
	for _, m := range methods(g) {
		found, err := ours(ctx, g, &m)
		if err != nil {
			return nil, err
		}
		p := point{Method: m.name, Effort: m.effort(), Passes: m.passes}
		if p.Seconds, err = timeOf(ctx, g, &m); err != nil {
			return nil, err
		}
		p.judge(found, t.Values)
		fmt.Fprintf(os.Stderr, "%s, %s: error %.1f%%\n", p.Method, p.Effort, 100*p.Error)
		points = append(points, p)
	}
	return points, nil
}

// effort describes the effort of a method.
func (m *method) effort() string {
	switch o := m.options; {
	case m.rows > 0 && o.Passes == 1:
		return fmt.Sprintf("%d rows", m.rows)
	case o.Flips > 0 || o.Walks() > 0:
		return fmt.Sprintf("%d passes", o.Passes)
	case o.Draws > 0:
		return fmt.Sprintf("K = %d", o.Draws)
	}
	return "all coalitions"
}

// judge sets the errors of found.
func (p *point) judge(found values, want [][]float64) {
	var rows []float64 // mean error of each row, or of each run of a single row
	bias := 0.0
	for r, runs := range found {
		size := norm(want[r])
		mean, sum, squares := 0.0, make([]float64, len(want[r])), 0.0
		for _, v := range runs {
			e := distance(v, want[r]) / size
			if mean += e / float64(len(runs)); len(found) == 1 {
				rows = append(rows, e)
			}
			squares += e * e
			for i := range sum {
				sum[i] += (v[i] - want[r][i]) / size
			}
		}
		if len(found) > 1 {
			rows = append(rows, mean)
		}
		n := float64(len(runs))
		total := norm(sum)
		bias += (total*total - squares) / (n * (n - 1)) / float64(len(found))
	}
	n := float64(len(rows))
	var deviation float64
	p.Error, deviation = stat.MeanStdDev(rows, nil)
	p.Half = distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(.975) * deviation / math.Sqrt(n)
	p.Bias = math.Copysign(math.Sqrt(math.Abs(bias)), bias)
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}

// distance returns |a - b|.
func distance(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return math.Sqrt(sum)
}
