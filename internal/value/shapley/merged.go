package shapley

import "shaver/internal/click/model"

// merged is the part of multilinear for models in which a player may have several elements
// of a row's embedding, and an element may have no player.
type merged struct {
	*setup
	rosters []*model.Roster // of the rows of the batch

	// Figures of the players of one row, at most D.
	dropped, entries []float32
	slopes, bends    [2][]float32 // sums over a player's elements of the derivatives and of the kink terms, in the two states of a pair
}

func newMerged(s *setup, rows int) *merged {
	m := &merged{setup: s, rosters: make([]*model.Roster, rows)}
	for r := range m.rosters {
		m.rosters[r] = model.NewRoster(&s.game.Model.Architecture)
	}
	for _, figures := range []*[]float32{&m.dropped, &m.entries, &m.slopes[0], &m.slopes[1], &m.bends[0], &m.bends[1]} {
		*figures = make([]float32, s.elements)
	}
	return m
}

// begin sets the rosters to the rows of a batch.
func (m *merged) begin(rows *model.Rows) {
	for r := range rows.Len() {
		m.rosters[r].Set(rows.Row(r))
	}
}

// fill sets state to the embedding of row r with a coalition present, or with its complement
// present if complement is 1 and not 0. entries is the embedding of the row, [D].
func (m *merged) fill(r int, coalition []uint64, complement uint64, entries, state []float32) {
	baseline := m.baselineOf(r)
	for k, player := range m.rosters[r].ByElement() {
		state[k] = entries[k]
		if player >= 0 && coalition[player/64]>>(player%64)&1 == complement { // not of a pad row
			state[k] = baseline[k]
		}
	}
}

// values returns the baselines and the entries of the players of row r. entries is the
// embedding of the row, [D]. The results are valid until the next call.
func (m *merged) values(r int, entries []float32) (baseline, own []float32) {
	roster, dropped := m.rosters[r], m.baselineOf(r)
	baseline, own = m.dropped[:roster.Players()], m.entries[:roster.Players()]
	for i := range own {
		first := roster.Elements(i)[0] // all have the same value and baseline
		baseline[i], own[i] = dropped[first], entries[first]
	}
	return baseline, own
}

// sum sets sums to the sums over the elements of each player of row r, and returns the sums of
// these players. elements has a value for each element, [D].
func (m *merged) sum(sums []float32, r int, elements []float32) []float32 {
	roster := m.rosters[r]
	sums = sums[:roster.Players()]
	for i := range sums {
		sum := 0.0
		for _, k := range roster.Elements(i) {
			sum += float64(elements[k])
		}
		sums[i] = float32(sum)
	}
	return sums
}
