package train

import "shaver/internal/num/kernel"

// sums adds up the rows of a tile by columns. Each chunk of rows is added in float32, and
// the chunks in float64.
type sums struct {
	chunk []float32 // [chunks, width]
	total []float64 // [width]
	width int
}

func newSums(rows, width int) *sums {
	return &sums{make([]float32, (rows+chunkRows-1)/chunkRows*width), make([]float64, width), width}
}

// add calls f for chunks of rows. f must add rows [from, to) to sum.
func (s *sums) add(rows int, f func(sum []float32, from, to int)) []float64 {
	parts(rows, chunkRows, func(from, to int) {
		sum := s.chunk[from/chunkRows*s.width:][:s.width]
		clear(sum)
		f(sum, from, to)
	})
	clear(s.total)
	for c := range (rows + chunkRows - 1) / chunkRows {
		for o, v := range s.chunk[c*s.width:][:s.width] {
			s.total[o] += float64(v)
		}
	}
	return s.total
}

// rows sets dst to the sums of the columns of t.
func (s *sums) rows(dst []float32, t kernel.Tile, rows int) {
	round(dst, s.add(rows, func(sum []float32, from, to int) { kernel.AddRows(sum, t, from, to) }), 1)
}

// round sets dst[o] to scale * total[o].
func round(dst []float32, total []float64, scale float64) {
	for o := range dst {
		dst[o] = float32(scale * total[o])
	}
}
