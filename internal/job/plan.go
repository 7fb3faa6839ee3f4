package job

import (
	"fmt"
	"math/bits"
)

// Plan is how a job is cut into tasks. It does not change the scores.
type Plan struct {
	Rows         int64   `json:"rows"`             // rows to score; with rounds at most, and again in each pass
	RowsPerShard int64   `json:"rows_per_shard"`   // the last shard, and those of small rounds, may have fewer
	Rounds       []Round `json:"rounds,omitempty"` // of a job with Until; nil = one round of all rows and passes
	// InPlace says that shards do not travel: workers read the rows from the dataset.
	InPlace bool `json:"in_place,omitempty"`
}

// Round is what a job with Until computes before it decides whether to go on: one
// pass over some rows. Rounds of pass 0 are disjoint portions of the rows, which
// double what is scored (see Portion), and together all of them; each later round
// is another pass over all rows.
type Round struct {
	Rows int64 `json:"rows"`
	Pass int   `json:"pass"`
}

// Portions bounds the number of rounds that the first pass takes.
const (
	leastPortions = 2
	mostPortions  = 7    // the first is a 64th of the rows
	portionRows   = 4096 // which has at least so many, about
)

// Portions returns how many rounds the first pass over so many rows takes.
func Portions(rows int64) int {
	return min(max(bits.Len64(uint64(rows/portionRows)), leastPortions), mostPortions)
}

// Portion returns to which of so many portions, at least 1, a row belongs whose
// uniform hash is given: the last with probability 1/2, the one before with 1/4,
// and so on; the first with that of the second.
func Portion(hash uint64, portions int) int {
	return max(0, bits.Len64(hash)-(65-portions))
}

// Portions returns how many of the plan's rounds are portions of the rows.
func (p *Plan) Portions() (n int) {
	for n < len(p.Rounds) && p.Rounds[n].Pass == 0 {
		n++
	}
	return max(n, 1)
}

// rounds returns the number of rounds.
func (p *Plan) rounds() int { return max(1, len(p.Rounds)) }

// round returns the rows of a round, and how many of them a shard has: those of a
// job with Until are cut so that no round has too few to share.
func (p *Plan) round(round int) (rows, perShard int64) {
	if p.Rounds == nil {
		return p.Rows, p.RowsPerShard
	}
	rows = p.Rounds[round].Rows
	return rows, max(1, min(p.RowsPerShard, (rows+shardsLeast-1)/shardsLeast))
}

// End returns how many shards the rounds up to and with the given one have.
func (p *Plan) End(round int) (shards int) {
	for r := range round + 1 {
		rows, perShard := p.round(r)
		shards += int((rows + perShard - 1) / perShard)
	}
	return shards
}

// Shards returns the number of shards.
func (p *Plan) Shards() int { return p.End(p.rounds() - 1) }

// Locate returns the round of a shard, and which of the round's rows it has:
// [from, to), in the order of the dataset.
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

// RoundOf returns the last round of which the set has a shard, 0 for none.
func (p *Plan) RoundOf(shards Shards) (round int) {
	for shard := p.Shards() - 1; shard >= 0; shard-- {
		if shards.Has(shard) {
			round, _, _ = p.Locate(shard)
			return round
		}
	}
	return 0
}

// Passes returns how many passes over a row the rounds up to and with the given
// one have.
func (p *Plan) Passes(round int) int {
	if p.Rounds == nil {
		return 1
	}
	return p.Rounds[round].Pass + 1
}

// Doubles reports whether a round ends what is as much work as all rounds up to
// another had: the two can be held against each other. A round of the first pass
// does, but the first; and a later one, if the number of passes is a power of two.
func (p *Plan) Doubles(round int) bool {
	if p.Rounds == nil || round == 0 {
		return false
	}
	passes := uint(p.Passes(round))
	return passes&(passes-1) == 0
}
