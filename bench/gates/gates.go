// Package gates re-implements the gates of embedding entries of ShuffleGate (Huang et al., arXiv 2503.09315), to
// compare its ranking with those of shaver. It contains no code of the authors.
//
// The model is trained and does not change. An entry w has a gate g = sigmoid(theta). Where a row of a batch
// reads the entry, the network gets
//
//	g*w + (1-g)*s
//
// instead, where s is what the same place has after the ids of each field are permuted over the batch. Adam
// minimises the mean loss of the batch plus lambda times the mean of all gates, over the gates alone. So
// gates of entries that the batch does not read move too. The entries with the lowest gates are dropped first.
//
// Differences from the paper: The ids of a list are permuted over all positions of the batch that have a value. An entry
// has one gate wherever it is read. Pad rows and frozen fields have none, and stay as they are. Theta has no
// temperature. Dropped entries get the baseline of shaver, and the network is not trained again.
package gates

import (
	"context"
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/num/random"
	"shaver/internal/value/mask"
)

// Options are the settings of a training.
type Options struct {
	Lambda       float64 // weight of the mean of all gates, at least 0
	LearningRate float64 // of Adam, for theta
	Epochs       int     // number of passes over the rows
	Batch        int     // number of rows of a step, at least 1
	Seed         uint64  // of the order of the rows and of the permutations
}

// Default has the best validation AUC of one DCN-Mix, over five sparsities. Twice the epochs gain nothing more.
var Default = Options{Lambda: 3, LearningRate: .03, Epochs: 10, Batch: 2048, Seed: 1}

const start = 2 // theta before the training

// Train returns the gate of each entry of m, [Parameters], after a training on the rows of source, which
// it keeps in memory. Their labels are 0 or 1. The same options give the same gates. The error is that
// of source or ctx, or says that m is not differentiable.
func Train(ctx context.Context, m *model.Model, source model.RowSource, o Options) ([]float64, error) {
	if err := m.Differentiable(); err != nil {
		return nil, err
	}
	var rows, batch model.Rows
	if err := source(ctx, func(part *model.Rows) error { rows.AppendAll(part); return nil }); err != nil {
		return nil, err
	}
	t, order := newTrainer(m), make([]int32, rows.Len())
	for epoch := range o.Epochs {
		stream := random.At(o.Seed, random.Shuffle, uint64(epoch), 0)
		stream.Permute(order)
		for from := 0; from < len(order) && ctx.Err() == nil; from += o.Batch {
			batch.Reset()
			for _, r := range order[from:min(from+o.Batch, len(order))] {
				batch.Append(&rows, int(r))
			}
			stream := random.At(o.Seed, random.Shuffle, uint64(epoch), uint64(from/o.Batch)+1)
			t.add(&batch, permuted(&m.Architecture, &batch, &stream))
			t.move(1/float64(batch.Len()), o.Lambda/float64(m.Prunable()), o.LearningRate)
		}
	}
	return t.gates, ctx.Err()
}

// Order returns all entries, the one with the lowest gate first. Ties are broken by the distance from the
// baseline, and then by position. The entries of pad rows and frozen fields come last.
func Order(m *model.Model, gates []float64, baseline model.Baseline) ([]int32, error) {
	apart := make([]float32, len(gates))
	for i, b := range mask.Apply(&m.Architecture, m.Weights.Embedding, slices.Repeat([]bool{true}, len(gates)), baseline) {
		apart[i] = m.Weights.Embedding[i] - b
	}
	order, err := mask.Order(mask.Signed, gates, apart)
	if err == nil {
		order, _ = mask.PadsLast(&m.Architecture, order)
	}
	return order, err
}

// permuted returns the ids of rows, [len, Width], with those of each field permuted over the rows and
// the positions of a list. Pads stay where they are.
func permuted(a *model.Architecture, rows *model.Rows, stream *random.Stream) []int32 {
	ids, offsets, at := slices.Clone(rows.Features), a.Offsets(), 0 // at is the position of the field's first id in a row
	for j, length := range a.Lengths() {
		pad := int32(-1) // global id
		if k := slices.IndexFunc(a.Lists, func(l model.List) bool { return l.Field == j }); k >= 0 && a.Lists[k].Pad >= 0 {
			pad = offsets[j] + int32(a.Lists[k].Pad)
		}
		var places []int
		for i, id := range ids {
			if p := i % rows.Width; p >= at && p < at+length && id != pad {
				places = append(places, i)
			}
		}
		order := make([]int32, len(places))
		stream.Permute(order)
		for k, i := range order {
			ids[places[k]] = rows.Features[places[i]]
		}
		at += length
	}
	return ids
}

// trainer trains the gates of a model.
type trainer struct {
	m                                 *model.Model
	gradient                          *model.Gradient
	roster                            *model.Roster
	shape                             layout.Shape
	gates                             []float64 // [Parameters]
	slopes                            []float64 // [Parameters], sum over rows of the derivative of the loss by each gate
	entries                           []int32   // [States, D], entry that each element of a slot reads
	apart                             []float32 // [States, D], derivative of each element of a slot by its gate; 0 if it has none
	players                           []int32   // entry of each player of a row
	other                             []float32 // [D], embedding of the permuted ids
	logits                            []float64 // [States]
	theta, derivatives, first, second []float32 // weights of Adam, their gradients and moments, [Parameters]
	steps                             float64   // number of steps, with the current one
}

func newTrainer(m *model.Model) *trainer {
	g, n, d := m.NewGradient(), m.Parameters(), m.Players()
	return &trainer{
		m: m, gradient: g, roster: model.NewRoster(&m.Architecture), shape: m.Shape(),
		gates: slices.Repeat([]float64{sigmoid(start)}, n), slopes: make([]float64, n),
		entries: make([]int32, g.States()*d), apart: make([]float32, g.States()*d), other: make([]float32, d), logits: make([]float64, g.States()),
		theta: slices.Repeat([]float32{start}, n), derivatives: make([]float32, n), first: make([]float32, n), second: make([]float32, n),
	}
}

// add adds the derivatives of the loss of some rows to slopes, and returns the sum of their losses.
// ids are the permuted ids of the rows.
func (t *trainer) add(rows *model.Rows, ids []int32) (sum float64) {
	width := t.m.Players()
	for from := 0; from < rows.Len(); from += len(t.logits) {
		logits := t.logits[:min(len(t.logits), rows.Len()-from)]
		for k := range logits {
			t.mix(k, rows, from+k, ids[(from+k)*rows.Width:][:rows.Width])
		}
		t.gradient.Slopes(logits)
		for k, z := range logits {
			sum += loss.Logistic.Of(z, rows.Label[from+k])
			by := sigmoid(z) - float64(rows.Label[from+k]) // derivative of the loss by the logit
			for i, slope := range t.gradient.Slope(k) {
				t.slopes[t.entries[k*width+i]] += float64(by * float64(slope*t.apart[k*width+i]))
			}
		}
	}
	return sum
}

// mix sets slot k to what the network gets for row r of rows, whose permuted ids are given.
func (t *trainer) mix(k int, rows *model.Rows, r int, ids []int32) {
	x := t.gradient.Set(k, rows, r)
	entries, apart := t.entries[k*len(x):][:len(x)], t.apart[k*len(x):]
	t.m.Embed(x, rows.Row(r))
	t.m.Embed(t.other, ids)
	t.roster.Set(rows.Row(r))
	t.players = t.players[:0]
	for _, r := range t.roster.Rows() {
		for i, to := t.shape.Row(int(r)); i < to; i++ {
			t.players = append(t.players, int32(i))
		}
	}
	for i, player := range t.roster.ByElement() {
		if entries[i], apart[i] = 0, 0; player >= 0 {
			entry := t.players[player]
			entries[i], apart[i] = entry, x[i]-t.other[i]
			x[i] = t.other[i] + float32(float32(t.gates[entry])*apart[i])
		}
	}
}

// move moves the gates down the derivatives scale*slopes + pull, by one step of Adam. It clears slopes.
func (t *trainer) move(scale, pull, rate float64) {
	for i, g := range t.gates {
		t.derivatives[i] = float32((float64(scale*t.slopes[i]) + pull) * g * (1 - g))
	}
	clear(t.slopes)
	t.steps++
	kernel.Adam(t.theta, t.derivatives, t.first, t.second, &kernel.AdamStep{
		First: .1, Second: .001, Keep: .999, Rate: float32(rate / (1 - math.Pow(.9, t.steps))), Root: float32(math.Sqrt(1 - math.Pow(.999, t.steps))), Epsilon: 1e-8,
	})
	for i, theta := range t.theta {
		t.gates[i] = sigmoid(float64(theta))
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
