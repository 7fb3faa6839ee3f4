package job

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRowsPerShard(t *testing.T) {
	bytes := func(per int64) func(int64) int64 { return func(rows int64) int64 { return 1000 + per*rows } }
	for name, test := range map[string]struct {
		sizing Sizing
		want   int64
	}{
		"a minute":              {Sizing{Rows: 100_000_000, PerSecond: 500}, 30_000},
		"too few shards":        {Sizing{Rows: 160_000, PerSecond: 500}, 10_000},
		"too large a partial":   {Sizing{Rows: 100_000_000, PerSecond: 25_000, PartialBytes: bytes(400)}, 671_086},
		"small partials":        {Sizing{Rows: 100_000_000, PerSecond: 500, PartialBytes: bytes(400)}, 30_000},
		"nothing known":         {Sizing{Rows: 170}, 11},
		"one row":               {Sizing{Rows: 1, PerSecond: 500, PartialBytes: bytes(1)}, 1},
		"slow":                  {Sizing{Rows: 1000, PerSecond: 0.001}, 1},
		"too many shards":       {Sizing{Rows: 1 << 30, PerSecond: 1}, 1 << 8},
		"too large a shard":     {Sizing{Rows: 1 << 36, PerSecond: 1e9, Columns: 39}, 26_030_104},
		"a row's partial is it": {Sizing{Rows: 1000, PartialBytes: bytes(partialBound)}, 1},
	} {
		if got := test.sizing.RowsPerShard(); got != test.want {
			t.Errorf("%s: %d rows a shard, expected %d", name, got, test.want)
		}
	}
}

// Distinct agrees with random draws, and is exact for no rows and for all.
func TestDistinct(t *testing.T) {
	occurrences := []Occurrence{{Times: 0, Features: 1e6}, {Times: 1, Features: 500}, {Times: 5, Features: 100}, {Times: 1000, Features: 1}}
	const all = 2000
	if got := Distinct(occurrences, all, all); got != 601 {
		t.Errorf("all rows have %v features, expected 601", got)
	}
	if got := Distinct(occurrences, all, 3*all); got != 601 {
		t.Errorf("more than all rows have %v features, expected 601", got)
	}
	if got := Distinct(occurrences, all, 0); got != 0 {
		t.Errorf("no rows have %v features", got)
	}
	var column []int // the feature of each row
	for _, o := range occurrences {
		for range o.Features {
			if o.Times > 0 {
				column = append(column, int(o.Times))
			}
		}
	}
	var rows []int
	for feature, times := range column {
		for range times {
			rows = append(rows, feature)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, some := range []int{10, 200, 1000} {
		var sum float64
		const draws = 200
		for range draws {
			r.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			seen := map[int]bool{}
			for _, f := range rows[:some] {
				seen[f] = true
			}
			sum += float64(len(seen))
		}
		want := sum / draws
		if got := Distinct(occurrences, all, int64(some)); math.Abs(got-want) > 0.01*want+0.5 {
			t.Errorf("%d rows: %.1f features, found %.1f", some, got, want)
		}
	}
}
