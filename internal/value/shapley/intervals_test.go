package shapley_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/loss"
	"shaver/internal/onnx/graph"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// plantedLog is a log whose law is known. The four fields of a row are independent and uniform, and the label follows a
// DeepFM. The model that is scored differs from it in field 2, on which the label does not depend. It has learned this field by
// chance, as an overfitted model does. It reads the same for every value of field 3.
type plantedLog struct {
	model *model.Model
	rows  *model.Rows // every row once
	click []float64   // probability of the label 1 of each of rows
}

func newPlantedLog(t *testing.T) *plantedLog {
	t.Helper()
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{6, 5, 4, 3}, Dim: 3, Hidden: []int{7}}
	w := modeltest.Weights(a, 2)
	offsets := a.Offsets()
	constant := func(field int) { // all features of the field are the same
		first := int(offsets[field])
		for f := first; f < first+a.FieldDims[field]; f++ {
			copy(w.Embedding[f*a.Dim:(f+1)*a.Dim], w.Embedding[first*a.Dim:])
			w.FirstOrder[f] = w.FirstOrder[first]
		}
	}
	build := func() *model.Model {
		m, err := model.New(a, w)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	constant(2)
	constant(3)
	law := build()
	w.Embedding, w.FirstOrder = slices.Clone(w.Embedding), slices.Clone(w.FirstOrder)
	r := rand.New(rand.NewPCG(3, 4))
	for f := offsets[2]; f < offsets[3]; f++ {
		w.FirstOrder[f] += float32(.3 * r.NormFloat64())
	}
	l := &plantedLog{model: build(), rows: &model.Rows{Width: a.Fields()}}
	for n := range a.FieldDims[0] * a.FieldDims[1] * a.FieldDims[2] * a.FieldDims[3] {
		for j, size := range a.FieldDims {
			l.rows.Features = append(l.rows.Features, offsets[j]+int32(n%size))
			n /= size
		}
		l.rows.Number, l.rows.Label = append(l.rows.Number, 0), append(l.rows.Label, 0)
	}
	l.click = make([]float64, l.rows.Len())
	law.NewScorer().Logits(l.click, l.rows)
	for i, logit := range l.click {
		l.click[i] = 1 / (1 + math.Exp(-logit))
	}
	return l
}

// draw returns n random rows with the given global numbers.
func (l *plantedLog) draw(r *rand.Rand, n int, first int64) *model.Rows {
	rows := &model.Rows{}
	for k := range n {
		i := r.IntN(l.rows.Len())
		rows.Append(l.rows, i)
		rows.Number[k] = first + int64(k)
		if r.Float64() < l.click[i] {
			rows.Label[k] = 1
		}
	}
	return rows
}

// values returns the entries of shapley.FieldLayout with pairs, by the definition, for all rows and all rows in place of
// absent fields.
func (l *plantedLog) values() []float64 {
	dims := l.model.FieldDims
	players, logits := len(dims), make([]float64, l.rows.Len())
	l.model.NewScorer().Logits(logits, l.rows)
	mean := make([]float64, 1<<players) // loss, by the set of present fields
	for set := range mean {
		for i, click := range l.click {
			for other := range l.click {
				at, x, b, stride := 0, i, other, 1
				for j, size := range dims {
					if set>>j&1 == 1 {
						at += stride * (x % size)
					} else {
						at += stride * (b % size)
					}
					x, b, stride = x/size, b/size, stride*size
				}
				mean[set] += loss.Logistic.Of(logits[at], 0) - click*logits[at]
			}
		}
		mean[set] /= float64(len(l.click)) * float64(len(l.click))
	}
	entries := make([]float64, players*players)
	for set, without := range mean {
		for i := range players {
			s := bits.OnesCount(uint(set))
			if set>>i&1 == 1 {
				continue
			}
			entries[i*players+i] += (without - mean[set|1<<i]) / (float64(players) * binomial(players-1, s))
			for j := range i {
				if set>>j&1 == 0 { // 2/P of the index
					second := mean[set|1<<i] + mean[set|1<<j] - without - mean[set|1<<i|1<<j]
					second *= 2 / (float64(players) * float64(players-1) * binomial(players-2, s))
					entries[j*players+i] += second
					entries[i*players+j] -= second
				}
			}
		}
	}
	return entries
}

// The 95% intervals of the fields of a planted log, and of their pairs, hold the true values in about 95% of the samples, for
// exact values and for walks. The useful fields look useful in nearly all samples. A useless field that the model reads has the value 0,
// because that of another row is as good. It looks useful in about 2.5% of the samples. One that the model does not read
// has the value 0 in all of them.
func TestFieldIntervals(t *testing.T) {
	long.Heavy(t)
	const drawn, samples, background, overfitted, unread = 400, 400, 1024, 2, 3
	l := newPlantedLog(t)
	want, players := l.values(), l.model.Fields()
	if want[0] < .01 || want[1+players] < .01 || math.Abs(want[overfitted*(players+1)]) > 1e-12 {
		t.Fatalf("the planted values are %v", want)
	}
	for _, name := range []string{estimator.Exact, estimator.Antithetic} {
		r, held, useful := rand.New(rand.NewPCG(7, 8)), make([]int, len(want)), make([]int, players)
		_, factor := tally.NewSampling(estimator.Options{Estimator: name, Passes: 1}, drawn).Interval(drawn, drawn)
		for sample := range samples {
			fields := &shapley.Fields{Background: l.draw(r, background, 0), Pairs: true}
			rows := l.draw(r, drawn, int64(sample*drawn)) // each number draws its own background row and order
			result := valuesOf(t, shapley.Game{Model: l.model, Loss: loss.Logistic, Fields: fields}, name, 1, rows)
			for e, phi := range result.Phi {
				half := factor * float64(result.PopulationSE[e])
				if math.Abs(phi-want[e]) <= half {
					held[e]++
				}
				i, j := e/players, e%players
				if i == j && phi > half {
					useful[i]++
				}
				if (i == unread || j == unread) && (phi != 0 || half != 0) {
					t.Fatalf("%s: entry %d, %d of the unread field is %v +- %v", name, i, j, phi, half)
				}
			}
		}
		if useful[0] < samples*.95 || useful[1] < samples*.95 || useful[overfitted] > samples/20 {
			t.Errorf("%s: the fields look useful in %v of %d samples", name, useful, samples)
		}
		for e, n := range held {
			if rate := float64(n) / samples; e/players < unread && e%players < unread && (rate < .92 || rate > .98) {
				t.Errorf("%s: the intervals of entry %d, %d hold in %.1f%% of %d samples", name, e/players, e%players, 100*rate, samples)
			}
		}
		t.Logf("%s: true values %.5f; held %v, looks useful %v", name, want, held, useful)
	}
}

// rounded returns a model of Kind Graph whose logit jumps, because the network rounds its hidden
// units. Its weights are random.
func rounded(t *testing.T, seed uint64) *model.Model {
	t.Helper()
	a := model.Architecture{Kind: model.Graph, FieldDims: []int{20, 20, 20, 20}, Dim: 2}
	b, r := new(modeltest.Builder), rand.New(rand.NewPCG(seed, 6))
	weights := func(n int) []float32 {
		w := make([]float32, n)
		for i := range w {
			w[i] = float32(.6 * r.NormFloat64())
		}
		return w
	}
	head := &model.GraphHead{Graph: &b.Graph}
	for j := range a.FieldDims {
		head.LookUps = append(head.LookUps, b.AddInput(fmt.Sprint("field ", j), graph.Float, []int{1, a.Dim}))
	}
	x := b.Node("Concat", graph.Attributes{"axis": int64(1)}, head.LookUps...)
	x = b.Node("Round", nil, b.Linear("hidden", x, &model.Linear{In: 8, Out: 8, Weight: weights(64), Bias: weights(8)}, true))
	b.Output = b.Linear("output", x, &model.Linear{In: 8, Out: 1, Weight: weights(8), Bias: weights(1)}, false)
	m, err := model.New(a, model.Weights{Embedding: weights(a.Features() * a.Dim), Graph: head})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The 95% intervals of debiased hold for models whose logits jump, from estimator.JumpPasses passes
// on. Small entries of these models cross steps, so a choice of flips by the squares of entries alone misses what they do.
func TestIntervalsOfJumps(t *testing.T) {
	long.Heavy(t)
	if modeltest.DIN(6, 2, 1).Jumps() {
		t.Error("DIN jumps")
	}
	missed, all := map[int]int{}, 0
	passes := []int{1, estimator.JumpPasses, 10 * estimator.JumpPasses}
	for network := range uint64(8) {
		m := rounded(t, 11+network)
		if !m.Jumps() {
			t.Fatal("a network that rounds does not jump")
		}
		rows := modeltest.Rows(m.Architecture, 400, 1)
		game := shapley.Game{Model: m, Baseline: baseline(m)}
		exact := play(t, game, shapley.Options{Options: estimator.Options{Estimator: estimator.Exact, Passes: 1}}, rows)
		for seed := range uint64(5) {
			for _, n := range passes {
				o := estimator.Options{Estimator: estimator.Debiased, Passes: n}
				o.SetDefaults()
				result, s := play(t, game, shapley.Options{Options: o, Seed: seed}, rows), tally.NewSampling(o, int64(rows.Len()))
				for i, phi := range result.Phi {
					factor, _ := s.Interval(result.Count[i/2], int64(rows.Len()))
					if !(math.Abs(phi-exact.Phi[i]) <= factor*float64(result.SE[i])) {
						missed[n]++
					}
				}
			}
			all += len(exact.Phi)
		}
	}
	for _, n := range passes {
		rate := float64(missed[n]) / float64(all)
		t.Logf("%d passes: %.1f%% of %d intervals do not hold", n, 100*rate, all)
		if n >= estimator.JumpPasses && rate > .07 {
			t.Errorf("with %d passes, %d of %d intervals do not hold", n, missed[n], all)
		}
	}
}
