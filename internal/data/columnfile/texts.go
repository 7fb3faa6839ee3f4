package columnfile

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// The functions below give a value of a table the text of its feature. The text does not
// depend on the type in which a writer stored the value. An integer has the same text in a
// column of floats, and an instant has the same text in every unit and zone. The texts are
// those that pandas and DuckDB write to CSV wherever these agree.

// appendFloat appends a float of 32 or 64 bits. A whole number is written as an integer,
// and any other number in its shortest exact form. NaN, which stands for a missing value,
// has no text.
func appendFloat(text []byte, x float64, bits int) []byte {
	size := math.Abs(x)
	switch {
	case math.IsNaN(x):
		return text
	case x == 0: // also for -0
		return append(text, '0')
	case math.IsInf(x, 1):
		return append(text, "inf"...)
	case math.IsInf(x, -1):
		return append(text, "-inf"...)
	case size >= 1e-4 && size < 1e16:
		return strconv.AppendFloat(text, x, 'f', -1, bits)
	}
	return strconv.AppendFloat(text, x, 'e', -1, bits)
}

// appendDate appends a date as YYYY-MM-DD. days counts from 1970.
func appendDate(text []byte, days int64) ([]byte, error) {
	const most = 1 << 24 // days; about 46,000 years
	if days < -most || days > most {
		return text, fmt.Errorf("day %d is not in the years 1 to 9999", days)
	}
	return appendTime(text, time.Unix(days*86400, 0), time.DateOnly)
}

// appendTimestamp appends a point in time that counts from 1970, with the given number of
// ticks in a second. A timestamp with a zone is an instant, and is written in UTC.
func appendTimestamp(text []byte, ticks, second int64, zone bool) ([]byte, error) {
	seconds := floorDiv(ticks, second)
	return appendInstant(text, seconds, (ticks-seconds*second)*(1e9/second), zone)
}

// appendInstant is appendTimestamp for seconds and nanoseconds since 1970.
func appendInstant(text []byte, seconds, nanoseconds int64, zone bool) ([]byte, error) {
	const most = 1 << 40 // seconds; about 35,000 years
	if seconds < -most || seconds > most {
		return text, fmt.Errorf("the time %d s is not in the years 1 to 9999", seconds)
	}
	form := "2006-01-02 15:04:05.999999999"
	if zone {
		form += "+00:00"
	}
	return appendTime(text, time.Unix(seconds, nanoseconds), form)
}

func appendTime(text []byte, t time.Time, form string) ([]byte, error) {
	t = t.UTC()
	if year := t.Year(); year < 1 || year > 9999 {
		return text, fmt.Errorf("the year is %d, expected 1 to 9999", year)
	}
	return t.AppendFormat(text, form), nil
}

// appendTimeOfDay appends a time since midnight, with the given number of ticks in a second.
func appendTimeOfDay(text []byte, ticks, second int64) ([]byte, error) {
	if ticks < 0 || ticks >= 86400*second {
		return text, fmt.Errorf("the time of day is %d s, expected 0 to 86399 s", floorDiv(ticks, second))
	}
	return time.Unix(ticks/second, ticks%second*(1e9/second)).UTC().AppendFormat(text, "15:04:05.999999999"), nil
}

// floorDiv returns the greatest integer that is at most a/b, for b above 0.
func floorDiv(a, b int64) int64 {
	if a%b < 0 {
		return a/b - 1
	}
	return a / b
}

// FloatText returns the text of a float of 32 or 64 bits.
func FloatText(x float64, bits int) string { return string(appendFloat(nil, x, bits)) }

// DateText returns the text of a date, in days since 1970.
func DateText(days int64) (string, error) {
	text, err := appendDate(nil, days)
	return string(text), err
}

// TimestampText returns the text of a point in time since 1970, with the given number of ticks in a second. zone says
// whether it is an instant.
func TimestampText(ticks, second int64, zone bool) (string, error) {
	text, err := appendTimestamp(nil, ticks, second, zone)
	return string(text), err
}

// TimeText returns the text of a time of day, with the given number of ticks in a second.
func TimeText(ticks, second int64) (string, error) {
	text, err := appendTimeOfDay(nil, ticks, second)
	return string(text), err
}
