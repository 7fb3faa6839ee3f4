package model

import "slices"

// Roster holds the players of a row of data, which are the distinct entries that the row
// reads, without those of pad rows and frozen fields (see FixedRows). Elements of the row's embedding that
// read the same entry are one player. In a model without lists and shared rows, the players
// are the elements. Only one goroutine may use a Roster at a time. After the first rows it
// allocates no memory.
type Roster struct {
	plain     bool // whether the rows of the table are the features
	merged    bool // whether the players may differ from the elements
	positions []position
	pads      map[int32]bool // the rows of unfrozen fields whose entries are never players

	rows     []int32
	fields   []int
	player   []int32         // [D], player of each element, or -1
	elements []int32         // the elements of all players, player by player
	first    []int32         // [players+1], where the elements of each player begin
	slots    map[int32]int32 // first player of each of rows; only if merged
	at       []int32         // first player of each position, or -1; only if merged
	next     []int32         // working memory of Set, [D]; only if merged
}

// NewRoster returns a roster for the rows of models with the architecture a, which must be
// valid.
func NewRoster(a *Architecture) *Roster {
	players := a.Players()
	r := &Roster{
		plain: a.Plain(), positions: a.positions(), pads: map[int32]bool{},
		player: make([]int32, players), elements: make([]int32, players), first: make([]int32, players+1),
	}
	for i := range players {
		r.player[i], r.elements[i], r.first[i+1] = int32(i), int32(i), int32(i+1)
	}
	for i := range r.positions {
		r.fields = append(r.fields, r.positions[i].field)
	}
	unfrozen := *a
	unfrozen.Frozen = nil
	for _, row := range unfrozen.FixedRows() {
		r.pads[int32(row)] = true
	}
	r.merged = len(a.Lists) > 0 || len(a.Frozen) > 0 || slices.ContainsFunc(a.Spans(), func(s Span) bool { return s.Sharers != nil })
	if r.merged {
		r.slots, r.at, r.next = map[int32]int32{}, make([]int32, len(r.positions)), make([]int32, players)
	}
	return r
}

// Set selects the row with the given global ids, [Width], which must have passed CheckRow.
// The roster may keep the slice until the next call of Set.
func (r *Roster) Set(features []int32) {
	if r.plain && !r.merged {
		r.rows = features
		return
	}
	r.rows = r.rows[:0]
	if r.merged {
		r.merge(features)
		return
	}
	for i := range r.positions {
		p := &r.positions[i]
		r.rows = append(r.rows, features[p.at]+int32(p.row-p.feature))
	}
}

// merge is Set for a model with lists, shared rows or frozen fields.
func (r *Roster) merge(features []int32) {
	clear(r.slots)
	r.fields, r.first = r.fields[:0], append(r.first[:0], 0)
	for i := range r.positions {
		p := &r.positions[i]
		row := features[p.at] + int32(p.row-p.feature)
		if p.frozen || r.pads[row] {
			r.at[i] = -1
			continue
		}
		slot, seen := r.slots[row]
		if !seen {
			slot = int32(len(r.first) - 1)
			r.slots[row] = slot
			r.rows, r.fields = append(r.rows, row), append(r.fields, p.field)
			for range p.dim {
				r.first = append(r.first, 0)
			}
		}
		r.at[i] = slot
		for c := range p.dim {
			r.first[int(slot)+c+1]++ // number of elements, at first
		}
	}
	for i := range r.Players() {
		r.next[i] = r.first[i]
		r.first[i+1] += r.first[i]
	}
	element := int32(0)
	r.elements = r.elements[:r.first[r.Players()]]
	for i := range r.positions {
		for c := range int32(r.positions[i].dim) {
			r.player[element] = -1
			if slot := r.at[i]; slot >= 0 {
				player := slot + c
				r.player[element] = player
				r.elements[r.next[player]] = element
				r.next[player]++
			}
			element++
		}
	}
}

// Merged reports whether the players of a row may differ from the elements of its
// embedding. If not, player i is element i.
func (r *Roster) Merged() bool { return r.merged }

// Players returns the number of players of the row.
func (r *Roster) Players() int { return len(r.first) - 1 }

// Rows returns the rows of the tables whose entries are the players, in the order of the
// players. A row of the tables has a player for each column. The slice is valid until the
// next call of Set.
func (r *Roster) Rows() []int32 { return r.rows }

// Fields returns the field of the span of each of Rows. The slice is valid until the next
// call of Set.
func (r *Roster) Fields() []int { return r.fields }

// Elements returns the elements of the embedding that read the entry of a player, of which
// there is at least one. The slice is valid until the next call of Set.
func (r *Roster) Elements(player int) []int32 {
	return r.elements[r.first[player]:r.first[player+1]]
}

// ByElement returns the player of each element of the embedding, [D], or -1 if the element
// is of a pad row or a frozen field. The slice is valid until the next call of Set.
func (r *Roster) ByElement() []int32 { return r.player }
