package job

import (
	"fmt"
	"math/bits"
)

// Shards is a set of shards, one bit for each: shard s is bit s%8 of byte s/8. The zero
// value is empty and has no room.
type Shards []byte

// MaxShards is the largest number of shards of a job. It bounds the memory of a
// coordinator: it keeps less than 8 bytes for each shard.
const MaxShards = 1 << 22

// NewShards returns an empty set with room for n shards. It panics if n is above MaxShards,
// which Plan.Check excludes.
func NewShards(n int) Shards {
	if n < 0 || n > MaxShards {
		panic(fmt.Sprintf("job: NewShards: %d shards", n))
	}
	return make(Shards, (n+7)/8)
}

// shardsOf returns the set of the n shards whose numbers in list begin at from.
func shardsOf(from, n int, list []int) Shards {
	set := NewShards(n)
	for _, number := range list {
		if shard := number - from; shard >= 0 && shard < n {
			set.Add(shard)
		}
	}
	return set
}

// Has reports whether shard is in the set.
func (s Shards) Has(shard int) bool { return shard/8 < len(s) && s[shard/8]>>(shard%8)&1 == 1 }

// Add adds shard to the set, which must have room for it.
func (s Shards) Add(shard int) { s[shard/8] |= 1 << (shard % 8) }

// Len returns the number of shards in the set.
func (s Shards) Len() (n int) {
	for _, b := range s {
		n += bits.OnesCount8(b)
	}
	return n
}

// Remove removes shard from the set, which must have room for it.
func (s Shards) Remove(shard int) { s[shard/8] &^= 1 << (shard % 8) }
