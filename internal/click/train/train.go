// Package train trains models by gradient descent, as PyTorch does. A [Trainer] moves
// the parameters of a model by one step of Adam for each batch of rows.
//
// The same steps give the same bits on any number of cores. Every sum is cut at fixed
// places, and the draws of dropout have addresses. Levels of package kernel round
// differently, so the bits depend on kernel.Name.
package train

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/num/kernel"
	"shaver/internal/num/loss"
)

// Optimizer names the rule that moves the weights.
type Optimizer string

// The optimizers of PyTorch that a Trainer has. Weight decay is added to the gradients.
const (
	Adam       Optimizer = "adam"        // moves every weight in every step
	SparseAdam Optimizer = "sparse-adam" // moves only the embeddings of the batch, without decay; Adam for all other weights
)

// Options are the settings of a training.
type Options struct {
	Optimizer    Optimizer
	LearningRate float64 // above 0
	WeightDecay  float64 // at least 0
	Dropout      float64 // probability of dropping a unit of a hidden layer, in [0, 1); rounded to a multiple of 2^-16
	Batch        int     // largest number of rows of a step, at least 2
	Seed         uint64  // of the draws of dropout
	// Dropped holds the entries of the embedding table that keep their values, [Features,
	// Dim]. It is nil without any.
	Dropped []bool
	// Composed is the table that the training moves, and which the trainer keeps. If it is nil, the
	// table is that of the parameters. Composed.Cache must be nil.
	Composed *composed.Table
	// Cached holds the features that get rows of their own after the first epoch, ascending. There are
	// Composed.Shape.Cached of them.
	Cached []int32
	// Find chooses a training that finds the entries to keep. It is nil for any other training.
	Find *Find
}

// Validate returns an error that names the first invalid option.
func (o *Options) Validate() error {
	number := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	switch {
	case o.Optimizer != Adam && o.Optimizer != SparseAdam:
		return fmt.Errorf("optimizer is %q: expected %s or %s", o.Optimizer, Adam, SparseAdam)
	case !number(o.LearningRate) || o.LearningRate <= 0:
		return fmt.Errorf("learning rate is %v: expected a number above 0", o.LearningRate)
	case !number(o.WeightDecay) || o.WeightDecay < 0:
		return fmt.Errorf("weight decay is %v: expected a number of at least 0", o.WeightDecay)
	case !(o.Dropout >= 0 && o.Dropout < 1):
		return fmt.Errorf("dropout is %v: expected a probability of at least 0 and below 1", o.Dropout)
	case o.Batch < 2 || o.Batch > math.MaxInt32:
		return fmt.Errorf("batch is %d: expected 2 to %d rows", o.Batch, math.MaxInt32)
	}
	return nil
}

// Trainer trains one model. Only one goroutine may use it at a time; it uses all cores.
type Trainer struct {
	a       model.Architecture
	o       Options
	p       *model.Parameters
	steps   int64
	table   Table
	grouped *grouping
	first   *tensor // first-order weights, without a dense gradient; nil without any
	cross   cross   // nil without cross layers
	towers  *towers // nil unless the model is a NeuMF
	hidden  []*hidden
	output  *tensor // [1, in] of the last layer; nil without a network
	outBias *tensor
	bias    *tensor // nil if the logit has no bias of its own

	x, dx      kernel.Tile   // embeddings of the batch and their gradient
	top        kernel.Tile   // output of the cross layers; in a NeuMF, the columns of the MLP
	dTop       kernel.Tile   // its gradient; the same as dx if the MLP reads the whole embeddings
	dh         []kernel.Tile // gradient of the output of each hidden layer
	columnSums []float32     // [rows, Dim], sums over the fields, for the pairwise term
	logits     []float64
	dlogit     []float32
	outputSums *sums
}

// Supports returns an error if a model with the given architecture and parameters cannot be
// trained.
func Supports(a *model.Architecture) error {
	if a.Kind == model.Graph {
		return fmt.Errorf("a model of kind %s cannot be trained: expected %s, %s, %s, %s, %s or %s", a.Kind, model.FM, model.DeepFM, model.WideDeep, model.DCNMix, model.DCNv2, model.NeuMF)
	}
	return nil
}

// table returns the table that o chooses. It keeps the embeddings of p, or the composed table.
func (o *Options) table(a *model.Architecture, p *model.Parameters) Table {
	switch f, c, rows := o.Find, o.Composed, o.Batch+1; {
	case f != nil && c != nil:
		return newCERPTable(a, c, rows, f.Keep, f.start(xavier(c.Shape.Buckets, a.Dim), o), f.Rate/o.LearningRate)
	case c != nil && c.Kept[0] != nil:
		return newKeptTable(a, c, rows)
	case c != nil:
		return newComposedTable(a, c, rows, o.Cached)
	case f == nil:
		return newFullTable(a, p.Embedding, o.Dropped)
	case f.Method == PEP:
		return newPEPTable(a, p.Embedding, f.Keep, f.start(xavier(a.Features(), a.Dim), o), f.Rate/o.LearningRate)
	}
	return newOptTable(a, p.Embedding, o.Batch+1, o.Seed)
}

// New returns a trainer that starts from p, which it keeps and changes. It returns an error
// if p does not fit a or if o is invalid.
func New(a model.Architecture, p *model.Parameters, o Options) (*Trainer, error) {
	if err := Supports(&a); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := p.Check(&a); err != nil {
		return nil, err
	}
	if o.Dropped != nil && len(o.Dropped) != a.Parameters() {
		return nil, fmt.Errorf("dropped has %d entries, expected %d", len(o.Dropped), a.Parameters())
	}
	if err := o.validateComposed(&a); err != nil {
		return nil, err
	}
	if o.Find != nil {
		if err := o.Find.validate(&a, &o); err != nil {
			return nil, err
		}
	}
	rows, width := o.Batch+1, a.Players() // a last batch of one row joins the batch before it
	t := &Trainer{a: a, o: o, p: p, table: o.table(&a, p), grouped: newGrouping(&a, rows)}
	if p.FirstOrder != nil {
		t.first = newVector("first", p.FirstOrder)
		t.first.gradient = nil
	}
	t.x, t.dx = newTile(rows, width), newTile(rows, width)
	t.logits, t.dlogit = make([]float64, rows), make([]float32, rows)
	t.columnSums = make([]float32, rows*a.Dim)
	if p.Bias != nil {
		t.bias = newVector("bias", p.Bias)
	}
	switch a.Kind {
	case model.DCNMix:
		t.cross = newMixCross(&a, p, rows)
	case model.DCNv2:
		t.cross = newFullCross(p, width, rows)
	}
	t.top, t.dTop = t.x, t.dx
	switch {
	case t.parallel():
		t.dTop = newTile(rows, width)
	case a.Kind == model.NeuMF:
		t.towers = newTowers(&a, p, rows)
		t.top, t.dTop = t.towers.x, t.towers.dx
	}
	for i, l := range p.Hidden {
		t.hidden = append(t.hidden, newHidden(i, l, p.Norms[i], rows))
		t.dh = append(t.dh, newTile(rows, l.Out))
	}
	if a.Kind != model.FM {
		t.output, t.outBias = newVector("output.weight", p.Output.Weight), newVector("output.bias", p.Output.Bias)
		t.outputSums = newSums(rows, p.Output.In)
	}
	return t, nil
}

func (t *Trainer) parallel() bool { return t.a.Structure == model.Parallel }

// pairwise reports whether the logit has FM's second-order term.
func (t *Trainer) pairwise() bool { return t.a.Kind == model.FM || t.a.Kind == model.DeepFM }

// tensors returns all tensors of which the features of a batch have gradients of their own.
func (t *Trainer) tensors() []*tensor {
	if t.first == nil {
		return t.table.Tensors()
	}
	return append(t.table.Tensors(), t.first)
}

// small returns all other tensors, which have dense gradients.
func (t *Trainer) small() (all []*tensor) {
	if t.bias != nil {
		all = append(all, t.bias)
	}
	if t.towers != nil {
		all = append(all, t.towers.product)
	}
	if t.cross != nil {
		all = append(all, t.cross.tensors()...)
	}
	for _, h := range t.hidden {
		all = append(all, h.tensors()...)
	}
	if t.output != nil {
		all = append(all, t.output, t.outBias)
	}
	return all
}

// Step moves the weights by one step on the given rows, at least 2 and at most Batch+1. It
// returns the mean loss of the rows before the step. The rows must have passed
// model.CheckRow. In an epoch, no two rows may have the same number, because dropout's draws
// depend on the number and on the epoch. If the loss is not finite, the weights do not change.
func (t *Trainer) Step(rows *model.Rows, epoch int) float64 {
	n := rows.Len()
	if n < 2 || n > t.o.Batch+1 {
		panic("train: Step: a batch has at least 2 rows and at most one more than Batch")
	}
	mean := t.gradients(rows, epoch)
	if math.IsNaN(mean) || math.IsInf(mean, 0) {
		return mean
	}
	t.steps++
	dense := adamStep(t.steps, t.o.LearningRate, t.o.WeightDecay)
	for _, w := range t.small() {
		w.adam(dense)
	}
	if t.first != nil {
		moveFirst(t.first, t.grouped.fields, dense)
	}
	if t.o.Optimizer == SparseAdam {
		t.table.Step(dense, sparseStep(t.steps, t.o.LearningRate))
	} else {
		t.table.Step(dense, nil)
	}
	return mean
}

// gradients computes the gradients of all weights of the mean loss of the rows, each counted Rows.Times times, and
// returns this loss.
func (t *Trainer) gradients(rows *model.Rows, epoch int) float64 {
	n := rows.Len()
	d := &dropout{t.o.Seed, t.o.Dropout, len(t.hidden), epoch, rows.Number}
	t.table.Gather(t.x, rows, epoch)
	t.forward(rows, d)
	sum, total := 0.0, 0.0
	for i := range n {
		total += float64(rows.Times(i))
	}
	for i, y := range rows.Label {
		times := float64(rows.Times(i))
		sum += float64(times * loss.Logistic.Of(t.logits[i], y))
		t.dlogit[i] = float32(times * (sigmoid(t.logits[i]) - float64(y)) / total)
	}
	t.backward(rows, d)
	return sum / total
}

func sigmoid(z float64) float64 { return 1 / (1 + math.Exp(-z)) }

// forward computes the logits of a batch from its embeddings.
func (t *Trainer) forward(rows *model.Rows, d *dropout) {
	n, width := rows.Len(), t.a.Players()
	if t.cross != nil {
		t.cross.pack()
		t.top = t.cross.forward(t.x, n)
	}
	if t.towers != nil {
		t.towers.read(t.x, n)
	}
	h := t.top
	if t.parallel() {
		h = t.x
	}
	for _, layer := range t.hidden {
		layer.pack()
		layer.forward(h, n, d)
		h = layer.h
	}
	parts(n, chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			t.logits[i] = t.shallow(rows.Row(i), t.x.Row(i)[:width], t.columnSums[i*t.a.Dim:(i+1)*t.a.Dim])
			if t.output != nil {
				w := t.output.values
				t.logits[i] += float64(t.outBias.values[0])
				if t.parallel() {
					t.logits[i] += kernel.Dot(w[:width], t.top.Row(i))
					w = w[width:]
				}
				t.logits[i] += kernel.Dot(w, h.Row(i))
			}
		}
	})
}

// shallow returns the part of a row's logit that does not come from the network, and sets
// column to the sums over the fields.
func (t *Trainer) shallow(features []int32, x, column []float32) (logit float64) {
	if t.bias != nil {
		logit = float64(t.bias.values[0])
	}
	if t.first != nil {
		for _, f := range features {
			logit += float64(t.first.values[f])
		}
	}
	if t.towers != nil {
		return logit + t.towers.term(x)
	}
	if !t.pairwise() {
		return logit
	}
	clear(column)
	squares := 0.0
	for from := 0; from < len(x); from += len(column) {
		for c, e := range x[from : from+len(column)] {
			column[c] += e
			squares += float64(float64(e) * float64(e))
		}
	}
	total := 0.0
	for _, c := range column {
		total += float64(float64(c) * float64(c))
	}
	return logit + (total-squares)/2
}

// backward computes the gradients of all weights from dlogit.
func (t *Trainer) backward(rows *model.Rows, d *dropout) {
	n, width := rows.Len(), t.a.Players()
	if t.bias != nil {
		t.bias.gradient[0] = float32(t.sumLogits(n))
	}
	if t.output == nil {
		clear(t.dx.Values)
	} else {
		t.backwardNetwork(rows, d)
	}
	if t.towers != nil {
		t.towers.backward(t.dx, t.x, t.dlogit[:n])
	}
	if t.pairwise() {
		parts(n, chunkRows, func(from, to int) {
			for i := from; i < to; i++ {
				g, dx, x, column := t.dlogit[i], t.dx.Row(i), t.x.Row(i)[:width], t.columnSums[i*t.a.Dim:(i+1)*t.a.Dim]
				for k := 0; k < width; k += len(column) {
					for c, s := range column {
						dx[k+c] += float32(g * (s - x[k+c]))
					}
				}
			}
		})
	}
	if table, ok := t.table.(hider); ok {
		table.hide(t.dx, n)
	}
	t.grouped.add(t.dx, t.dlogit[:n], rows)
	t.table.Scatter(t.grouped.fields)
}

func (t *Trainer) sumLogits(n int) (sum float64) {
	for _, g := range t.dlogit[:n] {
		sum += float64(g)
	}
	return sum
}

// backwardNetwork computes the gradients of the network's weights, and sets dx to the
// gradient of the embeddings through the network. In a NeuMF it sets dTop instead.
func (t *Trainer) backwardNetwork(rows *model.Rows, d *dropout) {
	n, width := rows.Len(), t.a.Players()
	last := len(t.hidden) - 1
	top := t.hidden[last].h
	crossed := 0 // inputs of the output layer from the cross layers
	if t.parallel() {
		crossed = width
	}
	w := t.output.values
	t.outBias.gradient[0] = float32(t.sumLogits(n))
	round(t.output.gradient, t.outputSums.add(n, func(sum []float32, from, to int) {
		for i := from; i < to; i++ {
			kernel.Axpy(sum[:crossed], t.dlogit[i], t.top.Row(i))
			kernel.Axpy(sum[crossed:], t.dlogit[i], top.Row(i))
		}
	}), 1)
	parts(n, chunkRows, func(from, to int) {
		for i := from; i < to; i++ {
			scaled(t.dTop.Row(i)[:crossed], t.dlogit[i], w)
			scaled(t.dh[last].Row(i)[:t.hidden[last].out], t.dlogit[i], w[crossed:])
		}
	})
	for l := last; l >= 0; l-- {
		switch {
		case l > 0:
			t.hidden[l].backward(t.dh[l-1], t.dh[l], t.hidden[l-1].h, n, d)
		case t.parallel():
			t.hidden[0].backward(t.dx, t.dh[0], t.x, n, d)
		default:
			t.hidden[0].backward(t.dTop, t.dh[0], t.top, n, d)
		}
	}
	if t.cross != nil {
		t.cross.backward(t.dTop, t.x, n)
		if t.parallel() {
			addRows(t.dx, t.dTop, n, width)
		}
	}
}

// Parameters returns the weights of the model, with the embeddings that evaluation reads.
// They share memory with the trainer, so the next step changes them.
func (t *Trainer) Parameters() *model.Parameters {
	t.table.Materialise(t.p.Embedding)
	if t.cross != nil {
		t.cross.store(t.p)
	}
	return t.p
}

// Vector is a named part of the state of a Trainer.
type Vector struct {
	Name   string
	Values []float32 // shares memory with the trainer
}

// State returns everything that a step changes besides the number of steps and those of the
// batches in BatchNorm, always in the same order.
func (t *Trainer) State() []Vector {
	var all []Vector
	for _, w := range slices.Concat(t.tensors(), t.small()) {
		all = append(all, Vector{w.name, w.values}, Vector{w.name + ".m", w.m}, Vector{w.name + ".v", w.v})
	}
	for i, n := range t.p.Norms {
		if n != nil {
			all = append(all, Vector{fmt.Sprintf("hidden.%d.mean", i), n.Mean}, Vector{fmt.Sprintf("hidden.%d.variance", i), n.Variance})
		}
	}
	return all
}

// Steps returns the number of steps of the optimizer.
func (t *Trainer) Steps() int64 { return t.steps }

// Resume sets the number of steps, after the caller has set the values of State to those of
// the same training. They must be those after a whole epoch.
func (t *Trainer) Resume(steps int64) {
	if steps > 0 {
		t.firstEnded(true)
	}
	for _, n := range t.p.Norms {
		if n != nil {
			n.Batches += steps - t.steps
		}
	}
	t.steps = steps
}
