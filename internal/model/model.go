package model

import (
	"fmt"
	"math"
)

// Model is a click model, ready to be evaluated by any number of goroutines at
// once. Make one with New; do not change its weights afterwards.
type Model struct {
	Architecture
	Weights Weights
	table   Embedder // nil if Weights has the embedding
	head    *head
	offsets []int32
}

// Embedder gives rows their embeddings out of another form than [Features, Dim]
// float32. It serves any number of goroutines at once.
type Embedder interface {
	// Embed writes the embeddings of some rows, [rows, D], to x. The features, global
	// ids, [rows, m], have passed CheckRow.
	Embed(x []float32, features []int32)
}

// New checks that the weights fit the architecture and are finite, and returns
// the model. It keeps the slices.
func New(a Architecture, w Weights) (*Model, error) {
	return newModel(a, w, nil)
}

// NewWithEmbedder is New for a model whose embedding is only in t, of a's shape:
// Weights.Embedding is nil, then and later.
func NewWithEmbedder(a Architecture, w Weights, t Embedder) (*Model, error) {
	if w.Embedding != nil || t == nil {
		panic("model: NewWithTable: expected one embedding")
	}
	return newModel(a, w, t)
}

func newModel(a Architecture, w Weights, t Embedder) (*Model, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if err := w.check(&a, t == nil); err != nil {
		return nil, err
	}
	m := &Model{Architecture: a, Weights: w, table: t, offsets: a.Offsets()}
	m.head = newHead(&a, &w)
	return m, nil
}

// WithEmbedding returns a model that shares all of m but the embedding table,
// [Features, Dim], which it keeps.
func (m *Model) WithEmbedding(table []float32) *Model {
	if len(table) != m.Parameters() {
		panic("model: WithEmbedding: table has the wrong length")
	}
	other := *m
	other.Weights.Embedding, other.table = table, nil
	return &other
}

// CheckRow reports the first feature of a row (global ids, one per field) that
// is outside its field.
func (m *Model) CheckRow(features []int32) error {
	if len(features) != m.Fields() {
		return fmt.Errorf("row has %d fields, the model has %d", len(features), m.Fields())
	}
	for j, f := range features {
		if first := m.offsets[j]; f < first || int(f) >= int(first)+m.FieldDims[j] {
			return fmt.Errorf("field %d has global id %d, outside [%d, %d)", j, f, first, int(first)+m.FieldDims[j])
		}
	}
	return nil
}

// Embed writes the embedding of a row, [D], to x, or of more, [rows, D], whose
// features follow each other.
func (m *Model) Embed(x []float32, features []int32) {
	if m.table != nil {
		m.table.Embed(x, features)
		return
	}
	for j, f := range features {
		copy(x[j*m.Dim:(j+1)*m.Dim], m.Weights.Embedding[int(f)*m.Dim:])
	}
}

// constant returns the part of the logit that no player changes: the bias and
// the first-order weights.
func (m *Model) constant(features []int32) float64 {
	sum := float64(m.Weights.Bias)
	if m.Weights.FirstOrder != nil {
		for _, f := range features {
			sum += float64(m.Weights.FirstOrder[f])
		}
	}
	return sum
}

// pairwise reports whether the logit has FM's second-order term.
func (m *Model) pairwise() bool { return m.Kind == FM || m.Kind == DeepFM }

// Loss returns the natural-log loss softplus(logit) - label*logit, in nat.
func Loss(logit float64, label uint8) float64 {
	return max(logit, 0) + math.Log1p(math.Exp(-math.Abs(logit))) - float64(label)*logit
}

// Scorer computes logits of whole rows. It is for one goroutine.
type Scorer struct {
	m     *Model
	s     *tile
	x     []float32 // embeddings of a tile's rows, [size, D]
	sum   pairSum
	slots []float64 // the network's logits, of a tile's size
}

// NewScorer returns a scorer of m.
func (m *Model) NewScorer() *Scorer {
	t := newTile(m.head)
	return &Scorer{m: m, s: t, x: make([]float32, t.size*m.Players()), sum: newPairSum(m), slots: make([]float64, t.size)}
}

// Logits sets dst[i] to the logit of row i, which depends on nothing but the row,
// to the bit. Rows must have passed CheckRow.
func (s *Scorer) Logits(dst []float64, rows *Rows) {
	for from := 0; from < rows.Len(); from += len(s.slots) {
		slots := s.slots[:min(len(s.slots), rows.Len()-from)]
		players := s.m.Players()
		s.m.Embed(s.x, rows.Features[from*rows.Fields:(from+len(slots))*rows.Fields])
		for i := range slots {
			x := s.x[i*players : (i+1)*players]
			dst[from+i] = s.beside(rows.Row(from+i), x)
			s.s.put(i, x)
		}
		s.s.logits(slots)
		for i, v := range slots {
			dst[from+i] += v
		}
	}
}

// beside returns what the logit has beside the network.
func (s *Scorer) beside(row []int32, x []float32) float64 {
	logit := s.m.constant(row)
	if s.m.pairwise() {
		s.sum.set(x)
		logit += s.sum.value()
	}
	return logit
}

// logit evaluates a row with the embedding x in place of its own.
func (s *Scorer) logit(row []int32, x []float32) float64 {
	slots := s.slots[:1]
	s.s.put(0, x)
	s.s.logits(slots)
	return s.beside(row, x) + slots[0]
}
