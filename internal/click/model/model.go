package model

import (
	"fmt"
	"slices"

	"shaver/internal/num/vector"
)

// Model is a click model. Any number of goroutines may evaluate it at once. Make one with
// New, and do not change its weights afterwards.
type Model struct {
	Architecture
	Weights   Weights
	table     Embedder // source of the embeddings; nil if Weights has them
	core      core
	offsets   []int32
	lengths   []int         // number of ids of each field; nil without lists
	positions []position    // nil if the architecture is plain
	absent    *absentReader // nil unless rows may lack fields, see WithAbsent
}

// Embedder provides embeddings that are stored in a form other than the tables as float32. Any
// number of goroutines may use it at once.
type Embedder interface {
	// Embed writes the embeddings of some rows, [rows, D], to x. features holds the rows'
	// global ids, [rows, Width]. They have passed CheckRow.
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
	if !a.Plain() {
		m.positions = a.positions()
	}
	if len(a.Lists) > 0 {
		m.lengths = a.Lengths()
	}
	if a.Kind == Graph {
		var err error
		m.core, err = newGraphCore(&a, w.Graph)
		return m, err
	}
	m.core = newHead(&a, &w)
	return m, nil
}

// Repack returns a model that shares the weights of m, and packs them for the level that
// kernel.Use selected. m can still be used at its own level.
func (m *Model) Repack() (*Model, error) { return newModel(m.Architecture, m.Weights, m.table) }

// Freeze returns a model that shares everything with m except Frozen; see Architecture.Freeze, which checks them.
func (m *Model) Freeze(fields []int) *Model {
	other := *m
	other.Frozen = fields
	return &other
}

// WithEmbedding returns a model that shares everything with m except the embedding tables,
// [Parameters]. The new model keeps the slice.
func (m *Model) WithEmbedding(table []float32) *Model {
	if len(table) != m.Parameters() {
		panic("model: WithEmbedding: table has the wrong length")
	}
	other := *m
	other.Weights.Embedding, other.table = table, nil
	return &other
}

// WithEmbedder returns a model that shares everything with m except the embeddings, which come from t. t must
// have the shape of m.
func (m *Model) WithEmbedder(t Embedder) *Model {
	other := *m
	other.Weights.Embedding, other.table = nil, t
	return &other
}

// CheckRow returns an error if a row does not have one id for each position of its fields,
// or if an id, which is global, lies outside its field. The error names the first such
// field.
func (m *Model) CheckRow(features []int32) error {
	if m.lengths != nil {
		return m.checkLists(features)
	}
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

// checkLists is CheckRow for an architecture with lists.
func (m *Model) checkLists(features []int32) error {
	if width := m.Width(); len(features) != width {
		return fmt.Errorf("row has %d ids, the model has %d", len(features), width)
	}
	for j, n := range m.lengths {
		first := m.offsets[j]
		for i, f := range features[:n] {
			if f < first || int(f) >= int(first)+m.FieldDims[j] {
				return fmt.Errorf("field %d has global id %d at position %d, outside [%d, %d)", j, f, i, first, int(first)+m.FieldDims[j])
			}
		}
		features = features[n:]
	}
	return nil
}

// Embed writes the embeddings of one or more rows to x, [rows, D]. features holds the
// rows' global ids, [rows, Width].
func (m *Model) Embed(x []float32, features []int32) {
	if m.table != nil {
		m.table.Embed(x, features)
		return
	}
	if m.positions != nil {
		m.embedPositions(x, features)
		return
	}
	vector.Gather(x, m.Weights.Embedding, m.Dim, features)
}

// embedPositions is Embed for an architecture with several tables.
func (m *Model) embedPositions(x []float32, features []int32) {
	for row := range slices.Chunk(features, m.Width()) {
		for i := range m.positions {
			p := &m.positions[i]
			from := p.entry + (int(row[p.at])-p.feature)*p.dim
			copy(x[:p.dim], m.Weights.Embedding[from:])
			x = x[p.dim:]
		}
	}
}

// constant returns the part of the logit that does not depend on the players: the bias
// and the first-order weights.
func (m *Model) constant(features []int32) float64 {
	sum := float64(m.Weights.Bias)
	if m.Weights.FirstOrder != nil {
		for i, f := range features {
			if id, absent := m.absent.read(i, f); absent {
				sum += float64(m.absent.constants[i][0])
			} else {
				sum += float64(m.Weights.FirstOrder[id])
			}
		}
	}
	return sum
}

// pairwise reports whether the logit has FM's second-order term.
func (m *Model) pairwise() bool { return m.Kind == FM || m.Kind == DeepFM }

// core computes the logits of a model from embeddings. Models of Kind Graph have a
// graphCore, and all others a head.
type core interface {
	newScorer(m *Model) scorer
	newProbe(m *Model, book *Book) prober
	newGradient(m *Model) gradient
	differentiable() error
}

// scorer and prober are what a core makes for one goroutine. Scorer and Probe document
// their methods.
type scorer interface {
	logits(dst []float64, rows *Rows)
}

type prober interface {
	reset(rows *Rows, r int)
	empty() float64
	empties(dst []float64, rows *Rows)
	walk(order []int32, logits []float64)
	coalition(present []bool) float64
	coalitions(first int, logits []float64)
}

// Scorer computes logits of whole rows. Only one goroutine may use it at a time.
type Scorer struct{ s scorer }

// NewScorer returns a scorer for m.
func (m *Model) NewScorer() *Scorer { return &Scorer{m.core.newScorer(m)} }

// Logits sets dst[i] to the logit of row i. To the last bit, the logit of a row does not
// depend on the other rows. Every row must have passed CheckRow.
func (s *Scorer) Logits(dst []float64, rows *Rows) { s.s.logits(dst, rows) }

// Probe evaluates one row while its players replace the baseline one by one. The players
// are those of a [Roster] of the row. Elements that no player has, those of pad rows and frozen
// fields, have their own values in every state. Only one goroutine may use a Probe at a time. A Probe
// allocates no memory after NewProbe.
type Probe struct{ p prober }

// NewProbe returns a probe of m. book, of m's architecture, says what dropped entries read.
func (m *Model) NewProbe(book *Book) *Probe {
	return &Probe{m.core.newProbe(m, book)}
}

// Reset selects row r of rows, which must have passed CheckRow. The rows must not change
// before the next call of Reset.
func (p *Probe) Reset(rows *Rows, r int) { p.p.reset(rows, r) }

// Empty returns the row's logit with everything dropped.
func (p *Probe) Empty() float64 { return p.p.empty() }

// Empties sets dst[i] to the logit of row i of rows with everything dropped, which is what
// Empty returns for the row. A model of Kind Graph computes many at a time. The caller must
// call Reset before it uses another method.
func (p *Probe) Empties(dst []float64, rows *Rows) { p.p.empties(dst, rows) }

// Walk lets the entries of the row appear in the given order of its players. It sets
// logits[k] to the logit with the first k of them present; logits has one element more
// than order. The
// first equals Empty. The last equals the row's logit up to the rounding of the updates.
// An entry that equals its baseline leaves the logit unchanged to the last bit.
func (p *Probe) Walk(order []int32, logits []float64) { p.p.walk(order, logits) }

// Coalition returns the logit with exactly the given players present. It is computed from
// scratch. present has an element for each player. With all present the result equals that of a
// Scorer to the last bit.
func (p *Probe) Coalition(present []bool) float64 { return p.p.coalition(present) }

// Coalitions sets logits[i] to the logit of the coalition number first+i. Bit k of a
// coalition's number is set if player k is present. The logits are those of Coalition, but
// a model of Kind Graph computes many at a time.
func (p *Probe) Coalitions(first int, logits []float64) { p.p.coalitions(first, logits) }
