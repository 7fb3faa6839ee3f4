package compact

import (
	"fmt"
	"math/bits"
	"slices"

	"shaver/internal/click/model"
)

// wordCoder codes the numbers of the words that the rows of a field read.
type wordCoder struct {
	*coder
	bits    int      // of a number
	chances []chance // as in numberModel: of all rows, then of those that keep nothing, then by the first kept column
}

// newWordCoder returns a wordCoder for a field with some words.
func newWordCoder(c *coder, words int) *wordCoder {
	w := &wordCoder{c, bits.Len(uint(words - 1)), nil}
	w.chances = make([]chance, (2+maxNarrow)<<w.bits)
	for i := range 1 << w.bits {
		w.chances[i] = even
	}
	return w
}

// row codes the number of a row and returns it. The number of a row that drops nothing is 0, without a code.
func (w *wordCoder) row(dropped []bool, number uint8) int {
	if !slices.Contains(dropped, true) {
		return 0
	}
	first := min(slices.Index(dropped, false), maxNarrow-1)
	return w.codeNumber(w.chances[(2+first)<<w.bits:], w.chances, w.bits, int(number))
}

// Words returns the Words of the Parts of a that drop the given entries, [Parameters]. It replaces the numbers of b, a
// baseline of a, by those of the Parts.
func Words(a *model.Architecture, dropped []bool, b *model.Baseline) (data []byte) {
	if !slices.ContainsFunc(b.Words, func(n int) bool { return n > 1 }) {
		b.Words, b.Numbers = nil, nil
		return nil
	}
	numbers, c, spans := make([]uint8, len(b.Numbers)), newWriter(), a.Spans()
	for j, n := range b.Words {
		data = append(data, byte(n-1))
		if n == 1 {
			continue
		}
		s, w := &spans[j], newWordCoder(c, n)
		for i := range s.Rows {
			numbers[s.Row+i] = uint8(w.row(dropped[s.Entry+i*s.Dim:][:s.Dim], b.Numbers[s.Row+i]))
		}
	}
	b.Numbers = numbers
	return slices.Concat(data, c.data, c.end())
}

// cutWords takes data, which is Parts.Words, apart: the number of words of each field, and the code. values is the number of values
// of the baseline.
func cutWords(a *model.Architecture, spans []model.Span, data []byte) (words []int, values int, code []byte, err error) {
	words, values = slices.Repeat([]int{1}, len(spans)), a.BaselineSize()
	if len(data) == 0 {
		return words, values, nil, nil
	}
	if len(data) < len(spans) || slices.Max(data[:len(spans)]) == 0 {
		return nil, 0, nil, fmt.Errorf("words has %d bytes, expected the numbers of words of %d fields, of which some have several", len(data), len(spans))
	}
	for j := range words {
		words[j] += int(data[j])
		values += int(data[j]) * spans[j].Dim
	}
	return words, values, data[len(spans):], nil
}

// finish reads the numbers of rows from code, and sets what a row of data reads.
func (t *Table) finish(a *model.Architecture, spans []model.Span, code []byte) (err error) {
	r := newDecoder(code)
	for j := range t.fields {
		f := &t.fields[j]
		n := len(f.words) / f.dim
		if n == 1 {
			continue
		}
		w, at := newWordCoder(r, n), r.at
		numbers := make([]uint8, 0, f.size)
		t.rows(f, func(_ []float32, dropped []bool) {
			number := w.row(dropped, 0)
			if number >= n && err == nil {
				err = fmt.Errorf("%s: words has the number %d in row %d, expected 0 to %d", spanName(a, &spans[j]), number, len(numbers), n-1)
			}
			numbers = append(numbers, uint8(number))
		})
		if f.numbers, f.bytes = numbers, f.bytes+r.at-at; err != nil {
			return err
		}
	}
	if r.at > len(code) || !slices.Equal(code[r.at:], r.end()) {
		return fmt.Errorf("words ends otherwise than expected after the last row")
	}
	t.look(a, spans)
	return nil
}

// absent returns what the dropped entries of row i of the field read.
func (f *field) absent(i int) []float32 {
	if f.numbers == nil {
		return f.words
	}
	return f.words[int(f.numbers[i])*f.dim:][:f.dim]
}

// wordMemory returns the number of bytes that the words of a field take besides the codebook, if it has several.
func wordMemory(words, size, dim int) int {
	if words == 1 {
		return 0
	}
	return 4*words*dim + size
}

// Baseline returns what dropped entries read.
func (t *Table) Baseline() model.Baseline {
	b := model.Baseline{Values: slices.Clone(t.codebook)}
	if len(t.several) == 0 {
		return b
	}
	for j := range t.fields {
		f := &t.fields[j]
		b.Words, b.Values = append(b.Words, len(f.words)/f.dim), append(b.Values, f.words[f.dim:]...)
		if f.numbers == nil {
			b.Numbers = append(b.Numbers, make([]uint8, f.size)...)
		}
		b.Numbers = append(b.Numbers, f.numbers...)
	}
	return b
}
