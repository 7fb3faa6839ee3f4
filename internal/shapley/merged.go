package shapley

import "shaver/internal/model"

// merged is the part of multilinear for models in which a player may have several elements
// of a row's embedding, and an element may have no player.
type merged struct {
	baseline []float32       // baseline of each element, [D]
	rosters  []*model.Roster // of the rows of the batch

	// Figures of the players of one row, at most D.
	dropped, entries []float32
	slopes           [2][]float32 // sums of the derivatives over a player's elements, in the two states of a pair
}

func newMerged(s *setup, rows int) *merged {
	m := &merged{baseline: s.baseline, rosters: make([]*model.Roster, rows)}
	for r := range m.rosters {
		m.rosters[r] = model.NewRoster(&s.game.Model.Architecture)
	}
	for _, figures := range []*[]float32{&m.dropped, &m.entries, &m.slopes[0], &m.slopes[1]} {
		*figures = make([]float32, len(s.baseline))
	}
	return m
}

// begin sets the rosters to the rows of a batch.
func (m *merged) begin(rows *model.Rows) {
	for r := range rows.Len() {
		m.rosters[r].Set(rows.Row(r))
	}
}

// fill sets set to the embedding of row r with a coalition present, and rest to that with
// the complement present. entries is the embedding of the row, [D].
func (m *merged) fill(r int, coalition []uint64, entries, set, rest []float32) {
	for k, player := range m.rosters[r].ByElement() {
		set[k], rest[k] = entries[k], entries[k]
		switch {
		case player < 0: // of a pad row
		case coalition[player/64]>>(player%64)&1 == 1:
			rest[k] = m.baseline[k]
		default:
			set[k] = m.baseline[k]
		}
	}
}

// values returns the baselines and the entries of the players of row r. entries is the
// embedding of the row, [D]. The results are valid until the next call.
func (m *merged) values(r int, entries []float32) (baseline, own []float32) {
	roster := m.rosters[r]
	baseline, own = m.dropped[:roster.Players()], m.entries[:roster.Players()]
	for i := range own {
		first := roster.Elements(i)[0] // all have the same value and baseline
		baseline[i], own[i] = m.baseline[first], entries[first]
	}
	return baseline, own
}

// pairs is like the function pairs for the players of row r. The last three arguments have
// a value for each element.
func (m *merged) pairs(t []float64, a, b *curve, r int, coalition []uint64, entries, slopeA, slopeB []float32) {
	roster := m.rosters[r]
	for i := range t {
		sumA, sumB := 0.0, 0.0
		for _, k := range roster.Elements(i) {
			sumA, sumB = sumA+float64(slopeA[k]), sumB+float64(slopeB[k])
		}
		m.slopes[0][i], m.slopes[1][i] = float32(sumA), float32(sumB)
	}
	baseline, own := m.values(r, entries)
	pairs(t, a, b, coalition, baseline, own, m.slopes[0], m.slopes[1])
}
