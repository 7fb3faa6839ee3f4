package compact

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"shaver/internal/click/model"
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
	r := &sample{layout: s.layout, table: slices.Clone(s.table), dropped: s.dropped, baseline: s.baseline.Scaled(1)}
	book := s.layout.Book(r.baseline)
	for j, span := range s.layout.Spans() {
		for i := range span.Rows * span.Dim {
			_, r.table[span.Entry+i] = p.Quantizers[p.Rows[span.Row+i/span.Dim]].Nearest(s.table[span.Entry+i])
		}
		if p.Codebook != nil {
			for n := range book.NumberOfWords(j) {
				word := book.Word(j, n)
				for c, v := range word {
					if word[c] = 0; p.Codebook[j] != ZeroLine {
						_, word[c] = p.Quantizers[p.Codebook[j]].Nearest(v)
					}
				}
			}
			for _, o := range span.Sharers {
				copy(book.Values[o.Baseline:], book.Word(j, 0))
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
		parts, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, p)
		if err != nil {
			t.Fatal(err)
		}
		table, err := New(s.layout, Mixed, parts)
		if err != nil {
			t.Fatal(err)
		}
		r := s.rounded(p)
		r.check(t, table)
		if got := table.Baseline(); !got.Equal(&parts.Baseline) {
			t.Fatalf("the baseline is %v, the parts have %v", got, parts.Baseline)
		}
		if !slices.Equal(parts.Fields, table.Fields()) {
			t.Fatalf("fields %v, the parts have %v", table.Fields(), parts.Fields)
		}
		again := table.Palette()
		second, err := EncodeMixed(s.layout, r.table, s.dropped, table.Baseline(), again)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(second.Positions, parts.Positions) || !slices.Equal(second.Values, parts.Values) || !slices.Equal(second.Words, parts.Words) || !slices.Equal(second.Quantizers, parts.Quantizers) {
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
		parts, err := EncodeMixed(a, make([]float32, a.Parameters()), dropped, a.Zero(), p)
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

// Embed of Mixed reads lists and rows that two fields share, from narrow and wide tables, and
// allocates no memory.
func TestMixedLists(t *testing.T) {
	for _, dim := range []int{2, 20, 40} {
		s := lists(dim)
		p := &Palette{Quantizers: []Quantizer{{Bits: 32}, {Bits: 3, Step: .125}, {Bits: 16}, {Bits: 8, Step: 1. / 256}}, Rows: make([]uint8, 52)}
		for i := 1; i < len(p.Rows); i++ {
			p.Rows[i] = uint8(i % 4)
		}
		parts, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, p)
		if err != nil {
			t.Fatal(err)
		}
		table, err := New(s.layout, Mixed, parts)
		if err != nil {
			t.Fatal(err)
		}
		_, dense := s.rounded(p).encode(t, Float32)
		var features []int32
		r := rand.New(rand.NewPCG(5, 6))
		for range 50 {
			for _, f := range [][2]int{{0, 5}, {5, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {85, 7}, {85, 7}} {
				features = append(features, int32(f[0]+r.IntN(f[1])))
			}
		}
		x, want := make([]float32, 50*s.layout.Players()), make([]float32, 50*s.layout.Players())
		dense.Embed(want, features)
		if table.Embed(x, features); !slices.Equal(x, want) {
			t.Errorf("%d columns: Embed gives %v, expected %v", dim, x, want)
		}
		if n := testing.AllocsPerRun(50, func() { table.Embed(x, features) }); n > 0 {
			t.Errorf("%d columns: %v allocations", dim, n)
		}
	}
}

func TestMixedRefuses(t *testing.T) {
	nan := float32(math.NaN())
	for name, test := range map[string]struct {
		table []float32
		q     []Quantizer
		want  string
	}{
		"NaN":      {[]float32{0, 0, 0, nan}, []Quantizer{{Bits: 4, Step: 1}}, "row 1 has the value NaN in column 1"},
		"half":     {[]float32{0, 65519, -65520, 0}, []Quantizer{{Bits: 16}}, "field 0: row 1 has the value -65520 in column 0: float16 holds magnitudes up to 65504"},
		"bits":     {make([]float32, 4), []Quantizer{{Bits: 5}}, "quantizer 0 has 5 bits: expected 2, 3, 4, 8, 16 or 32"},
		"step":     {make([]float32, 4), []Quantizer{{Bits: 32}, {Bits: 2, Step: -1}}, "quantizer 1 has 2 bits with the origin 0 and the step -1"},
		"range":    {make([]float32, 4), []Quantizer{{Bits: 8, Step: 1e38}}, "quantizer 0 has 8 bits"},
		"origin":   {make([]float32, 4), []Quantizer{{Bits: 16, Origin: 1}}, "quantizer 0 has 16 bits with the origin 1 and the step 0: expected 0 and 0"},
		"sixteen":  {make([]float32, 4), slices.Repeat([]Quantizer{{Bits: 32}}, 16), "the palette has 16 quantizers: expected at most 15"},
		"codebook": {make([]float32, 4), slices.Repeat([]Quantizer{{Bits: 8}}, 15), "field 0: with 16 bits for the codebook the palette has 16 quantizers"},
	} {
		p := &Palette{Quantizers: test.q, Rows: make([]uint8, 2)}
		if _, err := EncodeMixed(plain(2, 2), test.table, make([]bool, 4), model.Baseline{Values: []float32{.5, 0}}, p); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
	s := lists(2)
	p := &Palette{Quantizers: []Quantizer{{Bits: 4, Step: .01}}, Rows: make([]uint8, 52)}
	if _, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, p); err == nil || !strings.Contains(err.Error(), "field 1 in table item: row 0 has the value") || !strings.Contains(err.Error(), "as the row of a pad id needs") {
		t.Errorf("a pad row that is rounded: %v", err)
	}
	s.dropped[1] = true
	if _, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, p); err == nil || !strings.Contains(err.Error(), "the mask drops an entry of row 0, which a pad id reads") {
		t.Errorf("a pad row that is dropped: %v", err)
	}
}

// A table of which almost nothing is kept is padded to the size that MaxInflation requires.
func TestMixedInflation(t *testing.T) {
	a := plain(64, 5000, 3)
	dropped := slices.Repeat([]bool{true}, a.Parameters())
	p := &Palette{Quantizers: []Quantizer{{Bits: 2}}, Rows: make([]uint8, a.Features())}
	parts, err := EncodeMixed(a, make([]float32, a.Parameters()), dropped, a.Zero(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got, least := len(parts.Positions), (4*64*5003+1023)/1024; got != least {
		t.Errorf("%d bytes, expected %d", got, least)
	}
	if _, err := New(a, Mixed, parts); err != nil {
		t.Error(err)
	}
	whole := parts.Positions
	parts.Positions = whole[1:]
	if _, err := New(a, Mixed, parts); err == nil || !strings.Contains(err.Error(), "expected at least 1251 bytes") {
		t.Errorf("error %v for a file that is too small", err)
	}
	parts.Positions = append(whole, 0)
	if _, err := New(a, Mixed, parts); err == nil || !strings.Contains(err.Error(), "after the last row") {
		t.Errorf("error %v for bytes after the last row", err)
	}
}

// FuzzMixed reads any bytes as Parts. What New accepts, EncodeMixed writes as the same bytes.
func FuzzMixed(f *testing.F) {
	layouts := []*model.Architecture{plain(3, 20, 5), plain(20, 9), lists(2).layout}
	for i, a := range layouts {
		dropped, tables := make([]bool, a.Parameters()), make([]float32, a.Parameters())
		for k := range dropped {
			dropped[k] = k%3 != 0 && k > 2
			tables[k] = float32(k % 4)
		}
		last := a.Spans()[len(a.Spans())-1]
		p := &Palette{Quantizers: []Quantizer{{Bits: 2, Step: 1}, {Bits: 16}, {Bits: 8, Origin: 1, Step: .1}, {Bits: 32}}, Rows: make([]uint8, last.Row+last.Rows)}
		for row := 1; row < len(p.Rows); row++ {
			p.Rows[row] = uint8(row % 4)
		}
		for _, words := range []int{1, 5, 256} {
			b := a.Zero()
			for _, span := range a.Spans() {
				b.Words = append(b.Words, words)
				b.Values = append(b.Values, make([]float32, (words-1)*span.Dim)...)
				for i := range span.Rows {
					b.Numbers = append(b.Numbers, uint8(i*7%words))
				}
			}
			for k := range b.Values {
				b.Values[k] = .5
			}
			parts, err := EncodeMixed(a, tables, dropped, b, p)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), PackQuantizers(parts.Quantizers), parts.Positions, parts.Values, parts.Words)
		}
	}
	f.Fuzz(func(t *testing.T, layout uint8, palette, positions, values, words []byte) {
		a := layouts[int(layout)%len(layouts)]
		quantizers, err := UnpackQuantizers(palette)
		if err != nil {
			return
		}
		table, err := New(a, Mixed, &Parts{Quantizers: quantizers, Positions: positions, Values: values, Words: words})
		if err != nil {
			return
		}
		var tables []float32
		var dropped []bool
		table.Rows(func(x []float32, row []bool) { tables, dropped = append(tables, x...), append(dropped, row...) })
		x, features := make([]float32, a.Players()), make([]int32, a.Width())
		for i, offset := range a.Offsets() {
			if len(a.Lists) == 0 {
				features[i] = offset
			}
		}
		if len(a.Lists) == 0 {
			table.Embed(x, features)
		}
		again, err := EncodeMixed(a, tables, dropped, table.Baseline(), table.Palette())
		if err != nil { // the file drops a pad row
			return
		}
		if !slices.Equal(again.Positions, positions) || !slices.Equal(again.Words, words) {
			t.Fatalf("positions %x and words %x are written as %x and %x", positions, words, again.Positions, again.Words)
		}
		second, err := New(a, Mixed, again)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		second.Rows(func(x []float32, _ []bool) {
			if !slices.EqualFunc(x, tables[at:at+len(x)], sameBits) {
				t.Fatalf("entries from %d on are %v, were %v", at, x, tables[at:at+len(x)])
			}
			at += len(x)
		})
	})
}
