package deltalog

import (
	"fmt"
	"slices"
	"testing"

	"shaver/internal/data/lake"
)

// withStats returns what an action add has as statistics.
func withStats(text string) string { return fmt.Sprintf(`,"stats":%q`, text) }

// Conditions on partition columns leave out files, and need not be checked for rows.
func TestWherePartition(t *testing.T) {
	s := store(t.TempDir())
	s.commit(t, 0, protocol1, meta(t, "x:long", "*day:date", "*n:integer"), add("a", "", "day=2026-11-28", "n=9"), add("b", "", "day=2026-11-29", "n=10"), add("c", "", "day", "n=10"))
	for where, want := range map[string]string{"day=2026-11-29": "b", "day!=2026-11-29": "a c", "day<2027": "a b", "day=": "c", "n>9": "b c", "n=9.0": "a"} {
		if got := s.names(t, "", where); got != want {
			t.Errorf("%s has the files %q, expected %q", where, got, want)
		}
	}
	got, err := s.read(t, "", "day>=2026-11-29", "x=3", "n>0")
	if err != nil || len(got.Files) != 1 || !slices.Equal(got.Where, lake.Conditions{{Column: "x", Operator: "=", Value: "3"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if !slices.Equal(got.Values["day"], []string{"", "2026-11-28", "2026-11-29"}) || !slices.Equal(got.Values["n"], []string{"10", "9"}) {
		t.Errorf("values %q", got.Values)
	}
	s.refused(t, "", `no column "y", the columns are ["x" "day" "n"]`, "y=1")
}

// Statistics leave out a file only if none of its rows can satisfy the conditions.
func TestWhereStatistics(t *testing.T) {
	for _, test := range []struct {
		column, stats string
		keeps, drops  []string
	}{
		{"long", `{"numRecords":5,"minValues":{"x":3},"maxValues":{"x":10},"nullCount":{"x":0}}`, []string{"x=3", "x=10", "x>9", "x<4", "x!=3", "x=y", "x="}, []string{"x=2", "x=11", "x>10", "x<3"}},
		{"long", `{"numRecords":5,"minValues":{"x":3},"maxValues":{"x":10}}`, []string{"x=", "x!=3"}, []string{"x=2"}},
		{"long", `{"numRecords":5,"minValues":{"x":3},"maxValues":{"x":3},"nullCount":{"x":1}}`, []string{"x=", "x!=3"}, nil},
		{"long", `{"numRecords":5,"minValues":{"x":3},"maxValues":{"x":3},"nullCount":{"x":0}}`, []string{"x=3"}, []string{"x!=3"}},
		{"long", `{"numRecords":5,"minValues":{"x":-9007199254740999},"maxValues":{"x":9007199254740999},"nullCount":{"x":0}}`, []string{"x=9007199254741999"}, nil},
		{"long", `{"numRecords":5,"nullCount":{"x":5}}`, []string{"x=", "x!=3"}, []string{"x=3", "x<3"}},
		{"long", `{"numRecords":5,"nullCount":{"x":4}}`, []string{"x=3"}, nil},
		{"long", `{"numRecords":5,"minValues":{"x":{"y":3}},"maxValues":{"x":{"y":3}}}`, []string{"x=5"}, nil},
		{"long", `{"numRecords":5,"minValues":{"y":3},"maxValues":{"y":3}}`, []string{"x=5"}, nil},
		{"long", `not JSON`, []string{"x=5"}, nil},
		{"string", `{"numRecords":5,"minValues":{"x":"b"},"maxValues":{"x":"d"},"nullCount":{"x":0}}`, []string{"x=b", "x=c", "x>c"}, []string{"x=a", "x=da", "x>d", "x="}},
		{"string", `{"numRecords":5,"minValues":{"x":"b"},"maxValues":{"x":"dddddddddddddddddddddddddddddddd"},"nullCount":{"x":0}}`, []string{"x=ddddddddddddddddddddddddddddddddxyz"}, []string{"x=e"}},
		{"double", `{"numRecords":5,"minValues":{"x":0.1},"maxValues":{"x":1.5},"nullCount":{"x":0}}`, []string{"x=0.1", "x=0.10000000149011612", "x="}, []string{"x=0.09", "x>2"}},
		{"double", `{"numRecords":5,"minValues":{"x":1.5},"maxValues":{"x":1.5},"nullCount":{"x":0}}`, []string{"x=", "x!=1.5"}, []string{"x=2"}}, // or NaN
		{"float", `{"numRecords":5,"minValues":{"x":0.10000000149011612},"maxValues":{"x":1.5},"nullCount":{"x":0}}`, []string{"x=0.1"}, []string{"x>2"}},
		{"date", `{"numRecords":5,"minValues":{"x":"2026-11-01"},"maxValues":{"x":"2026-11-30"},"nullCount":{"x":0}}`, []string{"x=2026-11-15", "x>2026"}, []string{"x=2026-12-01"}},
		{"timestamp", `{"numRecords":5,"minValues":{"x":"2026-11-01T00:00:00.123Z"},"maxValues":{"x":"2026-11-01T00:00:00.123Z"},"nullCount":{"x":0}}`,
			[]string{"x=2026-11-01 00:00:00.123456+00:00", "x>2026-11-01 00:00:00.1235+00:00"}, []string{"x>2026-11-01 00:00:00.2+00:00", "x<2026-11-01"}},
		{"timestamp_ntz", `{"numRecords":5,"minValues":{"x":"2026-11-01"},"maxValues":{"x":"2026-11-01"},"nullCount":{"x":0}}`, []string{"x=2026-11-01 12:00:00"}, nil},
		{"binary", `{"numRecords":5,"minValues":{"x":"b"},"maxValues":{"x":"d"},"nullCount":{"x":0}}`, []string{"x=e"}, nil},
		{"boolean", `{"numRecords":5,"minValues":{"x":false},"maxValues":{"x":false},"nullCount":{"x":0}}`, []string{"x=1"}, nil},
		{`{"type":"array","elementType":"long"}`, `{"numRecords":5,"minValues":{"x":3},"maxValues":{"x":10},"nullCount":{"x":0}}`, []string{"x=1"}, nil},
	} {
		s := store(t.TempDir())
		s.commit(t, 0, protocol1, meta(t, "y:long", "x:"+test.column), add("a", withStats(test.stats)))
		for _, where := range test.keeps {
			if s.names(t, "", where) != "a" {
				t.Errorf("%s with %s: %s leaves the file out", test.column, test.stats, where)
			}
		}
		for _, where := range test.drops {
			if s.names(t, "", where) == "a" {
				t.Errorf("%s with %s: %s does not leave the file out", test.column, test.stats, where)
			}
		}
	}
}
