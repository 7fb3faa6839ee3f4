package job

import (
	"math"
	"sort"
)

// What a shard should be: about a minute of work, so that handing it out costs
// nothing beside it and losing it costs little; not so many rows that its partial
// is a burden to store and to merge; not so many that its sums may overflow, though
// its losses be several times those of the rows measured; and not so many that there
// are too few shards to share.
const (
	shardSeconds = 60
	partialBound = 256 << 20
	lossesLarger = 8
	shardsLeast  = 16
)

// Sizing is what decides how many rows a shard has.
type Sizing struct {
	Rows         int64                  // of the job
	PerSecond    float64                // rows a second of one worker; 0 = not known, which leaves the other bounds
	PartialBytes func(rows int64) int64 // of a shard of so many rows; ascending; nil = not known
	Capacity     float64                // rows like those measured whose sums fit a partial; 0 = not known
}

// Sized reports whether the job is so small that its rows a shard follow from
// their number alone, without measuring anything.
func (s *Sizing) Sized() bool { return s.Rows <= shardsLeast*4096 }

// RowsPerShard returns how many rows a shard has, at least 1.
func (s *Sizing) RowsPerShard() int64 {
	rows := (s.Rows + shardsLeast - 1) / shardsLeast
	if s.PerSecond > 0 {
		rows = min(rows, int64(s.PerSecond*shardSeconds))
	}
	if s.Capacity > 0 {
		rows = int64(min(float64(rows), s.Capacity/lossesLarger))
	}
	if s.PartialBytes != nil {
		over := sort.Search(int(rows), func(r int) bool { return s.PartialBytes(int64(r)+1) > partialBound })
		rows = min(rows, int64(over))
	}
	return max(rows, 1)
}

// Occurrence says that so many features occur so many times each.
type Occurrence struct {
	Times    int64
	Features int64
}

// Distinct returns how many features are expected in some of the rows, if these
// are drawn from all of them, in which features occur as given. Where a row's
// neighbours are like it (a log in order of time) a shard has fewer. A feature
// that occurs c times in n rows is missed by r of them with probability
// C(n-c, r) / C(n, r), which is about (1 - r/n)^c.
func Distinct(occurrences []Occurrence, all, some int64) float64 {
	if some >= all {
		some = all
	}
	miss := math.Log1p(-float64(some) / float64(all)) // -Inf if all are taken
	var found float64
	for _, o := range occurrences {
		if o.Times > 0 {
			found -= float64(o.Features) * math.Expm1(float64(o.Times)*miss)
		}
	}
	return found
}
