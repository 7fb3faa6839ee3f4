package shapley

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/value/tally"
)

// Whatever the contributions are, they sum exactly to what the players are worth after the
// residual was shared out. Players whose contribution is 0 get nothing, and the others get
// shares in proportion to their scores.
func TestShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a := model.Architecture{Kind: model.DeepFM, FieldDims: []int{2, 3, 4}, Dim: 3, Hidden: []int{5}}
	s := newSharing(modeltest.Random(t, a, 1))
	players := a.Players()
	entries, baseline := make([]float32, players), make([]float32, players)
	for i := range 200 {
		played := tally.Played{LossFull: r.Int64N(1 << 40), LossEmpty: r.Int64N(1 << 40), Sum: make([]int64, players)}
		for p := range players {
			entries[p], baseline[p] = float32(r.NormFloat64()), float32(r.IntN(3))
			if r.IntN(4) == 0 {
				entries[p] = baseline[p]
			} else if played.Sum[p] = r.Int64N(1<<41) - 1<<40; r.IntN(9) == 0 || i == 0 {
				played.Sum[p] = 0
			}
		}
		before, passes := append([]int64(nil), played.Sum...), 1+i%3
		s.share(&played, passes, entries, baseline)
		sum, shared := int64(0), int64(0)
		for p, v := range played.Sum {
			sum += v
			shared += v - before[p]
			null := entries[p] == baseline[p] || before[p] == 0 && i > 0
			if null && v != 0 {
				t.Fatalf("row %d: null player %d has the value %d", i, p, v)
			}
			if want := float64(played.Shared) * s.score[p] / total(s.score); !null && (float64(v-before[p])-want > float64(players) || want-float64(v-before[p]) > float64(players)) {
				t.Fatalf("row %d: player %d gets %d, expected %g", i, p, v-before[p], want)
			}
		}
		if due := (played.LossEmpty - played.LossFull) * int64(passes); sum != due || shared != played.Shared {
			t.Fatalf("row %d: the contributions sum to %d, expected %d; shared %d, reported %d", i, sum, due, shared, played.Shared)
		}
	}
	played := tally.Played{LossEmpty: 5, Sum: make([]int64, players)}
	s.share(&played, 1, baseline, baseline)
	if played.Shared != 0 {
		t.Errorf("a row without players that matter shares %d", played.Shared)
	}
}

// Where a small score does not mean a small error, half of what the players get is the same for all of them that have a score.
func TestEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.), rapid.Float64Range(1e-3, 10)), 1, 40).Draw(t, "scores")
		s := sharing{score: slices.Clone(scores)}
		got, having := s.even(), 0.0
		for _, v := range scores {
			if v > 0 {
				having++
			}
		}
		for i, v := range scores {
			want := 0.0
			if v > 0 {
				want = v/total(scores)/2 + 1/having/2
			}
			if total(scores) > 0 && math.Abs(s.score[i]/got-want) > 1e-12 {
				t.Fatalf("player %d of the scores %v gets %g, expected %g", i, scores, s.score[i]/got, want)
			}
		}
		if math.Abs(got-total(s.score)) > 1e-12*got {
			t.Fatalf("the sum of %v is not %g", s.score, got)
		}
	})
}

func total(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum
}
