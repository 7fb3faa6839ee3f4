package train

import (
	"math"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
)

// cerpTable is the table with which CERP finds the entries to keep. P and Q have soft thresholds
// as in PEP. The loss has the term gamma * -sum(tanh(100 (P+Q))^2), over all pairs of rows with
// the same number, with thresholds applied. gamma is 1e-4 in the first epoch and halves in each.
type cerpTable struct {
	composedBase // with the thresholds applied
	keep         int
	soft         [2]*softTensor
	epoch        int
}

// pruneFactor is the factor of CERP's pruning loss in the first epoch.
const pruneFactor = 1e-4

// newCERPTable returns a table that keeps and changes the values of c.
func newCERPTable(a *model.Architecture, c *composed.Table, rows, keep int, start float32, faster float64) *cerpTable {
	t := &cerpTable{composedBase: newComposedBase(a, composed.New(c.Shape), rows), keep: keep}
	for k := range t.soft {
		t.soft[k] = newSoftTensor([]string{"p", "q"}[k], c.Tensors[k].Values, start, faster)
	}
	return t
}

func (t *cerpTable) Tensors() []*tensor { return append(t.soft[0].tensors(), t.soft[1].tensors()...) }

func (t *cerpTable) Gather(x kernel.Tile, rows *model.Rows, epoch int) {
	t.epoch = epoch
	t.soften()
	t.gather(x, rows)
}

// read returns P and Q as the embeddings read them.
func (t *cerpTable) read() [2][]float32 {
	return [2][]float32{t.table.Tensors[0].Values, t.table.Tensors[1].Values}
}

// soften computes the tables that the embeddings read.
func (t *cerpTable) soften() {
	for k, read := range t.read() {
		s := t.soft[k]
		parts(len(read), adamValues, func(from, to int) {
			soften(read[from:to], s.values.values[from:to], s.raw.values[from:to])
		})
	}
}

func (t *cerpTable) Step(dense, _ *kernel.AdamStep) {
	gamma := float32(pruneFactor * math.Pow(.5, float64(max(0, t.epoch-1))))
	thresholds := t.soft[0].thresholdStep(dense)
	read := t.read()
	parts(len(read[0]), adamValues, func(from, to int) {
		ds := make([]float32, to-from)
		for i := from; i < to; i++ {
			g := float32(gamma * pruneSlope(read[0][i]+read[1][i]))
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
	t.table.All(embedding)
}

// readEntries returns the number of entries of Q that embeddings read.
func (t *cerpTable) readEntries() int { return t.table.Shape.ReadRows() * t.table.Shape.Dim }

func (t *cerpTable) remaining() int {
	return t.soft[0].alive(0, len(t.soft[0].values.values)) + t.soft[1].alive(0, t.readEntries())
}

// mask never keeps the entries of Q that no embedding reads.
func (t *cerpTable) mask() []bool {
	size, read := len(t.soft[0].values.values), t.readEntries()
	m := make([]float32, size+read)
	margins(m[:size], t.soft[0].values.values, t.soft[0].raw.values)
	margins(m[size:], t.soft[1].values.values[:read], t.soft[1].raw.values[:read])
	return append(greatest(m, t.keep), make([]bool, size-read)...)
}

// keptTable is the table of CERP's second training, in which only the kept entries move.
type keptTable struct {
	composedBase
	kept  [2][]int32 // positions of the kept entries, ascending
	moved [2]*tensor // of the kept entries
}

// newKeptTable returns a table that keeps and changes the values of c.
func newKeptTable(a *model.Architecture, c *composed.Table, rows int) *keptTable {
	t := &keptTable{composedBase: newComposedBase(a, c, rows)}
	for k, mask := range c.Kept {
		var kept []float32
		for i, keep := range mask {
			if keep {
				t.kept[k], kept = append(t.kept[k], int32(i)), append(kept, c.Tensors[k].Values[i])
			}
		}
		t.moved[k] = newVector([]string{"p", "q"}[k], kept)
	}
	return t
}

func (t *keptTable) Tensors() []*tensor { return t.moved[:] }

func (t *keptTable) Gather(x kernel.Tile, rows *model.Rows, _ int) {
	t.spread()
	t.gather(x, rows)
}

// spread sets the values of the tables to those of the kept entries.
func (t *keptTable) spread() {
	for k, kept := range t.kept {
		for i, at := range kept {
			t.table.Tensors[k].Values[at] = t.moved[k].values[i]
		}
	}
}

func (t *keptTable) Step(dense, _ *kernel.AdamStep) {
	for k, kept := range t.kept {
		for i, at := range kept {
			t.moved[k].gradient[i] = t.gradient[k][at]
		}
		t.moved[k].adam(dense)
	}
}

func (t *keptTable) Materialise(embedding []float32) {
	t.spread()
	t.table.All(embedding)
}

func (t *keptTable) composed() *composed.Table {
	t.spread()
	return t.table
}
