package mask

import (
	"math/rand/v2"
	"slices"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/click/model/modeltest"
	"shaver/internal/num/layout"
)

// A model that is pruned without a copy reads what Apply writes, with one word for each table and with several.
func TestPrunedReadsWhatApplyWrites(t *testing.T) {
	models := map[string]*model.Model{"lists": modeltest.ListModel("sum", 3), "PNN": modeltest.PNN(3, 3)}
	for name, a := range modeltest.Architectures() {
		models[name] = modeltest.Random(t, a, 3)
	}
	for name, m := range models {
		r := rand.New(rand.NewPCG(1, 2))
		shape := m.Architecture.Shape()
		dropped, b := layout.NewMask(m.Parameters()), model.Baseline{}
		for i := range m.Parameters() {
			if r.IntN(2) == 0 {
				dropped.Drop(i)
			}
		}
		for words := 1; words <= 2; words++ {
			size := m.BaselineSize()
			if b = (model.Baseline{}); words == 2 {
				for _, s := range m.Spans() {
					b.Words = append(b.Words, 2)
					size += s.Dim
				}
				for range shape.Rows() {
					b.Numbers = append(b.Numbers, uint8(r.IntN(2)))
				}
			}
			for i := range size {
				value := r.NormFloat64()
				if i < m.BaselineSize() && len(m.Lists) > 0 { // item and history, of two columns each, share rows, and so the first word
					value = float64(i % 2)
				}
				b.Values = append(b.Values, float32(value))
			}
			rows := modeltest.Rows(m.Architecture, 20, 5)
			want, got := make([]float32, 20*m.Players()), make([]float32, 20*m.Players())
			m.WithEmbedding(Apply(&m.Architecture, m.Weights.Embedding, dropped.Bools(m.Parameters()), b)).Embed(want, rows.Features)
			if m.Pruned(dropped, b).Embed(got, rows.Features); !slices.Equal(got, want) {
				t.Errorf("%s with %d words: the embeddings differ", name, words)
			}
		}
	}
}
