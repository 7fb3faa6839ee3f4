package shapley_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/data/arrowio"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/shapley"
	"shaver/internal/value/tally"
)

// weightedRows returns rows whose weights are up to 1000, of which some are fresh, and the same rows repeated as often as they count.
func weightedRows(a model.Architecture) (rows, repeated *model.Rows, fresh *estimator.Fresh) {
	const times = 3
	rows = modeltest.Rows(a, 50, 4) // more than a batch
	fresh = &estimator.Fresh{Weight: times, Rows: [][2]int64{{rows.Number[5], rows.Number[9]}}}
	repeated = &model.Rows{}
	var weights []int32
	for r, number := range rows.Number {
		w := []int32{1, 1, 2, 7, 40}[r%5]
		if r == 11 {
			w = 1000
		}
		for range int64(w) * fresh.Times(number) {
			repeated.Append(rows, r)
		}
		weights = append(weights, w)
	}
	rows.Weight = weights
	return rows, repeated, fresh
}

// options returns options of an estimator, with two passes if it has passes, and the weights of weightedRows.
func weightedOptions(name string, fresh *estimator.Fresh) (o, plain shapley.Options) {
	o = shapley.Options{Options: estimator.Options{Estimator: name, Passes: 1}, Seed: 5}
	if t := o.Traits(); !t.Exact && !t.Draws {
		o.Passes = 2
	}
	o.SetDefaults()
	plain = o
	o.Fresh, o.Weights = fresh, estimator.Weights{Fresh: fresh.Weight, Rows: 1000}
	return o, plain
}

// A row of weight w counts like w equal rows: sums of contributions, of their magnitudes and corrections, and losses are the same integers,
// and so are their means. Squares differ by their rounding. This holds for each estimator, and for fresh rows, whose weight multiplies that of the row.
func TestWeightedRows(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	g := shapley.Game{Model: modeltest.Random(t, a, 3)}
	g.Baseline = baseline(g.Model)
	rows, repeated, fresh := weightedRows(g.Model.Architecture)
	for _, name := range estimator.Names() {
		o, plain := weightedOptions(name, fresh)
		merged := func(o shapley.Options, rows *model.Rows) (*tally.Partial, *tally.Accumulator, tally.Sampling) {
			p, err := shapley.Estimate(t.Context(), g, o, rows, 2, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			e := tally.NewSampling(o.Options, int64(rows.Len()))
			e.Weights = o.Weights
			sums := tally.NewAccumulator(g.Model.Shape(), e.Form(g.Model.Fields()))
			if err := sums.Merge(p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return p, sums, e
		}
		got, sums, e := merged(o, rows)
		want, all, once := merged(plain, repeated)
		if got.Rows != int64(rows.Len()) || got.Fresh != 0 || got.Weights.Sum != want.Rows || got.LossFull != want.LossFull || got.LossEmpty != want.LossEmpty || got.Shared != want.Shared {
			t.Errorf("%s: %d rows of weight %d, losses %d and %d; expected %d, %d and %d", name, got.Rows, got.Weights.Sum, got.LossFull, got.LossEmpty, want.Rows, want.LossFull, want.LossEmpty)
		}
		if !o.Traits().Ranks {
			for k, list := range [][2][]int64{{got.Sum, want.Sum}, {got.Abs, want.Abs}, {got.Correction, want.Correction}} {
				if !slices.Equal(list[0], list[1]) {
					t.Errorf("%s: list %d differs from that of repeated rows", name, k)
				}
			}
			values, err := sums.Result(e)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			shape, expected := g.Model.Shape(), tally.NewValues(g.Model.Parameters())
			for f := range shape.Rows() { // without the check whether the estimator is biased, for which rows must be independent
				all.Values(f, once, expected.Part(shape.Row(f)))
			}
			if !slices.Equal(values.Phi, expected.Phi) || !slices.Equal(values.Abs, expected.Abs) || values.Weight != want.Rows {
				t.Errorf("%s: the values differ from those of repeated rows", name)
			}
			for i, rms := range expected.RMS {
				if off := math.Abs(float64(values.RMS[i] - rms)); off > 1e-3*float64(rms)+1e-6 {
					t.Errorf("%s: the root mean square of entry %d is %v, expected %v", name, i, values.RMS[i], rms)
				}
			}
			continue
		}
		shape := g.Model.Shape()
		for row := range shape.Rows() {
			from, to := shape.Row(row)
			d := to - from
			terms := make([]float64, 4*d)
			sums.Terms(row, terms[:d], terms[d:2*d])
			all.Terms(row, terms[2*d:3*d], terms[3*d:])
			for c := range d {
				if unit := float64(int64(1) << o.Weights.Shift()); math.Abs(terms[c]-terms[2*d+c]) > 1e-6 || math.Abs(unit*terms[d+c]-terms[3*d+c]) > 1e-6 {
					t.Errorf("entry %d has the terms %v, expected those of repeated rows", from+c, terms)
				}
			}
		}
	}
}

// The partial of weighted rows does not depend on how they are divided: between goroutines, or into shards that are merged, added up, or stored.
// Weights of 1 give the bytes of rows without weights. A weight above that of the job is an error.
func TestWeightedRowsInParts(t *testing.T) {
	a := modeltest.Architectures()["deepfm"]
	g := shapley.Game{Model: modeltest.Random(t, a, 3)}
	g.Baseline = baseline(g.Model)
	rows, _, fresh := weightedRows(g.Model.Architecture)
	for _, name := range estimator.Names() {
		o, plain := weightedOptions(name, fresh)
		part := func(o shapley.Options, rows model.Rows, threads int) *tally.Partial {
			p, err := shapley.Estimate(t.Context(), g, o, &rows, threads, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return p
		}
		bytesOf := func(p *tally.Partial) []byte {
			var data bytes.Buffer
			if err := arrowio.EncodePartial(&data, p); err != nil {
				t.Fatal(err)
			}
			return data.Bytes()
		}
		whole := bytesOf(part(o, *rows, 1))
		if !bytes.Equal(whole, bytesOf(part(o, *rows, 5))) {
			t.Errorf("%s: five goroutines give another partial", name)
		}
		var sum *tally.Partial
		for from := 0; from < rows.Len(); from += 7 {
			p := part(o, rows.Slice(from, min(from+7, rows.Len())), 1)
			var dropped layout.Mask
			if o.Traits().Ranks {
				dropped = p.Dropped
			}
			p, err := arrowio.DecodePartial(bytesOf(p), p.Shape, p.Form(), dropped)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if sum == nil {
				sum = p
			} else {
				sum = tally.Combine(sum, p)
			}
		}
		if !bytes.Equal(whole, bytesOf(sum)) {
			t.Errorf("%s: shards of 7 rows give another sum", name)
		}
		ones := *rows
		ones.Weight = nil
		want := bytesOf(part(plain, ones, 1))
		ones.Weight = slices.Repeat([]int32{1}, rows.Len())
		if !bytes.Equal(want, bytesOf(part(plain, ones, 2))) {
			t.Errorf("%s: weights of 1 give another partial", name)
		}
		if _, err := shapley.Estimate(t.Context(), g, plain, rows, 1, nil); err == nil || !strings.Contains(err.Error(), "has the weight") {
			t.Errorf("%s: a job without weights takes rows with weights: %v", name, err)
		}
	}
}
