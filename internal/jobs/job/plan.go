package job

import (
	"fmt"
	"math/bits"
)

// Plan says how a job is cut into tasks. It does not change the scores.
type Plan struct {
	Rows         int64   `json:"rows"`             // rows to score; with Rounds, the sum over all rounds
	RowsPerShard int64   `json:"rows_per_shard"`   // most rows of a shard; the last shard, and shards of small rounds, may have fewer
	Rounds       []Round `json:"rounds,omitempty"` // rounds of a job with Until, of a paired job or of a path; nil = one round of all rows and passes
	// InPlace means that shards are not sent: workers read the rows from their dataset.
	InPlace bool `json:"in_place,omitempty"`
	// Ranges is the number of ranges of features (layout.Shape.Cut) whose sums mergers keep. A
	// partial then has a blob for each of them. 0 = the coordinator keeps all sums.
	Ranges int `json:"ranges,omitempty"`
}

// MaxRanges is the largest number of ranges of a plan.
const MaxRanges = 1024

// Round is the part of a job with Until that is computed before the next decision whether
// to continue: one pass over some rows. The rounds of pass 0 are disjoint portions of the
// rows. Each doubles the number of scored rows (see Portion), and together they contain
// all rows. Each later round is another pass over all rows.
//
// In a paired job all rounds are portions, and a round has all passes over its rows. A
// paired job without Until has two rounds, the halves of its sample. It always computes
// both.
//
// In a path the first round has all rows or some of their disjoint parts, and each later one has one
// part.
type Round struct {
	Rows int64 `json:"rows"`
	Pass int   `json:"pass"`
	// Of a path: the index of the round's first part, how many parts it has, and the number of
	// parts of all rows.
	Part  int `json:"part,omitempty"`
	Take  int `json:"take,omitempty"`
	Parts int `json:"parts,omitempty"`
}

// Bounds of the number of rounds in the first pass.
const (
	leastPortions = 2
	mostPortions  = 7    // the first portion is then 1/64 of the rows
	portionRows   = 4096 // approximate minimum number of rows of a portion
)

// partRows is the least number of rows of a shard of a part, if the part has that many.
const partRows = 4096

// Portions returns the number of rounds of the first pass over that many rows.
func Portions(rows int64) int {
	return min(max(bits.Len64(uint64(rows/portionRows)), leastPortions), mostPortions)
}

// Portion returns the index of the portion to which a row belongs. hash is the row's
// uniform hash, and portions, at least 1, the number of portions. The last portion has
// probability 1/2, the one before it 1/4, and so on. The first portion has the same
// probability as the second.
func Portion(hash uint64, portions int) int {
	return max(0, bits.Len64(hash)-(65-portions))
}

// Portions returns the number of the plan's rounds that are portions of the rows.
func (p *Plan) Portions() (n int) {
	for n < len(p.Rounds) && p.Rounds[n].Pass == 0 && p.Rounds[n].Parts == 0 {
		n++
	}
	return max(n, 1)
}

// Check returns an error unless the plan has rows, at most MaxShards shards, and at most
// MostRows(columns) rows in a shard.
func (p *Plan) Check(columns int) error {
	if p.Rows < 1 || p.RowsPerShard < 1 {
		return fmt.Errorf("%d rows with %d rows per shard, expected at least 1 of each", p.Rows, p.RowsPerShard)
	}
	if most := MostRows(columns); p.RowsPerShard > most {
		return fmt.Errorf("%d rows per shard, expected at most %d because workers hold a shard in memory", p.RowsPerShard, most)
	}
	if p.Ranges < 0 || p.Ranges > MaxRanges {
		return fmt.Errorf("%d ranges, expected at most %d", p.Ranges, MaxRanges)
	}
	shards := int64(0)
	for r := range p.rounds() {
		rows, perShard := p.round(r)
		if rows < 0 || rows > p.Rows {
			return fmt.Errorf("round %d has %d rows, expected 0 to %d", r, rows, p.Rows)
		}
		if shards += (rows + perShard - 1) / perShard; shards > MaxShards {
			return fmt.Errorf("%d rows with %d rows per shard: expected at most %d shards", p.Rows, p.RowsPerShard, MaxShards)
		}
	}
	return nil
}

// rounds returns the number of rounds.
func (p *Plan) rounds() int { return max(1, len(p.Rounds)) }

// ShardsOf returns the number of shards of a round and the most rows of each.
func (p *Plan) ShardsOf(round int) (shards int, perShard int64) {
	rows, perShard := p.round(round)
	return int((rows + perShard - 1) / perShard), perShard
}

// round returns the rows of a round and the rows of each of its shards. In a job with
// rounds a round is cut into at least shardsLeast shards if it has that many rows, so that
// there are enough for all workers.
func (p *Plan) round(round int) (rows, perShard int64) {
	if len(p.Rounds) == 0 {
		return p.Rows, p.RowsPerShard
	}
	rows = p.Rounds[round].Rows
	perShard = (rows + shardsLeast - 1) / shardsLeast
	if p.Rounds[round].Parts > 0 { // a path has many rounds
		perShard = max(perShard, min(rows, partRows))
	}
	return rows, max(1, min(p.RowsPerShard, perShard))
}

// End returns the number of shards of all rounds up to and including the given one.
func (p *Plan) End(round int) (shards int) {
	for r := range round + 1 {
		rows, perShard := p.round(r)
		shards += int((rows + perShard - 1) / perShard)
	}
	return shards
}

// Shards returns the number of shards.
func (p *Plan) Shards() int { return p.End(p.rounds() - 1) }

// Combines reports whether workers may add up the partials of several shards. A decision after a
// round depends on exactly the shards of that round.
func (p *Plan) Combines() bool { return len(p.Rounds) == 0 }

// Locate returns the round of a shard, and the range [from, to) of the round's rows that
// the shard holds, in the order of the dataset.
func (p *Plan) Locate(shard int) (round int, from, to int64) {
	for first := 0; round < p.rounds(); round++ {
		rows, perShard := p.round(round)
		n := int((rows + perShard - 1) / perShard)
		if shard < first+n {
			from = int64(shard-first) * perShard
			return round, from, min(from+perShard, rows)
		}
		first += n
	}
	panic(fmt.Sprintf("job: Locate: shard %d of %d", shard, p.Shards()))
}

// ShardRows returns the number of rows of a shard.
func (p *Plan) ShardRows(shard int) int64 {
	_, from, to := p.Locate(shard)
	return to - from
}

// RoundOf returns the last round that has a shard in the set, or 0 if the set is empty.
func (p *Plan) RoundOf(shards Shards) (round int) {
	for shard := p.Shards() - 1; shard >= 0; shard-- {
		if shards.Has(shard) {
			round, _, _ = p.Locate(shard)
			return round
		}
	}
	return 0
}

// Passes returns the number of passes over a row in all rounds up to and including the
// given one.
func (p *Plan) Passes(round int) int {
	if p.Rounds == nil {
		return 1
	}
	return p.Rounds[round].Pass + 1
}

// Doubles reports whether the total work after the round is twice that after some earlier
// round. The two halves of the work can then be compared. This holds for every round of
// the first pass except the first round, and for later rounds if the number of passes is
// a power of two.
func (p *Plan) Doubles(round int) bool {
	if p.Rounds == nil || round == 0 {
		return false
	}
	passes := uint(p.Passes(round))
	return passes&(passes-1) == 0
}
