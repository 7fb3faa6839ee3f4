package compact

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// kdd has the sizes of the fields of a model of KDD's size.
var kdd = []int{100, 20_000, 300_000, 14_000, 4, 4, 1_200_000, 500_000, 800_000, 700_000, 2_485_653}

// BenchmarkEmbed reads the embeddings of 64 random rows, 16 at a time, from a table of
// KDD's size. It takes turns between the compact table of float32, the one whose rows have
// quantizers of 2 to 8 bits, and the same table stored dense, and reports the median times. Before each measurement it reads weights, as a network
// does, which evicts the table from the caches.
func BenchmarkEmbed(b *testing.B) {
	sizes, dim := kdd, 16
	features := 0
	for _, size := range sizes {
		features += size
	}
	r := rand.New(rand.NewPCG(1, 2))
	table, dropped := make([]float32, features*dim), make([]bool, features*dim)
	for i := range table {
		table[i] = r.Float32()
	}
	const rows, batch, tile = 1 << 14, 64, 16
	var ids []int32
	for range rows {
		first := 0
		for _, size := range sizes {
			ids = append(ids, int32(first+r.IntN(size)))
			first += size
		}
	}
	x := make([]float32, tile*len(sizes)*dim)
	weights, sum := make([]float32, 700_000), float32(0)
	timed := func(turn int, embed func(features []int32)) time.Duration {
		for _, w := range weights {
			sum += w
		}
		ids := ids[turn*batch%rows*len(sizes):][:batch*len(sizes)]
		start := time.Now()
		for part := range slices.Chunk(ids, tile*len(sizes)) {
			embed(part)
		}
		return time.Since(start)
	}
	for _, sparsity := range []float32{0.8, 0.9, 0.95, 0.99} {
		for i := range dropped {
			dropped[i] = r.Float32() < sparsity
		}
		parts, err := Encode(plain(dim, sizes...), table, dropped, plain(dim, sizes...).Zero(), Float32)
		if err != nil {
			b.Fatal(err)
		}
		t, err := New(plain(dim, sizes...), Float32, parts)
		if err != nil {
			b.Fatal(err)
		}
		p := &Palette{Rows: make([]uint8, features)}
		for _, bits := range []int{2, 3, 4, 8} {
			p.Quantizers = append(p.Quantizers, Quantizer{Bits: bits, Step: .1})
		}
		for i := range p.Rows {
			p.Rows[i] = uint8(r.IntN(len(p.Quantizers)))
		}
		if parts, err = EncodeMixed(plain(dim, sizes...), table, dropped, plain(dim, sizes...).Zero(), p); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		m, err := New(plain(dim, sizes...), Mixed, parts)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("New takes %v for %d bytes of positions and %d of values", time.Since(begin), len(parts.Positions), len(parts.Values))
		b.Run(fmt.Sprint(sparsity), func(b *testing.B) {
			var compact, mixed, dense []time.Duration
			for i := range b.N {
				compact = append(compact, timed(i, func(features []int32) { t.Embed(x, features) }))
				mixed = append(mixed, timed(i, func(features []int32) { m.Embed(x, features) }))
				dense = append(dense, timed(i, func(features []int32) {
					for j, f := range features {
						copy(x[j*dim:(j+1)*dim], table[int(f)*dim:])
					}
				}))
			}
			slices.Sort(compact)
			slices.Sort(mixed)
			slices.Sort(dense)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(compact[b.N/2].Nanoseconds())/1e3, "compact-µs")
			b.ReportMetric(float64(mixed[b.N/2].Nanoseconds())/1e3, "mixed-µs")
			b.ReportMetric(float64(dense[b.N/2].Nanoseconds())/1e3, "dense-µs")
		})
	}
	_ = sum
}

// BenchmarkLayers compares the tables of four layers at KDD's size with the tables that Encode makes for each mask alone. The
// entries that a mask keeps are random ones of all rows, or of half of them.
func BenchmarkLayers(b *testing.B) {
	a := plain(16, kdd...)
	table, masks, sparsities := make([]float32, a.Parameters()), make([][]bool, 4), []float32{.99, .95, .9, .8}
	for k := range masks {
		masks[k] = make([]bool, len(table))
	}
	for _, rows := range []float32{1, 2} { // one row of these keeps entries
		r := rand.New(rand.NewPCG(1, 2))
		lucky := false
		for i := range table {
			if i%16 == 0 {
				lucky = rows*r.Float32() < 1
			}
			table[i] = r.Float32()
			u := r.Float32()
			for k, s := range sparsities {
				masks[k][i] = !lucky || u >= rows*(1-s)
			}
		}
		for _, v := range []Encoding{Float32, Float16} {
			layers, err := EncodeLayers(a, table, masks, a.Zero(), v)
			if err != nil {
				b.Fatal(err)
			}
			bytes, text := 0, fmt.Sprintf("%s, one of %v rows:", v, rows)
			for k := range layers {
				bytes += layers[k].bytes()
				one, err := Encode(a, table, masks[k], a.Zero(), v)
				if err != nil {
					b.Fatal(err)
				}
				text += fmt.Sprintf(" %.3f", float64(bytes)/float64(len(one.Rows)+len(one.Columns)+len(one.Values)))
			}
			b.Log(text)
		}
	}
}

// BenchmarkEmbedWords takes turns between tables of Mixed of which no field, the largest one, and every large one has 16 words. It
// reads 64 random rows of 16 columns for each look-up, and reports the median times.
func BenchmarkEmbedWords(b *testing.B) {
	a := plain(16, kdd...)
	r := rand.New(rand.NewPCG(1, 2))
	entries, dropped := make([]float32, a.Parameters()), make([]bool, a.Parameters())
	for i := range entries {
		entries[i], dropped[i] = r.Float32(), r.Float32() < .95
	}
	p := &Palette{Quantizers: []Quantizer{{Bits: 4, Step: .06}, {Bits: 8, Step: .004}}, Rows: make([]uint8, a.Features())}
	for i := range p.Rows {
		p.Rows[i] = uint8(r.IntN(2))
	}
	names := []string{"one-µs", "largest-µs", "large-µs"}
	var tables []*Table
	for _, least := range []int{1 << 30, 2_000_000, 10_000} {
		w := a.Zero()
		for _, s := range a.Spans() {
			words := 1
			if s.Rows > least {
				words = 16
			}
			w.Words = append(w.Words, words)
			for range (words - 1) * s.Dim {
				w.Values = append(w.Values, r.Float32())
			}
			for range s.Rows {
				w.Numbers = append(w.Numbers, uint8(r.IntN(words)))
			}
		}
		parts, err := EncodeMixed(a, entries, dropped, w, p)
		if err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		t, err := New(a, Mixed, parts)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("New takes %v for %d bytes of words", time.Since(begin), len(parts.Words))
		tables = append(tables, t)
	}
	const rows, batch = 1 << 14, 64
	var ids []int32
	for range rows {
		first := 0
		for _, size := range a.FieldDims {
			ids = append(ids, int32(first+r.IntN(size)))
			first += size
		}
	}
	x := make([]float32, batch*a.Players())
	weights, sum := make([]float32, 700_000), float32(0)
	times := make([][]time.Duration, len(tables))
	for i := range b.N {
		features := ids[i*batch%rows*a.Fields():][:batch*a.Fields()]
		for k, t := range tables {
			for _, w := range weights { // evicts the table from the caches, as a network does
				sum += w
			}
			start := time.Now()
			t.Embed(x, features)
			times[k] = append(times[k], time.Since(start))
		}
	}
	b.ReportMetric(float64(sum), "ns/op")
	for k, name := range names {
		slices.Sort(times[k])
		b.ReportMetric(float64(times[k][b.N/2].Nanoseconds())/1e3, name)
	}
}
