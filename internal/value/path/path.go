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
	Rows        int64            `json:"rows"`            // number of rows that were measured
	Weight      int64            `json:"weight"`          // sum of the weights of these rows; 0 in checkpoints of older programs
	Fresh       int64            `json:"fresh,omitempty"` // only in checkpoints of older programs: number of fresh rows
	Kept        int              `json:"kept"`            // number of entries that the measured tables keep, without those of frozen fields
	Loss        float64          `json:"loss"`            // mean loss of these rows with these tables, before calibration, in nat; 0 without rows
	Calibration loss.Calibration `json:"calibration"`     // of these tables
}

// Path is the state of a path between two rounds. Only one goroutine may use it at a time.
type Path struct {
	Rounds []Round // that are over
	Counts []int64 // number of rows of the first round in which a feature occurs, for each row of the tables
	course course
	shape  layout.Shape
	kind   loss.Kind
	rows   int64 // number of rows of a pass
	by     estimator.Weights
	size   int       // number of entries that budgets count
	first  []float64 // G of each entry, in nat
	second []float64 // D of each entry, in nat
	weight []float64 // T of each entry, in passes
	rank   []int32   // position of each entry in the order of drops, or kept; in rounds that add, only pads and frozen entries have kept
	left   []int32   // entries that may still be dropped or, in rounds that add, that may be added, ascending
}

// kept takes the place of the rank of an entry that is not dropped.
const kept = -1

// MostEntries is the largest number of entries of the tables of a path.
const MostEntries = math.MaxInt32

// New returns a path to a sparsity through the tables of a, which have at most MostEntries entries, with nothing
// dropped. rows is the number of rows of a pass, kind their loss, and by how often they count.
func New(a *model.Architecture, to float64, kind loss.Kind, rows int64, by estimator.Weights) *Path {
	n := a.Parameters()
	p := &Path{
		course: newCourse(a, to),
		shape:  a.Shape(), kind: kind, rows: rows, by: by, size: a.Prunable(),
		first: make([]float64, n), second: make([]float64, n), weight: make([]float64, n), rank: make([]int32, n), left: make([]int32, 0, n),
	}
	p.Counts = make([]int64, p.shape.Rows())
	fixed := make([]bool, p.shape.Rows())
	for _, row := range a.FixedRows() {
		fixed[row] = true
	}
	for row := range p.shape.Rows() {
		from, to := p.shape.Row(row)
		for i := from; i < to; i++ {
			if p.rank[i] = kept; !fixed[row] {
				p.left = append(p.left, int32(i))
			}
		}
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

// Unmeasured returns the entries whose terms the next round does not measure: those that its tables do not have or, if
// it adds, all that it cannot add.
func (p *Path) Unmeasured() layout.Mask {
	if !p.Adds() {
		return p.Mask()
	}
	m, may := layout.NewMask(len(p.rank)), layout.NewMask(len(p.rank))
	for _, i := range p.left {
		may.Drop(int(i))
	}
	for i := range p.rank {
		if !may.Dropped(i) {
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

// Fall returns by how much the mean loss falls by the first cut, in nat, as the terms of the first round
// predict it: the sum of G - D/2 of the dropped entries for each row. Exactly one round must be over, and
// it must have rows.
func (p *Path) Fall() float64 {
	sum := 0.0
	for i, rank := range p.rank {
		if rank != kept {
			sum += p.first[i] - p.second[i]/2
		}
	}
	return sum / float64(p.Rounds[0].Weight)
}

// End ends a round: it drops or adds entries. sums are the terms of its rows, and c is the calibration with which they were
// measured. The magnitudes of tables, the unpruned tables one after another, break ties.
func (p *Path) End(sums *tally.Accumulator, c loss.Calibration, tables []float32) {
	round := len(p.Rounds)
	adds, before := p.Adds(), p.course.at(round)
	p.Rounds = append(p.Rounds, Round{Rows: sums.Rows(), Weight: sums.Weights(p.by).Sum, Kept: p.size - p.course.all + before, Loss: sums.MeanLoss(p.by), Calibration: c})
	if round == 0 {
		for row := range p.Counts {
			p.Counts[row] = sums.Count(row)
		}
	}
	if sums.Rows() > 0 { // otherwise all rows of the round are quarantined
		p.add(sums)
	}
	switch {
	case adds:
		p.grow(p.course.at(round+1) - before)
		return
	case p.Adds():
		p.turn(tables)
		return
	}
	dropped := p.course.all - before
	for k, i := range mask.Lowest(p.left, (len(p.left)+cut-1)/cut, tables, p.key()) {
		p.rank[i] = int32(dropped + k)
	}
	p.left = slices.DeleteFunc(p.left, func(i int32) bool { return p.rank[i] != kept })
}

// turn ends the rounds that drop. It orders what is left, as Ranks does, and forgets all terms. The entries
// that may be added are those of the turn without the seed.
func (p *Path) turn(tables []float32) {
	dropped := p.course.all - len(p.left)
	mask.Sort(p.left, tables, p.key())
	for k, i := range p.left {
		p.rank[i] = int32(dropped + k)
	}
	clear(p.first)
	clear(p.second)
	clear(p.weight)
	p.await()
}

// await sets left to the entries that may be added.
func (p *Path) await() {
	from, to := int32(p.course.all-p.course.most()), int32(p.course.all-p.course.at(len(p.Rounds)))
	p.left = p.left[:0]
	for i, rank := range p.rank {
		if rank != kept && rank >= from && rank < to {
			p.left = append(p.left, int32(i))
		}
	}
}

// grow adds n entries: those with the lowest keys, and of equal ones those that were dropped later. They take the highest ranks of those
// that may be added, the first one the highest. The others keep their order.
func (p *Path) grow(n int) {
	key, last := p.key(), p.course.all-p.course.at(len(p.Rounds)-1)
	slices.SortFunc(p.left, func(a, b int32) int {
		return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(p.rank[b], p.rank[a]))
	})
	others := p.left[n:]
	slices.SortFunc(others, func(a, b int32) int { return cmp.Compare(p.rank[a], p.rank[b]) })
	for k, i := range p.left[:n] {
		p.rank[i] = int32(last - 1 - k)
	}
	for k, i := range others {
		p.rank[i] = int32(p.course.all - p.course.most() + k)
	}
	p.left = others
	slices.Sort(p.left)
}

// add adds the terms of a round.
func (p *Path) add(sums *tally.Accumulator) {
	remember := float64(memory)
	if p.kind == loss.Squared { // the variance of G is then 2*D times that of the label
		remember *= 2 * p.Rounds[0].Loss
	}
	w := sums.Weights(p.by)
	if p.by.Rows > 0 { // the variance of the noise in G is then about D times this ratio
		remember *= float64(w.Squares) / float64(w.Sum)
	}
	unit := float64(int64(1) << p.by.Shift()) // of second
	weight := float64(w.Sum) / float64(p.rows)
	first, second := make([]float64, p.shape.Widest()), make([]float64, p.shape.Widest())
	for row := range p.shape.Rows() {
		from, to := p.shape.Row(row)
		sums.Terms(row, first[:to-from], second[:to-from])
		for i := from; i < to; i++ {
			keep := 1.0
			if p.second[i] > 0 {
				keep = remember / (remember + p.second[i])
			}
			p.first[i] = float64(keep*p.first[i]) + first[i-from]
			p.second[i] = float64(keep*p.second[i]) + float64(unit*second[i-from])
			p.weight[i] = float64(keep*p.weight[i]) + weight
		}
	}
}

// leastWeight takes the place of T if no row of the first round could be computed.
const leastWeight = 1e-300

// key returns by what the last round that is over ranks an entry. Those with the lowest keys are dropped, or added, first.
func (p *Path) key() func(i int32) float64 {
	portion := float64(p.Rounds[len(p.Rounds)-1].Kept) / float64(p.size)
	steep, sign := 1/(2*min(mostEta, eta/math.Sqrt(portion))), -1.0
	if p.course.adds(len(p.Rounds) - 1) {
		sign = 1
	}
	return func(i int32) float64 {
		return (float64(steep*p.second[i]) + sign*p.first[i]) / max(p.weight[i], leastWeight)
	}
}

// Ranks returns the position of each entry in the order of drops. Entries that are left come
// in the order of the last round that drops. The entries of pad rows and frozen fields come last. tables is as in End.
func (p *Path) Ranks(tables []float32) []int32 {
	ranks, next := slices.Clone(p.rank), int32(p.course.all)
	if !p.Adds() {
		left := slices.Clone(p.left)
		next -= int32(len(left))
		if len(p.Rounds) > 0 {
			mask.Sort(left, tables, p.key())
		}
		for _, i := range left {
			ranks[i] = next
			next++
		}
	}
	for i, rank := range ranks {
		if rank == kept {
			ranks[i] = next
			next++
		}
	}
	return ranks
}

// Write writes the state of p, except for Rounds, as little-endian 64-bit words: Counts, and for
// each entry its rank, G, D and T.
func (p *Path) Write(w io.Writer) error {
	if err := tallyio.WriteInts(w, p.Counts); err != nil {
		return err
	}
	words := make([]int64, 0, 4*min(chunk, len(p.rank)))
	for from := 0; from < len(p.rank); from += chunk {
		words = words[:0]
		for i := from; i < min(from+chunk, len(p.rank)); i++ {
			words = append(words, int64(p.rank[i]), int64(math.Float64bits(p.first[i])), int64(math.Float64bits(p.second[i])), int64(math.Float64bits(p.weight[i])))
		}
		if err := tallyio.WriteInts(w, words); err != nil {
			return err
		}
	}
	return nil
}

// chunk is the number of entries that are written or read at a time.
const chunk = 1 << 16

// Read sets the state of p, which must be new, to what Write wrote after the given rounds.
// Malformed bytes are bad input.
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
	ranked, seen, droppable := 0, layout.NewMask(len(p.rank)), layout.NewMask(len(p.rank))
	for _, i := range p.left {
		droppable.Drop(int(i))
	}
	p.left = p.left[:0]
	words := make([]int64, 4*min(chunk, len(p.rank)))
	for from := 0; from < len(p.rank); from += chunk {
		n := min(chunk, len(p.rank)-from)
		if err := tallyio.ReadInts(r, words[:4*n]); err != nil {
			return err
		}
		for k := range n {
			i, rank := from+k, words[4*k]
			for at, list := range [][]float64{p.first, p.second, p.weight} {
				list[i] = math.Float64frombits(uint64(words[4*k+1+at]))
			}
			switch {
			case !(math.Abs(p.first[i]) <= math.MaxFloat64 && p.second[i] >= 0 && p.second[i] <= math.MaxFloat64 && p.weight[i] >= 0 && p.weight[i] <= math.MaxFloat64):
				return fault.Inputf("the terms of entry %d are %v and %v, with the weight %v", i, p.first[i], p.second[i], p.weight[i])
			case rank == kept && droppable.Dropped(i):
				p.left = append(p.left, int32(i))
			case rank == kept:
			case rank < 0 || rank >= int64(p.course.all) || !droppable.Dropped(i) || seen.Dropped(int(rank)):
				return fault.Inputf("entry %d has the rank %d, which is not one of a path", i, rank)
			default:
				seen.Drop(int(rank))
				ranked++
			}
			p.rank[i] = int32(rank)
		}
	}
	if len(rounds) > len(p.course.kept) {
		return fault.Inputf("%d rounds, expected at most %d", len(rounds), len(p.course.kept))
	}
	for i := range rounds {
		round := &rounds[i]
		if round.Weight == 0 {
			round.Weight, round.Fresh = round.Rows+(max(1, p.by.Fresh)-1)*round.Fresh, 0
		}
		if want := p.size - p.course.all + p.course.at(i); round.Rows < 0 || round.Weight < round.Rows || round.Kept != want {
			return fault.Inputf("round %d has %d rows of the weight %d and keeps %d entries, expected at least 0 rows, each of at least 1, and %d", i, round.Rows, round.Weight, round.Kept, want)
		}
	}
	left := 0
	if !p.Adds() {
		left = p.course.at(len(rounds))
	}
	if len(p.left) != left {
		return fault.Inputf("%d entries are left, expected %d after %d rounds", len(p.left), left, len(rounds))
	}
	for rank := range ranked {
		if !seen.Dropped(rank) {
			return fault.Inputf("no entry has the rank %d", rank)
		}
	}
	if p.Adds() {
		p.await()
	}
	return nil
}
