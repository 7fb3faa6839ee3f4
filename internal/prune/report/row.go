package report

import (
	"fmt"
	"strings"

	"shaver/internal/base/chart"
	"shaver/internal/prune/explain"
	"shaver/internal/prune/picture"
)

// rowSection shows what each field adds to the logit of one row, before and after pruning.
type rowSection struct {
	Heading, Note string
	Figure        chart.Inline
	Rows          []rowLine
}

type rowLine struct{ Name, Value, Before, After, Change, SE string }

// rowFields is the largest number of fields that a rowSection shows one by one.
const rowFields = 12

func (f *Facts) rowOf(show addPicture) *rowSection {
	r, shown := &f.Row.Rows[0], number(f.Shown())
	name, before, after := "output", &r.Against.Logit, &r.Logit
	if r.Probability != nil {
		name, before, after = "probability", r.Against.Probability, r.Probability
	}
	s := &rowSection{
		Heading: fmt.Sprintf("One row: its %s goes from %s to %s", name, decimal(*before), decimal(*after)),
		Note: fmt.Sprintf("This is row %s of the %s split, with label %s. Of the first %s rows it changes most from the whole table to that of sparsity %s, both without calibration. The effects are Shapley values of the fields, where an absent field reads what other rows have. The base is the mean logit of %d such rows. The base and all effects sum to the logit.",
			count(r.Row), f.Row.Split, number(float64(r.Label)), count(f.Row.Sampled), shown, f.Row.Background),
	}
	effects := r.Effects
	if n := len(effects) - rowFields + 1; n > 1 {
		others := explain.Effect{Field: fmt.Sprintf("%d others", n), Against: new(0.)}
		for _, e := range effects[rowFields-1:] {
			others.Effect += e.Effect
			*others.Against += *e.Against
		}
		effects = append(effects[:rowFields-1:rowFields-1], others)
	}
	var names []string
	var bars [2][]float64
	add := func(e explain.Effect) {
		line := rowLine{oneLine(e.Field), oneLine(strings.Join(e.Values[:min(len(e.Values), 4)], ", ")), signed(*e.Against), signed(e.Effect), signed(e.Effect - *e.Against), "-"}
		if len(e.Values) > 4 {
			line.Value += ", …"
		}
		if e.SE != nil {
			line.SE = decimal(*e.SE)
		}
		s.Rows = append(s.Rows, line)
	}
	add(explain.Effect{Field: "base", Against: &r.Against.Base, Effect: r.Base})
	for _, e := range effects {
		add(e)
		names, bars[0], bars[1] = append(names, e.Field), append(bars[0], *e.Against), append(bars[1], e.Effect)
	}
	add(explain.Effect{Field: "logit", Against: &r.Against.Logit, Effect: r.Logit})
	s.Figure = show(picture.Waterfall([2]string{"The whole table", "At sparsity " + shown}, names, [2]float64{r.Against.Base, r.Base}, bars))
	return s
}
