package compact

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawPalette draws quantizers and assigns them to the rows of s.
func drawPalette(t *rapid.T, s *sample) *Palette {
	p := &Palette{}
	for range rapid.IntRange(1, MaxQuantizers-2).Draw(t, "quantizers") {
		q := Quantizer{Bits: rapid.SampledFrom([]int{2, 3, 4, 8, 16, 32}).Draw(t, "bits")}
		if q.Bits <= 8 {
			q.Origin, q.Step = rapid.Float32Range(-3, 3).Draw(t, "origin"), rapid.SampledFrom([]float32{0, 1e-3, .1, 1}).Draw(t, "step")
		}
		p.Quantizers = append(p.Quantizers, q)
	}
	rows := 0
	for _, span := range s.layout.Spans() {
		rows += span.Rows
	}
	seed := rapid.Uint64().Draw(t, "seed of the quantizers")
	for range rows {
		seed = seed*6364136223846793005 + 1442695040888963407
		p.Rows = append(p.Rows, uint8(seed>>40)%uint8(len(p.Quantizers)))
	}
	if rapid.Bool().Draw(t, "codebook") {
		for range s.layout.Spans() {
			p.Codebook = append(p.Codebook, uint8(rapid.SampledFrom([]int{0, len(p.Quantizers) - 1, ZeroLine}).Draw(t, "line")))
		}
	}
	return p
}

// rounded returns the sample whose values are those that p stores.
func (s *sample) rounded(p *Palette) *sample {
	r := &sample{layout: s.layout, table: slices.Clone(s.table), dropped: s.dropped, codebook: slices.Clone(s.codebook)}
	for j, span := range s.layout.Spans() {
		for i := range span.Rows * span.Dim {
			_, r.table[span.Entry+i] = p.Quantizers[p.Rows[span.Row+i/span.Dim]].Nearest(s.table[span.Entry+i])
		}
		if p.Codebook != nil {
			for c := span.Baseline; c < span.Baseline+span.Dim; c++ {
				if r.codebook[c] = 0; p.Codebook[j] != ZeroLine {
					_, r.codebook[c] = p.Quantizers[p.Codebook[j]].Nearest(s.codebook[c])
				}
			}
		}
	}
	return r
}

// Every value of Mixed is read as the nearest one of its quantizer, to the last bit, and
// what was read can be written again to the same bytes.
func TestMixed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		p := drawPalette(t, s)
		parts, err := EncodeMixed(s.layout, s.table, s.dropped, s.codebook, p)
		if err != nil {
			t.Fatal(err)
		}
		table, err := New(s.layout, Mixed, parts)
		if err != nil {
			t.Fatal(err)
		}
		r := s.rounded(p)
		r.check(t, table)
		if !slices.EqualFunc(parts.Codebook, table.Codebook(), sameBits) || !slices.EqualFunc(r.codebook, table.Codebook(), sameBits) {
			t.Fatalf("the codebook is %v, the parts have %v, expected %v", table.Codebook(), parts.Codebook, r.codebook)
		}
		if !slices.Equal(parts.Fields, table.Fields()) {
			t.Fatalf("fields %v, the parts have %v", table.Fields(), parts.Fields)
		}
		again := table.Palette()
		second, err := EncodeMixed(s.layout, r.table, s.dropped, table.Codebook(), again)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(second.Positions, parts.Positions) || !slices.Equal(second.Values, parts.Values) || !slices.Equal(second.Quantizers, parts.Quantizers) {
			t.Fatal("a table that is written again has other bytes")
		}
	})
}

// Nearest returns the nearest of all values.
func TestNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Quantizer{Bits: rapid.SampledFrom([]int{2, 3, 4, 8}).Draw(t, "bits")}
		q.Origin = rapid.Float32Range(-1e3, 1e3).Draw(t, "origin")
		q.Step = rapid.OneOf(rapid.Float32Range(0, 10), rapid.Float32Range(0, 1e-4)).Draw(t, "step")
		v := rapid.OneOf(rapid.Float32(), rapid.Float32Range(-2e3, 2e3)).Filter(finite).Draw(t, "v")
		n, value := q.Nearest(v)
		if n >= 1<<q.Bits || q.Value(n) != value {
			t.Fatalf("%+v: number %d of %v has the value %v, expected %v", q, n, v, q.Value(n), value)
		}
		for k := range uint32(1) << q.Bits {
			if math.Abs(float64(q.Value(k))-float64(v)) < math.Abs(float64(value)-float64(v)) {
				t.Fatalf("%+v: number %d of %v has the value %v, but number %d has %v", q, n, v, value, k, q.Value(k))
			}
		}
	})
}

// A coder reads the bits that it wrote, and their chances become those of the bits.
func TestCoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := rapid.SliceOfN(rapid.Bool(), 0, 3000).Draw(t, "bits")
		chances := rapid.SliceOfN(rapid.IntRange(0, 3), len(written), len(written)).Draw(t, "chances")
		w, models := newWriter(), [4]chance{even, even, {1, 1}, {math.MaxUint32, maxCount}}
		start := models
		bit := map[bool]int{true: 1}
		for i, b := range written {
			w.code(&models[chances[i]], bit[b])
		}
		data := append(w.data, w.end()...)
		r := newDecoder(data)
		for i, b := range written {
			if got := r.code(&start[chances[i]], 1-bit[b]); got != bit[b] {
				t.Fatalf("bit %d of %d is %d", i, len(written), got)
			}
		}
		if start != models || r.low != w.low || r.high != w.high || !slices.Equal(append(data[:r.at:r.at], r.end()...), data) {
			t.Fatal("the reader ends otherwise than the writer")
		}
	})
}

// The positions take at most 5% more bytes than the entropy of a mask whose fields and
// columns have frequencies of their own, and far fewer if the rows of a field tell more.
func TestEntropy(t *testing.T) {
	a := plain(16, 5000, 300, 2000)
	random := rand.New(rand.NewPCG(3, 4))
	for name, most := range map[string]float64{"columns": 1.05, "rows": .65, "runs": .56} {
		dropped := make([]bool, a.Parameters())
		entropy := 0.0
		for j, s := range a.Spans() {
			for c := range s.Dim {
				kept := 0
				chance := .3 / float64((c+j)%7+1)
				for i := range s.Rows {
					var keep bool
					switch name {
					case "columns":
						keep = random.Float64() < chance
					case "rows": // one row of five is listed
						keep = i*7919%5 == 0 && random.Float64() < 2*chance
					case "runs": // the first rows are listed
						keep = i < s.Rows/5 && random.Float64() < 2*chance
					}
					if dropped[s.Entry+i*s.Dim+c] = !keep; keep {
						kept++
					}
				}
				p := float64(kept) / float64(s.Rows)
				entropy -= float64(s.Rows) * (p*math.Log2(p) + (1-p)*math.Log2(1-p)) / 8
			}
		}
		p := &Palette{Quantizers: []Quantizer{{Bits: 2}}, Rows: make([]uint8, a.Features())}
		parts, err := EncodeMixed(a, make([]float32, a.Parameters()), dropped, make([]float32, a.BaselineSize()), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(len(parts.Positions)); got > most*entropy {
			t.Errorf("%s: %v bytes for an entropy of %.0f, expected at most %.0f", name, got, entropy, most*entropy)
		} else {
			t.Logf("%s: %v bytes for an entropy of %.0f", name, got, entropy)
		}
	}
}
