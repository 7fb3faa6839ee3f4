package compact

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkEmbed reads the embeddings of 64 random rows of a table of 2,000,000
// features, 5% of whose entries are kept, and of the same table dense.
func BenchmarkEmbed(b *testing.B) {
	sizes, dim := []int{500_000, 1_000_000, 400_000, 99_000, 1000}, 16
	r := rand.New(rand.NewPCG(1, 2))
	table, dropped := make([]float32, 2_000_000*dim), make([]bool, 2_000_000*dim)
	for i := range table {
		table[i], dropped[i] = r.Float32(), r.Float64() < 0.95
	}
	parts, err := Encode(sizes, dim, table, dropped, make([]float32, len(sizes)*dim), Float32)
	if err != nil {
		b.Fatal(err)
	}
	t, err := New(sizes, dim, Float32, parts)
	if err != nil {
		b.Fatal(err)
	}
	const rows = 1 << 16
	features := make([]int32, 0, rows*len(sizes))
	for range rows {
		first := 0
		for _, size := range sizes {
			features = append(features, int32(first+r.IntN(size)))
			first += size
		}
	}
	const batch = 64
	x := make([]float32, batch*len(sizes)*dim)
	row := func(i int) []int32 { return features[i*batch%rows*len(sizes):][:batch*len(sizes)] }
	b.Run("compact", func(b *testing.B) {
		for i := range b.N {
			t.Embed(x, row(i))
		}
	})
	b.Run("dense", func(b *testing.B) {
		for i := range b.N {
			for j, f := range row(i) {
				copy(x[j*dim:(j+1)*dim], table[int(f)*dim:])
			}
		}
	})
}
