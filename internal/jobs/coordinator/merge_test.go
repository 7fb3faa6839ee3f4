package coordinator

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"shaver/internal/data/arrowio"
	"shaver/internal/num/layout"
	"shaver/internal/value/tally"
)

// partialOf returns the partial of a table [features, dim]. About 1/every of the
// features occur in it.
func partialOf(features, dim, every int, seed uint64) *tally.Partial {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &tally.Partial{Shape: layout.Of(features, dim), Rows: 1 << 16, LossFull: 1 << 40, LossEmpty: 1 << 41}
	for f := r.IntN(every); f < features; f += 1 + r.IntN(2*every-1) {
		p.Features = append(p.Features, int32(f))
		p.Count = append(p.Count, 1+r.Int64N(100))
		for range dim {
			p.Sum = append(p.Sum, r.Int64N(1<<40)-1<<39)
			p.Abs, p.Square = append(p.Abs, r.Int64N(1<<40)), append(p.Square, r.Int64N(1<<40))
		}
	}
	p.Check = p.Checksum()
	return p
}

// BenchmarkMerge measures how many bytes of a partial one core decodes, checks and adds
// in a second. The partial has about 151,000 of KDD's features and 60 MB.
func BenchmarkMerge(b *testing.B) {
	const features, dim = 6_019_761, 16
	var partials [][]byte
	for seed := range uint64(2) {
		var data bytes.Buffer
		if err := arrowio.EncodePartial(&data, partialOf(features, dim, 40, seed)); err != nil {
			b.Fatal(err)
		}
		partials = append(partials, data.Bytes())
	}
	sums := tally.NewAccumulator(layout.Of(features, dim), tally.Form{})
	for b.Loop() {
		data := partials[b.N%2]
		p, err := arrowio.DecodePartial(data, layout.Of(features, dim), tally.Form{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := sums.Merge(p); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(partials[0])))
}
