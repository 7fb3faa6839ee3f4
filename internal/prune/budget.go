package prune

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"shaver/internal/baseline"
	"shaver/internal/model"
	"shaver/internal/sparsity"
)

// What a budget counts.
const (
	Sparsity = "sparsity"   // portion of the entries to drop
	Kept     = "parameters" // parameters to keep, the codebook counted
	Bytes    = "bytes"      // of the compact file
)

// Budget says how much may stay of a table, in one of the units.
type Budget struct {
	Unit   string
	Amount float64 // sparsity, or a whole number
}

// Drop returns how many entries of a table have to be dropped, or an error that
// begins with the unit. baseline is the name; fit returns how many have to be dropped
// at least for the file to have no more than so many bytes.
func (b Budget) Drop(a *model.Architecture, baseline string, fit func(bytes int64) (drop int, err error)) (int, error) {
	entries := a.Parameters()
	switch b.Unit {
	case Sparsity:
		return sparsity.Dropped(entries, b.Amount)
	case Kept:
		least := Parameters(a, entries, baseline)
		if b.Amount < float64(least) {
			return 0, fmt.Errorf("%s %.0f: the codebook alone has %d", b.Unit, b.Amount, least)
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

// Parameters returns how many parameters a pruned table counts: the kept
// entries, and the codebook's m*d if that is the baseline.
func Parameters(a *model.Architecture, drop int, baselineName string) int {
	kept := a.Parameters() - drop
	if baselineName == baseline.Codebook {
		kept += a.Players()
	}
	return kept
}

// Keep says what stays whatever the order says.
type Keep struct {
	Fields  []string // whose entries all stay
	Minimum float64  // portion of each other field's entries of which the best stay, rounded up
}

// Apply returns the order with the entries that stay at its end, and how many
// entries come before them. names are the fields'.
func (k Keep) Apply(a *model.Architecture, names []string, order []int32) (constrained []int32, most int, err error) {
	if !(k.Minimum >= 0 && k.Minimum <= 1) {
		return nil, 0, fmt.Errorf("a minimum of %v is outside [0, 1]", k.Minimum)
	}
	least := make([]int, len(names)) // entries that stay
	for j, size := range a.FieldDims {
		least[j] = sparsity.Ceil(size*a.Dim, k.Minimum)
	}
	for _, name := range k.Fields {
		j := slices.Index(names, name)
		if j < 0 {
			return nil, 0, fmt.Errorf("no field %q: the fields are %s", name, strings.Join(names, ", "))
		}
		least[j] = a.FieldDims[j] * a.Dim
	}
	if !slices.ContainsFunc(least, func(n int) bool { return n > 0 }) {
		return order, len(order), nil
	}
	field := make([]int32, 0, a.Features())
	for j, size := range a.FieldDims {
		field = append(field, slices.Repeat([]int32{int32(j)}, size)...)
	}
	stays := make([]bool, len(order)) // by entry
	for _, i := range slices.Backward(order) {
		if j := field[int(i)/a.Dim]; least[j] > 0 {
			least[j]--
			stays[i] = true
		}
	}
	constrained = make([]int32, 0, len(order))
	for _, end := range []bool{false, true} {
		for _, i := range order {
			if stays[i] == end {
				constrained = append(constrained, i)
			}
		}
		if !end {
			most = len(constrained)
		}
	}
	return constrained, most, nil
}

// EmptyFeatures returns of how many features mask drops every entry.
func EmptyFeatures(a *model.Architecture, mask []bool) int {
	empty := 0
	for row := range slices.Chunk(mask, a.Dim) {
		if !slices.Contains(row, false) {
			empty++
		}
	}
	return empty
}
