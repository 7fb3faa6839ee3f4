package baseline

import (
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
)

// listsOf returns the layout of modeltest.Lists with n items, of which 0 is the pad id, and a random table and occurrences. A
// fifth of the features do not occur.
func listsOf(n int, seed uint64) (a model.Architecture, table []float32, counts []int64) {
	a = modeltest.Lists()
	a.FieldDims[0], a.FieldDims[2], a.Tables[0].Rows = n, n, n
	r := rand.New(rand.NewPCG(seed, 0))
	table, counts = make([]float32, a.Parameters()), make([]int64, a.Features())
	for i := range table {
		table[i] = float32(r.NormFloat64())
	}
	for i := range counts {
		counts[i] = r.Int64N(5) * r.Int64N(100)
	}
	return a, table, counts
}

// Renewed for the same table, the words stay. For another one they are the means of the rows that read them, weighted by how often
// they occur, and a row that drops nothing has no part in any.
func TestRenew(t *testing.T) {
	a, table, counts := listsOf(80, 1)
	dropped := slices.Repeat([]bool{true}, a.Parameters())
	f := NewFinder(&a, table, counts)
	b := f.Words([]int{4, 3, 1})
	if same := f.Renew(b, dropped); !same.Equal(&b) {
		t.Errorf("words %v of the same table, expected %v", same.Values, b.Values)
	}
	_, other, _ := listsOf(80, 2)
	occurrences, fixed := a.RowCounts(counts), a.FixedRows()
	spans := a.Spans()
	for i := 0; i < spans[0].Rows; i += 3 {
		clear(dropped[spans[0].Entry+i*spans[0].Dim:][:spans[0].Dim])
	}
	got := NewFinder(&a, other, counts).Renew(b, dropped)
	if err := a.CheckBaseline(&got); err != nil || !slices.Equal(got.Numbers, b.Numbers) || !slices.Equal(got.Words, b.Words) {
		t.Fatalf("%v words, error %v", got.Words, err)
	}
	book := a.Book(got)
	for j, s := range spans[:2] {
		sums, totals := make([]float64, b.Words[j]*s.Dim), make([]float64, b.Words[j])
		for i := range s.Rows {
			n, row := book.Number(j, i), dropped[s.Entry+i*s.Dim:][:s.Dim]
			if slices.Contains(fixed, s.Row+i) || !slices.Contains(row, true) {
				continue
			}
			totals[n] += float64(occurrences[s.Row+i])
			for c, v := range other[s.Entry+i*s.Dim:][:s.Dim] {
				sums[n*s.Dim+c] += float64(occurrences[s.Row+i]) * float64(v)
			}
		}
		for i, sum := range sums {
			if word := book.Word(j, i/s.Dim)[i%s.Dim]; math.Abs(float64(word)-sum/totals[i/s.Dim]) > 1e-6 {
				t.Errorf("column %d of word %d of span %d is %v, expected the mean %v", i%s.Dim, i/s.Dim, j, word, sum/totals[i/s.Dim])
			}
		}
	}
	if codebook, _, _ := Of(Codebook, &a, other, counts); !slices.Equal(book.Word(2, 0), codebook.Values[spans[2].Baseline:][:spans[2].Dim]) {
		t.Errorf("the only word %v, expected the codebook", book.Word(2, 0))
	}
	clear(counts)
	if stays := NewFinder(&a, other, counts).Renew(b, dropped); !slices.Equal(stays.Values[a.BaselineSize():], b.Values[a.BaselineSize():]) {
		t.Error("words that no row reads do not stay")
	}
}

// A row that occurs reads the word that is nearest to it, and a word is the mean of the rows that read it, weighted by how often
// they occur. Rows that do not occur and pad rows read the first word, which counts most, and have no part in any mean.
func TestWords(t *testing.T) {
	for seed := range uint64(5) {
		a, table, counts := listsOf(80, seed)
		most := []int{4, 3, 1}
		b := NewFinder(&a, table, counts).Words(most)
		if err := a.CheckBaseline(&b); err != nil || !slices.Equal(b.Words, []int{4, 3, 1}) && !slices.Equal(b.Words, []int{4, 2, 1}) {
			t.Fatalf("%v words, error %v", b.Words, err)
		}
		book, occurrences, fixed := a.Book(b), a.RowCounts(counts), a.FixedRows()
		codebook, _, _ := Of(Codebook, &a, table, counts)
		for j, s := range book.Spans {
			if b.Words[j] == 1 {
				if !slices.Equal(book.Word(j, 0), codebook.Values[s.Baseline:][:s.Dim]) {
					t.Errorf("span %d has the only word %v, expected its codebook", j, book.Word(j, 0))
				}
				continue
			}
			sums, totals := make([]float64, b.Words[j]*s.Dim), make([]float64, b.Words[j])
			for i := range s.Rows {
				n, w, row := book.Number(j, i), float64(occurrences[s.Row+i]), table[s.Entry+i*s.Dim:][:s.Dim]
				if w == 0 || slices.Contains(fixed, s.Row+i) {
					if n != 0 {
						t.Errorf("row %d of span %d does not occur, but reads word %d", i, j, n)
					}
					continue
				}
				totals[n] += w
				var away []float64
				for m := range b.Words[j] {
					d := 0.0
					for c, v := range book.Word(j, m) {
						d += math.Pow(float64(row[c])-float64(v), 2)
					}
					away = append(away, d)
				}
				if away[n] > slices.Min(away)+1e-6 {
					t.Errorf("seed %d: row %d of span %d reads word %d, which is %g away, and the words are %v away", seed, i, j, n, away[n], away)
				}
				for c, v := range row {
					sums[n*s.Dim+c] += w * float64(v)
				}
			}
			for i, sum := range sums {
				if got := book.Word(j, i/s.Dim)[i%s.Dim]; math.Abs(float64(got)-sum/totals[i/s.Dim]) > 1e-6 {
					t.Errorf("column %d of word %d of span %d is %v, expected the mean %v", i%s.Dim, i/s.Dim, j, got, sum/totals[i/s.Dim])
				}
			}
			if !slices.IsSortedFunc(totals, func(x, y float64) int { return int(y - x) }) {
				t.Errorf("the words of span %d count %v", j, totals)
			}
		}
		table[0], table[1] = 1e9, -1e9 // the pad
		if other := NewFinder(&a, table, counts).Words(most); !other.Equal(&b) {
			t.Error("the entries of the pad row change the words")
		}
	}
}

// The words depend on the table and the occurrences alone: not on the number of threads and not on what the finder found before.
// With one word for each span they are the codebook, and a fixed span has no other.
func TestWordsDepend(t *testing.T) {
	a, table, counts := listsOf(3000, 1)
	want := NewFinder(&a, table, counts).Words([]int{64, 2, 2})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, threads := range []int{1, 2, 7} {
		runtime.GOMAXPROCS(threads)
		f := NewFinder(&a, table, counts)
		f.Words([]int{16, 3, 1})
		for range 2 {
			if got := f.Words([]int{64, 2, 2}); !reflect.DeepEqual(got, want) || got.Words[0] != 64 {
				t.Errorf("%d threads: other words", threads)
			}
		}
		if got, most := f.Words([]int{1000, 1, 1}), f.Words([]int{model.MostWords, 1, 1}); !got.Equal(&most) || got.Words[0] != model.MostWords {
			t.Errorf("%d words, expected %d", got.Words[0], model.MostWords)
		}
		codebook, _, _ := Of(Codebook, &a, table, counts)
		if got := f.Words([]int{1, 1, 1}); !reflect.DeepEqual(got, codebook) {
			t.Errorf("one word is %v, expected the codebook %v", got, codebook)
		}
	}
	plain := model.Architecture{FieldDims: []int{3000, 2, 1}, Dim: 2}
	for _, a := range []model.Architecture{a, plain} {
		if err := a.Freeze([]int{0}); err != nil {
			t.Fatal(err)
		}
		f := NewFinder(&a, table[:a.Parameters()], counts[:a.Features()])
		if got := f.Words([]int{5, 2, 2}); got.Words != nil && got.Words[0] != 1 || f.Occurring()[0] != 0 || a.CheckBaseline(&got) != nil {
			t.Errorf("a frozen table has the words %v, of %d rows", got.Words, f.Occurring()[0])
		}
	}
}

// A table has no more words than rows that differ, and the words are finite even if rows are equal, no row occurs or entries are large.
func TestFewWords(t *testing.T) {
	a := model.Architecture{FieldDims: []int{6, 3, 2}, Dim: 2}
	table := []float32{1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 9, 9, 4, 4, 4, 4, 4, 4, -math.MaxFloat32, 0, math.MaxFloat32, 1}
	f := NewFinder(&a, table, []int64{3, 1, 0, 1, 2, 0, 7, 8, 9, math.MaxInt32, math.MaxInt32})
	if got := f.Occurring(); !slices.Equal(got, []int{4, 3, 2}) {
		t.Errorf("%v rows occur", got)
	}
	got := f.Words([]int{4, 3, 2})
	if err := a.CheckBaseline(&got); err != nil || !slices.Equal(got.Words, []int{2, 1, 2}) {
		t.Fatalf("%v words, error %v", got.Words, err)
	}
	if k := a.Book(got); !slices.Equal(k.Word(0, 0), []float32{1, 1}) || !slices.Equal(k.Word(0, 1), []float32{2, 2}) || !slices.Equal(k.Of(0, 5), []float32{1, 1}) || !slices.Equal(k.Of(1, 0), []float32{4, 4}) || k.Of(2, 0)[0] != -math.MaxFloat32 {
		t.Errorf("the words are %v", got)
	}
	none := NewFinder(&a, table, make([]int64, 11)).Words([]int{4, 3, 2})
	if want, _, _ := Of(Codebook, &a, table, make([]int64, 11)); !reflect.DeepEqual(none, want) {
		t.Errorf("if no row occurs, the words are %v, expected %v", none, want)
	}
}
