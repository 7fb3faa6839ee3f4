//go:build unix

package main

import (
	"context"
	"math"

	"shaver/internal/click/model"
	"shaver/internal/value/compare"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
)

// curve is one estimator with increasing effort.
type curve struct {
	name    string
	options []shapley.Options
}

func curves() []curve {
	var walks, pairs, plain, balanced, few, many []shapley.Options
	for _, passes := range []int{1, 2, 4, 8} {
		walks = append(walks, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: passes}})
		o := estimator.Options{Estimator: estimator.Debiased, Passes: passes, Draws: 2, Endpoints: estimator.Plain, Flips: 8}
		few = append(few, shapley.Options{Options: o})
		o.Flips = 16
		many = append(many, shapley.Options{Options: o})
		if passes < 8 {
			pairs = append(pairs, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: passes}})
		}
	}
	for _, draws := range []int{2, 4, 8, 16, 32} {
		o := shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: draws, Endpoints: estimator.Plain}}
		plain = append(plain, o)
		if o.Endpoints = estimator.Balanced; draws >= 4 {
			balanced = append(balanced, o)
		}
	}
	return []curve{{"permutation", walks}, {"antithetic", pairs}, {"multilinear, plain", plain}, {"multilinear, balanced", balanced}, {"debiased, R = 8", few}, {"debiased, R = 16", many}}
}

// repeats is the number of measurements of each point. Each one has its own seed.
const repeats = 3

// leastSeconds is the minimum processor time spent on each point, in seconds.
const leastSeconds = 0.2

// referencePasses are antithetic passes, so the reference has 64 walks per row.
const referencePasses = 32

// point is the mean outcome of one effort over all repeats.
type point struct {
	options  shapley.Options
	cpu      float64 // seconds
	spearman float64 // rank correlation of |phi| with the reference, over the entries that occur
	rms      float64 // relative root mean square error, without the part that is the reference's own noise
	overlap  float64 // overlap of the sets kept at sparsity overlapAt
}

const overlapAt = 0.9

// result holds the points of a model, by curve.
type result struct {
	name    string
	rows    int
	entries int
	noise   float64 // relative noise of the reference
	curves  []curve
	points  [][]point
}

// values are the values and standard errors of the entries that occur.
type values struct{ phi, se []float64 }

func measure(ctx context.Context, name string, game shapley.Game, rows *model.Rows, seconds float64) (*result, error) {
	few := rows.Slice(0, min(100, rows.Len()))
	_, took, err := estimate(ctx, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 1}, &few)
	if err != nil {
		return nil, err
	}
	perWalk := took / float64(few.Len())
	n := min(rows.Len(), max(100, int(seconds/(2*referencePasses*perWalk))))
	some := rows.Slice(0, n)
	reference, _, err := estimate(ctx, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: referencePasses}, Seed: 1}, &some)
	if err != nil {
		return nil, err
	}
	r := &result{name: name, rows: n, entries: len(reference.phi), curves: curves(), noise: norm(reference.se) / norm(reference.phi)}
	for _, c := range r.curves {
		var points []point
		for _, o := range c.options {
			p := point{options: o}
			runs, total := 0, 0.0
			for ; runs < repeats || total < leastSeconds; runs++ {
				o.Seed = uint64(2 + runs)
				found, cpu, err := estimate(ctx, game, o, &some)
				if err != nil {
					return nil, err
				}
				if total += cpu; runs < repeats {
					p.add(found.phi, reference)
				}
			}
			p.cpu = total / float64(runs)
			points = append(points, p)
		}
		r.points = append(r.points, points)
	}
	return r, nil
}

// add adds one repeat to the means.
func (p *point) add(phi []float64, reference *values) {
	off := compare.RelativeRMS(phi, reference.phi)
	noise := norm(reference.se) / norm(reference.phi)
	p.spearman += compare.Spearman(phi, reference.phi) / repeats
	p.rms += math.Sqrt(max(0, off*off-noise*noise)) / repeats
	p.overlap += compare.Overlap(phi, reference.phi, len(phi), overlapAt) / repeats
}

func norm(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// estimate returns the values of the entries that occur in the rows. Their standard
// errors refer to these rows only, not to a larger dataset. It also returns the processor
// time in seconds, on one thread.
func estimate(ctx context.Context, game shapley.Game, o shapley.Options, rows *model.Rows) (*values, float64, error) {
	r, took, err := estimateAll(ctx, game, o, rows)
	if err != nil {
		return nil, 0, err
	}
	found := new(values)
	for i, phi := range r.Phi {
		if r.Count[r.Shape.RowOf(i)] > 0 {
			found.phi, found.se = append(found.phi, phi), append(found.se, float64(r.SE[i]))
		}
	}
	return found, took, nil
}
