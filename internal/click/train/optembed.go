package train

import (
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/num/random"
)

// The numbers of OptEmbed's thresholds.
const (
	gateRate   = 1e-4 // learning rate of gradient descent
	gateFactor = 1e-4 // of sum(exp(-t)) in the loss
)

// optTable is the table of OptEmbed's supernet. Feature f of field j is kept if u > 0, where u is
// the sum of its magnitudes |e_c| minus the field's threshold t_j. In training each row reads only the
// first columns of each field, as many as a uniform draw says. Evaluation reads all columns.
//
// The gradient of the step function u > 0 is that of stepSlope. Gradient descent without decay moves
// the thresholds, whose term in the loss is 1e-4 * sum(exp(-t_j)).
type optTable struct {
	dim             int
	embedding, gate *tensor
	fields          []FeatureGradients // gradients of the entries, also through the thresholds
	widths          []int32            // [rows, fields], columns that the rows read
	// draw draws the number of columns, 1 to dim, that a row reads of each field.
	draw func(columns []int32, row int64, epoch int)
}

// newOptTable returns a table that starts from a copy of embedding.
func newOptTable(a *model.Architecture, embedding []float32, rows int, seed uint64) *optTable {
	m := a.Fields()
	t := &optTable{
		dim: a.Dim, embedding: newVector("embedding", slices.Clone(embedding)), gate: newVector("gate", make([]float32, m)),
		fields: make([]FeatureGradients, m), widths: make([]int32, rows*m),
	}
	t.embedding.gradient = nil
	t.draw = func(columns []int32, row int64, epoch int) {
		stream := random.At(seed, random.Width, uint64(row), uint64(epoch))
		for j := range columns {
			columns[j] = 1 + int32(stream.Below(uint64(t.dim)))
		}
	}
	for j, first := range a.Offsets() {
		size := a.FieldDims[j]
		t.fields[j] = FeatureGradients{First: int(first), Size: size, Embedding: make([]float32, 0, min(rows, size)*a.Dim)}
	}
	return t
}

func (t *optTable) Tensors() []*tensor { return []*tensor{t.embedding, t.gate} }

// excess returns u of a feature of field j.
func (t *optTable) excess(e []float32, j int) float32 {
	sum := float32(0)
	for _, x := range e {
		sum += float32(math.Abs(float64(x)))
	}
	return sum - t.gate.values[j]
}

func (t *optTable) row(feature int) []float32 {
	return t.embedding.values[feature*t.dim:][:t.dim]
}

func (t *optTable) Gather(x kernel.Tile, rows *model.Rows, epoch int) {
	parts(rows.Len(), chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			columns, row := t.columns(i), x.Row(i)
			t.draw(columns, rows.Number[i], epoch)
			for j, f := range rows.Row(i) {
				into, e := row[j*t.dim:(j+1)*t.dim], t.row(int(f))
				clear(into)
				if t.excess(e, j) > 0 {
					copy(into, e[:columns[j]])
				}
			}
		}
	})
}

// columns returns the draws of row i of the batch.
func (t *optTable) columns(i int) []int32 { return t.widths[i*len(t.fields):][:len(t.fields)] }

func (t *optTable) hide(dx kernel.Tile, rows int) {
	parts(rows, chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			row := dx.Row(i)
			for j, read := range t.columns(i) {
				clear(row[j*t.dim+int(read) : (j+1)*t.dim])
			}
		}
	})
}

// Scatter computes the gradients of the embeddings and of the thresholds. A row's part of the
// gradient of u > 0 is the product of its gradient with the columns that it reads, so the sum over
// the rows of a feature has the same form.
func (t *optTable) Scatter(fields []FeatureGradients) {
	each(len(fields), func(j int) {
		field := &fields[j]
		into := t.fields[j].Embedding[:len(field.Embedding)]
		t.fields[j].Features, t.fields[j].Embedding = field.Features, into
		gate := 0.0
		for k, f := range field.Features {
			e, g, d := t.row(int(f)), field.Embedding[k*t.dim:][:t.dim], into[k*t.dim:][:t.dim]
			u := t.excess(e, j)
			slope := float32(float32(kernel.Dot(g, e)) * stepSlope(u))
			gate -= float64(slope)
			for c, x := range e {
				d[c] = 0
				if u > 0 {
					d[c] = g[c]
				}
				switch {
				case x > 0:
					d[c] += slope
				case x < 0:
					d[c] -= slope
				}
			}
		}
		t.gate.gradient[j] = float32(gate - gateFactor*math.Exp(-float64(t.gate.values[j])))
	})
}

func (t *optTable) Step(dense, _ *kernel.AdamStep) {
	e := t.embedding
	visit(t.fields, false, func(field *FeatureGradients, k, from, to int) {
		a, b := from*t.dim, to*t.dim
		var gradient []float32
		if k >= 0 {
			gradient = field.Embedding[k*t.dim:][:t.dim]
		}
		kernel.Adam(e.values[a:b], gradient, e.m[a:b], e.v[a:b], dense)
	})
	for j, g := range t.gate.gradient {
		t.gate.values[j] -= float32(gateRate * g)
	}
}

// Materialise writes embeddings of 0 for the features that are not kept.
func (t *optTable) Materialise(embedding []float32) {
	each(len(t.fields), func(j int) {
		field := &t.fields[j]
		for f := field.First; f < field.First+field.Size; f++ {
			into, e := embedding[f*t.dim:][:t.dim], t.row(f)
			clear(into)
			if t.excess(e, j) > 0 {
				copy(into, e)
			}
		}
	})
}

// mask returns all entries of the features that are kept.
func (t *optTable) mask() []bool {
	kept := make([]bool, len(t.embedding.values))
	for j, field := range t.fields {
		for f := field.First; f < field.First+field.Size; f++ {
			on := t.excess(t.row(f), j) > 0
			for c := range t.dim {
				kept[f*t.dim+c] = on
			}
		}
	}
	return kept
}
