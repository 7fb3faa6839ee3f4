package arrowio

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"shaver/internal/layout"
	"shaver/internal/tally"
)

// BenchmarkPacking measures how fast partials are packed and unpacked. Their sums have as many bits
// as in a job at the shape of KDD. Speeds are in bytes of sums, which take 8 bytes each.
func BenchmarkPacking(b *testing.B) {
	const features, dim = 3600, 16
	random := rand.New(rand.NewPCG(1, 2))
	p := &tally.Partial{Shape: layout.Of(features, dim), Rows: 2}
	for f := range features {
		p.Features, p.Count = append(p.Features, int32(f)), append(p.Count, 2)
		for range dim {
			v := random.Int64N(1<<31) - 1<<30
			p.Sum, p.Abs, p.Square = append(p.Sum, v), append(p.Abs, max(v, -v)+2*random.Int64N(1<<30)), append(p.Square, random.Int64N(1<<31))
		}
	}
	data := encodePartial(b, p)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(p.Bytes())
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			if err := EncodePartial(&out, p); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(p.Bytes())
		for b.Loop() {
			if _, err := DecodePartial(data, p.Shape, tally.Form{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
