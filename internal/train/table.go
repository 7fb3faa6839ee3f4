package train

import (
	"slices"

	"shaver/internal/kernel"
	"shaver/internal/model"
)

// table is the embedding table and the first-order weights. They have no dense gradients. A
// step has a gradient for each feature of its batch, and the others have gradients of 0.
type table struct {
	dim       int
	embedding *tensor // without a gradient; with dropped entries, the moments are those of the kept ones
	first     *tensor // without a gradient; nil if the model has no first-order weights
	dropped   []bool  // entries that keep their values; nil without any
	kept      []int   // [features+1], number of kept entries before each feature; nil without dropped ones
	sparse    bool    // whether embedding moves by SparseAdam
	fields    []fieldGradient
}

// fieldGradient is the gradient of the features of one field.
type fieldGradient struct {
	first, size int       // the field's features
	order       []uint64  // [rows], feature<<32 | position in the batch, sorted
	features    []int32   // of the batch, ascending
	embedding   []float32 // [features, dim]
	weights     []float32 // [features], gradient of the first-order weights
}

func newTable(a *model.Architecture, p *model.Parameters, dropped []bool, sparse bool, rows int) *table {
	t := &table{dim: a.Dim, dropped: dropped, sparse: sparse}
	moments := len(p.Embedding)
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
	t.embedding = &tensor{name: "embedding", values: p.Embedding, m: make([]float32, moments), v: make([]float32, moments)}
	if p.FirstOrder != nil {
		t.first = newVector("first", p.FirstOrder)
		t.first.gradient = nil
	}
	for j, offset := range a.Offsets() {
		most := min(rows, a.FieldDims[j])
		t.fields = append(t.fields, fieldGradient{
			first: int(offset), size: a.FieldDims[j], order: make([]uint64, rows), features: make([]int32, 0, most),
			embedding: make([]float32, most*a.Dim), weights: make([]float32, most),
		})
	}
	return t
}

func (t *table) tensors() []*tensor {
	if t.first == nil {
		return []*tensor{t.embedding}
	}
	return []*tensor{t.embedding, t.first}
}

// gather writes the embeddings of the rows to x.
func (t *table) gather(x kernel.Tile, rows *model.Rows) {
	parts(rows.Len(), chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			for j, f := range rows.Row(i) {
				copy(row[j*t.dim:(j+1)*t.dim], t.embedding.values[int(f)*t.dim:])
			}
		}
	})
}

// scatter computes the gradients of the features from dx, the gradient of the embeddings,
// and from dlogit, that of the logits. It adds the rows of a feature in their order.
func (t *table) scatter(dx kernel.Tile, dlogit []float32, rows *model.Rows) {
	each(len(t.fields), func(j int) {
		g := &t.fields[j]
		order := g.order[:rows.Len()]
		for i := range order {
			order[i] = uint64(rows.Row(i)[j])<<32 | uint64(i)
		}
		slices.Sort(order)
		g.features = g.features[:0]
		for _, o := range order {
			f, i := int32(o>>32), int(uint32(o))
			k := len(g.features) - 1
			if k < 0 || g.features[k] != f {
				k++
				g.features = append(g.features, f)
				clear(g.embedding[k*t.dim:][:t.dim])
				g.weights[k] = 0
			}
			kernel.Axpy(g.embedding[k*t.dim:][:t.dim], 1, dx.Row(i)[j*t.dim:])
			g.weights[k] += dlogit[i]
		}
	})
}

// tableRows is the number of rows of a table that are moved at once.
const tableRows = 1 << 12

// adam moves the embeddings and the first-order weights by one step. s is nil without
// SparseAdam.
func (t *table) adam(dense, s *kernel.AdamStep) {
	type piece struct{ field, from, to int }
	var pieces []piece
	for j, g := range t.fields {
		for from := 0; from < g.size; from += tableRows {
			pieces = append(pieces, piece{j, g.first + from, g.first + min(from+tableRows, g.size)})
		}
	}
	each(len(pieces), func(i int) {
		p := pieces[i]
		g := &t.fields[p.field]
		k, _ := slices.BinarySearch(g.features, int32(p.from))
		packed := newPackedRows(t.dim)
		for row := p.from; row < p.to; {
			if k < len(g.features) && int(g.features[k]) == row {
				if t.sparse {
					t.move(row, row+1, g.embedding[k*t.dim:][:t.dim], s, packed)
				} else {
					t.move(row, row+1, g.embedding[k*t.dim:][:t.dim], dense, packed)
				}
				if t.first != nil {
					t.moveFirst(row, row+1, g.weights[k:k+1], dense)
				}
				k++
				row++
				continue
			}
			end := p.to // of the rows without a gradient
			if k < len(g.features) {
				end = min(end, int(g.features[k]))
			}
			if !t.sparse {
				t.move(row, end, nil, dense, packed)
			}
			if t.first != nil {
				t.moveFirst(row, end, nil, dense)
			}
			row = end
		}
	})
}

// packedRows has memory for the kept entries of at most mostPacked rows, and for their gradients.
type packedRows struct{ values, gradient []float32 }

const mostPacked = 64

func newPackedRows(dim int) *packedRows {
	return &packedRows{make([]float32, 0, mostPacked*dim), make([]float32, 0, dim)}
}

// move moves rows [from, to) of the embeddings. If gradient is not nil, it is that of one row.
func (t *table) move(from, to int, gradient []float32, s *kernel.AdamStep, p *packedRows) {
	if t.dropped == nil {
		e, a, b := t.embedding, from*t.dim, to*t.dim
		kernel.Adam(e.values[a:b], gradient, e.m[a:b], e.v[a:b], s)
		return
	}
	for ; from < to; from += mostPacked {
		t.moveKept(from, min(from+mostPacked, to), gradient, s, p)
	}
}

// moveKept moves the kept entries of rows [from, to), at most mostPacked.
func (t *table) moveKept(from, to int, gradient []float32, s *kernel.AdamStep, p *packedRows) {
	first, last := t.kept[from], t.kept[to]
	if first == last {
		return
	}
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

func (t *table) moveFirst(from, to int, gradient []float32, s *kernel.AdamStep) {
	kernel.Adam(t.first.values[from:to], gradient, t.first.m[from:to], t.first.v[from:to], s)
}
