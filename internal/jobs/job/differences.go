package job

import (
	"cmp"
	"fmt"
	"strings"

	"shaver/internal/click/model"
	"shaver/internal/value/estimator"
)

// Difference is a setting in which two jobs differ, with both values as text.
type Difference struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Differences returns the settings in which the jobs a and b differ. Digests are cut to 12
// digits.
func Differences(a, b *Spec) (list []Difference) {
	add := func(name string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			list = append(list, Difference{name, x, y})
		}
	}
	digest := func(text string) string { return text[:min(12, len(text))] }
	previous := func(p *Previous) string { // the scores determine the rest
		if p == nil {
			return "none"
		}
		return digest(p.Values)
	}
	until := func(u *Until) string {
		if u == nil {
			return "none"
		}
		return strings.TrimSpace(fmt.Sprintf("%s %g", u.Rule, u.Bound))
	}
	add("model", digest(a.Model), digest(b.Model))
	add("dataset", digest(a.Dataset), digest(b.Dataset))
	add("days", len(a.Days), len(b.Days))
	add("splits", strings.Join(a.Splits, ","), strings.Join(b.Splits, ","))
	add("sample", a.Sample, b.Sample)
	add("players", cmp.Or(a.Players, estimator.Entries), cmp.Or(b.Players, estimator.Entries))
	add("tasks", model.TasksText(a.Tasks), model.TasksText(b.Tasks))
	add("frozen fields", fmt.Sprint(a.Freeze), fmt.Sprint(b.Freeze))
	add("baseline", a.Baseline, b.Baseline)
	add("baseline values", cmp.Or(digest(a.BaselineValues), "computed"), cmp.Or(digest(b.BaselineValues), "computed"))
	others := b.Settings()
	for i, s := range a.Settings() {
		add(s.Name, s.Value(), others[i].Value())
	}
	add("seed", a.Seed, b.Seed)
	add("kernel", a.Kernel, b.Kernel)
	add("until", until(a.Until), until(b.Until))
	add("audit", a.Audit, b.Audit)
	add("previous scores", previous(a.Previous), previous(b.Previous))
	return list
}
