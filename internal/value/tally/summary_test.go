package tally

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"shaver/internal/num/layout"
)

// Accumulators of ranges of the features give the values of one accumulator of all features, and
// their summaries add up to its summary, also if sums leave int64.
func TestRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for name, shape := range map[string]layout.Shape{"one table": layout.Of(40, 3), "tables": layout.Of(20, 3).And(20, 1)} {
		for _, form := range []Form{{}, {Within: true}, {Corrected: true}} {
			e := Sampling{Passes: 1, Walks: 2, Rows: 100, Corrected: form.Corrected}
			if form.Within {
				e.Passes = 2
			}
			whole := NewAccumulator(shape, form)
			var partials []*Partial
			for range 5 {
				p := &Partial{Shape: shape, Rows: 12, LossFull: random.Int64N(1 << 40), LossEmpty: random.Int64N(1 << 40), ResidualSquare: random.Int64N(1 << 62), Shared: random.Int64N(1 << 30)}
				for f := range shape.Rows() {
					if random.IntN(4) == 0 {
						continue
					}
					p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 1+random.Int64N(12))
					from, to := shape.Row(f)
					lists := p.listsOf(form)
					for l, list := range lists[:Lists(form)] {
						for range to - from {
							*list = append(*list, random.Int64N(math.MaxInt64))
							if (l == sumList || l == form.CorrectionList()) && random.IntN(2) == 0 {
								(*list)[len(*list)-1] *= -1
							}
						}
					}
				}
				if err := whole.Merge(p); err != nil {
					t.Fatal(err)
				}
				if own := p.Summary(); len(partials) == 0 && !reflect.DeepEqual(own, whole.Summary()) {
					t.Errorf("%s, %+v: a partial has the summary %+v, alone in an accumulator %+v", name, form, own, whole.Summary())
				}
				partials = append(partials, p)
			}
			for _, n := range []int{1, 2, 5, 60} {
				starts := shape.Cut(n)
				var sum *Summary
				for i := range n {
					from, to := starts[i], starts[i+1]
					a := NewAccumulator(shape.Part(from, to), form)
					for _, p := range partials {
						if err := a.Merge(p.Part(from, to)); err != nil {
							t.Fatalf("%s, %+v, range %d of %d: %v", name, form, i, n, err)
						}
					}
					for f := from; f < to; f++ {
						left, right := shape.Row(f)
						got, want := NewValues(right-left), NewValues(right-left)
						a.Values(f-from, e, got)
						whole.Values(f, e, want)
						if a.Count(f-from) != whole.Count(f) || !reflect.DeepEqual(got, want) {
							t.Fatalf("%s, %+v, range %d of %d: feature %d has %+v, expected %+v", name, form, i, n, f, got, want)
						}
					}
					if sum == nil {
						sum = a.Summary()
					} else if err := sum.Add(a.Summary()); err != nil {
						t.Fatal(err)
					}
				}
				if want := whole.Summary(); *sum != *want {
					t.Errorf("%s, %+v, %d ranges: summary %+v, expected %+v", name, form, n, sum, want)
				}
			}
			other := whole.Summary()
			other.Rows++
			if whole.Summary().Add(other) == nil {
				t.Error("the summaries of different rows were added")
			}
		}
	}
}
