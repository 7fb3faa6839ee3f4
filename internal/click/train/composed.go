package train

import (
	"fmt"
	"slices"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// validateComposed returns an error if the composed table of o does not fit a and o.
func (o *Options) validateComposed(a *model.Architecture) error {
	c := o.Composed
	if c == nil {
		if o.Cached != nil {
			return fmt.Errorf("%d features are cached without a composed table", len(o.Cached))
		}
		return nil
	}
	s := &c.Shape
	if err := c.Check(); err != nil {
		return fmt.Errorf("composed table: %w", err)
	}
	switch {
	case s.Features != a.Features() || s.Dim != a.Dim:
		return fmt.Errorf("the composed table has %d features with %d columns, expected %d with %d", s.Features, s.Dim, a.Features(), a.Dim)
	case o.Optimizer == SparseAdam:
		return fmt.Errorf("a table of scheme %s needs the optimizer %s, because its tensors have dense gradients", s.Scheme, Adam)
	case o.Dropped != nil:
		return fmt.Errorf("a table of scheme %s has no dropped entries", s.Scheme)
	case c.Cache != nil || len(o.Cached) != s.Cached:
		return fmt.Errorf("the table has %d cached features and %d to cache, expected 0 and %d", len(c.Cache), len(o.Cached), s.Cached)
	}
	for i, f := range o.Cached {
		if int(f) >= s.Features || f < 0 || i > 0 && f <= o.Cached[i-1] {
			return fmt.Errorf("cached feature %d is %d: expected ascending features below %d", i, f, s.Features)
		}
	}
	return nil
}

// Composed returns the composed table that evaluation reads, or nil for any other table. It shares
// memory with the trainer, so the next step changes it.
func (t *Trainer) Composed() *composed.Table {
	if table, ok := t.table.(interface{ composed() *composed.Table }); ok {
		return table.composed()
	}
	return nil
}

// firstEnder is a Table that changes after the first epoch.
type firstEnder interface {
	// firstEnded is called once after the first epoch. resumed says whether the values of the tensors
	// are those of a later step.
	firstEnded(resumed bool)
}

// firstEnded must be called after the first epoch.
func (t *Trainer) firstEnded(resumed bool) {
	if table, ok := t.table.(firstEnder); ok {
		table.firstEnded(resumed)
	}
}

// composedBase gathers the embeddings of a composed table and adds up the gradients of its tensors.
type composedBase struct {
	table    *composed.Table // as Gather reads it
	gradient [][]float32     // of its tensors

	order    [][]uint64  // for each field [rows], feature<<32 | position in the batch, sorted
	features [][]int32   // of each field in the batch, ascending
	values   [][]float32 // embeddings of features
}

func newComposedBase(a *model.Architecture, t *composed.Table, rows int) composedBase {
	b := composedBase{table: t}
	for i := range t.Tensors {
		b.gradient = append(b.gradient, make([]float32, len(t.Tensors[i].Values)))
	}
	for _, size := range a.FieldDims {
		most := min(rows, size)
		b.order = append(b.order, make([]uint64, rows))
		b.features = append(b.features, make([]int32, 0, most))
		b.values = append(b.values, make([]float32, most*a.Dim))
	}
	return b
}

// gather computes each embedding of a field once.
func (b *composedBase) gather(x kernel.Tile, rows *model.Rows) {
	dim := b.table.Shape.Dim
	each(len(b.order), func(j int) {
		order, features := b.order[j][:rows.Len()], b.features[j][:0]
		for i := range order {
			order[i] = uint64(rows.Row(i)[j])<<32 | uint64(i)
		}
		slices.Sort(order)
		for _, o := range order {
			if f := int32(o >> 32); len(features) == 0 || features[len(features)-1] != f {
				features = append(features, f)
			}
		}
		b.table.Embed(b.values[j], features)
		k := 0
		for _, o := range order {
			if features[k] != int32(o>>32) {
				k++
			}
			copy(x.Row(int(uint32(o)))[j*dim:(j+1)*dim], b.values[j][k*dim:])
		}
	})
}

// Scatter adds up the gradients of the tensors.
func (b *composedBase) Scatter(fields []FeatureGradients) {
	lists := make([]composed.Gradients, len(fields))
	for j, field := range fields {
		lists[j] = composed.Gradients{Features: field.Features, Embedding: field.Embedding}
	}
	for _, g := range b.gradient {
		clear(g)
	}
	b.table.AddGradients(b.gradient, lists)
}

// composedTable is a composed table whose tensors all move in each step.
type composedTable struct {
	composedBase
	tensors []*tensor
	cached  []int32 // features that get rows of their own after the first epoch
}

// newComposedTable returns a table that keeps and changes c.
func newComposedTable(a *model.Architecture, c *composed.Table, rows int, cached []int32) *composedTable {
	t := &composedTable{composedBase: newComposedBase(a, c, rows), cached: cached}
	for i, w := range c.Tensors {
		own := newVector(w.Name, w.Values)
		own.gradient = t.gradient[i]
		t.tensors = append(t.tensors, own)
	}
	return t
}

func (t *composedTable) Tensors() []*tensor { return t.tensors }

func (t *composedTable) Gather(x kernel.Tile, rows *model.Rows, _ int) { t.gather(x, rows) }

// Step moves the rows of the cache too. They are 0 until they are in use, and stay so.
func (t *composedTable) Step(dense, _ *kernel.AdamStep) {
	for _, w := range t.tensors {
		parts(len(w.values), adamValues, func(from, to int) {
			kernel.Adam(w.values[from:to], w.gradient[from:to], w.m[from:to], w.v[from:to], dense)
		})
	}
}

func (t *composedTable) Materialise(embedding []float32) { t.table.All(embedding) }

func (t *composedTable) firstEnded(resumed bool) {
	switch {
	case t.cached == nil || t.table.Cache != nil:
	case resumed:
		t.table.Cache = t.cached
	default:
		t.table.FillCache(t.cached)
	}
}

// composed fills the cache of a copy if the cache is not in use yet.
func (t *composedTable) composed() *composed.Table {
	if t.cached == nil || t.table.Cache != nil {
		return t.table
	}
	c := *t.table
	c.Tensors = slices.Clone(c.Tensors)
	last := &c.Tensors[len(c.Tensors)-1]
	last.Values = make([]float32, len(last.Values))
	c.FillCache(t.cached)
	return &c
}
