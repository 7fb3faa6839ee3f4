package train

import (
	"sync"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// Table gives rows their embeddings and takes their gradients. What it trains are its own
// tensors, of which the embeddings are a function.
type Table interface {
	// Gather writes the embeddings of the rows to x, as training reads them in an epoch.
	Gather(x kernel.Tile, rows *model.Rows, epoch int)
	// Scatter takes the gradients of the embeddings that Gather wrote last, one element for
	// each field. They are valid until the next call of Scatter.
	Scatter(fields []FeatureGradients)
	// Step moves the tensors by the gradients of the last Scatter. sparse is nil unless the
	// optimizer is SparseAdam.
	Step(dense, sparse *kernel.AdamStep)
	// Tensors returns all that Step changes, always in the same order.
	Tensors() []*tensor
	// Materialise writes the embeddings of all features as evaluation reads them, [Features,
	// Dim].
	Materialise(embedding []float32)
}

// hider is a Table of which Gather reads only a part of each row's embeddings.
type hider interface {
	// hide sets the gradients of the entries that the last Gather did not read to 0.
	hide(dx kernel.Tile, rows int)
}

// fullTable is a table with an entry for each feature and column. It has no dense gradients.
// A step has a gradient for each feature of its batch, and the others have gradients of 0.
type fullTable struct {
	dim       int
	embedding *tensor // without a gradient; with dropped entries, the moments are those of the kept ones
	dropped   []bool  // entries that keep their values; nil without any
	kept      []int   // [features+1], number of kept entries before each feature; nil without dropped ones
	fields    []FeatureGradients
	packed    sync.Pool // of *packedRows, for moveKept
}

// newFullTable returns a table that keeps embedding.
func newFullTable(a *model.Architecture, embedding []float32, dropped []bool) *fullTable {
	t := &fullTable{dim: a.Dim, dropped: dropped}
	moments := len(embedding)
	if dropped != nil {
		t.kept = make([]int, a.Features()+1)
		moments = 0
		for f := range a.Features() {
			for _, gone := range dropped[f*a.Dim:][:a.Dim] {
				if !gone {
					moments++
				}
			}
			t.kept[f+1] = moments
		}
	}
	t.packed.New = func() any {
		return &packedRows{make([]float32, 0, mostPacked*a.Dim), make([]float32, 0, a.Dim)}
	}
	t.embedding = &tensor{name: "embedding", values: embedding, m: make([]float32, moments), v: make([]float32, moments)}
	return t
}

func (t *fullTable) Tensors() []*tensor { return []*tensor{t.embedding} }

func (t *fullTable) Gather(x kernel.Tile, rows *model.Rows, _ int) {
	parts(rows.Len(), chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			for j, f := range rows.Row(i) {
				copy(row[j*t.dim:(j+1)*t.dim], t.embedding.values[int(f)*t.dim:])
			}
		}
	})
}

func (t *fullTable) Scatter(fields []FeatureGradients) { t.fields = fields }

func (t *fullTable) Step(dense, sparse *kernel.AdamStep) {
	step := dense
	if sparse != nil {
		step = sparse
	}
	visit(t.fields, sparse != nil, func(field *FeatureGradients, k, from, to int) {
		var gradient []float32
		if k >= 0 {
			gradient = field.Embedding[k*t.dim:][:t.dim]
		}
		t.move(from, to, gradient, step)
	})
}

func (t *fullTable) Materialise(embedding []float32) { copy(embedding, t.embedding.values) }

// packedRows has memory for the kept entries of at most mostPacked rows, and for the gradient
// of one.
type packedRows struct{ values, gradient []float32 }

const mostPacked = 64

// move moves rows [from, to) of the embeddings. If gradient is not nil, it is that of one row.
func (t *fullTable) move(from, to int, gradient []float32, s *kernel.AdamStep) {
	if t.dropped == nil {
		e, a, b := t.embedding, from*t.dim, to*t.dim
		kernel.Adam(e.values[a:b], gradient, e.m[a:b], e.v[a:b], s)
		return
	}
	for ; from < to; from += mostPacked {
		t.moveKept(from, min(from+mostPacked, to), gradient, s)
	}
}

// moveKept moves the kept entries of rows [from, to), at most mostPacked.
func (t *fullTable) moveKept(from, to int, gradient []float32, s *kernel.AdamStep) {
	first, last := t.kept[from], t.kept[to]
	if first == last {
		return
	}
	p := t.packed.Get().(*packedRows)
	defer t.packed.Put(p)
	values, dropped := t.embedding.values[from*t.dim:to*t.dim], t.dropped[from*t.dim:to*t.dim]
	p.values, p.gradient = p.values[:0], p.gradient[:0]
	for i, gone := range dropped {
		if !gone {
			p.values = append(p.values, values[i])
			if gradient != nil {
				p.gradient = append(p.gradient, gradient[i])
			}
		}
	}
	if gradient != nil {
		gradient = p.gradient
	}
	kernel.Adam(p.values, gradient, t.embedding.m[first:last], t.embedding.v[first:last], s)
	k := 0
	for i, gone := range dropped {
		if !gone {
			values[i] = p.values[k]
			k++
		}
	}
}
