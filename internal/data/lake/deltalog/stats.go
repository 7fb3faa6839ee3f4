package deltalog

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
	"shaver/internal/data/lake"
)

// compile distinguishes the conditions that the partition of a file decides from all others.
func (t *table) compile(where lake.Conditions) error {
	for _, c := range where {
		switch column := t.column(c.Column); {
		case column == nil:
			var names []string
			for _, c := range t.columns {
				names = append(names, c.name)
			}
			return fault.Inputf("the condition %s: no column %q, the columns are %q", c, c.Column, names)
		case column.place >= 0:
			t.decided = append(t.decided, c)
		default:
			t.rest = append(t.rest, c)
		}
	}
	return nil
}

// stats says what values the rows of a file have, by the names of the columns in files. In a checkpoint all are strings.
type stats struct {
	NumRecords                      json.RawMessage
	MinValues, MaxValues, NullCount map[string]json.RawMessage
}

// parseStats returns nil if text is not in the expected form.
func parseStats(text string) *stats {
	var s stats
	if json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return &s
}

// mayHold reports whether all conditions may hold for a row of a file. Statistics in a form that it does not know say
// nothing.
func (t *table) mayHold(s *stats) bool {
	return s == nil || !slices.ContainsFunc(t.rest, func(c lake.Condition) bool { return !s.mayHold(t.column(c.Column), &c) })
}

func (s *stats) mayHold(column *column, c *lake.Condition) bool {
	const exact = 1 << 53 // from here on package lake may not compare numbers by size
	if column.array {
		return true
	}
	count := scalar(s.NullCount[column.physical])
	low, ok := column.bound(scalar(s.MinValues[column.physical]), false)
	high, too := column.bound(scalar(s.MaxValues[column.physical]), true)
	if !ok || !too {
		all := count != "" && count != "0" && count == scalar(s.NumRecords)
		return !all || column.kind == "" || c.Holds(nil, column.numeric())
	}
	if column.numeric() {
		for _, text := range []string{low, high, c.Value} {
			if x, err := strconv.ParseFloat(text, 64); err != nil || math.Abs(x) >= exact {
				return true
			}
		}
	}
	return c.MayHold(low, high, column.numeric(), count != "0")
}

// scalar returns the text of a JSON value that is a string or a number, and "" for all others.
func scalar(value json.RawMessage) (text string) {
	var number json.Number
	if json.Unmarshal(value, &text) != nil && json.Unmarshal(value, &number) == nil {
		return number.String()
	}
	return text
}

// bound returns the text of a bound of the column's values.
func (c *column) bound(value string, upper bool) (string, bool) {
	sign, more := -1, time.Duration(0)
	if upper {
		sign, more = 1, time.Millisecond // statistics have only milliseconds
	}
	switch c.of {
	case "string":
		if upper && len(value) >= 32 { // longer values may be cut
			return value + "\xff", true
		}
		return value, value != ""
	case "byte", "short", "integer", "long":
		_, err := strconv.ParseInt(value, 10, 64)
		return value, err == nil
	case "float", "double":
		// The bounds are widened to the next float32, because a float that became a double has more digits. Therefore !=
		// leaves out no file. That matters because NaN, whose text is that of a missing value, is not in nullCount.
		x, err := strconv.ParseFloat(value, 64)
		y := math.Nextafter32(float32(x), float32(math.Inf(sign)))
		return columnfile.FloatText(float64(y), 64), err == nil
	case "date":
		_, err := time.Parse(time.DateOnly, value)
		return value, err == nil
	case "timestamp", "timestamp_ntz":
		return timestamp(value, c.of == "timestamp", more)
	}
	return "", false
}
