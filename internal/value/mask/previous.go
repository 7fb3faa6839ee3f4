package mask

import (
	"fmt"
	"math"

	"shaver/internal/click/model"
)

// Choice is what a previous mask says about an entry.
type Choice int8

// The choices. Of entries with the same bound, Stable drops them in this order.
const (
	WasDropped Choice = iota - 1
	WasAbsent         // the entry's feature did not exist
	WasKept
)

// Previous returns the choices of a previous mask for the entries of a. before is the
// architecture to which the mask dropped belongs. The fields of a may be larger. Ids stay
// and new ones come after them, so the features that before lacks are WasAbsent. It is an
// error if the numbers of columns or of fields differ, if the look-ups read other fields or
// tables, if the lists differ, or if a field of before is larger.
func Previous(a, before *model.Architecture, dropped []bool) ([]Choice, error) {
	switch {
	case a.Fields() != before.Fields():
		return nil, fmt.Errorf("it has %d fields, expected %d", before.Fields(), a.Fields())
	case a.Plain() != before.Plain() || len(a.LookUps) != len(before.LookUps):
		return nil, fmt.Errorf("it has %s, expected %s", before.Size(), a.Size())
	case len(dropped) != before.Parameters():
		panic("prune: Previous: the mask has the wrong length")
	}
	if err := a.CheckReaders(before); err != nil {
		return nil, err
	}
	spans := make([]model.Span, max(a.Fields(), len(a.LookUps))) // of before, by look-up
	for _, s := range before.Spans() {
		spans[s.LookUp] = s
	}
	choices := make([]Choice, a.Parameters())
	for _, s := range a.Spans() {
		was := &spans[s.LookUp]
		switch {
		case was.Dim != s.Dim:
			return nil, fmt.Errorf("it has %d columns for field %d, expected %d", was.Dim, s.Field, s.Dim)
		case was.Field != s.Field || !a.Plain() && before.Tables[was.Table].Name != a.Tables[s.Table].Name:
			return nil, fmt.Errorf("look-up %d reads table %s for field %d, expected table %s for field %d", s.LookUp, before.Tables[was.Table].Name, was.Field, a.Tables[s.Table].Name, s.Field)
		case was.Rows > s.Rows:
			return nil, fmt.Errorf("field %d has %d features, expected at most %d", s.Field, was.Rows, s.Rows)
		}
		for i := range was.Rows * was.Dim {
			if choices[s.Entry+i] = WasKept; dropped[was.Entry+i] {
				choices[s.Entry+i] = WasDropped
			}
		}
	}
	return choices, nil
}

// Stable is like Order, but an entry keeps its choice of a previous mask unless the evidence
// against the choice exceeds z standard errors. As with Order, the first entries of the
// result are dropped, so every budget is met exactly.
//
// The worth of an entry is its score, or for Abs its absolute score. Stable sorts by a bound
// of the worth: the worth plus z standard errors if the entry was kept, minus z standard
// errors if it was dropped, and the worth itself if it was absent. So an entry that was
// dropped replaces one that was kept only if the two intervals of z standard errors do not
// overlap. For Abs a bound is at least 0. Of entries with the same bound those that were
// dropped come first, then those that were absent. Further ties are broken by worth, by
// |weight| and by position.
//
// If z is 0, the result equals that of Order. At the same number of dropped entries, a
// larger z never changes more choices. deviations are the standard errors of the scores.
// They and z must be finite and at least 0. All slices have one element for each entry.
func Stable(rank string, scores []float64, weights []float32, deviations []float64, choices []Choice, z float64) ([]int32, error) {
	if len(weights) != len(scores) || len(deviations) != len(scores) || len(choices) != len(scores) {
		panic("prune: Stable: scores, weights, deviations and choices differ in length")
	}
	worth, err := worthOf(rank, scores)
	if err != nil {
		return nil, err
	}
	if z == 0 {
		return orderBy(weights, worth)
	}
	least := math.Inf(-1)
	if rank == Abs {
		least = 0
	}
	bound := func(i int32) float64 {
		return max(least, worth(i)+float64(float64(choices[i])*z*deviations[i]))
	}
	choice := func(i int32) float64 { return float64(choices[i]) }
	return orderBy(weights, bound, choice, worth)
}

// PathCut says how much a round of a path drops: one in PathCut of the entries that are left.
const PathCut = 5

// Outlasted returns the scores and the deviations with which Stable keeps the choices of a
// previous mask in the order of a path. The score of an entry is the number of rounds that the
// entry outlasts, and each deviation is one round. ranks are the positions in the order of
// drops, a permutation of 0 to n-1. So an entry that was dropped replaces one that was kept only
// if it outlasts that entry by more than 2*z rounds.
func Outlasted(ranks []float64) (rounds, deviations []float64) {
	n := float64(len(ranks))
	rounds, deviations = make([]float64, len(ranks)), make([]float64, len(ranks))
	for i, rank := range ranks {
		rounds[i], deviations[i] = -math.Log1p(-rank/n)/math.Log(float64(PathCut)/(PathCut-1)), 1
	}
	return rounds, deviations
}

// Churn counts the entries of a field, or of a whole model, whose choice differs between a
// previous mask and a later one. An entry that was absent has no choice to change.
type Churn struct {
	Entries    int `json:"entries"`
	KeptBefore int `json:"kept_before"` // number of entries that the previous mask keeps
	Kept       int `json:"kept"`        // number of entries that the later mask keeps
	Absent     int `json:"absent"`      // how many of Kept the previous mask does not have
	Added      int `json:"added"`       // how many of Kept the previous mask drops
	Removed    int `json:"removed"`     // how many of KeptBefore the later mask drops
}

// Portion returns Added + Removed divided by KeptBefore + Kept - Absent. If the two masks
// keep equally many entries, this is the portion of the kept entries that were replaced. It
// is 0 if both masks keep nothing.
func (c *Churn) Portion() float64 {
	if c.Added+c.Removed == 0 {
		return 0
	}
	return float64(c.Added+c.Removed) / float64(c.KeptBefore+c.Kept-c.Absent)
}

// add adds the counts of another part of the model.
func (c *Churn) add(o *Churn) {
	c.Entries, c.KeptBefore, c.Kept = c.Entries+o.Entries, c.KeptBefore+o.KeptBefore, c.Kept+o.Kept
	c.Absent, c.Added, c.Removed = c.Absent+o.Absent, c.Added+o.Added, c.Removed+o.Removed
}

// count counts an entry.
func (c *Churn) count(before Choice, dropped bool) {
	c.Entries++
	if before == WasKept {
		c.KeptBefore++
	}
	switch {
	case dropped && before == WasKept:
		c.Removed++
	case !dropped && before == WasDropped:
		c.Added++
	case !dropped && before == WasAbsent:
		c.Absent++
	}
	if !dropped {
		c.Kept++
	}
}

// ChurnOf returns the churn of the whole model and of each field, [m]. choices are those of
// the previous mask, and mask is the later one; each has an element for each entry of a.
func ChurnOf(a *model.Architecture, choices []Choice, mask []bool) (all Churn, fields []Churn) {
	if len(choices) != a.Parameters() || len(mask) != a.Parameters() {
		panic("prune: ChurnOf: the masks have the wrong length")
	}
	fields = make([]Churn, a.Fields())
	for _, s := range a.Spans() {
		from, to := s.Entries()
		for i := from; i < to; i++ {
			fields[s.Field].count(choices[i], mask[i])
		}
	}
	for j := range fields {
		all.add(&fields[j])
	}
	return all, fields
}
