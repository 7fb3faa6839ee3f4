package lake

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
)

// A condition compares numbers as numbers and all else byte by byte. A missing value equals only the empty text.
func TestHolds(t *testing.T) {
	for _, test := range []struct {
		condition, value string
		numeric, want    bool
	}{
		{"day=2026-11-29", "2026-11-29", false, true}, {"day=2026-11-29", "2026-11-28", false, false}, {"day!=a", "b", false, true}, {"day!=a", "a", false, false},
		{"n=7", "7.0", true, true}, {"n=7", "7.0", false, false}, {"n<10", "9", true, true}, {"n<10", "9", false, false}, {"n>=1e2", "100", true, true}, {"n<=-3", "-3.5", true, true},
		{"n=9007199254740993", "9007199254740992", true, false}, {"n>9007199254740992", "9007199254740993", true, true}, // the same float64
		{"time>=2026-11-29", "2026-11-29 00:00:00", false, true}, {"time<2026-11-30", "2026-11-29 23:59:59.9", false, true},
		{"n>-9007199254740993", "-9007199254740992", true, true}, {"n<10000000000000000", "9999999999999999", true, true},
		{"n=nan", "5", true, false}, {"n!=nan", "5", true, true}, {"n=5", "nan", true, false},
		{"a=", "", false, true}, {"a!=", "", false, false}, {"a!=", "x", true, true}, {"a<5", "", true, false}, {"a>5", "", true, false}, {"a!=5", "", true, true}, {" a >= x ", "x", false, true},
	} {
		c, err := ParseCondition(test.condition)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Holds([]byte(test.value), test.numeric); got != test.want {
			t.Errorf("%s holds for %q (numeric %t): %t", test.condition, test.value, test.numeric, got)
		}
	}
	for _, bad := range []string{"", "day", "=3", "!x", "a!b", "a<>b"} {
		if c, err := ParseCondition(bad); err == nil {
			t.Errorf("%q is the condition %v", bad, c)
		}
	}
}

// Constants that no value of a column can equal are refused, because a comparison of texts would have another meaning.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		kind      string
		good, bad []string
	}{
		{columnfile.Strings, []string{"", "x", "nan"}, nil},
		{columnfile.Numbers, []string{"", "-7", "2.5", "1e3"}, []string{"x", "nan", "1,5"}},
		{columnfile.Truths, []string{"", "0", "1"}, []string{"true", "2"}},
		{columnfile.Dates, []string{"", "2026-11", "2026-11-29"}, []string{"2026-11-29 00:00:00", "29.11.2026", "20261129"}},
		{columnfile.Timestamps, []string{"", "2026", "2026-11-29", "2026-11-29 03:00:00.25"}, []string{"2026-11-29T03:00:00", "3:00", "2026-11-29 03:00:00+00:00"}},
		{columnfile.Instants, []string{"", "2026-11-29", "2026-11-29 03:00:00+00:00"}, []string{"2026-11-29T03:00:00Z", "2026-11-29 03:00:00+01:00"}},
	} {
		for i, value := range slices.Concat(test.good, test.bad) {
			c := Condition{"x", ">=", value}
			if err := c.Check(test.kind); (err == nil) != (i < len(test.good)) || err != nil && !fault.IsInput(err) {
				t.Errorf("%s for %s: %v", c, test.kind, err)
			}
		}
	}
}

// Whether a value is equal to a constant, below it or above it depends on the whole text, so beginnings of dates and times are only for
// < and >=.
func TestCheckBeginning(t *testing.T) {
	for kind, texts := range map[string][]string{ // the last one is whole
		columnfile.Dates: {"2026", "2026-11", "2026-11-29"}, columnfile.Timestamps: {"2026-11", "2026-11-29", "2026-11-29 03:00:00"},
		columnfile.Instants: {"2026-11-29", "2026-11-29 03:00:00", "2026-11-29 03:00:00+00:00"},
	} {
		for i, text := range texts {
			for _, operator := range operators {
				c := Condition{"x", operator, text}
				if err := c.Check(kind); (err == nil) != (i == len(texts)-1 || operator == "<" || operator == ">=") {
					t.Errorf("%s for %s: %v", c, kind, err)
				}
			}
		}
	}
}

// A condition may hold for values in a range exactly if it holds for one of them, or for a missing one.
func TestMayHold(t *testing.T) {
	for _, operator := range operators {
		for value := range 8 {
			for low := 1; low < 7; low++ {
				for high := low; high < 7; high++ {
					for _, missing := range []bool{false, true} {
						c := Condition{"x", operator, strconv.Itoa(value)}
						want := missing && c.Holds(nil, true)
						for x := low; x <= high; x++ {
							want = want || c.Holds([]byte(strconv.Itoa(x)), true) || c.Holds(fmt.Append(nil, x, ".0"), true)
						}
						if got := c.MayHold(strconv.Itoa(low), strconv.Itoa(high), true, missing); got != want {
							t.Errorf("%s may hold for %d to %d, missing %t: %t", c, low, high, missing, got)
						}
					}
				}
			}
		}
	}
}
