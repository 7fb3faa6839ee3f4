package model

import (
	"fmt"
	"math"
)

// Model is a click model. Any number of goroutines may evaluate it at once. Make one with
// New, and do not change its weights afterwards.
type Model struct {
	Architecture
	Weights Weights
	table   Embedder // source of the embeddings; nil if Weights has them
	head    *head
	offsets []int32
}

// Embedder provides embeddings that are stored in a form other than [Features, Dim]
// float32. Any number of goroutines may use it at once.
type Embedder interface {
	// Embed writes the embeddings of some rows, [rows, D], to x. features holds the rows'
	// global ids, [rows, m]. They have passed CheckRow.
	Embed(x []float32, features []int32)
}

// New returns a model with the given architecture and weights. It returns an error if the
// weights do not fit the architecture or are not finite. The model keeps the slices.
func New(a Architecture, w Weights) (*Model, error) {
	return newModel(a, w, nil)
}

// NewWithEmbedder is like New for a model whose embeddings come from t and not from w. t
// must have the shape of a. Weights.Embedding must be nil and stays nil.
func NewWithEmbedder(a Architecture, w Weights, t Embedder) (*Model, error) {
	if w.Embedding != nil || t == nil {
		panic("model: NewWithEmbedder: need either Weights.Embedding or an Embedder")
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

// WithEmbedding returns a model that shares everything with m except the embedding table,
// [Features, Dim]. The new model keeps the slice.
func (m *Model) WithEmbedding(table []float32) *Model {
	if len(table) != m.Parameters() {
		panic("model: WithEmbedding: table has the wrong length")
	}
	other := *m
	other.Weights.Embedding, other.table = table, nil
	return &other
}

// CheckRow returns an error if a row does not have one feature per field, or if a
// feature, a global id, lies outside its field. The error names the first such field.
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

// Embed writes the embeddings of one or more rows to x, [rows, D]. features holds the
// rows' global ids, [rows, m].
func (m *Model) Embed(x []float32, features []int32) {
	if m.table != nil {
		m.table.Embed(x, features)
		return
	}
	for j, f := range features {
		copy(x[j*m.Dim:(j+1)*m.Dim], m.Weights.Embedding[int(f)*m.Dim:])
	}
}

// constant returns the part of the logit that does not depend on the players: the bias
// and the first-order weights.
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

// Loss returns the log loss softplus(logit) - label*logit, in nat.
func Loss(logit float64, label uint8) float64 {
	return max(logit, 0) + math.Log1p(math.Exp(-math.Abs(logit))) - float64(label)*logit
}

// Scorer computes logits of whole rows. Only one goroutine may use it at a time.
type Scorer struct {
	m     *Model
	s     *tile
	x     []float32 // [size, D]: embeddings of a tile's rows
	sum   pairSum
	slots []float64 // [size]: the network's logits of a tile
}

// NewScorer returns a scorer for m.
func (m *Model) NewScorer() *Scorer {
	t := newTile(m.head)
	return &Scorer{m: m, s: t, x: make([]float32, t.size*m.Players()), sum: newPairSum(m), slots: make([]float64, t.size)}
}

// Logits sets dst[i] to the logit of row i. To the last bit, the logit of a row does not
// depend on the other rows. Every row must have passed CheckRow.
func (s *Scorer) Logits(dst []float64, rows *Rows) {
	for from := 0; from < rows.Len(); from += len(s.slots) {
		slots := s.slots[:min(len(s.slots), rows.Len()-from)]
		players := s.m.Players()
		s.m.Embed(s.x, rows.Features[from*rows.Fields:(from+len(slots))*rows.Fields])
		for i := range slots {
			x := s.x[i*players : (i+1)*players]
			dst[from+i] = s.shallow(rows.Row(from+i), x)
			s.s.put(i, x)
		}
		s.s.logits(slots)
		for i, v := range slots {
			dst[from+i] += v
		}
	}
}

// shallow returns the part of the logit that does not come from the network: the constant,
// FM's term and the linear term.
func (s *Scorer) shallow(row []int32, x []float32) float64 {
	logit := s.m.constant(row)
	if s.m.pairwise() || s.m.Weights.Linear != nil {
		s.sum.set(x)
		logit += s.sum.value()
	}
	return logit
}

// logit evaluates a row with the embedding x instead of its own.
func (s *Scorer) logit(row []int32, x []float32) float64 {
	slots := s.slots[:1]
	s.s.put(0, x)
	s.s.logits(slots)
	return s.shallow(row, x) + slots[0]
}
