package shapley_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/estimator"
	"shaver/internal/value/estimator/estimatortest"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// couple is a model, a previous model with smaller fields, and rows that both can read, in
// the numbering of each.
type couple struct {
	current, earlier shapley.Game
	rows, previous   *model.Rows
}

// couples returns couples of small models of each kind, by name.
func couples(t testing.TB) map[string]couple {
	all := map[string]couple{}
	add := func(name string, current, earlier *model.Model) {
		c := couple{current: shapley.Game{Model: current, Baseline: baseline(current)}, earlier: shapley.Game{Model: earlier, Baseline: earlier.Zero()}}
		c.previous = modeltest.Rows(earlier.Architecture, 60, 7)
		rows := *c.previous
		rows.Features = slices.Clone(rows.Features)
		from, to := earlier.Offsets(), current.Offsets()
		var fields []int // of the ids of a row
		for j, n := range earlier.Lengths() {
			fields = append(fields, slices.Repeat([]int{j}, n)...)
		}
		for i := range rows.Features {
			j := fields[i%rows.Width]
			rows.Features[i] += to[j] - from[j]
		}
		c.rows = &rows
		all[name] = c
	}
	for name, a := range modeltest.Architectures() {
		grown := a
		grown.FieldDims = slices.Clone(a.FieldDims)
		grown.FieldDims[0] += 2
		grown.FieldDims[a.Fields()-1] += 4
		add(name, modeltest.Random(t, grown, 3), modeltest.Random(t, a, 4))
	}
	deepfm, dcnv2 := modeltest.Architectures()["deepfm"], modeltest.Architectures()["dcnv2-stacked"]
	add("graph", modeltest.Graph(deepfm, modeltest.Weights(deepfm, 3)), modeltest.Graph(deepfm, modeltest.Weights(deepfm, 4)))
	add("other kinds", modeltest.Random(t, deepfm, 3), modeltest.Graph(dcnv2, modeltest.Weights(dcnv2, 4)))
	add("small", modeltest.Random(t, model.Architecture{Kind: model.DeepFM, FieldDims: []int{3, 3, 3}, Dim: 2, Hidden: []int{5}}, 5),
		modeltest.Random(t, model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 3, 2}, Dim: 2, Hidden: []int{5}}, 6))

	earlier := modeltest.LookUps()
	grown := earlier
	grown.FieldDims = []int{4, 3, 6}
	grown.Tables, grown.LookUps = slices.Clone(earlier.Tables), slices.Clone(earlier.LookUps)
	grown.Tables[1].Rows, grown.LookUps[2].Offset = 10, 6
	values := func(n int, seed uint64) []float32 {
		r, v := rand.New(rand.NewPCG(seed, 0)), make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	add("look-ups", quadratic(t, grown, values(grown.Players(), 1), values(grown.Parameters(), 2)), quadratic(t, earlier, values(grown.Players(), 3), values(earlier.Parameters(), 4)))

	lists, wider := modeltest.ListModel("mean", 3), modeltest.Lists() // items and tags have grown
	wider.FieldDims = []int{7, 3, 7, 6}
	wider.Tables[0].Rows, wider.Tables[2].Rows = 7, 6
	m, err := model.New(wider, model.Weights{Embedding: values(wider.Parameters(), 6), Graph: modeltest.ListModel("mean", 5).Weights.Graph})
	if err != nil {
		t.Fatal(err)
	}
	add("lists", m, lists)
	return all
}

// pair returns the partial of a paired job over rows of c.
func (c *couple) pair(t testing.TB, o shapley.Options, rows model.Rows, threads int) *tally.Partial {
	t.Helper()
	p, err := shapley.EstimatePair(t.Context(), c.current, c.earlier, o, &rows, threads, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// works reports whether an estimator works for both models.
func (c *couple) works(o estimator.Options) bool {
	return o.Validate(c.current.Model.Players()) == nil
}

// sums returns the sums of one model in a partial: its losses and residuals, and the lists
// of contributions. The first list has the corrections, if there are any.
func sums(p *tally.Partial) (losses [4]int64, lists [4][]int64) {
	sum := slices.Clone(p.Sum)
	for i, z := range p.Correction {
		sum[i] += z
	}
	return [4]int64{p.LossFull, p.LossEmpty, p.ResidualSquare, p.Shared}, [4][]int64{sum, p.Abs, p.Square, p.CorrectedSquare}
}

func previousSums(p *tally.Partial) (losses [4]int64, lists [4][]int64) {
	return [4]int64{p.PreviousLossFull, p.PreviousLossEmpty, p.PreviousResidualSquare, p.PreviousShared}, [4][]int64{p.PreviousSum, p.PreviousAbs, p.PreviousSquare, p.PreviousCorrectedSquare}
}

// The sums of each model in a paired job equal those of a job of this model alone on the
// same rows, for all estimators. The fields of the previous model may be smaller.
func TestPairEqualsTwoJobs(t *testing.T) {
	compared := map[string]bool{}
	for name, c := range couples(t) {
		for _, o := range estimatortest.Small() {
			if !c.works(o) {
				continue
			}
			compared[o.Estimator] = true
			options := shapley.Options{Options: o, Seed: 9, First: 1}
			p := c.pair(t, options, *c.rows, 3)
			for model, rows := range []*model.Rows{c.rows, c.previous} {
				game, got := []shapley.Game{c.current, c.earlier}[model], []func(*tally.Partial) ([4]int64, [4][]int64){sums, previousSums}[model]
				alone, err := shapley.Estimate(t.Context(), game, options, rows, 2, nil)
				if err != nil {
					t.Fatal(err)
				}
				losses, lists := got(p)
				wantLosses, wantLists := sums(alone)
				if losses != wantLosses || !reflect.DeepEqual(lists, wantLists) {
					t.Errorf("%s, %s: model %d of the pair has the sums %v %v, expected %v %v", name, o.Estimator, model, losses, lists, wantLosses, wantLists)
				}
				if !slices.Equal(p.Count, alone.Count) || model == 0 && !slices.Equal(p.Features, alone.Features) {
					t.Errorf("%s, %s: model %d: features %v occur %v times, expected %v and %v", name, o.Estimator, model, p.Features, p.Count, alone.Features, alone.Count)
				}
			}
			if p.Within != nil || len(p.Fourths) != c.current.Model.Fields() {
				t.Errorf("%s, %s: the partial has the form of an ordinary one", name, o.Estimator)
			}
			e := tally.NewSampling(o, 100)
			e.Paired = true
			a := tally.NewAccumulator(c.current.Model.Shape(), e.Form(c.current.Model.Fields()))
			if err := a.Merge(p); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Check(e); err != nil {
				t.Errorf("%s, %s: %v", name, o.Estimator, err)
			}
		}
	}
	for _, name := range estimatortest.OfValues() {
		if !compared[name] {
			t.Errorf("%s was not compared", name)
		}
	}
}

// A model that is paired with itself has differences of exactly 0.
func TestPairOfOneModel(t *testing.T) {
	for name, c := range couples(t) {
		c.earlier = c.current
		for _, o := range estimatortest.Small() {
			if !c.works(o) {
				continue
			}
			p := c.pair(t, shapley.Options{Options: o, Seed: 9}, *c.rows, 2)
			losses, lists := sums(p)
			previousLosses, previousLists := previousSums(p)
			if losses != previousLosses || !reflect.DeepEqual(lists, previousLists) {
				t.Errorf("%s, %s: the sums of both models differ", name, o.Estimator)
			}
			for _, differences := range [][]int64{p.DifferenceSquare, p.AbsDifferenceSquare} {
				if slices.ContainsFunc(differences, func(v int64) bool { return v != 0 }) {
					t.Errorf("%s, %s: the differences are %v", name, o.Estimator, differences)
				}
			}
			entries := c.current.Model.FeatureEntries()
			for field, f := range p.Fourths {
				if entries[field] == 0 && f == (tally.Powers{}) {
					continue // another field has the rows
				}
				if f.Difference != (tally.Uint192{}) || f.New != f.Previous || f.New == (tally.Uint192{}) {
					t.Errorf("%s, %s: field %d has the fourth powers %v", name, o.Estimator, field, f)
				}
			}
		}
	}
}

// Any division of the rows into shards and goroutines gives the same sums.
func TestCutsOfPairs(t *testing.T) {
	all := couples(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"deepfm", "dcn-mix", "graph", "look-ups", "other kinds"} {
		c := all[name]
		for _, o := range []estimator.Options{{Estimator: estimator.Antithetic, Passes: 2}, {Estimator: estimator.Multilinear, Passes: 1, Draws: 4}} {
			o.SetDefaults()
			if !c.works(o) {
				continue
			}
			merge := func(cuts []int) *tally.Accumulator {
				a := tally.NewAccumulator(c.current.Model.Shape(), tally.Form{Paired: true, Fields: c.current.Model.Fields()})
				for _, k := range r.Perm(len(cuts) - 1) {
					if err := a.Merge(c.pair(t, shapley.Options{Options: o, Seed: 3}, c.rows.Slice(cuts[k], cuts[k+1]), 1+r.IntN(3))); err != nil {
						t.Fatal(err)
					}
				}
				return a
			}
			want := merge([]int{0, 60})
			for _, cuts := range [][]int{{0, 1, 60}, {0, 23, 24, 49, 60}, {0, 30, 60}} {
				if got := merge(cuts); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %s: rows cut at %v have other sums", name, o.Estimator, cuts)
				}
			}
		}
	}
}

func TestPairRefuses(t *testing.T) {
	all := couples(t)
	o := shapley.Options{Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}}
	for want, change := range map[string]func(c *couple){
		"row 5: field 1 has global id 0, outside":                                                           func(c *couple) { c.rows.Features[5*3+1] = 0 },
		"row 7: field 2 has global id 14, the value 5 of the field: the previous model knows only 5 values": func(c *couple) { c.rows.Features[7*3+2] = 14 },
		"table 0 of the previous model has 3 columns, expected 2":                                           func(c *couple) { c.current = all["deepfm-one"].current },
		"row 2: previous model: with nothing dropped": func(c *couple) {
			w := c.earlier.Model.Weights
			w.Bias = 1e30
			m, err := model.New(c.earlier.Model.Architecture, w)
			if err != nil {
				t.Fatal(err)
			}
			c.earlier.Model = m
		},
	} {
		c := all["deepfm"]
		rows := *c.rows
		rows.Features = slices.Clone(rows.Features)
		c.rows = &rows
		change(&c)
		// With one thread, row 2 is the first whose loss is infinite.
		_, err := shapley.EstimatePair(t.Context(), c.current, c.earlier, o, c.rows, 1, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}
