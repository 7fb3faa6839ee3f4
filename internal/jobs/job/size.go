package job

import (
	"math"
	"sort"
)

// A shard should be about a minute of work. Handing it out then costs little in
// comparison, and so does losing it. Its partial should be cheap to store and merge. And a
// job should have enough shards for all workers.
const (
	shardSeconds = 60
	partialBound = 256 << 20
	shardsLeast  = 16
)

// rowsMemory is the largest size in memory, in bytes, of the rows of a shard.
const rowsMemory = 4 << 30

// MostRows returns the largest number of rows of a shard with the given number of columns,
// which are fields and dense inputs.
func MostRows(columns int) int64 { return rowsMemory / int64(9+4*columns) }

// Sizing holds everything that determines how many rows a shard has.
type Sizing struct {
	Rows         int64                  // rows of the job
	PerSecond    float64                // rows per second of one worker; 0 = unknown, and only the other bounds apply
	PartialBytes func(rows int64) int64 // bytes of the partial of a shard with that many rows, ascending; nil = unknown
	Columns      int                    // number of fields and dense inputs
}

// Sized reports whether the job is so small that the rows per shard follow from the
// number of rows alone, without any measurement.
func (s *Sizing) Sized() bool { return s.Rows <= shardsLeast*4096 }

// RowsPerShard returns the number of rows of a shard, at least 1. It is at most
// MostRows, and the job has at most MaxShards shards if that is possible.
func (s *Sizing) RowsPerShard() int64 {
	rows := (s.Rows + shardsLeast - 1) / shardsLeast
	if s.PerSecond > 0 {
		rows = min(rows, int64(s.PerSecond*shardSeconds))
	}
	if s.PartialBytes != nil {
		over := sort.Search(int(rows), func(r int) bool { return s.PartialBytes(int64(r)+1) > partialBound })
		rows = min(rows, int64(over))
	}
	rows = min(max(rows, (s.Rows+MaxShards-1)/MaxShards), MostRows(s.Columns))
	return max(rows, 1)
}

// Occurrence says that Features features occur Times times each.
type Occurrence struct {
	Times    int64
	Features int64
}

// Distinct returns the expected number of features in some rows that are drawn at random
// from all rows. occurrences says how often features occur in all rows. If neighbouring
// rows are similar, as in a chronological log, a shard has fewer features. A feature that
// occurs c times in n rows is missing from r of them with probability C(n-c, r) / C(n, r),
// which is about (1 - r/n)^c.
func Distinct(occurrences []Occurrence, all, some int64) float64 {
	if some >= all {
		some = all
	}
	miss := math.Log1p(-float64(some) / float64(all)) // -Inf if some = all
	var found float64
	for _, o := range occurrences {
		if o.Times > 0 {
			found -= float64(o.Features) * math.Expm1(float64(o.Times)*miss)
		}
	}
	return found
}
