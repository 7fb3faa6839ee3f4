package rate

import (
	"math"
	"slices"

	"shaver/internal/click/model"
)

// wordBits is about the number of bits of a value of a word, by which merging is decided.
const wordBits = 8

// vocabulary is the words of a span, of which some may be merged.
type vocabulary struct {
	dim     int
	values  []float64 // [words, dim]
	weights []float64 // half the curvature, [words, dim]
	rows    []float64 // number of rows that read each word and have a dropped entry
}

// entropy returns the bits of the numbers of n rows that read the same word, up to n*log2(all rows).
func entropy(n float64) float64 {
	if n == 0 {
		return 0
	}
	return -n * math.Log2(n)
}

// rise returns by how much the loss rises if two words become one, which has the means of their values by weight.
func (v *vocabulary) rise(x, y int) (sum float64) {
	for i := range v.dim {
		a, b := v.weights[x*v.dim+i], v.weights[y*v.dim+i]
		d := v.values[x*v.dim+i] - v.values[y*v.dim+i]
		if a+b > 0 {
			sum += float64(a * b / (a + b) * float64(d*d))
		}
	}
	return sum
}

// saved returns the bits that merging two words saves.
func (v *vocabulary) saved(x, y int) float64 {
	return entropy(v.rows[x]) + entropy(v.rows[y]) - entropy(v.rows[x]+v.rows[y]) + float64(wordBits*v.dim)
}

// merge merges words as long as the price of the bits that this saves is above the rise of the loss, the best pair first
// (pairwise nearest neighbour, Equitz 1989). It returns the number of the merged word of each word, the numbers of words that are first
// of theirs, and the rise of the loss.
func (v *vocabulary) merge(price float64) (numbers []uint8, left []int, rise float64) {
	n := len(v.rows)
	of := make([]int, n) // word that each word became
	for i := range of {
		of[i] = i
		left = append(left, i)
	}
	gain := make([]float64, n*n) // of x < y
	for y := range n {
		for x := range y {
			gain[x*n+y] = price*v.saved(x, y) - v.rise(x, y)
		}
	}
	for len(left) > 1 {
		best, at, with := 0.0, -1, -1
		for i, y := range left {
			for _, x := range left[:i] {
				if g := gain[x*n+y]; g > best {
					best, at, with = g, x, y
				}
			}
		}
		if at < 0 {
			break
		}
		rise += v.rise(at, with)
		for i := range v.dim {
			a, b := at*v.dim+i, with*v.dim+i
			if w := v.weights[a] + v.weights[b]; w > 0 {
				v.values[a] = (float64(v.weights[a]*v.values[a]) + float64(v.weights[b]*v.values[b])) / w
				v.weights[a] = w
			}
		}
		v.rows[at] += v.rows[with]
		left = slices.DeleteFunc(left, func(i int) bool { return i == with })
		for i := range of {
			if of[i] == with {
				of[i] = at
			}
		}
		for _, i := range left {
			if x, y := min(i, at), max(i, at); x != y {
				gain[x*n+y] = price*v.saved(x, y) - v.rise(x, y)
			}
		}
	}
	numbers = make([]uint8, n)
	for i, w := range of {
		numbers[i] = uint8(slices.Index(left, w))
	}
	return numbers, left, rise
}

// merged returns a chooser of the tables with the words that are worth their bits at a price, and these words. It returns c if every span has one.
func (c *Chooser) merged(price float64) (*Chooser, model.Baseline) {
	b, k := c.tables.Baseline, c.book
	if k.Constant() {
		return c, b
	}
	d := *c
	d.values, d.weights, d.lines = slices.Clip(c.values), slices.Clip(c.weights), slices.Clone(c.lines)
	b.Values, b.Words, b.Numbers = slices.Clone(b.Values[:c.tables.Architecture.BaselineSize()]), nil, slices.Clone(b.Numbers)
	several := false
	for i := range d.lines {
		l := &d.lines[i]
		if !l.codebook {
			continue
		}
		s := &k.Spans[l.row]
		n := k.NumberOfWords(l.row)
		b.Words = append(b.Words, 1)
		if n == 1 {
			continue
		}
		v := &vocabulary{s.Dim, slices.Clone(c.values[l.from:l.to]), slices.Clone(c.weights[l.from:l.to]), slices.Clone(c.rows[l.row])}
		numbers, left, rise := v.merge(price)
		d.lost += rise
		b.Words[l.row] = len(left)
		several = several || len(left) > 1
		for r, old := range b.Numbers[s.Row : s.Row+s.Rows] {
			b.Numbers[s.Row+r] = numbers[old]
		}
		l.from = len(d.values)
		for at, w := range left {
			word := make([]float32, s.Dim)
			for i := range word {
				word[i] = float32(v.values[w*s.Dim+i])
				d.values, d.weights = append(d.values, float64(word[i])), append(d.weights, v.weights[w*s.Dim+i])
			}
			if at > 0 {
				b.Values = append(b.Values, word...)
				continue
			}
			for _, r := range s.Readers() {
				copy(b.Values[r.Baseline:], word)
			}
		}
		l.to = len(d.values)
	}
	if !several {
		b.Words, b.Numbers = nil, nil
	}
	d.sample = nil
	d.pick()
	return &d, b
}
