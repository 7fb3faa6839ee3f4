package keep

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/value/mask"
)

// Tables say how many entries tables keep. They are the value of a flag that takes a list, such as item=.2..,user=..50MiB.
type Tables []table

type table struct {
	name        string // of a field, or else of a table
	least, most amount
}

// amount is a portion of the entries of a table, a number of them, or the bytes that they take. A missing one has no unit.
type amount struct {
	unit   string // portion, mask.Kept, mask.Bytes, or ""
	number float64
}

const portion = "portion"

// amountOf parses an amount. A portion has a decimal point, bytes have a unit, and a number of entries has neither.
func amountOf(text string) (a amount, err error) {
	if text == "" {
		return a, nil
	}
	digits, scale, most := text, 1., float64(math.MaxInt32)
	switch at := strings.IndexByte("KMGT", text[max(0, len(text)-3)]); {
	case strings.HasSuffix(text, "iB") && at >= 0:
		a.unit, digits, scale, most = mask.Bytes, text[:len(text)-3], float64(int64(1)<<(10*at+10)), math.MaxInt64/2
	case strings.Contains(text, "."):
		a.unit, most = portion, 1
	default:
		a.unit = mask.Kept
	}
	n, err := strconv.ParseFloat(digits, 64)
	a.number = n * scale
	if err != nil || !(n >= 0 && a.number <= most) || a.unit == mask.Kept && n != math.Trunc(n) {
		return a, fmt.Errorf("%q: expected a portion such as .5, a whole number of entries, or a size such as 50MiB", text)
	}
	return a, nil
}

// Set adds the tables of a list, NAME=LEAST..MOST, separated by commas. One of the ends may be missing.
func (t *Tables) Set(list string) error {
	for _, text := range strings.Split(list, ",") {
		at := max(strings.LastIndexByte(text, '='), 0)
		least, most, ok := strings.Cut(text[at:], "..")
		b, err := table{name: text[:at]}, error(nil)
		if !ok || at == 0 || least+most == "=" {
			return fmt.Errorf("%q: expected NAME=LEAST..MOST, of which one end may be missing, such as item=.2.. or user=..50MiB", text)
		}
		if b.least, err = amountOf(least[1:]); err == nil {
			b.most, err = amountOf(most)
		}
		switch {
		case err != nil:
			return err
		case b.least.unit == mask.Bytes:
			return fmt.Errorf("%q: expected a portion or a number of entries as the least", text)
		}
		*t = append(*t, b)
	}
	return nil
}

// String returns "", the default.
func (t *Tables) String() string { return "" }

// Type returns the type that a help text names.
func (t *Tables) Type() string { return "list" }

// group is a set of entries, of which a least and a largest number stay.
type group struct {
	name                 string
	entries, least, most int
	seen                 int // how many of the last entries of an order were visited
}

// groups returns the groups of the entries of a, which are the fields without what Tables name, and the tables. of has the
// number of the group of each row of the tables.
func (k Rules) groups(a *model.Architecture, names []string) (groups []group, of []int32, err error) {
	for _, name := range names {
		groups = append(groups, group{name: name})
	}
	for _, t := range k.Tables {
		groups = append(groups, group{name: t.name})
	}
	for _, s := range a.Spans() {
		g := s.Field
		for i, t := range k.Tables {
			if t.name != names[s.Field] && (a.Plain() || t.name != a.Tables[s.Table].Name || slices.Contains(names, t.name)) {
				continue
			}
			if g >= len(names) || slices.Contains(k.Fields, names[s.Field]) {
				return nil, nil, fmt.Errorf("%q and %q have rows in common: name them once", t.name, groups[g].name)
			}
			g = len(names) + i
		}
		groups[g].entries += s.Rows * s.Dim
		of = append(of, slices.Repeat([]int32{int32(g)}, s.Rows)...)
	}
	for _, g := range groups[len(names):] {
		if g.entries == 0 {
			return nil, nil, fmt.Errorf("no field or table %q has rows of its own: the fields are %s", g.name, strings.Join(names, ", "))
		}
	}
	return groups, of, nil
}

// bound sets how many entries g keeps, which has no bounds yet, and of which at least fixed always stay. fit returns how many must be dropped so that g has at
// most the given number of bytes.
func (t *table) bound(g *group, fit func(bytes int64) (drop int, err error), fixed int) (err error) {
	g.most = g.entries
	switch t.least.unit {
	case portion:
		g.least = layout.Ceil(g.entries, t.least.number)
	case mask.Kept:
		g.least = int(t.least.number)
	}
	switch t.most.unit {
	case portion:
		g.most, err = layout.Dropped(g.entries, t.most.number) // rounded down
	case mask.Kept:
		g.most = int(t.most.number)
	case mask.Bytes:
		var drop int
		drop, err = fit(int64(t.most.number))
		g.most -= drop
	}
	if most := min(g.most, g.entries); err == nil && max(g.least, fixed) > most {
		err = fmt.Errorf("%q keeps at least %d and at most %d of its entries: expected a number between", g.name, max(g.least, fixed), most)
	}
	return err
}

// fit returns how many entries of a table, from the front of order, which has all of them, must be dropped so that its values and
// their positions take at most some bytes of the compact file, also if more are dropped: a table that lacks a few entries
// may be larger than the whole one, which has no positions.
func fit(a *model.Architecture, v compact.Encoding, order []int32) func(bytes int64) (drop int, err error) {
	return func(bytes int64) (drop int, err error) {
		if v == compact.Mixed {
			return 0, errors.New("the bits of values differ from row to row: expected portions or numbers of entries, not bytes")
		}
		planner, left := compact.NewPlanner(a), int64(len(order)*v.Size())
		for n, i := range order {
			if left > bytes {
				drop = n + 1
			}
			left -= int64(v.Size() + planner.Drop(int(i)))
		}
		return drop, nil
	}
}
