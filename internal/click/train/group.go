package train

import (
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// FeatureGradients are the gradients of one field's features in a batch.
type FeatureGradients struct {
	First, Size int       // the field's features are First ... First+Size-1
	Features    []int32   // features of the batch, distinct and ascending
	Embedding   []float32 // [len(Features), dim], sum over the rows of each feature

	weights []float32 // [len(Features)], gradient of the first-order weights
}

// grouping adds up the gradients of a batch by features.
type grouping struct {
	dim    int
	order  [][]uint64 // for each field [rows], feature<<32 | position in the batch, sorted
	fields []FeatureGradients
}

func newGrouping(a *model.Architecture, rows int) *grouping {
	g := &grouping{dim: a.Dim}
	for j, offset := range a.Offsets() {
		most := min(rows, a.FieldDims[j])
		g.order = append(g.order, make([]uint64, rows))
		g.fields = append(g.fields, FeatureGradients{
			First: int(offset), Size: a.FieldDims[j], Features: make([]int32, 0, most),
			Embedding: make([]float32, 0, most*a.Dim), weights: make([]float32, 0, most),
		})
	}
	return g
}

// add computes the gradients of the features from dx, the gradient of the embeddings, and
// from dlogit, that of the logits. It adds the rows of a feature in their order.
func (g *grouping) add(dx kernel.Tile, dlogit []float32, rows *model.Rows) {
	each(len(g.fields), func(j int) {
		field, dim := &g.fields[j], g.dim
		order := g.order[j][:rows.Len()]
		for i := range order {
			order[i] = uint64(rows.Row(i)[j])<<32 | uint64(i)
		}
		slices.Sort(order)
		field.Features, field.Embedding, field.weights = field.Features[:0], field.Embedding[:0], field.weights[:0]
		for _, o := range order {
			f, i := int32(o>>32), int(uint32(o))
			k := len(field.Features) - 1
			if k < 0 || field.Features[k] != f {
				k++
				field.Features = append(field.Features, f)
				field.Embedding = field.Embedding[:(k+1)*dim]
				clear(field.Embedding[k*dim:])
				field.weights = append(field.weights, 0)
			}
			kernel.Axpy(field.Embedding[k*dim:][:dim], 1, dx.Row(i)[j*dim:])
			field.weights[k] += dlogit[i]
		}
	})
}

// tableRows is the number of rows of a table that are moved at once.
const tableRows = 1 << 12

// visit calls f for consecutive parts of all features on all cores. A part is features
// [from, to) of one field. It is either one feature of the batch, with its position k among
// the field's Features, or several others, with k = -1. skip leaves out the latter.
func visit(fields []FeatureGradients, skip bool, f func(field *FeatureGradients, k, from, to int)) {
	type piece struct{ field, from, to int }
	var pieces []piece
	for j, g := range fields {
		for from := 0; from < g.Size; from += tableRows {
			pieces = append(pieces, piece{j, g.First + from, g.First + min(from+tableRows, g.Size)})
		}
	}
	each(len(pieces), func(i int) {
		p := pieces[i]
		g := &fields[p.field]
		k, _ := slices.BinarySearch(g.Features, int32(p.from))
		for row := p.from; row < p.to; {
			if k < len(g.Features) && int(g.Features[k]) == row {
				f(g, k, row, row+1)
				k++
				row++
				continue
			}
			end := p.to // of the features outside the batch
			if k < len(g.Features) {
				end = min(end, int(g.Features[k]))
			}
			if !skip {
				f(g, -1, row, end)
			}
			row = end
		}
	})
}

// moveFirst moves the first-order weights by one step of Adam.
func moveFirst(w *tensor, fields []FeatureGradients, s *kernel.AdamStep) {
	visit(fields, false, func(field *FeatureGradients, k, from, to int) {
		var gradient []float32
		if k >= 0 {
			gradient = field.weights[k : k+1]
		}
		kernel.Adam(w.values[from:to], gradient, w.m[from:to], w.v[from:to], s)
	})
}
