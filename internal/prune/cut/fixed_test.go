package cut

import (
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/random"
)

// No choice of entries and bits needs more bytes besides those of its tables than fixedBytes.
func TestFixedBytes(t *testing.T) {
	t.Parallel()
	s := random.At(1, random.Order, 0, 0)
	for _, several := range []bool{false, true} {
		for rows := 100; rows < 3000; rows = rows * 3 / 2 {
			a := model.Architecture{Kind: model.FM, FieldDims: []int{rows}, Dim: 4}
			p := &model.Parameters{Embedding: make([]float32, 4*rows), FirstOrder: make([]float32, rows), Bias: make([]float32, 1)}
			b := a.Zero()
			if several {
				b = model.Baseline{Values: make([]float32, 8), Words: []int{2}, Numbers: make([]uint8, rows)}
			}
			for i := range b.Numbers {
				b.Numbers[i] = uint8(s.Float64() * 2)
			}
			ck := checkpoint.New(a, p)
			most, err := new(Options).fixedBytes(&Source{Checkpoint: ck, Table: p.Embedding, Scores: []*scores.File{{Baseline: b}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, portion := range []float64{.1, .5, .9} {
				palette := &compact.Palette{Rows: make([]uint8, rows)}
				for _, bits := range []int{2, 3, 4, 8} {
					palette.Quantizers = append(palette.Quantizers, compact.Quantizer{Bits: bits, Step: 1})
				}
				dropped := make([]bool, 4*rows)
				for i := range dropped {
					dropped[i] = s.Float64() < portion
					palette.Rows[i/4] = uint8(s.Float64() * 4)
				}
				if size, err := ck.MixedFootprint(dropped, b, palette); err != nil || size.File-size.Table > most {
					t.Errorf("%d rows: %d bytes besides the tables, expected at most %d: %v", rows, size.File-size.Table, most, err)
				}
			}
		}
	}
}
