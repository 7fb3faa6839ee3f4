package job

import (
	"testing"

	"pgregory.net/rapid"
)

// The shards of a plan cover the rows of its rounds, in order and without gaps.
func TestShardsAreTheRowsOfTheRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{RowsPerShard: rapid.Int64Range(1, 50).Draw(t, "per shard")}
		rounds := []Round{}
		for i := range rapid.IntRange(1, 6).Draw(t, "rounds") {
			rounds = append(rounds, Round{Rows: rapid.Int64Range(0, 300).Draw(t, "rows"), Pass: i})
			p.Rows += rounds[i].Rows
		}
		if len(rounds) > 1 || rapid.Bool().Draw(t, "ruled") {
			p.Rounds = rounds
		}
		shard := 0
		for round, r := range rounds {
			for at := int64(0); at < r.Rows; shard++ {
				in, from, to := p.Locate(shard)
				if in != round || from != at || to <= from || to-from > p.RowsPerShard || to-from != p.ShardRows(shard) {
					t.Fatalf("shard %d is [%d, %d) of round %d, expected %d of round %d", shard, from, to, in, at, round)
				}
				at = to
			}
			if p.End(round) != shard {
				t.Fatalf("round %d ends with %d shards, expected %d", round, p.End(round), shard)
			}
		}
		if p.Shards() != shard {
			t.Fatalf("%d shards, expected %d", p.Shards(), shard)
		}
	})
}

// Portions are a half, a quarter, and so on, and the first is as large as the second.
func TestPortionsDouble(t *testing.T) {
	for _, c := range []struct {
		rows     int64
		portions int
	}{{1, 2}, {8191, 2}, {16384, 3}, {294611, 7}, {45_840_617, 7}} {
		if n := Portions(c.rows); n != c.portions {
			t.Errorf("%d rows have %d portions, expected %d", c.rows, n, c.portions)
		}
	}
	for portions := 1; portions <= 7; portions++ {
		count := make([]int, portions)
		for i := range uint64(128) {
			count[Portion(i<<57, portions)]++
		}
		want := 128 >> (portions - 1)
		for portion, n := range count {
			if portion > 1 {
				want *= 2
			}
			if n != want {
				t.Errorf("portion %d of %d has %d of 128 hashes, expected %d", portion, portions, n, want)
			}
		}
	}
}

// The work doubles with each portion and each power of two of passes. Only there can its
// two halves be compared.
func TestDoubles(t *testing.T) {
	p := Plan{Rows: 1, RowsPerShard: 1, Rounds: []Round{{Rows: 1, Pass: 0}, {Rows: 1, Pass: 0}, {Rows: 2, Pass: 0}, {Rows: 4, Pass: 1}, {Rows: 4, Pass: 2}, {Rows: 4, Pass: 3}, {Rows: 4, Pass: 4}}}
	for round, want := range []bool{false, true, true, true, false, true, false} {
		if p.Doubles(round) != want {
			t.Errorf("round %d: %v", round, !want)
		}
	}
}

func TestUntilRefusals(t *testing.T) {
	for name, u := range map[string]Until{
		"rule": {Rule: "ranks", Bound: .5}, "bound without rule": {Bound: .5, Seconds: 1}, "sparsity of paper": {Rule: Paper, Bound: .5, Sparsity: .5},
		"bound": {Rule: Paper, Bound: 1}, "sparsity": {Rule: Overlap, Bound: .5, Sparsity: 1}, "sparsity of error": {Rule: Error, Bound: .5, Sparsity: .5}, "nothing": {}, "time": {Seconds: -1},
	} {
		if u.Validate(1) == nil {
			t.Errorf("%s: %+v is valid", name, u)
		}
	}
	for _, u := range []Until{{Rule: Paper}, {Rule: Overlap}, {Rule: Error}, {Seconds: 1}, {Rule: Overlap, Bound: .5, Sparsity: .99, Seconds: 3}} {
		u.SetDefaults()
		if err := u.Validate(MaxUntilPasses); err != nil {
			t.Errorf("%+v: %v", u, err)
		}
		if u.Validate(MaxUntilPasses+1) == nil {
			t.Errorf("%+v accepts any number of passes", u)
		}
	}
}

// A plan is refused if its shards or the rows of one shard would take too much memory.
func TestCheckPlan(t *testing.T) {
	const most = rowsMemory / (9 + 4*39)
	for name, c := range map[string]struct {
		plan Plan
		ok   bool
	}{
		"usual":             {Plan{Rows: 1e6, RowsPerShard: 1e4}, true},
		"most shards":       {Plan{Rows: MaxShards, RowsPerShard: 1}, true},
		"too many shards":   {Plan{Rows: MaxShards + 1, RowsPerShard: 1}, false},
		"no rows":           {Plan{RowsPerShard: 1}, false},
		"no rows per shard": {Plan{Rows: 1}, false},
		"largest shard":     {Plan{Rows: 1e6, RowsPerShard: most}, true},
		"too large a shard": {Plan{Rows: 1e6, RowsPerShard: most + 1}, false},
		"overflow":          {Plan{Rows: 1e6, RowsPerShard: 1<<63 - 1}, false},
		"rounds":            {Plan{Rows: 2000, RowsPerShard: 10, Rounds: []Round{{Rows: 1000}, {Rows: 1000, Pass: 1}}}, true},
		"many rounds":       {Plan{Rows: 2 * MaxShards, RowsPerShard: 1, Rounds: []Round{{Rows: MaxShards}, {Rows: MaxShards, Pass: 1}}}, false},
		"a negative round":  {Plan{Rows: 10, RowsPerShard: 10, Rounds: []Round{{Rows: -5}, {Rows: 15}}}, false},
	} {
		if err := c.plan.Check(39); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
