package lake

import (
	"bytes"
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/internal/base/fault"
	"shaver/internal/data/columnfile"
)

// Condition compares the values of a column with a constant.
type Condition struct {
	Column, Operator, Value string
}

// Conditions are conditions that must all hold.
type Conditions []Condition

// ErrNoRows is in the errors about conditions that hold for no row.
var ErrNoRows = errors.New("no row")

// operators are the operators of conditions. One that begins another one follows it.
var operators = []string{"!=", "<=", ">=", "=", "<", ">"}

// ParseCondition parses a condition such as day=2024-05-31, price>=10 or city!=. The name of the column ends at the
// first operator.
func ParseCondition(text string) (c Condition, err error) {
	at := strings.IndexAny(text, "!<>=")
	if at > 0 {
		for _, operator := range operators {
			if value, ok := strings.CutPrefix(text[at:], operator); ok && !strings.HasPrefix(text[at:], "<>") {
				return Condition{strings.TrimSpace(text[:at]), operator, strings.TrimSpace(value)}, nil
			}
		}
	}
	return c, fault.Usagef("%q is not a condition: expected a column, one of %s, and a value, such as day=2024-05-31", text, strings.Join(operators, " "))
}

func (c Condition) String() string { return c.Column + c.Operator + c.Value }

func (c Conditions) String() string {
	texts := make([]string, len(c))
	for i := range c {
		texts[i] = c[i].String()
	}
	slices.Sort(texts)
	return strings.Join(texts, " and ")
}

// Holds reports whether the condition holds for a value, given by its text as in columnfile. Texts of numbers are
// compared as numbers if numeric is true, and all others byte by byte, which is also the order of dates and times. A
// missing value has the empty text. It equals only itself, and is neither above nor below another one.
func (c *Condition) Holds(value []byte, numeric bool) bool {
	switch c.Operator {
	case "=":
		return c.compare(value, numeric) == 0
	case "!=":
		return c.compare(value, numeric) != 0
	}
	if len(value) == 0 || c.Value == "" {
		return false
	}
	order := c.compare(value, numeric)
	switch c.Operator {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// compare compares a value with that of the condition.
func (c *Condition) compare(value []byte, numeric bool) int {
	if numeric {
		i, bad := strconv.ParseInt(string(value), 10, 64)
		j, worse := strconv.ParseInt(c.Value, 10, 64)
		if bad == nil && worse == nil {
			return cmp.Compare(i, j)
		}
		x, bad := strconv.ParseFloat(string(value), 64)
		y, worse := strconv.ParseFloat(c.Value, 64)
		if bad == nil && worse == nil && (x < y || x > y || max(x, -x) < 1<<53) {
			return cmp.Compare(x, y)
		}
	}
	return bytes.Compare(value, []byte(c.Value))
}

// timeForm matches the text of a date or a point in time, or its beginning. The groups are the time of day and the zone.
var timeForm = regexp.MustCompile(`^\d{4}(?:-\d\d(?:-\d\d( \d\d:\d\d:\d\d(?:\.\d+)?(\+00:00)?)?)?)?$`)

// Check returns bad input if values of a kind, as in columnfile.File.Kind, never have texts such as the condition's. Only
// < and >= may have the beginning of a date or a time, which is before all values that begin with it.
func (c *Condition) Check(kind string) error {
	ok, expected := true, ""
	part := timeForm.FindStringSubmatch(c.Value)
	begin := c.Operator == "<" || c.Operator == ">="
	switch kind {
	case columnfile.Numbers:
		x, err := strconv.ParseFloat(c.Value, 64)
		ok, expected = err == nil && x == x, "a number"
	case columnfile.Truths:
		ok, expected = c.Value == "0" || c.Value == "1", "1 for true or 0 for false"
	case columnfile.Dates:
		ok, expected = part != nil && part[1] == "" && (begin || len(c.Value) == len(time.DateOnly)), "a date such as 2026-11-29"
	case columnfile.Timestamps:
		ok, expected = part != nil && part[2] == "" && (begin || part[1] != ""), "a time such as 2026-11-29 03:00:00, or a date with < or >="
	case columnfile.Instants:
		ok, expected = part != nil && (begin || part[2] != ""), "a time such as 2026-11-29 03:00:00+00:00, or a date with < or >="
	}
	if ok || c.Value == "" {
		return nil
	}
	return fault.Inputf("the condition %s: the column has %s: expected %s", c, kind, expected)
}

// MayHold reports whether the condition may hold for a value from low to high. missing says whether values may be
// missing.
func (c *Condition) MayHold(low, high string, numeric, missing bool) bool {
	if missing && c.Holds(nil, numeric) {
		return true
	}
	from, to := c.compare([]byte(low), numeric), c.compare([]byte(high), numeric)
	switch c.Operator {
	case "=":
		return from <= 0 && to >= 0
	case "!=":
		return from != 0 || to != 0
	case "<":
		return from < 0
	case "<=":
		return from <= 0
	case ">":
		return to > 0
	}
	return to >= 0
}
