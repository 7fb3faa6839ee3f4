package scores

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
)

// FieldValue is the value of a field or a dense input in a job of fields.
type FieldValue struct {
	Field string  `json:"field"`
	Value float64 `json:"value"` // Shapley value of the mean loss, nat; above 0 means useful
	// Low and High bound the 95% interval of the value in the population from which the rows come. It includes
	// the random orders and the random rows that replace absent fields. Both are nil below tally.LeastRows rows.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Share is Value divided by what all fields together lower the loss by. It is nil if that is 0.
	Share *float64 `json:"share,omitempty"`
}

// FieldValues returns the values of a job of fields, the most valuable one first. It is nil for other jobs.
func (f *File) FieldValues() []FieldValue {
	if !f.Spec.OfFields() {
		return nil
	}
	values := make([]FieldValue, len(f.Fields))
	for i, name := range f.Fields {
		v := FieldValue{Field: name, Value: f.Phi[i]}
		if _, factor := f.Interval(f.Count[i]); !math.IsNaN(factor) {
			half := factor * float64(f.PopulationSE[i])
			low, high := v.Value-half, v.Value+half
			v.Low, v.High = &low, &high
		}
		if all := f.LossEmpty - f.LossFull; all != 0 {
			share := v.Value / all
			v.Share = &share
		}
		values[i] = v
	}
	slices.SortStableFunc(values, func(a, b FieldValue) int { return cmp.Compare(b.Value, a.Value) })
	return values
}

// WriteFieldValues prints values as a table. name makes the name of a field printable.
func WriteFieldValues(w io.Writer, values []FieldValue, name func(string) string) {
	fmt.Fprint(w, "\nFIELD\tVALUE\t95% INTERVAL\tSHARE\n")
	for _, v := range values {
		interval, share := "-", "-"
		if v.Low != nil {
			interval = fmt.Sprintf("[%+.6f, %+.6f]", *v.Low, *v.High)
			if *v.Low <= 0 && *v.High >= 0 {
				interval += " holds 0"
			}
		}
		if v.Share != nil {
			share = fmt.Sprintf("%.1f%%", 100**v.Share)
		}
		fmt.Fprintf(w, "%s\t%+.6f\t%s\t%s\n", name(v.Field), v.Value, interval, share)
	}
}
