package tally

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"shaver/internal/num/layout"
)

// The partials of two groups of rows combine to the partial of all rows, also if the tables have
// rows of different widths and if there are corrections.
func TestCombine(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	for name, shape := range map[string]layout.Shape{"one table": layout.Of(40, 3), "tables": layout.Of(20, 3).And(20, 1)} {
		for _, form := range []Form{{}, {Within: true}, {Corrected: true}, {Within: true, Corrected: true}} {
			builders := [3]*Builder{NewBuilder(shape, 1, form), NewBuilder(shape, 1, form), NewBuilder(shape, 1, form)}
			for row := range 60 {
				features := []int32{int32(random.IntN(10)), 10 + int32(random.IntN(30))}
				played := &Played{LossFull: random.Int64N(1 << 36)}
				var within []int64
				for _, f := range features {
					from, to := shape.Row(int(f))
					for range to - from {
						played.Sum = append(played.Sum, random.Int64N(1<<31)-1<<30)
						if form.Corrected {
							played.Correction = append(played.Correction, random.Int64N(1<<31)-1<<30)
						}
						if form.Within {
							within = append(within, random.Int64N(1<<31))
						}
					}
				}
				for _, b := range []*Builder{builders[0], builders[1+row%7%2]} {
					if err := b.Add(features, played, within); err != nil {
						t.Fatal(err)
					}
				}
			}
			var partials [3]*Partial
			for i, b := range builders {
				partials[i] = b.Partial()
			}
			got := Combine(partials[1], partials[2])
			if !reflect.DeepEqual(got, partials[0]) {
				t.Errorf("%s, %+v: combined to\n%+v, want\n%+v", name, form, got, partials[0])
			}
			if err := got.Validate(&shape, form); err != nil {
				t.Errorf("%s, %+v: %v", name, form, err)
			}
		}
	}
}
