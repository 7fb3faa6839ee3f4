package model

import (
	"fmt"
	"math"
	"slices"
)

// MostWords is the largest number of words of a span.
const MostWords = 256

// Baseline says what dropped entries read. A span has words, which are vectors with a value for each of its
// columns, and each of its rows reads one of them. The look-ups that read a span have the same words.
type Baseline struct {
	Values  []float32 // the first word of each look-up, in their order, [BaselineSize], and then the other words, span by span
	Words   []int     // number of words of each span, 1 to MostWords, [spans]; nil = each has one
	Numbers []uint8   // number of the word of each row of all tables, [rows]; nil = 0; nil if Words is
}

// Zero returns the baseline in which every entry reads 0.
func (a *Architecture) Zero() Baseline { return Baseline{Values: make([]float32, a.BaselineSize())} }

// Equal reports whether b and o have the same values, bit for bit, and the same words.
func (b *Baseline) Equal(o *Baseline) bool {
	return slices.EqualFunc(b.Values, o.Values, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) && slices.Equal(b.Words, o.Words) && slices.Equal(b.Numbers, o.Numbers)
}

// IsZero reports whether every entry reads 0.
func (b *Baseline) IsZero() bool {
	return !slices.ContainsFunc(b.Values, func(v float32) bool { return v != 0 })
}

// Scaled returns b with all values multiplied by factor.
func (b Baseline) Scaled(factor float32) Baseline {
	b.Values = slices.Clone(b.Values)
	for i := range b.Values {
		b.Values[i] *= factor
	}
	return b
}

// CheckBaseline returns an error unless b is a baseline of a: its slices have the lengths that Baseline says, all
// values are finite, and look-ups that read the same rows have the same words.
func (a *Architecture) CheckBaseline(b *Baseline) error {
	spans := a.Spans()
	size, rows := a.BaselineSize(), 0
	if b.Words != nil {
		last := &spans[len(spans)-1]
		rows = last.Row + last.Rows
		if len(b.Words) != len(spans) {
			return fmt.Errorf("the baseline has words for %d ranges of rows, expected %d", len(b.Words), len(spans))
		}
		for j, n := range b.Words {
			if n < 1 || n > MostWords {
				return fmt.Errorf("the baseline has %d words for field %d, expected 1 to %d", n, spans[j].Field, MostWords)
			}
			size += (n - 1) * spans[j].Dim
		}
	}
	if len(b.Values) != size {
		return fmt.Errorf("the baseline has %d values, expected %d, one for each column of each look-up and of each further word", len(b.Values), size)
	}
	for i, v := range b.Values {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("value %d of the baseline is %v, expected a finite number", i, v)
		}
	}
	if len(b.Numbers) != rows {
		return fmt.Errorf("the baseline has the words of %d rows, expected %d", len(b.Numbers), rows)
	}
	for j, s := range spans {
		for _, r := range s.Sharers {
			if !slices.Equal(b.Values[r.Baseline:r.Baseline+s.Dim], b.Values[s.Baseline:s.Baseline+s.Dim]) {
				return fmt.Errorf("look-up %d has another baseline than look-up %d, which reads the same rows", r.LookUp, s.LookUp)
			}
		}
		if b.Words == nil {
			continue
		}
		for row, n := range b.Numbers[s.Row : s.Row+s.Rows] {
			if int(n) >= b.Words[j] {
				return fmt.Errorf("row %d of field %d reads word %d of %d", row, s.Field, n, b.Words[j])
			}
		}
	}
	return nil
}

// Book reads a baseline. Any number of goroutines may use it at once.
type Book struct {
	Baseline
	Spans     []Span // of the architecture
	further   []int  // position of each span's second word in Values, less the columns of a word
	spread    []float32
	positions []position // of a row of data
	several   bool       // whether a span has several words
}

// Book returns a book of b, which must be a baseline of a.
func (a *Architecture) Book(b Baseline) *Book {
	k := &Book{Baseline: b, Spans: a.Spans(), positions: a.positions()}
	next := a.BaselineSize()
	for j, s := range k.Spans {
		k.further = append(k.further, next-s.Dim)
		next += (k.NumberOfWords(j) - 1) * s.Dim
		k.several = k.several || k.NumberOfWords(j) > 1
	}
	if !k.several {
		k.Numbers = nil
	}
	for i := range k.positions {
		p := &k.positions[i]
		k.spread = append(k.spread, b.Values[p.baseline:p.baseline+p.dim]...)
	}
	return k
}

// NumberOfWords returns the number of words of span j.
func (k *Book) NumberOfWords(j int) int {
	if k.Words == nil {
		return 1
	}
	return k.Words[j]
}

// Position returns the position in Values of word n of span j.
func (k *Book) Position(j, n int) int {
	if n == 0 {
		return k.Spans[j].Baseline
	}
	return k.further[j] + n*k.Spans[j].Dim
}

// Number returns the number of the word that row i of span j reads.
func (k *Book) Number(j, i int) int {
	if k.Numbers == nil {
		return 0
	}
	return int(k.Numbers[k.Spans[j].Row+i])
}

// Word returns word n of span j, which must not be changed.
func (k *Book) Word(j, n int) []float32 {
	from := k.Position(j, n)
	return k.Values[from : from+k.Spans[j].Dim]
}

// Of returns what the dropped entries of row i of span j read. It must not be changed.
func (k *Book) Of(j, i int) []float32 { return k.Word(j, k.Number(j, i)) }

// Constant reports whether all rows of data read the same if everything is dropped.
func (k *Book) Constant() bool { return !k.several }

// Spread returns what a row of data with the given global ids, [Width], reads if everything is dropped, [D]. The result
// is shared if the book is constant, and features may then be nil. Otherwise it is x, [D].
func (k *Book) Spread(x []float32, features []int32) []float32 {
	if !k.several {
		return k.spread
	}
	copy(x, k.spread)
	at := 0
	for i := range k.positions {
		p := &k.positions[i]
		if n := k.number(p, features); n > 0 {
			copy(x[at:], k.Word(p.span, int(n)))
		}
		at += p.dim
	}
	return x
}

// Places sets places, [D], to the positions in Values of the elements of Spread.
func (k *Book) Places(places []int32, features []int32) {
	at := 0
	for i := range k.positions {
		p := &k.positions[i]
		from := p.baseline
		if n := k.number(p, features); n > 0 {
			from = k.Position(p.span, int(n))
		}
		for c := range p.dim {
			places[at] = int32(from + c)
			at++
		}
	}
}

// number returns the number of the word that a row of data reads at a position.
func (k *Book) number(p *position, features []int32) uint8 {
	if k.Numbers == nil {
		return 0
	}
	return k.Numbers[p.row+int(features[p.at])-p.feature]
}
