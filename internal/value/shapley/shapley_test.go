package shapley_test

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// play runs an estimator over rows and returns its normalised result.
func play(t testing.TB, game shapley.Game, o shapley.Options, rows *model.Rows) *tally.Result {
	t.Helper()
	return playOf(t, game, o, rows, rows.Len())
}

// playOf is like play. Its rows are a sample from a dataset of the given size.
func playOf(t testing.TB, game shapley.Game, o shapley.Options, rows *model.Rows, of int) *tally.Result {
	t.Helper()
	p, err := shapley.Estimate(t.Context(), game, o, rows, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := tally.NewAccumulator(game.Model.Shape(), tally.NewSampling(o.Options, 0).Form(game.Model.Fields()))
	if err := a.Merge(p); err != nil {
		t.Fatal(err)
	}
	r, err := a.Result(tally.NewSampling(o.Options, int64(of)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// baseline returns a baseline that is not zero, as a codebook is.
func baseline(m *model.Model) model.Baseline {
	b := make([]float32, m.BaselineSize())
	for i := range b {
		b[i] = 0.1 * float32(i%4)
	}
	for _, s := range m.Spans() {
		for _, r := range s.Sharers {
			copy(b[r.Baseline:r.Baseline+s.Dim], b[s.Baseline:])
		}
	}
	return model.Baseline{Values: b}
}

// small returns the game of a model that is small enough for exact, and 20 rows.
func small(t testing.TB, seed uint64) (shapley.Game, *model.Rows) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 3, 2}, Dim: 2, Hidden: []int{5}}
	m := modeltest.Random(t, a, seed)
	return shapley.Game{Model: m, Baseline: baseline(m)}, modeltest.Rows(a, 20, seed)
}

// The contributions of every row sum to what all its players are worth together, for
// exactly the estimators that declare it. If the estimator shares residuals out, the sums are
// equal in integers.
func TestEfficiencyOfEveryRow(t *testing.T) {
	worst := map[string]float64{}
	for name, a := range modeltest.Architectures() {
		m := modeltest.Random(t, a, 3)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		rows := modeltest.Rows(a, 25, 3)
		for _, o := range estimatortest.Small() {
			if o.Validate(a.Players()) != nil {
				continue
			}
			for i := range rows.Len() {
				row := rows.Slice(i, i+1)
				p, err := shapley.Estimate(t.Context(), game, shapley.Options{Options: o, Seed: 4}, &row, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				sum := int64(0)
				for _, s := range slices.Concat(p.Sum, p.Correction) {
					sum += s
				}
				walks := tally.NewSampling(o, 1).Walks
				off := math.Abs(float64(sum-int64(walks)*(p.LossEmpty-p.LossFull)) * tally.LossUnit / float64(walks))
				worst[o.Estimator] = max(worst[o.Estimator], off)
				if off > 2e-6 && o.Traits().Efficient || off != 0 && o.Traits().Shares {
					t.Errorf("%s, %s, %s, row %d: the sum of the contributions is off by %g nat", name, o.Estimator, o.Effort(), i, off)
				}
			}
		}
	}
	for _, name := range estimatortest.OfValues() {
		if traits, _ := estimator.Lookup(name); !traits.Efficient && !traits.Shares && worst[name] <= 2e-6 {
			t.Errorf("%s satisfies the efficiency identity within %g nat, but does not declare it", name, worst[name])
		}
	}
}

// Paper, null player: an entry has exactly the value 0 if it equals its baseline, if the
// model does not read it, or if no row activates its feature.
func TestNullPlayer(t *testing.T) {
	game, rows := small(t, 5)
	const field, feature, column = 1, 2 + 1, 1
	w := modeltest.Weights(game.Model.Architecture, 5)
	for f := range game.Model.Features() { // FM does not read column 0 of field 2,
		if w.Embedding[f*2] *= 0; f >= 5 { // because column 0 of all other fields is 0,
			w.Embedding[f*2] = 1
		}
	}
	for unit := range w.Hidden[0].Out { // and neither does the network
		w.Hidden[0].Weight[unit*6+4] = 0
	}
	game.Baseline = game.Model.Zero()
	game.Baseline.Values[field*2+column] = w.Embedding[feature*2+column]
	var err error
	if game.Model, err = model.New(game.Model.Architecture, w); err != nil {
		t.Fatal(err)
	}
	for _, name := range estimatortest.OfValues() {
		o := shapley.Options{Options: estimator.Options{Estimator: name, Passes: 1}, Seed: 1}
		o.SetDefaults()
		r := play(t, game, o, rows)
		if phi := r.Phi[feature*2+column]; phi != 0 {
			t.Errorf("%s: a null player has the value %g, expected 0", name, phi)
		}
		for f := 5; f < 7; f++ {
			if phi := r.Phi[f*2]; phi != 0 && !(o.Traits().Flips && math.Abs(phi) < 1e-5) { // debiased has 0 on average, and not in each job
				t.Errorf("%s: an entry that the model does not read has the value %g, expected 0", name, phi)
			}
		}
		for i, count := range r.Count {
			if count == 0 && (r.Phi[i*2] != 0 || r.SE[i*2] != 0) {
				t.Errorf("%s: feature %d never occurs, but has the value %g", name, i, r.Phi[i*2])
			}
		}
	}
}

// Paper, symmetry: two players that the model treats alike have the same value. The columns
// of an FM are interchangeable, so the test gives two of them the same numbers.
func TestSymmetry(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{3, 2}, Dim: 3}
	w := modeltest.Weights(a, 2)
	for f := range a.Features() {
		w.Embedding[f*3+2] = w.Embedding[f*3]
	}
	m, err := model.New(a, w)
	if err != nil {
		t.Fatal(err)
	}
	game := shapley.Game{Model: m, Baseline: model.Baseline{Values: []float32{.1, .2, .1, .3, .4, .3}}}
	r := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, modeltest.Rows(a, 30, 2))
	for f := range a.Features() {
		if one, other := r.Phi[f*3], r.Phi[f*3+2]; math.Abs(one-other) > 1e-9 {
			t.Errorf("feature %d: equal columns have the values %g and %g", f, one, other)
		}
	}
}

// Paper, theorem 1: the value of an entry in the game of all n*d entries over the whole
// dataset equals the mean of its values in the games of the rows, of m*d entries each.
func TestTheorem1(t *testing.T) {
	for _, kind := range []loss.Kind{loss.Logistic, loss.Squared} {
		t.Run(kind.Name(), func(t *testing.T) { theorem1(t, kind) })
	}
}

func theorem1(t *testing.T, kind loss.Kind) {
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 2, 3}, Dim: 1, Hidden: []int{4}}
	m := modeltest.Random(t, a, 8)
	rows := modeltest.Rows(a, 12, 8)
	if kind == loss.Squared {
		for i := range rows.Label {
			rows.Label[i] = 5*rows.Label[i] - 1.5
		}
	}
	base := baseline(m)
	local := play(t, shapley.Game{Model: m, Baseline: base, Loss: kind}, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)

	// In the global game, v(S) is the mean loss if the entries in S are dropped from the
	// table.
	n := a.Parameters()
	value := make([]float64, 1<<n)
	field := []int{0, 0, 1, 1, 2, 2, 2}
	logits := make([]float64, rows.Len())
	for set := range value {
		w := m.Weights
		w.Embedding = append([]float32{}, w.Embedding...)
		for i := range n {
			if set>>i&1 == 1 {
				w.Embedding[i] = base.Values[field[i]]
			}
		}
		dropped, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		dropped.NewScorer().Logits(logits, rows)
		for i, z := range logits {
			value[set] += kind.Of(z, rows.Label[i]) / float64(rows.Len())
		}
	}
	factorial := func(n int) float64 { return math.Gamma(float64(n + 1)) }
	for i := range n {
		phi := 0.0
		for set := range value {
			if set>>i&1 == 0 {
				s := bits.OnesCount(uint(set))
				phi += factorial(s) * factorial(n-1-s) / factorial(n) * (value[set|1<<i] - value[set])
			}
		}
		if math.Abs(phi-local.Phi[i]) > 1e-6 {
			t.Errorf("entry %d: the value is %g in the global game and %g in the games of the rows", i, phi, local.Phi[i])
		}
	}
}

// Over seeds, the mean of the estimates from walks agrees with the exact values. With two or
// more passes, the spread of the estimates agrees with the standard errors. With one pass
// the standard errors also include the differences between rows, so the spread is at most as
// large as they are.
func TestStandardErrorsAreHonest(t *testing.T) {
	for _, name := range []string{estimator.Permutation, estimator.Antithetic} {
		t.Run(name, func(t *testing.T) { honest(t, name) })
	}
}

// honest checks the means and spreads of one estimator.
func honest(t *testing.T, name string) {
	game, rows := small(t, 6)
	exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
	const seeds = 300
	for _, passes := range []int{1, 2, 12} {
		off := make([][]float64, len(exact.Phi))
		squares := make([]float64, len(exact.Phi)) // sums over seeds of the squared standard errors
		beyond, entries := 0, 0
		for seed := range uint64(seeds) {
			r := play(t, game, shapley.Options{Options: estimator.Options{Estimator: name, Passes: passes}, Seed: seed}, rows)
			for i, phi := range r.Phi {
				if r.Count[i/2] == 0 {
					continue
				}
				off[i] = append(off[i], phi-exact.Phi[i])
				squares[i] += float64(r.SE[i]) * float64(r.SE[i])
				entries++
				if math.Abs(phi-exact.Phi[i]) > 4*float64(r.SE[i]) {
					beyond++
				}
			}
		}
		// With two passes and few rows, the standard error of a rare feature is itself
		// uncertain. With many passes it is not.
		if passes > 2 && float64(beyond) > 0.01*float64(entries) {
			t.Errorf("%d passes: %d of %d estimates are off by more than 4 standard errors", passes, beyond, entries)
		}
		for i, off := range off {
			if len(off) == 0 {
				continue
			}
			mean, sd := stat.MeanStdDev(off, nil)
			if math.Abs(mean) > 4*sd/math.Sqrt(seeds) {
				t.Errorf("%d passes, entry %d: the mean error is %g, the spread %g", passes, i, mean, sd)
			}
			said := math.Sqrt(squares[i] / seeds)
			low, high := 0.85, 1.18
			if passes == 1 {
				low = 0
			}
			if ratio := sd / said; ratio < low || ratio > high {
				t.Errorf("%d passes, entry %d: the spread is %.2f times the standard error", passes, i, ratio)
			}
		}
	}
}

// With one pass over rows drawn from a population, the population standard error agrees with
// the spread of the estimates about the population's values.
func TestRowToRowErrorsCoverThePopulation(t *testing.T) {
	game, _ := small(t, 6)
	population := modeltest.Rows(game.Model.Architecture, 20_000, 99)
	truth := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, population)
	const size = 200
	z := make([][]float64, len(truth.Phi))
	for from := 0; from < population.Len(); from += size {
		sample := population.Slice(from, from+size)
		r := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Seed: 3}, &sample)
		for i, phi := range r.Phi {
			z[i] = append(z[i], (phi-truth.Phi[i])/float64(r.PopulationSE[i]))
		}
	}
	for i, z := range z {
		if sd := stat.StdDev(z, nil); sd < 0.75 || sd > 1.3 {
			t.Errorf("entry %d: the spread is %.2f times the standard error", i, sd)
		}
	}
}

// The result does not depend on the number of threads or on how rows are grouped into
// shards.
func TestSumsDoNotDependOnGrouping(t *testing.T) {
	for _, o := range estimatortest.Small() {
		for name, a := range modeltest.Architectures() {
			if o.Estimator != estimator.Exact && o.Validate(a.Players()) == nil { // exact takes too long
				grouping(t, name, a, shapley.Options{Options: o, Seed: 11})
			}
		}
	}
}

func grouping(t *testing.T, name string, a model.Architecture, o shapley.Options) {
	m := modeltest.Random(t, a, 1)
	game := shapley.Game{Model: m, Baseline: baseline(m)}
	cuts := []int{1, 7, 33, 100}
	if !long.All() {
		cuts = cuts[2:]
	}
	rows := modeltest.Rows(a, 250, 1)
	want := play(t, game, o, rows)
	for _, cut := range cuts {
		acc := tally.NewAccumulator(a.Shape(), tally.NewSampling(o.Options, 0).Form(m.Fields()))
		for to := rows.Len(); to > 0; to -= cut { // in reverse order
			part := rows.Slice(max(0, to-cut), to)
			p, err := shapley.Estimate(t.Context(), game, o, &part, cut%4, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := acc.Merge(p); err != nil {
				t.Fatal(err)
			}
		}
		got, err := acc.Result(tally.NewSampling(o.Options, int64(rows.Len())))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s, %s: shards of %d rows give a different result", name, o.Estimator, cut)
		}
	}
}

// Estimate returns an error for invalid options, bad rows and broken models, and stops if its
// context is cancelled.
func TestEstimateRefusals(t *testing.T) {
	game, rows := small(t, 1)
	bad := modeltest.Rows(game.Model.Architecture, 20, 1)
	bad.Features[3*17+1] = 99
	huge := modeltest.Weights(game.Model.Architecture, 1)
	huge.Bias = 1e30
	broken, err := model.New(game.Model.Architecture, huge)
	if err != nil {
		t.Fatal(err)
	}
	big := modeltest.Random(t, model.Architecture{Kind: model.FM, FieldDims: []int{2, 2, 2}, Dim: 7}, 1)
	walk := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}}
	fast := shapley.Options{Options: estimator.Options{Estimator: estimator.Multilinear, Passes: 1, Draws: 2, Endpoints: estimator.Plain}}
	far, large := modeltest.Rows(game.Model.Architecture, 3, 1), modeltest.Rows(game.Model.Architecture, 3, 1)
	far.Label[0], large.Label[0] = 2000, -1000
	for name, c := range map[string]struct {
		game shapley.Game
		o    shapley.Options
		rows *model.Rows
		want string
	}{
		"unknown":        {game, shapley.Options{Options: estimator.Options{Estimator: "magic", Passes: 1}}, rows, "the estimators are"},
		"no passes":      {game, shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation}}, rows, "0 passes"},
		"exact passes":   {game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 2}}, rows, "takes 1"},
		"too big":        {shapley.Game{Model: big, Baseline: big.Zero()}, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows, "21 players"},
		"bad id":         {game, walk, bad, "row 17: field 1 has global id 99"},
		"bad id, fast":   {game, fast, bad, "row 17: field 1 has global id 99"},
		"infinite, fast": {shapley.Game{Model: broken, Baseline: game.Baseline}, fast, rows, "row 0: with nothing dropped: the logit is 1.0000000150474662e+30"},
		"too far":        {shapley.Game{Model: game.Model, Baseline: game.Baseline, Loss: loss.Squared}, walk, far, "row 0: with nothing dropped: the output is"},
		"too far, fast":  {shapley.Game{Model: game.Model, Baseline: game.Baseline, Loss: loss.Squared}, fast, far, "whose squared loss is not a number in [0, 1048576]: divide the labels by a constant"},
		"large":          {shapley.Game{Model: game.Model, Baseline: game.Baseline, Loss: loss.Squared}, walk, large, "whose square overflows: divide the labels by a constant"},
		"infinite":       {shapley.Game{Model: broken, Baseline: game.Baseline}, walk, rows, "row 0: with nothing dropped: the logit is 1.0000000150474662e+30"},
	} {
		_, err := shapley.Estimate(t.Context(), c.game, c.o, c.rows, 1, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := shapley.Estimate(ctx, game, walk, rows, 2, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error after cancellation: %v", err)
	}
}
