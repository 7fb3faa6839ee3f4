package columnfile

import (
	"math"
	"testing"
)

// One instant has one text in every unit, and a number the same text as an integer and as
// a float. Nothing is rounded.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		x    float64
		bits int
		want string
	}{
		{3, 64, "3"}, {math.Copysign(0, -1), 64, "0"}, {-7, 32, "-7"}, {2.5, 64, "2.5"}, {0.1, 64, "0.1"}, {float64(float32(0.1)), 32, "0.1"},
		{1234567.5, 64, "1234567.5"}, {1 << 53, 64, "9007199254740992"}, {1e16, 64, "1e+16"}, {1e-5, 64, "1e-05"}, {0.0001, 64, "0.0001"},
		{math.NaN(), 64, ""}, {math.Inf(1), 64, "inf"}, {math.Inf(-1), 64, "-inf"},
	} {
		if got := string(appendFloat(nil, c.x, c.bits)); got != c.want {
			t.Errorf("%v of %d bits is %q, want %q", c.x, c.bits, got, c.want)
		}
	}
	for _, c := range []struct {
		ticks, second int64
		zone          bool
		want          string
	}{
		{1704164645, 1, false, "2024-01-02 03:04:05"}, {1704164645e3, 1e3, false, "2024-01-02 03:04:05"}, {1704164645e6, 1e6, false, "2024-01-02 03:04:05"}, {1704164645e9, 1e9, false, "2024-01-02 03:04:05"},
		{-1500, 1e3, true, "1969-12-31 23:59:58.5+00:00"}, {-1, 1e9, false, "1969-12-31 23:59:59.999999999"}, {0, 1, true, "1970-01-01 00:00:00+00:00"},
		{-62135596800, 1, false, "0001-01-01 00:00:00"}, {-62135596801, 1, false, ""}, {253402300799, 1, false, "9999-12-31 23:59:59"}, {253402300800, 1, false, ""},
		{math.MaxInt64, 1, false, ""}, {math.MinInt64, 1, false, ""}, {math.MinInt64, 1e3, false, ""}, {math.MinInt64, 1e9, false, "1677-09-21 00:12:43.145224192"},
	} {
		got, err := appendTimestamp(nil, c.ticks, c.second, c.zone)
		if string(got) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%d of %d a second is %q, %v, want %q", c.ticks, c.second, got, err, c.want)
		}
	}
	for days, want := range map[int64]string{0: "1970-01-01", -1: "1969-12-31", 19724: "2024-01-02", 2932896: "9999-12-31", 2932897: "", math.MaxInt64: "", math.MinInt64: ""} {
		if got, err := appendDate(nil, days); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("day %d is %q, %v, want %q", days, got, err, want)
		}
	}
	for ticks, want := range map[int64]string{0: "00:00:00", 86399999: "23:59:59.999", 86400000: "", -1: ""} {
		if got, err := appendTimeOfDay(nil, ticks, 1000); string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%d ms after midnight is %q, %v, want %q", ticks, got, err, want)
		}
	}
}
