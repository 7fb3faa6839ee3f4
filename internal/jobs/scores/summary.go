package scores

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"shaver/internal/click/model"
)

// Summary describes the values of a scores file as a whole.
type Summary struct {
	Fields          []FieldSummary // [m]
	MaxSE           float64        // largest standard error of the dataset's own values
	MaxPopulationSE float64        // largest standard error of the population's values
	Range           float64        // largest phi - smallest phi
	NoInterval      int            // number of features that occur, but have no intervals; see File.Intervals
}

// FieldSummary describes the entries of one field. Rows of a table that several fields read
// are those of the field whose look-up comes first. The others have no counts and sums of them.
type FieldSummary struct {
	Name     string  `json:"name"`
	Features int     `json:"features"`          // number of features
	RowsOf   string  `json:"rows_of,omitempty"` // name of the field that has all rows which this one reads; "" if it has rows of its own
	Seen     int     `json:"seen"`              // number of features that occur in the scored rows
	Entries  int     `json:"-"`                 // number of entries in all tables of the field
	Sum      float64 `json:"sum"`               // sum of phi over the entries, nat: the loss that the field saves
	SumAbs   float64 `json:"sum_abs"`           // sum over the entries of the absolute value of the aggregate, nat
}

// WordsText says how many words b, a baseline of the tables of f, has for the fields that have several, such as
// "16 for user, item; 4 for brand". It returns "" if none has.
func (f *File) WordsText(b *model.Baseline) string {
	fields := map[int][]string{} // by number of words
	spans := f.Layout.Spans()
	for j, n := range b.Words {
		if n > 1 {
			fields[n] = append(fields[n], f.Fields[spans[j].Field])
		}
	}
	var parts []string
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(fields))) {
		parts = append(parts, fmt.Sprintf("%d for %s", n, strings.Join(fields[n], ", ")))
	}
	return strings.Join(parts, "; ")
}

// Summary returns the summary of f. values is an aggregate of f; only SumAbs of the
// fields is computed from it. All figures of a path that need values are 0.
func (f *File) Summary(values []float64) *Summary {
	s, ranks := &Summary{}, f.Ranks()
	if !ranks {
		intervals := f.Intervals()
		for feature, count := range f.Count {
			if t, _ := intervals(feature); count > 0 && math.IsNaN(t) {
				s.NoInterval++
			}
		}
	}
	least, most := math.Inf(1), math.Inf(-1)
	for j, size := range f.Layout.FieldDims {
		s.Fields = append(s.Fields, FieldSummary{Name: f.Fields[j], Features: size})
	}
	owners := f.Layout.FeatureEntries()
	seen := make([]bool, len(f.Fields)) // by field: whether Seen is already counted, because another look-up reads the same features
	for _, span := range f.Layout.Spans() {
		field := &s.Fields[span.Field]
		for _, count := range f.Count[span.Row : span.Row+span.Rows] {
			if count > 0 && !seen[span.Field] {
				field.Seen++
			}
		}
		seen[span.Field] = true
		for _, r := range span.Sharers {
			if owners[r.Field] == 0 {
				s.Fields[r.Field].RowsOf = f.Fields[span.Field]
			}
		}
		from, to := span.Entries()
		field.Entries += to - from
		for i := from; i < to && !ranks; i++ {
			if f.Spec.OfPairs() && i-from != span.Field {
				continue // the value of a pair
			}
			field.Sum += f.Phi[i]
			field.SumAbs += math.Abs(values[i])
			least, most = min(least, f.Phi[i]), max(most, f.Phi[i])
			s.MaxSE, s.MaxPopulationSE = max(s.MaxSE, float64(f.SE[i])), max(s.MaxPopulationSE, float64(f.PopulationSE[i]))
		}
	}
	if !ranks {
		s.Range = most - least
	}
	return s
}

// Convergence returns the largest standard error divided by the range of the values. The
// paper's stopping rule uses this figure. It is 0 if all values are equal.
func (s *Summary) Convergence() float64 {
	if s.Range > 0 {
		return s.MaxSE / s.Range
	}
	return 0
}
