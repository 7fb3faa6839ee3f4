//go:build unix

package main

import (
	"context"
	"fmt"
	"math"

	"shaver/internal/base/cputime"
	"shaver/internal/click/model"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// The bias of a set is measured on all its rows, with a reference of 4 walks per row. Intervals
// are measured on intervalRows of them, with 16 walks per row.
const (
	biasPasses     = 2 // antithetic
	intervalPasses = 8
	intervalRows   = 10_000
)

// groups is the number of groups of rows from which the bias is estimated.
const groups = 400

// estimated is what an estimator gives for a set.
type estimated struct {
	options shapley.Options
	bias    float64 // root mean square of the bias, relative to that of the values; negative if its square is estimated as negative
	least   float64 // the same two standard errors below
	most    float64 // the same two standard errors above
}

// held counts the intervals of a class of features that hold.
type held struct{ holds, all int }

// classes are the smallest numbers of rows of the classes of features.
var classes = []int64{5, 10, 40, 400, 4000}

// unbiased is what is measured without the noise of the reference.
type unbiased struct {
	name      string
	rows      int
	estimates []estimated
	intervals map[int][]held // by the number of passes of debiased: of each class
}

// measureBias measures the bias of estimators on all rows, and how often the intervals of
// debiased hold on the first intervalRows of them. The reference is antithetic walks of the
// same rows.
func measureBias(ctx context.Context, name string, game shapley.Game, rows *model.Rows) (*unbiased, error) {
	u := &unbiased{name: name, rows: rows.Len(), intervals: map[int][]held{}}
	reference := shapley.Options{Options: estimator.Options{Estimator: estimator.Antithetic, Passes: biasPasses}, Seed: 99}
	walks, err := grouped(ctx, game, reference, rows)
	if err != nil {
		return nil, err
	}
	size, _, _ := product(walks)
	for _, o := range []estimator.Options{
		{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain},
		{Estimator: estimator.Multilinear, Passes: 1, Draws: 8, Endpoints: estimator.Plain},
		{Estimator: estimator.Debiased, Passes: 1, Draws: 2, Endpoints: estimator.Plain, Flips: 8},
	} {
		found, err := grouped(ctx, game, shapley.Options{Options: o, Seed: 7}, rows)
		if err != nil {
			return nil, err
		}
		for g := range found {
			for i := range found[g].values {
				found[g].values[i] -= walks[g].values[i]
			}
		}
		square, low, high := product(found)
		u.estimates = append(u.estimates, estimated{shapley.Options{Options: o}, root(square / size), root(low / size), root(high / size)})
	}
	some := rows.Slice(0, min(intervalRows, rows.Len()))
	reference.Passes = intervalPasses
	want, _, err := estimateAll(ctx, game, reference, &some)
	if err != nil {
		return nil, err
	}
	for _, passes := range []int{2, 4} {
		o := estimator.Options{Estimator: estimator.Debiased, Passes: passes, Draws: 2, Endpoints: estimator.Plain, Flips: 8}
		got, _, err := estimateAll(ctx, game, shapley.Options{Options: o, Seed: 5}, &some)
		if err != nil {
			return nil, err
		}
		u.intervals[passes] = count(got, want, tally.NewSampling(o, int64(some.Len())))
	}
	return u, nil
}

// root is the square root, and minus that of the magnitude for a negative number.
func root(square float64) float64 { return math.Copysign(math.Sqrt(math.Abs(square)), square) }

// count returns how many intervals of each class hold.
func count(got, want *tally.Result, e tally.Sampling) []held {
	all := make([]held, len(classes))
	for i, phi := range got.Phi {
		rows := got.Count[got.Shape.RowOf(i)]
		class := -1
		for c, least := range classes {
			if rows >= least {
				class = c
			}
		}
		t, _ := e.Interval(rows, got.Rows)
		if class < 0 || math.IsNaN(t) {
			continue
		}
		se := math.Hypot(float64(got.SE[i]), float64(want.SE[i])) // the reference has noise too
		all[class].all++
		if math.Abs(phi-want.Phi[i]) <= t*se {
			all[class].holds++
		}
	}
	return all
}

// estimateAll returns the result of an estimator on all rows.
func estimateAll(ctx context.Context, game shapley.Game, o shapley.Options, rows *model.Rows) (*tally.Result, float64, error) {
	begun := cputime.Process()
	p, err := shapley.Estimate(ctx, game, o, rows, 1, nil)
	took := (cputime.Process() - begun).Seconds()
	if err != nil {
		return nil, 0, err
	}
	sampling := tally.NewSampling(o.Options, int64(rows.Len()))
	sums := tally.NewAccumulator(game.Model.Shape(), sampling.Form(game.Model.Fields()))
	if err := sums.Merge(p); err != nil {
		return nil, 0, err
	}
	r, err := sums.Result(sampling)
	return r, took, err
}

// sums are the sums of the contributions to some entries over a group of rows.
type sums struct {
	entries []int32
	values  []float64
}

// grouped returns the sums of each group of rows.
func grouped(ctx context.Context, game shapley.Game, o shapley.Options, rows *model.Rows) ([]sums, error) {
	walks := float64(tally.NewSampling(o.Options, 0).Walks)
	shape := game.Model.Shape()
	all := make([]sums, groups)
	for g := range all {
		part := rows.Slice(g*rows.Len()/groups, (g+1)*rows.Len()/groups)
		p, err := shapley.Estimate(ctx, game, o, &part, 1, nil)
		if err != nil {
			return nil, err
		}
		at := 0
		for _, f := range p.Features {
			from, to := shape.Row(int(f))
			for e := from; e < to; e++ {
				sum := p.Sum[at]
				if p.Correction != nil {
					sum += p.Correction[at]
				}
				all[g].entries, all[g].values = append(all[g].entries, int32(e)), append(all[g].values, float64(sum)/walks)
				at++
			}
		}
	}
	return all, nil
}

// product returns the mean, over all pairs of different groups, of the inner product of their
// sums. In this mean, noise that is independent between rows cancels. It also returns the mean
// minus and plus two standard errors, from a jackknife over the groups.
func product(all []sums) (mean, low, high float64) {
	total := map[int32]float64{}
	for _, s := range all {
		for i, e := range s.entries {
			total[e] += s.values[i]
		}
	}
	n, sum := float64(len(all)), 0.0
	with := make([]float64, len(all)) // products of a group with all others
	for g, s := range all {
		for i, e := range s.entries {
			with[g] += s.values[i] * (total[e] - s.values[i])
		}
		sum += with[g]
	}
	mean = sum / (n * (n - 1))
	square := 0.0
	for _, w := range with {
		without := (sum - 2*w) / ((n - 1) * (n - 2))
		square += (without - mean) * (without - mean)
	}
	se := math.Sqrt(square * (n - 1) / n)
	return mean, mean - 2*se, mean + 2*se
}

// reportBias prints the bias of each estimator, and how often intervals hold.
func reportBias(all []*unbiased) {
	fmt.Print("\n| | estimator | bias | two standard errors below | above |\n|---|---|---|---|---|\n")
	for _, u := range all {
		for _, e := range u.estimates {
			fmt.Printf("| %s, %d rows | %s | %.1f%% | %.1f%% | %.1f%% |\n", u.name, u.rows, effort(e.options), 100*e.bias, 100*e.least, 100*e.most)
		}
	}
	fmt.Print("\n| intervals that hold |")
	for _, least := range classes {
		fmt.Printf(" %d rows and more |", least)
	}
	fmt.Println("\n|---|---|---|---|---|---|")
	for _, u := range all {
		for _, passes := range []int{2, 4} {
			fmt.Printf("| %s, %d passes |", u.name, passes)
			for _, h := range u.intervals[passes] {
				fmt.Printf(" %.1f%% of %d |", 100*float64(h.holds)/float64(max(1, h.all)), h.all)
			}
			fmt.Println()
		}
	}
}
