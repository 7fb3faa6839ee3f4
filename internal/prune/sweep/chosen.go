package sweep

import (
	"fmt"
	"slices"
	"strings"

	"shaver/internal/base/fault"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/mask"
)

// Chosen returns the points that Select chose, in the order of the budgets.
func (d *Document) Chosen() []*Point {
	var all []*Point
	for i := range d.Points {
		if p := &d.Points[i]; p.Validation() != nil {
			all = append(all, p)
		}
	}
	return all
}

// ChosenAt returns the point that Select chose at a budget, which is a sparsity or a
// number of parameters. Sparsities are equal if a table prints them alike. If there is
// only one chosen point, the budget may be nil.
func (d *Document) ChosenAt(b *mask.Budget) (*Point, error) {
	chosen := d.Chosen()
	if len(chosen) == 0 {
		return nil, fault.Inputf("the sweep chose no method: run shaver sweep with --select")
	}
	if b == nil {
		if len(chosen) > 1 {
			return nil, fault.Usagef("the sweep chose at several sparsities: give --sparsity, one of %s", sparsities(chosen))
		}
		return chosen[0], nil
	}
	at := slices.IndexFunc(chosen, func(p *Point) bool {
		if b.Unit == mask.Kept {
			return float64(p.Parameters) == b.Amount
		}
		return SparsityText(p.Sparsity) == SparsityText(b.Amount)
	})
	if at < 0 {
		return nil, fault.Usagef("the sweep has no choice at %s %v, only at the sparsities %s", b.Unit, b.Amount, sparsities(chosen))
	}
	return chosen[at], nil
}

func sparsities(points []*Point) string {
	text := ""
	for i, p := range points {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s (%d parameters)", SparsityText(p.Sparsity), p.Parameters)
	}
	return text
}

// SparsityText returns a sparsity as tables print it.
func SparsityText(sparsity float64) string { return fmt.Sprintf("%.6g", sparsity) }

// ScoresOf returns the index in Sources of the scores by which p ranks. For a method
// without scores, it returns the index of scores with the baseline of the method.
func (d *Document) ScoresOf(p *Point) (int, error) {
	if p.Source != nil {
		return *p.Source, nil
	}
	source := slices.IndexFunc(d.Sources, func(s ScoresFile) bool { return s.Baseline == p.Baseline && s.Model == "" })
	if source < 0 {
		return 0, fault.Inputf("method %s has the baseline %q, which no scores of the sweep have", p.Method, p.Baseline)
	}
	return source, nil
}

// AggregateOf returns the aggregate by which p ranks, or "" if it does not rank the entries by an
// aggregate of their scores.
func (d *Document) AggregateOf(p *Point) (string, error) {
	if p.Source == nil {
		return "", nil
	}
	source := &d.Sources[*p.Source]
	o := &source.Options
	switch {
	case p.Method == SNIP && source.Model == "":
		return "", fault.Inputf("method %q ranks by scores of the pruned model: expected those of the model before its training", SNIP)
	case p.Method != SNIP && source.Model != "":
		return "", fault.Inputf("method %q ranks by scores of another model: expected %s", p.Method, SNIP)
	case p.Method == SSEDS || p.Method == SNIP:
		return "", checkDerivatives(p.Method, o, source.Baseline)
	}
	var names []string
	for _, aggregate := range scores.AggregatesOf(o) {
		name := Name(o, aggregate)
		if name == p.Method {
			return aggregate, nil
		}
		names = append(names, name)
	}
	return "", fault.Inputf("method %q ranks by scores of the estimator %s: expected one of %s", p.Method, o.Estimator, strings.Join(names, ", "))
}
