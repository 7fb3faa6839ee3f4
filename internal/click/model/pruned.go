package model

import (
	"slices"

	"shaver/internal/num/layout"
)

// Pruned returns a model that shares everything with m, whose tables must be float32, and reads the baseline b in place of the entries that are
// dropped. It copies no table, so it takes longer than WithEmbedding for many rows.
func (m *Model) Pruned(dropped layout.Mask, b Baseline) *Model {
	return m.WithEmbedder(&pruned{m, m.Book(b), dropped})
}

// pruned is the Embedder of Pruned.
type pruned struct {
	whole   *Model
	book    *Book
	dropped layout.Mask
}

func (p *pruned) Embed(x []float32, features []int32) {
	p.whole.Embed(x, features)
	memory := make([]float32, p.whole.Players())
	for row := range slices.Chunk(features, p.whole.Width()) {
		replaced, at := p.book.Spread(memory, row), 0
		for i := range p.book.positions {
			read := &p.book.positions[i]
			entry := read.entry + (int(row[read.at])-read.feature)*read.dim
			for c := range read.dim {
				if p.dropped.Dropped(entry + c) {
					x[at] = replaced[at]
				}
				at++
			}
		}
		x = x[at:]
	}
}
