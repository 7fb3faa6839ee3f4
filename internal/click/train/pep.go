package train

import (
	"slices"
	"sync"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// pepTable is a table of which training reads soft thresholds of the entries, as PEP does.
// The embeddings are E = sign(V) * max(|V| - sigmoid(s), 0), with a raw threshold s for each
// entry. Weight decay moves every s towards 0 in each step, and gradients move those of the batch.
type pepTable struct {
	dim    int
	keep   int
	soft   *softTensor
	fields []FeatureGradients
	memory sync.Pool // of *pepGradient
}

// pepGradient has memory for the gradients of one row.
type pepGradient struct{ values, raw []float32 }

// newPEPTable returns a table that starts from a copy of embedding.
func newPEPTable(a *model.Architecture, embedding []float32, keep int, start float32, faster float64) *pepTable {
	t := &pepTable{dim: a.Dim, keep: keep, soft: newSoftTensor("embedding", slices.Clone(embedding), start, faster)}
	t.memory.New = func() any { return &pepGradient{make([]float32, a.Dim), make([]float32, a.Dim)} }
	return t
}

func (t *pepTable) Tensors() []*tensor { return t.soft.tensors() }

func (t *pepTable) Gather(x kernel.Tile, rows *model.Rows, _ int) {
	values, raw := t.soft.values.values, t.soft.raw.values
	parts(rows.Len(), chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			for j, f := range rows.Row(i) {
				at := int(f) * t.dim
				soften(row[j*t.dim:(j+1)*t.dim], values[at:at+t.dim], raw[at:at+t.dim])
			}
		}
	})
}

func (t *pepTable) Scatter(fields []FeatureGradients) { t.fields = fields }

func (t *pepTable) Step(dense, _ *kernel.AdamStep) {
	thresholds := t.soft.thresholdStep(dense)
	visit(t.fields, false, func(field *FeatureGradients, k, from, to int) {
		a, b := from*t.dim, to*t.dim
		if k < 0 {
			t.soft.move(a, b, nil, nil, dense, thresholds)
			return
		}
		g := t.memory.Get().(*pepGradient)
		softenBackward(g.values, g.raw, field.Embedding[k*t.dim:][:t.dim], t.soft.values.values[a:b], t.soft.raw.values[a:b])
		t.soft.move(a, b, g.values, g.raw, dense, thresholds)
		t.memory.Put(g)
	})
}

func (t *pepTable) Materialise(embedding []float32) {
	parts(len(embedding), adamValues, func(from, to int) {
		soften(embedding[from:to], t.soft.values.values[from:to], t.soft.raw.values[from:to])
	})
}

func (t *pepTable) remaining() int { return t.soft.alive(0, len(t.soft.values.values)) }

func (t *pepTable) mask() []bool {
	m := make([]float32, len(t.soft.values.values))
	margins(m, t.soft.values.values, t.soft.raw.values)
	return greatest(m, t.keep)
}
