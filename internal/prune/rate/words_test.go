package rate

import (
	"math"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// worded returns sample with 5 words of the first field and 3 of the second. Two words of the first field are equal.
func worded(t *testing.T) *Tables {
	t.Helper()
	s := sample(t, .25)
	a, b := s.Architecture, &s.Baseline
	b.Words = []int{5, 3}
	for i := range 6 * a.Dim {
		u := random.At(2, random.Order, uint64(i), 3)
		b.Values, s.BaselineCurvature = append(b.Values, float32(u.Float64()-.5)), append(s.BaselineCurvature, u.Float64()*.1)
	}
	copy(b.Values[a.BaselineSize()+a.Dim:][:a.Dim], b.Values[a.BaselineSize():]) // words 1 and 2
	for j, n := range b.Words {
		for i := range a.FieldDims[j] {
			b.Numbers = append(b.Numbers, uint8(i%n))
		}
	}
	for i := range s.Dropped { // some rows drop nothing, and some everything
		s.Dropped[i] = i%3 == 0 && i/a.Dim%4 > 0 || i/a.Dim%5 == 0
	}
	if err := a.CheckBaseline(b); err != nil {
		t.Fatal(err)
	}
	return s
}

// No two of the words that are left would cost less as one. The cost is the weighted square of what words move, and the price of
// the bits: the entropy of the numbers of all rows, and the values of the words.
func TestMergeToTheEnd(t *testing.T) {
	t.Parallel()
	merged := 0
	for seed := range uint64(20) {
		merged += mergeToTheEnd(t, 2, seed, math.Pow(10, -4.5-float64(seed%5)/4))
	}
	if merged < 20 {
		t.Fatalf("%d words became others, which tests little", merged)
	}
}

// mergeToTheEnd checks one vocabulary of 12 words, and returns how many of them became others.
func mergeToTheEnd(t *testing.T, dim int, seed uint64, price float64) int {
	t.Helper()
	var values, weights, rows []float64
	for i := range 12 {
		u := random.At(4, random.Order, uint64(i), seed)
		rows = append(rows, math.Floor(40*u.Float64()))
		for range dim {
			values, weights = append(values, u.Float64()-.5), append(weights, u.Float64()*.05)
		}
	}
	cost := func(numbers []uint8) (sum float64) {
		words := map[uint8][]int{}
		total := 0.0
		for w, n := range numbers {
			words[n] = append(words[n], w)
			total += rows[w]
		}
		for _, of := range words {
			read := 0.0
			for _, w := range of {
				read += rows[w]
			}
			if sum += price * float64(wordBits*dim); read > 0 {
				sum -= price * read * math.Log2(read/total)
			}
			for c := range dim {
				mean, weight := 0.0, 0.0
				for _, w := range of {
					mean, weight = mean+weights[w*dim+c]*values[w*dim+c], weight+weights[w*dim+c]
				}
				for _, w := range of {
					e := values[w*dim+c] - mean/weight
					sum += weights[w*dim+c] * e * e
				}
			}
		}
		return sum
	}
	v := &vocabulary{dim, slices.Clone(values), slices.Clone(weights), slices.Clone(rows)}
	numbers, left, _ := v.merge(price)
	for y := range len(left) {
		for x := range y {
			other := slices.Clone(numbers)
			for w, n := range numbers {
				if int(n) == y {
					other[w] = uint8(x)
				}
			}
			if cost(other) < cost(numbers)-1e-12 {
				t.Errorf("words %d and %d as one cost %g, apart %g", x, y, cost(other), cost(numbers))
			}
		}
	}
	return 12 - len(left)
}

// Without a price nothing is merged. At a huge one a word is left, which is the mean by weight. Equal words become one at any
// price. The rise is the weighted square of what the words moved, and numbers name the word that each became.
func TestMerge(t *testing.T) {
	t.Parallel()
	make := func() *vocabulary {
		v := &vocabulary{dim: 3, rows: []float64{4, 9, 2, 0, 30, 9}}
		for i := range len(v.rows) * v.dim {
			u := random.At(3, random.Order, uint64(i), 3)
			v.values, v.weights = append(v.values, u.Float64()-.5), append(v.weights, u.Float64()*1e-2)
		}
		copy(v.values[15:], v.values[3:6]) // word 5 is word 1
		return v
	}
	before := make()
	last := 0.0
	for _, price := range []float64{0, 1e-15, 1e-5, 1e-4, 1e-3, 1e3} {
		v := make()
		numbers, left, rise := v.merge(price)
		switch n := len(left); {
		case price == 0 && (n != 6 || rise != 0 || !slices.Equal(numbers, []uint8{0, 1, 2, 3, 4, 5})):
			t.Errorf("price 0: %v, %v, rise %g", numbers, left, rise)
		case price > 0 && numbers[1] != numbers[5]:
			t.Errorf("price %g: equal words have the numbers %v", price, numbers)
		case price == 1e-15 && (n != 5 || math.Abs(rise) > 1e-30):
			t.Errorf("price %g: %v, %v, rise %g", price, numbers, left, rise)
		case price == 1e3 && n != 1:
			t.Errorf("price %g: %v, %v", price, numbers, left)
		}
		moved := 0.0
		for w, number := range numbers {
			for i := range v.dim {
				sum, weight := 0.0, 0.0 // of the words that became this one
				for other := range numbers {
					if numbers[other] == number {
						at := other*v.dim + i
						sum, weight = sum+before.weights[at]*before.values[at], weight+before.weights[at]
					}
				}
				got := v.values[left[number]*v.dim+i]
				if math.Abs(got-sum/weight) > 1e-12 {
					t.Fatalf("price %g: column %d of word %d is %g, expected %g", price, i, w, got, sum/weight)
				}
				e := before.values[w*v.dim+i] - got
				moved += before.weights[w*v.dim+i] * e * e
			}
		}
		if math.Abs(moved-rise) > 1e-12*moved+1e-30 || rise < last {
			t.Errorf("price %g: rise %g, expected %g, and at least %g", price, rise, moved, last)
		}
		last = rise
	}
}

// The rise that a choice states is that of all kept entries and of all words of the tables. A row reads what became of its word.
// The higher the price, the fewer words and the fewer bytes.
func TestWordsOfAChoice(t *testing.T) {
	t.Parallel()
	s := worded(t)
	c := NewChooser(s)
	book := s.Architecture.Book(s.Baseline)
	lastBytes, lastWords, fewer := math.MaxInt, math.MaxInt, 0
	for _, price := range []float64{1e-12, 1e-6, 1e-4, 1e-3, 1e-2, 1} {
		found, err := c.Choose(price)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Architecture.CheckBaseline(&found.Baseline); err != nil {
			t.Fatal(err)
		}
		rise, got, merged := 0.0, values(t, s, found), s.Architecture.Book(found.Baseline)
		read := map[int]float32{} // by position of a value of a word in s, what readers get
		for j, span := range book.Spans {
			words := map[int]int{} // by word of s, the word of the choice
			for i := range span.Rows {
				n := book.Number(j, i)
				if m, ok := words[n]; ok && m != merged.Number(j, i) {
					t.Fatalf("price %g: row %d of field %d reads word %d, others of its word read %d", price, i, j, merged.Number(j, i), m)
				}
				words[n] = merged.Number(j, i)
				for k := range span.Dim {
					at := span.Entry + i*span.Dim + k
					if !s.Dropped[at] {
						e := float64(got[at]) - float64(s.Entries[at])
						rise += s.Curvature[at] / 2 * e * e
					} else if v, ok := read[book.Position(j, n)+k]; ok && v != got[at] {
						t.Fatalf("price %g: dropped entry %d reads %v, others of its word read %v", price, at, got[at], v)
					} else {
						read[book.Position(j, n)+k] = got[at]
					}
				}
			}
		}
		for at, v := range read {
			e := float64(v) - float64(s.Baseline.Values[at])
			rise += s.BaselineCurvature[at] / 2 * e * e
		}
		if len(read) != len(s.Baseline.Values) {
			t.Fatalf("%d values of words are read, expected %d", len(read), len(s.Baseline.Values))
		}
		words := merged.NumberOfWords(0) + merged.NumberOfWords(1)
		if math.Abs(rise-found.Rise) > 1e-5*rise+1e-12 {
			t.Errorf("price %g, %d words: rise %g, expected %g", price, words, found.Rise, rise)
		}
		if found.Bytes > lastBytes || words > lastWords {
			t.Errorf("price %g: %d bytes and %d words, but %d and %d for less", price, found.Bytes, words, lastBytes, lastWords)
		}
		if words < lastWords {
			fewer++
		}
		lastBytes, lastWords = found.Bytes, words
	}
	if fewer < 3 || lastWords != 2 {
		t.Errorf("%d prices with fewer words, and %d words at the highest", fewer, lastWords)
	}
}

// A chooser whose spans have one word merges nothing, and keeps the baseline.
func TestOneWord(t *testing.T) {
	t.Parallel()
	s := sample(t, .25)
	one := s.Baseline
	one.Words, one.Numbers = []int{1, 1}, make([]uint8, 160)
	for _, b := range []model.Baseline{s.Baseline, one} {
		tables := *s
		tables.Baseline = b
		found, err := NewChooser(&tables).Choose(1)
		if err != nil || !slices.Equal(found.Baseline.Values, s.Baseline.Values) {
			t.Errorf("%v: %v", found, err)
		}
	}
}
