// Package path computes the order of a path: it drops entries in rounds, and each round ranks
// by terms that were measured with the table as the earlier rounds left it. A ranking that is
// measured once, at the full table, misses how the dropped entries interact.
//
// Let G be the sum of the first-order terms of an entry and D that of its second-order terms (see
// shapley), over the rows of a round and, with weights that decay, of earlier rounds. T is the
// sum of these weights, in passes over the rows. Then (D/2 - G)/T is, to second order, by how
// much the loss rises if the entry alone is dropped. Entries that are dropped together have effects
// that mostly agree. So the round drops the entries with the lowest
//
//	(D/(2*eta) - G) / T
//
// where 1/eta is the number of entries whose effects agree. It is a trust region, and shrinks
// with the portion of the table that is left.
//
// Old terms are less noisy than those of one round, but belong to another table. D is about the
// variance of the noise in G, because the variance of a label is p*(1-p). So a round keeps
//
//	1 / (1 + D/memory)
//
// of the earlier sums of an entry. This is the gain of a Kalman filter whose state drifts in
// proportion to D. The entries of a rare feature, whose D is small, keep theirs.
//
// Near the end the drops mislead: of the entries that are left, few do what they do without the others that go with
// them. So the path turns. It goes back to the seed, the few entries that it dropped last, and adds entries among those that
// it kept at the turn, again in rounds. Adding an entry alone changes the loss by (D/2 + G)/T, where its terms are those that it would have
// in the table, and a round adds the entries with the lowest
//
//	(D/(2*eta) + G) / T
//
// The order of these entries is then that in which they were added, the last one first.
//
// One path gives one order of all entries, and every budget is a cut of it. The order is not one of
// Shapley values.
package path

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"shaver/internal/base/fault"
	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/value/estimator"
	"shaver/internal/value/mask"
	"shaver/internal/value/tally"
	"shaver/internal/value/tallyio"
)

// A round drops one in cut of the entries that are left, at least one.
const cut = mask.PathCut

// The trust region. Let r be the portion of the entries that the tables of a round keep. Then eta is
// min(mostEta, eta/sqrt(r)).
const (
	eta     = 0.06
	mostEta = 0.4
)

// memory is the D, in nat, of which a round keeps half.
const memory = 10

// CalibrationRows returns the number of rows to which the tables of each round are calibrated, if the
// job has the given number of rows. An error of the offset biases the terms of all features that are
// seen more often than these rows, so the number grows with the rows.
func CalibrationRows(rows int64) int64 { return min(rows, max(4096, rows/64)) }

// The rounds that add begin with the portion seed of the entries, and end with the portion turn. Each adds one for step that the
// tables keep.
const (
	seed = 0.006
	turn = 0.045
	step = 4
)

// MostAdded is the largest portion of the entries that a round measures to add some: those of the turn without the seed.
const MostAdded = turn - seed

// course is how many entries the tables of the rounds keep, without those that are never dropped.
type course struct {
	all   int   // entries that may be dropped
	kept  []int // by round, first of those that drop and then of those that add
	drops int   // number of rounds that drop
	left  int   // entries that those rounds leave
}

// newCourse returns the course of a path through the tables of a to a sparsity. It adds entries if it drops all but the seed.
func newCourse(a *model.Architecture, to float64) (c course) {
	c.all = a.Parameters() - fixed(a)
	c.left = c.all
	for need := layout.Ceil(a.Prunable(), to); c.left > 0 && c.all-c.left < need; c.drops++ {
		c.kept = append(c.kept, c.left)
		c.left -= (c.left + cut - 1) / cut
	}
	if n := int(seed * float64(c.all)); n >= c.left && n > 0 {
		for ; n < c.most(); n += (n + step - 1) / step {
			c.kept = append(c.kept, n)
		}
	}
	return c
}

// most returns the number of entries that are left at the turn.
func (c *course) most() int { return int(turn * float64(c.all)) }

// at returns how many entries the tables keep after a number of rounds.
func (c *course) at(rounds int) int {
	switch {
	case rounds < len(c.kept):
		return c.kept[rounds]
	case len(c.kept) > c.drops:
		return c.most()
	}
	return c.left
}

// adds reports whether the path adds entries after a number of rounds, or has added them.
func (c *course) adds(rounds int) bool { return rounds >= c.drops && len(c.kept) > c.drops }

// Rounds returns the number of rounds of a path through the tables of a to a sparsity: those that drop entries, and those that
// add some again.
func Rounds(a *model.Architecture, to float64) (drops, adds int) {
	c := newCourse(a, to)
	return c.drops, len(c.kept) - c.drops
}

// fixed returns the number of entries that are never dropped.
func fixed(a *model.Architecture) (n int) {
	shape := a.Shape()
	for _, row := range a.FixedRows() {
		from, to := shape.Row(row)
		n += to - from
	}
	return n
}

// Round is a round of a path that is over.
type Round struct {
	Rows        int64            `json:"rows"`              // number of rows that were measured
	Weight      int64            `json:"weight"`            // sum of the weights of these rows
	Squares     int64            `json:"squares,omitempty"` // sum of the squares of these weights
	Kept        int              `json:"kept"`              // number of entries that the measured tables keep, without those of frozen fields
	Loss        float64          `json:"loss"`              // mean loss of these rows with these tables, before calibration, in nat; 0 without rows
	Calibration loss.Calibration `json:"calibration"`       // of these tables
}

// Path is the order of a path as far as its rounds are over. The terms are elsewhere, see [Terms]. Only one goroutine may use a Path at a time.
type Path struct {
	Rounds []Round // that are over
	Counts []int64 // number of rows of the first round in which a feature occurs, for each row of the tables
	course course
	kind   loss.Kind
	rows   int64 // number of rows of a pass
	by     estimator.Weights
	size   int     // number of entries that budgets count
	rank   []int32 // position of each entry in the order of drops, or kept; in rounds that add, only pads and frozen entries have kept
}

// kept takes the place of the rank of an entry that is not dropped.
const kept = -1

// MostEntries is the largest number of entries of the tables of a path.
const MostEntries = math.MaxInt32

// New returns a path to a sparsity through the tables of a, which have at most MostEntries entries, with nothing
// dropped. rows is the number of rows of a pass, kind their loss, and by how often they count.
func New(a *model.Architecture, to float64, kind loss.Kind, rows int64, by estimator.Weights) *Path {
	shape := a.Shape()
	p := &Path{course: newCourse(a, to), kind: kind, rows: rows, by: by, size: a.Prunable(), Counts: make([]int64, shape.Rows()), rank: make([]int32, shape.Entries())}
	for i := range p.rank {
		p.rank[i] = kept
	}
	return p
}

// Mask returns the entries that the tables of the next round do not have.
func (p *Path) Mask() layout.Mask {
	m, dropped := layout.NewMask(len(p.rank)), int32(p.course.all-p.course.at(len(p.Rounds)))
	for i, rank := range p.rank {
		if rank != kept && rank < dropped {
			m.Drop(i)
		}
	}
	return m
}

// Adds reports whether the next round measures entries that it may add to its tables.
func (p *Path) Adds() bool { return p.course.adds(len(p.Rounds)) }

// waiting returns the ranks [from, to) of the entries that the next round may add. The path must add entries.
func (p *Path) waiting() (from, to int32) {
	return int32(p.course.all - p.course.most()), int32(p.course.all - p.course.at(len(p.Rounds)))
}

// Unmeasured returns the entries whose terms the next round does not measure: those that its tables do not have or, if
// it adds, all that it cannot add.
func (p *Path) Unmeasured() layout.Mask {
	if !p.Adds() {
		return p.Mask()
	}
	m := layout.NewMask(len(p.rank))
	from, to := p.waiting()
	for i, rank := range p.rank {
		if rank < from || rank >= to {
			m.Drop(i)
		}
	}
	return m
}

// Reach returns the sparsity to which entries were dropped in rounds.
func (p *Path) Reach() float64 {
	left := p.course.left
	if n := len(p.Rounds); n < p.course.drops {
		left = p.course.kept[n]
	}
	return float64(p.course.all-left) / float64(p.size)
}

// Fade returns what the next round keeps of the terms of the earlier ones: nothing at the turn.
func (p *Path) Fade() Fade {
	n, f := len(p.Rounds), Fade{Unit: float64(int64(1) << p.by.Shift())}
	if n == 0 || n == p.course.drops && p.Adds() {
		return f
	}
	f.Memory = memory
	if p.kind == loss.Squared { // the variance of G is then 2*D times that of the label
		f.Memory *= 2 * p.Rounds[0].Loss
	}
	if p.by.Rows > 0 { // the variance of the noise in G is then about D times this ratio
		f.Memory *= float64(p.Rounds[n-1].Squares) / float64(p.Rounds[n-1].Weight)
	}
	return f
}

// Passes returns the passes over the rows that the sums of a round have.
func (p *Path) Passes(s *tally.Summary) float64 {
	return float64(s.Weighed(p.by).Sum) / float64(p.rows)
}

// Rank says by what the last round that is over ranks entries.
func (p *Path) Rank() Rank { return p.rankOf(len(p.Rounds) - 1) }

func (p *Path) rankOf(round int) Rank {
	portion := float64(p.size-p.course.all+p.course.at(round)) / float64(p.size)
	r := Rank{Steep: float64(float64(int64(1)<<p.by.Shift()) / (2 * min(mostEta, eta/math.Sqrt(portion)))), Sign: -1}
	if p.course.adds(round) {
		r.Sign = 1
	}
	return r
}

// Next returns the next entry of an order, see [Terms.Lowest], and its key.
type Next func() (entry int32, key float64, err error)

// End ends a round, and drops or adds entries. sums says which rows were measured, and c is the calibration. order begins the order of the
// entries that were measured, by the rank of this round. If it fails, p must not be used afterwards.
func (p *Path) End(sums *tally.Summary, c loss.Calibration, order func(Rank) Next) error {
	round := len(p.Rounds)
	adds, before, w := p.Adds(), p.course.at(round), sums.Weighed(p.by)
	one := Round{Rows: sums.Rows, Weight: w.Sum, Kept: p.size - p.course.all + before, Loss: sums.MeanLoss(p.by), Calibration: c}
	if p.by.Rows > 0 {
		one.Squares = w.Squares
	}
	p.Rounds = append(p.Rounds, one)
	next := order(p.rankOf(round))
	switch {
	case adds:
		return p.grow(p.course.at(round+1)-before, round, next)
	case p.Adds(): // the turn: what is left comes in the order of the last round that drops
		return p.drop(before, p.course.all-before, next, p.rank)
	}
	return p.drop((before+cut-1)/cut, p.course.all-before, next, p.rank)
}

// drop gives the next n entries the ranks from the given one on.
func (p *Path) drop(n, from int, next Next, ranks []int32) error {
	for k := range n {
		i, _, err := next()
		if err != nil {
			return fmt.Errorf("%d of %d entries are dropped: %w", k, n, err)
		}
		if i < 0 || int(i) >= len(ranks) || ranks[i] != kept {
			return fmt.Errorf("entry %d is to be dropped, but is not one of those that are left", i)
		}
		ranks[i] = int32(from + k)
	}
	return nil
}

// grow adds n entries: those with the lowest keys, and of equal ones those that were dropped later. They take the highest ranks of those
// that may be added, the first one the highest. The others keep their order. round is the one that is over.
func (p *Path) grow(n, round int, next Next) error {
	first, last := p.course.all-p.course.most(), p.course.all-p.course.at(round)
	waiting := make([]int32, last-first) // the entries that may be added, by rank
	for i, rank := range p.rank {
		if int(rank) >= first && int(rank) < last {
			waiting[int(rank)-first] = int32(i)
		}
	}
	type candidate struct {
		entry int32
		key   float64
	}
	var lowest []candidate
	for len(lowest) < len(waiting) {
		i, key, err := next()
		if err != nil {
			return fmt.Errorf("%d of %d entries are added: %w", len(lowest), n, err)
		}
		if i < 0 || int(i) >= len(p.rank) || int(p.rank[i]) < first || int(p.rank[i]) >= last {
			return fmt.Errorf("entry %d is to be added, but is not one of those that may be", i)
		}
		if len(lowest) >= n && key != lowest[n-1].key { // equal ones may come in any order
			break
		}
		lowest = append(lowest, candidate{i, key})
	}
	slices.SortFunc(lowest, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(p.rank[b.entry], p.rank[a.entry]))
	})
	for _, c := range lowest[:n] {
		waiting[int(p.rank[c.entry])-first] = kept
	}
	for k, i := range slices.DeleteFunc(waiting, func(i int32) bool { return i == kept }) {
		p.rank[i] = int32(first + k)
	}
	for k, c := range lowest[:n] {
		p.rank[c.entry] = int32(last - 1 - k)
	}
	return nil
}

// Ranks returns the position of each entry in the order of drops. At least one round must be over. Entries that are left come
// in the order of the last round that drops, which order begins; its terms must have begun this round again with p.Mask. The entries of pad rows and frozen fields come last.
func (p *Path) Ranks(order func(Rank) Next) ([]int32, error) {
	ranks := slices.Clone(p.rank)
	if !p.Adds() {
		left := p.course.at(len(p.Rounds))
		if err := p.drop(left, p.course.all-left, order(p.Rank()), ranks); err != nil {
			return nil, err
		}
	}
	next := int32(p.course.all)
	for i, rank := range ranks {
		if rank == kept {
			ranks[i] = next
			next++
		}
	}
	return ranks, nil
}

// Write writes the state of p, except for Rounds: Counts as little-endian 64-bit words, and the ranks as words of 32 bits.
func (p *Path) Write(w io.Writer) error {
	if err := tallyio.WriteInts(w, p.Counts); err != nil {
		return err
	}
	return tallyio.WriteWords(w, p.rank)
}

// Read sets the state of p, which must be new, to what Write wrote after the given rounds.
// Malformed bytes are bad input. Which of the entries that have no rank may be dropped is not checked.
func (p *Path) Read(r io.Reader, rounds []Round) error {
	p.Rounds = rounds
	if err := tallyio.ReadInts(r, p.Counts); err != nil {
		return err
	}
	for row, n := range p.Counts {
		if n < 0 {
			return fault.Inputf("feature %d occurs in %d rows", row, n)
		}
	}
	if err := tallyio.ReadWords(r, p.rank); err != nil {
		return err
	}
	if len(rounds) > len(p.course.kept) {
		return fault.Inputf("%d rounds, expected at most %d", len(rounds), len(p.course.kept))
	}
	for i, round := range rounds {
		if want := p.size - p.course.all + p.course.at(i); round.Rows < 0 || round.Weight < round.Rows || round.Kept != want {
			return fault.Inputf("round %d has %d rows of the weight %d and keeps %d entries, expected at least 0 rows, each of at least 1, and %d", i, round.Rows, round.Weight, round.Kept, want)
		}
	}
	ranked := p.course.all
	if !p.Adds() {
		ranked -= p.course.at(len(rounds))
	}
	seen, n := layout.NewMask(ranked), 0
	for i, rank := range p.rank {
		if rank == kept {
			continue
		}
		if rank < 0 || int(rank) >= ranked || seen.Dropped(int(rank)) {
			return fault.Inputf("entry %d has the rank %d, expected another one of %d", i, rank, ranked)
		}
		seen.Drop(int(rank))
		n++
	}
	if n != ranked {
		return fault.Inputf("%d entries have ranks, expected %d after %d rounds", n, ranked, len(rounds))
	}
	return nil
}
