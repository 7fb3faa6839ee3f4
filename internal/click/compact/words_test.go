package compact

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"shaver/internal/click/model"
)

// withWords returns s with some words for each span in turn, which its rows read at random.
func withWords(s *sample, words ...int) *sample {
	r := rand.New(rand.NewPCG(7, 8))
	b := s.layout.Zero()
	for j, span := range s.layout.Spans() {
		n := words[j%len(words)]
		b.Words, b.Values = append(b.Words, n), append(b.Values, make([]float32, (n-1)*span.Dim)...)
		for range span.Rows {
			b.Numbers = append(b.Numbers, uint8(r.IntN(n)))
		}
	}
	for i := range b.Values {
		b.Values[i] = r.Float32() - .5
	}
	for _, span := range s.layout.Spans() {
		for _, o := range span.Sharers {
			copy(b.Values[o.Baseline:], b.Values[span.Baseline:][:span.Dim])
		}
	}
	return &sample{layout: s.layout, table: s.table, dropped: s.dropped, baseline: b}
}

// exact returns a palette that keeps all values of s, and the words.
func (s *sample) exact() *Palette {
	last := s.layout.Spans()[len(s.layout.Spans())-1]
	return &Palette{Quantizers: []Quantizer{{Bits: 32}}, Rows: make([]uint8, last.Row+last.Rows)}
}

// tables returns the parts and tables of s in all encodings, by their names.
func (s *sample) tables(t *testing.T) (map[Encoding]*Parts, map[Encoding]*Table) {
	all, tables := map[Encoding]*Parts{}, map[Encoding]*Table{}
	for _, v := range Encodings() {
		if v != Float32 && len(s.layout.Frozen) > 0 {
			continue
		}
		all[v], tables[v] = s.encode(t, v)
	}
	parts, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, s.exact())
	if err != nil {
		t.Fatal(err)
	}
	if all[Mixed], tables[Mixed] = parts, nil; err == nil {
		tables[Mixed], err = New(s.layout, Mixed, parts)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all, tables
}

// Every dropped entry reads the word of its row, in lists, rows that fields share and frozen fields, and what Rows passes is what
// Embed reads. Spans have 1 to 256 words, and rows keep anything from nothing to all.
func TestWords(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		for _, dim := range []int{2, 16, 20} {
			s := lists(dim)
			if frozen { // a user keeps all entries, and a tag, too
				s.layout.Frozen = []int{0}
				clear(s.dropped[40*dim : 40*dim+15])
			}
			for i := range 3 {
				clear(s.dropped[(5+i)*dim : (6+i)*dim])
			}
			for _, gone := range []bool{false, true} {
				if gone {
					for _, span := range s.layout.Spans() {
						for i := span.Entry; i < span.Entry+span.Rows*span.Dim; i++ {
							row := span.Row + (i-span.Entry)/span.Dim
							_, fixed := slices.BinarySearch(s.layout.FixedRows(), row)
							s.dropped[i] = !fixed
						}
					}
				}
				for _, words := range [][]int{{2}, {256, 1, 3}, {1, 5, 16}} {
					checkWords(t, withWords(s, words...))
				}
			}
		}
	}
}

func checkWords(t *testing.T, s *sample) {
	t.Helper()
	_, tables := s.tables(t)
	book, want := s.layout.Book(s.baseline), s.read()
	for v, table := range tables {
		if got := table.Baseline(); !got.Equal(&want) {
			t.Fatalf("%s: baseline %+v, expected %+v", v, got, want)
		}
		var whole []float32
		table.Rows(func(x []float32, _ []bool) { whole = append(whole, x...) })
		for j, span := range book.Spans {
			for i := range span.Rows * span.Dim {
				at := span.Entry + i
				if s.dropped[at] && !sameBits(whole[at], book.Of(j, i/span.Dim)[i%span.Dim]) {
					t.Fatalf("%s: a dropped entry of row %d reads %v, expected %v", v, span.Row+i/span.Dim, whole[at], book.Of(j, i/span.Dim))
				}
			}
		}
		var features []int32
		r := rand.New(rand.NewPCG(9, 9))
		for range 40 {
			for _, f := range [][2]int{{0, 5}, {5, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {45, 40}, {85, 7}, {85, 7}} {
				features = append(features, int32(f[0]+r.IntN(f[1])))
			}
		}
		_, dense := (&sample{layout: s.layout, table: whole, dropped: make([]bool, len(whole)), baseline: s.layout.Zero()}).encode(t, Float32)
		got, want := make([]float32, 40*s.layout.Players()), make([]float32, 40*s.layout.Players())
		table.Embed(got, features)
		if dense.Embed(want, features); !slices.EqualFunc(got, want, sameBits) {
			t.Fatalf("%s: Embed gives %v, expected %v", v, got, want)
		}
		if n := testing.AllocsPerRun(20, func() { table.Embed(got, features) }); n > 0 {
			t.Errorf("%s: %v allocations", v, n)
		}
	}
}

// A baseline with one word for each span gives the same bytes, whether it says so or not.
func TestOneWord(t *testing.T) {
	s := lists(3)
	said := withWords(s, 1)
	said.baseline.Values = s.baseline.Values
	all, _ := s.tables(t)
	others, _ := said.tables(t)
	for v, p := range all {
		o := others[v]
		if len(o.Words) > 0 || !slices.Equal(p.Positions, o.Positions) || !slices.Equal(p.Values, o.Values) || !slices.Equal(p.Rows, o.Rows) || !slices.Equal(p.Columns, o.Columns) || !p.Baseline.Equal(&o.Baseline) {
			t.Errorf("%s: %+v, expected %+v", v, o, p)
		}
	}
}

// The numbers of rows take their entropy: nothing for rows that drop nothing, and fewer bits if the words have different frequencies
// or follow from the first kept column.
func TestWordsEntropy(t *testing.T) {
	const rows, dim = 20_000, 4
	s := &sample{layout: plain(dim, rows, 10), table: make([]float32, (rows+10)*dim), dropped: slices.Repeat([]bool{true}, (rows+10)*dim)}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range rows {
		for c := range dim {
			s.dropped[i*dim+c] = c != i%dim
		}
	}
	s = withWords(s, 8, 1)
	for name, test := range map[string]struct {
		number func(i int) uint8
		bits   float64 // of a row
	}{
		"even":   {func(int) uint8 { return uint8(r.IntN(8)) }, 3},
		"skewed": {func(int) uint8 { return uint8(min(r.IntN(16), 1)) }, -(math.Log2(1./16) + 15*math.Log2(15./16)) / 16},
		"column": {func(i int) uint8 { return uint8(i%dim*2 + r.IntN(2)) }, 1},
	} {
		for i := range rows {
			s.baseline.Numbers[i] = test.number(i)
		}
		b := s.baseline
		if got, most := len(Words(s.layout, s.dropped, &b)), test.bits*rows/8*1.03+40; float64(got) > most {
			t.Errorf("%s: %d bytes, expected at most %.0f", name, got, most)
		}
		if b := s.baseline; len(Words(s.layout, make([]bool, len(s.dropped)), &b)) != 2 || slices.Max(b.Numbers) > 0 {
			t.Errorf("%s: rows that drop nothing have the numbers %v", name, b.Numbers)
		}
	}
}

// Words that go on after the last row, lack a field, or have a number that is no word's are refused. Every other string of bytes is the
// code of its own numbers, so only the digest of a file notices it.
func TestWordsRefuse(t *testing.T) {
	all, _ := withWords(lists(2), 5, 1, 256).tables(t)
	for v, p := range all {
		whole := p.Words
		for n := range len(whole) {
			if p.Words = whole[:n]; n == 0 && v == Mixed {
				continue // another file, whose values are too many
			}
			table, err := New(lists(2).layout, v, p)
			if err != nil {
				continue
			}
			b := table.Baseline()
			if again := Words(lists(2).layout, lists(2).dropped, &b); n < 3 || !slices.Equal(again, p.Words) {
				t.Errorf("%s: %d of %d bytes are read as other words, whose code is %x and not %x", v, n, len(whole), again, p.Words)
			}
		}
		for want, words := range map[string][]byte{
			"words ends otherwise than expected after the last row": append(slices.Clone(whole), 0),
			"words has the number 7 in row":                         append([]byte{4, 0, 255}, 0, 0, 0, 0),
			"words has 3 bytes, expected the numbers of words of 3": {0, 0, 0},
		} {
			p.Words = words
			if _, err := New(lists(2).layout, v, p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, expected %q", v, err, want)
			}
		}
	}
}

// A file that claims many rows or words in few bytes is refused before memory is allocated for them.
func TestWordsInflation(t *testing.T) {
	a := plain(2, 1<<30, 1)
	parts := &Parts{Fields: []Field{{Form: None}, {Form: None}}, Baseline: model.Baseline{Values: make([]float32, 6)}, Words: []byte{1, 0, 9}}
	for _, v := range []Encoding{Float32, Mixed} {
		if _, err := New(a, v, parts); err == nil || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("%s: error %v", v, err)
		}
	}
	p := &Palette{Quantizers: []Quantizer{{Bits: 2}}, Rows: make([]uint8, 4), Codebook: []uint8{ZeroLine}}
	s := withWords(&sample{layout: plain(5000, 4), table: make([]float32, 20_000), dropped: slices.Repeat([]bool{true}, 20_000)}, 256)
	parts, err := EncodeMixed(s.layout, s.table, s.dropped, s.baseline, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(s.layout, Mixed, parts); err != nil {
		t.Error(err)
	}
	parts.Positions = parts.Positions[:len(parts.Positions)-1]
	if _, err := New(s.layout, Mixed, parts); err == nil || !strings.Contains(err.Error(), "expected at least") {
		t.Errorf("error %v for words of 0 in too few bytes", err)
	}
}
