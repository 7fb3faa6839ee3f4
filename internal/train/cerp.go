package train

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/kernel"
	"shaver/internal/model"
)

// Buckets are the tables P and Q of CERP, [buckets, dim]. The embedding of feature i of n is the sum of
// row i mod buckets of P and row i div ceil(n/buckets) of Q.
type Buckets struct {
	Values [2][]float32 // of P and Q; those of entries that are not kept are 0
	Kept   [2][]bool
}

// Rows returns the number of rows of each table.
func (b *Buckets) Rows(dim int) int { return len(b.Values[0]) / dim }

func (b *Buckets) validate(a *model.Architecture) error {
	size := len(b.Values[0])
	rows := size / a.Dim
	if rows < 1 || rows > a.Features() || size%a.Dim != 0 || len(b.Values[1]) != size || len(b.Kept[0]) != size || len(b.Kept[1]) != size {
		return fmt.Errorf("the tables of CERP have %d and %d values: expected those of 1 to %d rows of %d", size, len(b.Values[1]), a.Features(), a.Dim)
	}
	return nil
}

// Keep sets the entries to those that mask keeps, [2, buckets, dim], and the others to 0.
func (b *Buckets) Keep(mask []bool) {
	for k, values := range b.Values {
		b.Kept[k] = slices.Clone(mask[k*len(values):][:len(values)])
		for i, keep := range b.Kept[k] {
			if !keep {
				values[i] = 0
			}
		}
	}
}

// Embeddings writes the embeddings of all features, [Features, Dim].
func (b *Buckets) Embeddings(a *model.Architecture, embedding []float32) {
	t := newBucketTable(a, b.Rows(a.Dim))
	t.read = b.Values
	t.materialise(embedding)
}

// bucketTable computes embeddings from the tables of Buckets, and adds up their gradients.
type bucketTable struct {
	dim, features, buckets int
	wide                   int          // features that read one row of Q
	read                   [2][]float32 // of P and Q, as Gather reads them
	gradient               [2][]float32
}

// readBuckets returns the number of rows of Q that features read. They are the first.
func readBuckets(features, buckets int) int {
	wide := (features + buckets - 1) / buckets
	return (features + wide - 1) / wide
}

func newBucketTable(a *model.Architecture, buckets int) bucketTable {
	n, size := a.Features(), buckets*a.Dim
	t := bucketTable{dim: a.Dim, features: n, buckets: buckets, wide: (n + buckets - 1) / buckets}
	for k := range t.read {
		t.read[k], t.gradient[k] = make([]float32, size), make([]float32, size)
	}
	return t
}

// at returns the positions of a feature's rows in P and Q.
func (t *bucketTable) at(feature int) [2]int {
	return [2]int{feature % t.buckets * t.dim, feature / t.wide * t.dim}
}

// sum sets e to the embedding of a feature.
func (t *bucketTable) sum(e []float32, feature int) {
	at := t.at(feature)
	p, q := t.read[0][at[0]:][:len(e)], t.read[1][at[1]:][:len(e)]
	for c := range e {
		e[c] = p[c] + q[c]
	}
}

func (t *bucketTable) gather(x kernel.Tile, rows *model.Rows) {
	parts(rows.Len(), chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			row := x.Row(i)
			for j, f := range rows.Row(i) {
				t.sum(row[j*t.dim:(j+1)*t.dim], int(f))
			}
		}
	})
}

// Scatter adds the gradients of the features in their order, so the sums are the same on any
// number of cores.
func (t *bucketTable) Scatter(fields []FeatureGradients) {
	each(len(t.gradient), func(k int) {
		clear(t.gradient[k])
		for _, field := range fields {
			for i, f := range field.Features {
				kernel.Axpy(t.gradient[k][t.at(int(f))[k]:][:t.dim], 1, field.Embedding[i*t.dim:])
			}
		}
	})
}

func (t *bucketTable) materialise(embedding []float32) {
	parts(t.features, tableRows, func(from, to int) {
		for f := from; f < to; f++ {
			t.sum(embedding[f*t.dim:(f+1)*t.dim], f)
		}
	})
}

// cerpTable is the table with which CERP finds the entries to keep. P and Q have soft thresholds
// as in PEP. The loss has the term gamma * -sum(tanh(100 (P+Q))^2), over all pairs of rows with
// the same number, with thresholds applied. gamma is 1e-4 in the first epoch and halves in each.
type cerpTable struct {
	bucketTable
	keep  int
	soft  [2]*softTensor
	epoch int
}

// pruneFactor is the factor of CERP's pruning loss in the first epoch.
const pruneFactor = 1e-4

// newCERPTable returns a table that keeps the values of b. All entries start as kept.
func newCERPTable(a *model.Architecture, b *Buckets, keep int, start float32, faster float64) *cerpTable {
	t := &cerpTable{bucketTable: newBucketTable(a, b.Rows(a.Dim)), keep: keep}
	t.soft = [2]*softTensor{newSoftTensor("p", b.Values[0], start, faster), newSoftTensor("q", b.Values[1], start, faster)}
	return t
}

func (t *cerpTable) Tensors() []*tensor { return append(t.soft[0].tensors(), t.soft[1].tensors()...) }

func (t *cerpTable) Gather(x kernel.Tile, rows *model.Rows, epoch int) {
	t.epoch = epoch
	t.soften()
	t.gather(x, rows)
}

// soften computes the tables that the features read.
func (t *cerpTable) soften() {
	for k, s := range t.soft {
		parts(len(t.read[k]), adamValues, func(from, to int) {
			soften(t.read[k][from:to], s.values.values[from:to], s.raw.values[from:to])
		})
	}
}

func (t *cerpTable) Step(dense, _ *kernel.AdamStep) {
	gamma := float32(pruneFactor * math.Pow(.5, float64(max(0, t.epoch-1))))
	thresholds := t.soft[0].thresholdStep(dense)
	parts(len(t.read[0]), adamValues, func(from, to int) {
		ds := make([]float32, to-from)
		for i := from; i < to; i++ {
			g := float32(gamma * pruneSlope(t.read[0][i]+t.read[1][i]))
			t.gradient[0][i] += g
			t.gradient[1][i] += g
		}
		for k, s := range t.soft {
			dv := t.gradient[k][from:to]
			softenBackward(dv, ds, dv, s.values.values[from:to], s.raw.values[from:to])
			s.move(from, to, dv, ds, dense, thresholds)
		}
	})
}

func (t *cerpTable) Materialise(embedding []float32) {
	t.soften()
	t.materialise(embedding)
}

// readEntries returns the number of entries of Q that features read.
func (t *cerpTable) readEntries() int { return readBuckets(t.features, t.buckets) * t.dim }

func (t *cerpTable) remaining() int {
	return t.soft[0].alive(0, len(t.read[0])) + t.soft[1].alive(0, t.readEntries())
}

// mask never keeps the entries of Q that no feature reads.
func (t *cerpTable) mask() []bool {
	size, read := len(t.read[0]), t.readEntries()
	m := make([]float32, size+read)
	margins(m[:size], t.soft[0].values.values, t.soft[0].raw.values)
	margins(m[size:], t.soft[1].values.values[:read], t.soft[1].raw.values[:read])
	return append(greatest(m, t.keep), make([]bool, size-read)...)
}

// maskedBuckets is the table of CERP's second training, in which only the kept entries move.
type maskedBuckets struct {
	bucketTable
	kept  [2][]int32 // positions of the kept entries, ascending
	moved [2]*tensor // of the kept entries
}

// newMaskedBuckets returns a table that keeps and changes the values of b.
func newMaskedBuckets(a *model.Architecture, b *Buckets) *maskedBuckets {
	t := &maskedBuckets{bucketTable: newBucketTable(a, b.Rows(a.Dim))}
	t.read = b.Values
	for k := range b.Values {
		var kept []float32
		for i, keep := range b.Kept[k] {
			if keep {
				t.kept[k], kept = append(t.kept[k], int32(i)), append(kept, b.Values[k][i])
			}
		}
		t.moved[k] = newVector([2]string{"p", "q"}[k], kept)
	}
	return t
}

func (t *maskedBuckets) Tensors() []*tensor { return t.moved[:] }

func (t *maskedBuckets) Gather(x kernel.Tile, rows *model.Rows, _ int) {
	t.spread()
	t.gather(x, rows)
}

// spread sets the values of the tables to those of the kept entries.
func (t *maskedBuckets) spread() {
	for k, kept := range t.kept {
		for i, at := range kept {
			t.read[k][at] = t.moved[k].values[i]
		}
	}
}

func (t *maskedBuckets) Step(dense, _ *kernel.AdamStep) {
	for k, kept := range t.kept {
		for i, at := range kept {
			t.moved[k].gradient[i] = t.gradient[k][at]
		}
		t.moved[k].adam(dense)
	}
}

func (t *maskedBuckets) Materialise(embedding []float32) {
	t.spread()
	t.materialise(embedding)
}
