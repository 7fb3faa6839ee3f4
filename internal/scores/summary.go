package scores

import (
	"math"

	"shaver/internal/tally"
)

// Summary has facts about the values of a scores file as a whole.
type Summary struct {
	Fields          []FieldSummary // [m]
	MaxSE           float64        // largest standard error of the dataset's own values
	MaxPopulationSE float64        // largest standard error of the population's values
	Range           float64        // largest phi - smallest phi
	NoInterval      int            // features that occur, but in too few rows for intervals
}

// FieldSummary is about the entries of one field.
type FieldSummary struct {
	Name     string  `json:"name"`
	Features int     `json:"features"`
	Seen     int     `json:"seen"`    // features that occur in the rows
	Sum      float64 `json:"sum"`     // of phi: the loss that the field saves, nat
	SumAbs   float64 `json:"sum_abs"` // of the absolute values of the aggregate, nat
}

// Summary summarises f. The values are those of an aggregate of f, [n, d], from which
// SumAbs of the fields is computed.
func (f *File) Summary(values []float64) *Summary {
	s := &Summary{}
	for _, count := range f.Count {
		if count > 0 && count < tally.LeastRows {
			s.NoInterval++
		}
	}
	least, most := math.Inf(1), math.Inf(-1)
	i := 0
	for j, size := range f.FieldDims {
		field := FieldSummary{Name: f.Fields[j], Features: size}
		for range size {
			if f.Count[i/f.Dim] > 0 {
				field.Seen++
			}
			for range f.Dim {
				field.Sum += f.Phi[i]
				field.SumAbs += math.Abs(values[i])
				least, most = min(least, f.Phi[i]), max(most, f.Phi[i])
				s.MaxSE, s.MaxPopulationSE = max(s.MaxSE, float64(f.SE[i])), max(s.MaxPopulationSE, float64(f.PopulationSE[i]))
				i++
			}
		}
		s.Fields = append(s.Fields, field)
	}
	s.Range = most - least
	return s
}

// Convergence returns the largest standard error in relation to the range of the
// values, which the paper stops by; 0 if all values are equal.
func (s *Summary) Convergence() float64 {
	if s.Range > 0 {
		return s.MaxSE / s.Range
	}
	return 0
}
