package mask

import (
	"fmt"
	"math"
	"slices"

	"shaver/internal/click/model"
	"shaver/internal/num/layout"
)

// The units of a budget.
const (
	Sparsity = "sparsity"   // portion of the entries that are dropped
	Kept     = "parameters" // number of parameters that are kept, including the codebook
	Bytes    = "bytes"      // size of the compact file in bytes
)

// Budget limits the size of a pruned table in one of the units.
type Budget struct {
	Unit   string
	Amount float64 // a sparsity in [0, 1], or a whole number of parameters or bytes
}

// Budgets returns budgets of a unit.
func Budgets[T int64 | float64](unit string, amounts ...T) (all []Budget) {
	for _, amount := range amounts {
		all = append(all, Budget{unit, float64(amount)})
	}
	return all
}

// Drop returns the number of entries of a table that must be dropped to meet the budget, which does not count frozen fields.
// fit returns the least number of entries that must
// be dropped so that the file has at most the given number of bytes. An error begins with
// the unit.
func (b Budget) Drop(a *model.Architecture, baseline *model.Baseline, fit func(bytes int64) (drop int, err error)) (int, error) {
	entries := a.Prunable()
	switch b.Unit {
	case Sparsity:
		return layout.Dropped(entries, b.Amount)
	case Kept:
		least := Parameters(a, entries, baseline)
		if b.Amount < float64(least) {
			return 0, fmt.Errorf("%s %.0f: the codebook alone has %d parameters", b.Unit, b.Amount, least)
		}
		return max(0, entries-int(min(b.Amount, float64(entries+least))-float64(least))), nil
	case Bytes:
		drop, err := fit(int64(min(b.Amount, math.MaxInt64/2)))
		if err != nil {
			return 0, fmt.Errorf("%s %.0f: %w", b.Unit, b.Amount, err)
		}
		return drop, nil
	}
	panic("prune: budget in " + b.Unit)
}

// Parameters returns the number of parameters of a pruned table: the kept entries, without those of frozen fields, and the
// values of the baseline unless all of them are 0.
func Parameters(a *model.Architecture, drop int, baseline *model.Baseline) int {
	kept := a.Prunable() - drop
	if !baseline.IsZero() {
		kept += len(baseline.Values)
	}
	return kept
}

// PadsLast moves the entries of pad rows and frozen fields, which are never dropped, to the end of the order.
// It returns the order, which is order itself if a has none, and the number of other
// entries.
func PadsLast(a *model.Architecture, order []int32) (constrained []int32, most int) {
	rows := a.FixedRows()
	if len(rows) == 0 {
		return order, len(order)
	}
	shape, pads := a.Shape(), make([]bool, len(order))
	for _, row := range rows {
		from, to := shape.Row(row)
		for i := from; i < to; i++ {
			pads[i] = true
		}
	}
	constrained = make([]int32, 0, len(order))
	var last []int32
	for _, i := range order {
		if pads[i] {
			last = append(last, i)
		} else {
			constrained = append(constrained, i)
		}
	}
	return append(constrained, last...), len(constrained)
}

// Features returns the number of features that have entries. Features that read the rows of
// another field do not count.
func Features(a *model.Architecture) (n int) {
	for j, entries := range a.FeatureEntries() {
		if entries > 0 {
			n += a.FieldDims[j]
		}
	}
	return n
}

// EmptyFeatures returns the number of features of which mask drops every entry, in all
// tables. Features without entries do not count.
func EmptyFeatures(a *model.Architecture, mask []bool) int {
	empty, kept := 0, make([]bool, a.Features())
	for _, s := range a.Spans() {
		for id := range s.Rows {
			if row := mask[s.Entry+id*s.Dim:][:s.Dim]; slices.Contains(row, false) {
				kept[s.Feature+id] = true
			}
		}
	}
	first := 0
	for j, entries := range a.FeatureEntries() {
		for _, k := range kept[first : first+a.FieldDims[j]] {
			if !k && entries > 0 {
				empty++
			}
		}
		first += a.FieldDims[j]
	}
	return empty
}
