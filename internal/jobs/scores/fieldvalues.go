package scores

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
)

// FieldValue is the value of a field or a dense input in a job of fields.
type FieldValue struct {
	Field string  `json:"field"`
	Value float64 `json:"value"` // Shapley value of the mean loss, nat; above 0 means useful
	// Low and High bound the 95% interval of the value in the population from which the rows come. It includes
	// the random orders and the random rows that replace absent fields. Both are nil below tally.LeastRows rows.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
	// Share is Value divided by what all fields together lower the loss by. It is nil unless that is above 0.
	Share *float64 `json:"share,omitempty"`
}

// checkPlayers returns an error if the players of f are unknown, or f cannot have the values of fields or pairs that it should have.
func (f *File) checkPlayers() error {
	want := layout.Of(len(f.Fields), 1)
	switch f.Spec.Players {
	case "":
		return nil
	case estimator.Fields:
	case estimator.Pairs:
		want = layout.Of(len(f.Fields), len(f.Fields))
	default:
		return fmt.Errorf("the players are %q, this program knows %s and %s", f.Spec.Players, estimator.Fields, estimator.Pairs)
	}
	if f.Ranks() {
		return fmt.Errorf("the estimator %s gives no values of %s", f.Spec.Estimator, f.Spec.Players)
	}
	if shape := f.Layout.Shape(); !shape.Equal(&want) {
		return fmt.Errorf("the values of %s are for %d entries, expected %d for %d fields", f.Spec.Players, shape.Entries(), want.Entries(), len(f.Fields))
	}
	return nil
}

// FieldValues returns the values of a job of fields, the most valuable one first. It is nil for other jobs.
func (f *File) FieldValues() []FieldValue {
	if !f.Spec.OfFields() {
		return nil
	}
	values := make([]FieldValue, len(f.Fields))
	for i, name := range f.Fields {
		at, _ := f.Shape.Row(i)
		if f.Spec.OfPairs() {
			at += i
		}
		v := FieldValue{Field: name, Value: f.Phi[at]}
		v.Low, v.High = f.ends(at, 1)
		if all := f.LossEmpty - f.LossFull; all > 0 {
			share := v.Value / all
			v.Share = &share
		}
		values[i] = v
	}
	slices.SortStableFunc(values, func(a, b FieldValue) int { return cmp.Compare(b.Value, a.Value) })
	return values
}

// ends returns the ends of the 95% interval of an entry of a job of fields times scale.
func (f *File) ends(at int, scale float64) (low, high *float64) {
	_, factor := f.Intervals()(f.Shape.RowOf(at))
	value, half := scale*f.Phi[at], scale*factor*float64(f.PopulationSE[at])
	if math.IsNaN(half) || half == 0 && value != 0 { // see Intervals, which has one answer for all pairs of a field
		return nil, nil
	}
	least, most := value-half, value+half
	return &least, &most
}

// FieldPair is the value of two players in a job of pairs of fields.
type FieldPair struct {
	Fields [2]string `json:"fields"` // the more valuable one first
	// Value is the Shapley interaction index of the mean loss, nat. It is above 0 if the two are worth more together than
	// the sum of what each is worth without the other, and below 0 if they are redundant.
	Value float64  `json:"value"`
	Low   *float64 `json:"low,omitempty"` // as in FieldValue
	High  *float64 `json:"high,omitempty"`
}

// mostPaired is the number of fields whose pairs FieldPairs returns.
const mostPaired = 16

// FieldPairs returns the values of the pairs of the 16 most valuable fields, the largest magnitude first. It is nil unless the
// job has values of pairs.
func (f *File) FieldPairs() []FieldPair {
	if !f.Spec.OfPairs() {
		return nil
	}
	values := f.FieldValues()
	values = values[:min(mostPaired, len(values))]
	players := make([]int, len(values))
	for k, v := range values {
		players[k] = slices.Index(f.Fields, v.Field)
	}
	// Entries have the part of the index that all orders show; see package shapley.
	scale := float64(len(f.Fields)) / 2
	var pairs []FieldPair
	for k, j := range players {
		for l, i := range players[:k] {
			from, _ := f.Shape.Row(min(i, j))
			at := from + max(i, j)
			p := FieldPair{Fields: [2]string{values[l].Field, values[k].Field}, Value: scale * f.Phi[at]}
			p.Low, p.High = f.ends(at, scale)
			pairs = append(pairs, p)
		}
	}
	slices.SortStableFunc(pairs, func(a, b FieldPair) int { return cmp.Compare(math.Abs(b.Value), math.Abs(a.Value)) })
	return pairs
}

// shownPairs is the number of pairs that WriteFieldValues prints.
const shownPairs = 10

// WriteFieldValues prints values, and the first of pairs, as tables. name makes the name of a field printable.
func WriteFieldValues(w io.Writer, values []FieldValue, pairs []FieldPair, name func(string) string) {
	fmt.Fprint(w, "\nFIELD\tVALUE\t95% INTERVAL\tSHARE\n")
	for _, v := range values {
		share := "-"
		if v.Share != nil {
			share = fmt.Sprintf("%.1f%%", 100**v.Share)
		}
		fmt.Fprintf(w, "%s\t%+.6f\t%s\t%s\n", name(v.Field), v.Value, interval(v.Low, v.High), share)
	}
	if len(pairs) == 0 {
		return
	}
	fmt.Fprint(w, "\nPAIR\tINTERACTION\t95% INTERVAL\n")
	for _, p := range pairs[:min(shownPairs, len(pairs))] {
		fmt.Fprintf(w, "%s, %s\t%+.6f\t%s\n", name(p.Fields[0]), name(p.Fields[1]), p.Value, interval(p.Low, p.High))
	}
	if n := len(pairs) - shownPairs; n > 0 {
		fmt.Fprintf(w, "and %d more of the most valuable fields, with -o json\n", n)
	}
}

// interval returns the text of a 95% interval, which may be nil.
func interval(low, high *float64) string {
	if low == nil {
		return "-"
	}
	text := fmt.Sprintf("[%+.6f, %+.6f]", *low, *high)
	if *low <= 0 && *high >= 0 {
		text += " holds 0"
	}
	return text
}
