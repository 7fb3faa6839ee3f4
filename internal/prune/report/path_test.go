package report

import (
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
	"shaver/internal/value/path"
	"shaver/internal/value/tally"
)

// The page of a path has its rounds, and nothing that needs values.
func TestPathPage(t *testing.T) {
	f := facts()
	s := f.Scores
	s.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1}
	s.Spec.SetDefaults()
	s.Values, s.LossEmpty, s.EfficiencyError = tally.NewRanks(18), 0, 0
	for i := range s.Rank {
		s.Rank[i] = int32((i + 5) % 18)
	}
	s.Path = &scores.Path{Reach: .75, Rounds: []scores.Round{{Rows: 1193, Kept: 18, Loss: .4, Scale: 1}, {Rows: 199, Kept: 14, Loss: .4125, Scale: 1.5, Offset: -.25}}}
	f.Aggregate, f.Ends, f.Sweep = scores.ByPath, nil, swept("another")
	for i := range f.Sweep.Points {
		if p := &f.Sweep.Points[i]; p.Method == "shapley" {
			p.Method = "path"
		}
	}
	for i := range f.Sweep.Sources {
		f.Sweep.Sources[i].Options = s.Spec.Options
	}
	f.Sweep.Sources[0].Job = s.Spec.ID()
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	if by := f.Recommended(); by != scores.ByPath && by != "" {
		t.Errorf("the recommended table ranks by %s", by)
	}
	f.Row = nil // whose changes have standard errors
	r, err := Write(f)
	if err != nil {
		t.Fatal(err)
	}
	page := string(r.HTML)
	for _, want := range []string{`<a href="#rounds">Rounds</a>`, "2 rounds dropped the entries", "Beyond sparsity 0.75", "<tr><th>0.2222</th><td>14</td><td>199</td><td>0.4125</td><td>1.5000</td><td>−0.2500</td></tr>", "It is not a Shapley value", "not Shapley values"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"certainty", "efficiency", "standard error", "sum of phi", "share of the value", "Worth", "with everything dropped"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %q", no)
		}
	}
	for _, p := range r.Pictures {
		if p.Name == "cut" {
			t.Error("the page draws the value at the cut")
		}
	}
}

// Rounds that drop and rounds that add are counted apart, and the order beyond the reach is that of the last round that dropped.
func TestRoundsThatAdd(t *testing.T) {
	f := facts()
	f.Architecture = &model.Architecture{Kind: model.FM, FieldDims: []int{1000, 1000}, Dim: 1}
	f.Scores.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1, Sparsity: .999}
	drops, adds := path.Rounds(f.Architecture, .999)
	for want, added := range map[string]bool{
		count(drops) + " rounds dropped the entries, and " + count(adds) + " added some again": true,
		count(drops+adds) + " rounds dropped the entries":                                      false,
	} {
		f.Scores.Spec.Adds = added
		f.Scores.Path = &scores.Path{Reach: .999, Rounds: make([]scores.Round, drops+adds)}
		if s := f.roundsOf(); s.Heading != want || (s.Adds > 0) != added || adds == 0 {
			t.Errorf("%+v, expected %q", s, want)
		}
	}
}
