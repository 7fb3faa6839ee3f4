package shapley

import (
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/random"
)

// Fields makes the fields of a row and its dense inputs the players of its game. A field with all
// of its look-ups, positions and first-order weights is one player. Either Absent or Background is set.
type Fields struct {
	// Absent is what a row reads in place of its absent players.
	Absent *model.Absent
	// Background has rows of the dataset. Each row draws one of them, and reads its values in place of those of
	// absent players, as in permutation importance. SAGE (Covert et al., NeurIPS 2020) averages the predictions
	// for many such rows before it takes the loss, so its values are smaller.
	Background *model.Rows
	Pairs      bool // whether pairs of players have values too
}

// FieldLayout returns the layout of the values of fields: a table with one row of one entry for
// each field of a, and then for each dense input. With pairs a row has an entry for each of these players. That
// of player i in its own row is its value, and that of player j in row i is, for i < j, the second difference of both
// (see pairs), and its negative in row i of player j. So the sum of all entries is that of the values.
func FieldLayout(a *model.Architecture, pairs bool) model.Architecture {
	players := a.Fields() + len(a.Dense)
	l := model.Architecture{FieldDims: make([]int, players), Dim: 1}
	if pairs {
		l.Dim = players
	}
	for i := range l.FieldDims {
		l.FieldDims[i] = 1
	}
	return l
}

// layout returns the layout of the tables whose entries are the players.
func (g *Game) layout() *model.Architecture {
	if g.Fields == nil {
		return &g.Model.Architecture
	}
	l := FieldLayout(&g.Model.Architecture, g.Fields.Pairs)
	return &l
}

// players returns the largest number of players of a row.
func (g *Game) players() int {
	if g.Fields == nil {
		return g.Model.MostPlayers()
	}
	return g.Model.Fields() + len(g.Model.Dense)
}

// prober evaluates one row while its players appear. Package model documents the methods, at Probe.
type prober interface {
	Reset(rows *model.Rows, r int)
	Empty() float64
	Empties(dst []float64, rows *model.Rows)
	Walk(order []int32, logits []float64)
	Coalitions(first int, logits []float64)
}

// fieldStates is the number of states that a fieldProbe evaluates at a time.
const fieldStates = 64

// fieldProbe is the prober of a game of fields. Each state is a row, of which a scorer computes the logit.
type fieldProbe struct {
	fields *Fields
	seed   uint64
	scorer *model.Scorer
	first  []int32 // index of the first id of each field in a row, and then their number, [m+1]

	// The ids and dense inputs of the current row, and of the row in which all players are absent.
	ids, otherIDs     []int32
	dense, otherDense []float32

	states model.Rows // memory of fieldStates states
	logits []float64  // of the states
}

func newFieldProbe(g *Game, seed uint64) *fieldProbe {
	m := g.Model
	if g.Fields.Absent != nil {
		m = m.WithAbsent(g.Fields.Absent)
	}
	width, dense := m.Width(), len(m.Dense)
	return &fieldProbe{
		fields: g.Fields, seed: seed, scorer: m.NewScorer(), first: append(model.Offsets(m.Lengths()), int32(width)),
		otherIDs: make([]int32, width), otherDense: make([]float32, dense),
		states: model.Rows{
			Width: width, Inputs: dense, Number: make([]int64, fieldStates), Label: make([]float32, fieldStates),
			Features: make([]int32, fieldStates*width), Dense: make([]float32, fieldStates*dense),
		},
		logits: make([]float64, fieldStates),
	}
}

func (p *fieldProbe) Reset(rows *model.Rows, r int) {
	if b := p.fields.Background; b != nil {
		stream := random.At(p.seed, random.Background, uint64(rows.Number[r]), 0)
		p.play(rows, r, int(stream.Below(uint64(b.Len()))))
		return
	}
	p.ids, p.dense = rows.Row(r), rows.DenseRow(r)
	for i, id := range p.ids {
		p.otherIDs[i] = ^id
	}
	copy(p.otherDense, p.fields.Absent.Dense)
}

// play sets the current row, and the background row that gives the values of its absent players.
func (p *fieldProbe) play(rows *model.Rows, r, other int) {
	p.ids, p.dense = rows.Row(r), rows.DenseRow(r)
	copy(p.otherIDs, p.fields.Background.Row(other))
	copy(p.otherDense, p.fields.Background.DenseRow(other))
}

func (p *fieldProbe) Empty() float64 {
	p.absent(0)
	p.score(1)
	return p.logits[0]
}

func (p *fieldProbe) Empties(dst []float64, rows *model.Rows) {
	for r := range dst {
		p.Reset(rows, r)
		dst[r] = p.Empty()
	}
}

func (p *fieldProbe) Walk(order []int32, logits []float64) {
	p.sequence(logits, func(i, k int) {
		if k > 0 {
			p.appear(i, order[k-1])
		}
	})
}

// Skips sets logits[k], for k below len(order)-1, to the logit with the players order[:k] and order[k+1] present.
func (p *fieldProbe) Skips(order []int32, logits []float64) {
	p.sequence(logits, func(i, k int) {
		if k > 0 {
			p.appear(i, order[k-1])
			p.vanish(i, order[k])
		}
		p.appear(i, order[k+1])
	})
}

// sequence sets logits to those of consecutive states. change turns state k-1, in slot i, into state k. Before state 0
// all players are absent.
func (p *fieldProbe) sequence(logits []float64, change func(i, k int)) {
	p.absent(0)
	for from := 0; from < len(logits); from += fieldStates {
		n := min(fieldStates, len(logits)-from)
		for i := range n {
			if i > 0 {
				p.copyState(i, i-1)
			} else if from > 0 {
				p.copyState(0, fieldStates-1)
			}
			change(i, from+i)
		}
		p.score(n)
		copy(logits[from:], p.logits[:n])
	}
}

func (p *fieldProbe) Coalitions(first int, logits []float64) {
	players := len(p.first) - 1 + len(p.dense)
	for from := 0; from < len(logits); from += fieldStates {
		n := min(fieldStates, len(logits)-from)
		for i := range n {
			p.absent(i)
			for player := range players {
				if (first+from+i)>>player&1 == 1 {
					p.appear(i, int32(player))
				}
			}
		}
		p.score(n)
		copy(logits[from:], p.logits[:n])
	}
}

// absent sets state i to the row in which all players are absent.
func (p *fieldProbe) absent(i int) {
	copy(p.states.Row(i), p.otherIDs)
	copy(p.states.DenseRow(i), p.otherDense)
}

// copyState sets state i to state j.
func (p *fieldProbe) copyState(i, j int) {
	copy(p.states.Row(i), p.states.Row(j))
	copy(p.states.DenseRow(i), p.states.DenseRow(j))
}

// appear lets a player appear in state i.
func (p *fieldProbe) appear(i int, player int32) { p.set(i, player, p.ids, p.dense) }

// vanish makes a player absent in state i.
func (p *fieldProbe) vanish(i int, player int32) { p.set(i, player, p.otherIDs, p.otherDense) }

// set lets a player read ids and dense in state i.
func (p *fieldProbe) set(i int, player int32, ids []int32, dense []float32) {
	if fields := int32(len(p.first) - 1); player >= fields {
		k := player - fields
		p.states.DenseRow(i)[k] = dense[k]
		return
	}
	from, to := p.first[player], p.first[player+1]
	copy(p.states.Row(i)[from:to], ids[from:to])
}

// score computes the logits of the first n states.
func (p *fieldProbe) score(n int) {
	states := p.states.Slice(0, n)
	p.scorer.Logits(p.logits[:n], &states)
}

// Explanation says what each player of a row adds to the row's logit. Base + the sum of all effects is Logit, up to rounding.
type Explanation struct {
	Base  float64     // mean logit of the background rows
	Logit float64     // logit of the row
	Each  [][]float64 // [players][n], the effects against each background row; the effect of a player is their mean
}

// Explain explains the first of rows. Its players are its fields, and then its dense inputs. The value of a coalition is the mean logit over
// the background rows, at least one, where absent players read what the background row has. An effect is the Shapley value
// of the player in this game, estimated by one random order for each background row and the reverse of that order. The orders depend on the
// seed, the number of the row and the number of players alone, so two models with the same players have the same orders.
func Explain(m *model.Model, rows, background *model.Rows, seed uint64) *Explanation {
	game := &Game{Model: m, Fields: &Fields{Background: background}}
	p, n := newFieldProbe(game, seed), background.Len()
	order, logits := make([]int32, game.players()), make([]float64, game.players()+1)
	e := &Explanation{Each: make([][]float64, len(order))}
	for player := range e.Each {
		e.Each[player] = make([]float64, n)
	}
	for b := range n {
		p.play(rows, 0, b)
		stream := random.At(seed, random.Order, uint64(rows.Number[0]), uint64(b))
		stream.Permute(order)
		for range 2 {
			p.Walk(order, logits)
			for k, player := range order {
				e.Each[player][b] += (logits[k+1] - logits[k]) / 2
			}
			slices.Reverse(order)
		}
		e.Base, e.Logit = e.Base+logits[0]/float64(n), logits[len(order)]
	}
	return e
}
