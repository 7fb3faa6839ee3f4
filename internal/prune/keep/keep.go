// Package keep says which entries of tables stay whatever their scores are, and which go.
package keep

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/click/compact"
	"shaver/internal/click/model"
	"shaver/internal/num/layout"
	"shaver/internal/value/mask"
)

// Rules select entries that are never dropped, or always.
type Rules struct {
	Fields  []string // names of the fields that keep all entries
	Minimum float64  // least portion of entries that every other field keeps, rounded up
	Tables  Tables   // how many entries some tables keep, in place of Minimum
}

// Apply moves the entries that are always dropped to the front of the order, and those that are never dropped to the end. Those of pad rows
// are among the latter and come last. It returns the new order, and the least and the largest number of entries that may
// be dropped. names are the names of all fields, and v is how values are stored. Rows of a table that several fields read
// are those of the field whose look-up comes first.
func (k Rules) Apply(a *model.Architecture, names []string, v compact.Encoding, order []int32) (constrained []int32, least, most int, err error) {
	if !(k.Minimum >= 0 && k.Minimum <= 1) {
		return nil, 0, 0, fmt.Errorf("minimum %v is outside [0, 1]", k.Minimum)
	}
	order, free := mask.PadsLast(a, order)
	if k.Minimum == 0 && len(k.Fields)+len(k.Tables) == 0 {
		return order, 0, free, nil
	}
	groups, row, err := k.groups(a, names)
	if err != nil {
		return nil, 0, 0, err
	}
	for j := range names {
		g := &groups[j]
		g.least, g.most = layout.Ceil(g.entries, k.Minimum), g.entries
	}
	for _, name := range k.Fields {
		j := slices.Index(names, name)
		if j < 0 {
			return nil, 0, 0, fmt.Errorf("no field %q: the fields are %s", name, strings.Join(names, ", "))
		}
		groups[j].least = groups[j].entries
	}
	shape := a.Shape()
	of := func(i int32) int { return int(row[shape.RowOf(int(i))]) }
	for n, t := range k.Tables {
		n += len(names)
		var own []int32
		fixed := 0
		for at, i := range order {
			if of(i) == n {
				own = append(own, i)
				if at >= free {
					fixed++
				}
			}
		}
		if err := t.bound(&groups[n], fit(a, v, own), fixed); err != nil {
			return nil, 0, 0, err
		}
	}
	var parts [3][]int32 // that go, that may go, and that stay
	for at, i := range slices.Backward(order) {
		g, n := &groups[of(i)], 1
		if g.seen < g.least || at >= free {
			n = 2
		} else if g.seen >= g.most {
			n = 0
		}
		g.seen++
		parts[n] = append(parts[n], i)
	}
	for _, part := range parts {
		slices.Reverse(part)
	}
	return slices.Concat(parts[:]...), len(parts[0]), len(parts[0]) + len(parts[1]), nil
}
