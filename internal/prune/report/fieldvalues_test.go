package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/fault"
	"shaver/internal/num/layout"
	"shaver/internal/num/loss"
	"shaver/internal/prune/slice"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// fieldFacts returns facts about four fields and their pairs. The last field may be of no use, and one pair is certain.
func fieldFacts() *Facts {
	f := facts()
	f.Sweep, f.Aggregate, f.Ends, f.Entries = nil, "", nil, make([]float32, 18)
	s := f.Scores
	s.Fields = []string{hostile, "item", "hour", "idle"}
	s.Spec.Players, s.Spec.Splits, s.Spec.Baseline, s.Spec.Options = estimator.Pairs, []string{"val"}, "marginal", estimator.Options{Estimator: "exact", Passes: 1}
	shape := layout.Of(4, 4)
	s.Layout.FieldDims, s.Layout.Dim = []int{1, 1, 1, 1}, 4
	s.Scores = tally.Scores{Shape: shape, Count: slices.Repeat([]int64{1193}, 4), Values: tally.NewValues(16)}
	for i := range 4 {
		for j := range 4 {
			at := 4*i + j
			switch {
			case i == j:
				s.Phi[at], s.PopulationSE[at] = .06/float64(1+3*i), .002
			case i < j:
				s.Phi[at], s.PopulationSE[at] = -.004+.003*float64(i+j), .0005
			}
		}
	}
	s.LossEmpty, s.LossFull = .5, .4
	f.Path = removals()
	return f
}

// removals returns a path of four fields and two columns.
func removals() *slice.Path {
	figures := func(loss, auc float64, fields, columns int) slice.Figures {
		return slice.Figures{Loss: loss, AUC: &auc, Cost: slice.Cost{Fields: fields, Columns: columns, LookUps: fields, Entries: 300 * fields * columns, Multiplications: 4000 * fields * columns, Bytes: int64(9000 * fields * columns)}}
	}
	rise := func(v, half float64) *sweep.Interval {
		low, high := v-half, v+half
		return &sweep.Interval{Value: v, Low: &low, High: &high}
	}
	return &slice.Path{
		Version: slice.Version, Model: strings.Repeat("ab", 32), Dataset: strings.Repeat("cd", 32), Rows: 1200, Compared: 1000, Whole: figures(.4, .81, 4, 2),
		Fields: []slice.Step{
			{Field: "idle", Rise: rise(.0001, .0004), Figures: figures(.4001, .8101, 3, 2)}, {Field: hostile, Rise: rise(.003, .001), Figures: figures(.403, .806, 2, 2)},
		},
		Columns: []slice.Branch{{Fields: 4, Steps: []slice.Step{{Gone: []int{1}, Rise: rise(.002, .0008), Figures: figures(.402, .808, 4, 1)}}}, {Fields: 3, Steps: []slice.Step{{Gone: []int{0}, Figures: figures(.41, .8, 3, 1)}}}},
	}
}

// The page about fields is the one that people have looked at.
func TestFieldValuesGolden(t *testing.T) {
	r, err := Write(fieldFacts())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "fields.html", r.HTML)
	var names []string
	for _, p := range r.Pictures {
		names = append(names, p.Name)
	}
	if got := strings.Join(names, " "); got != "values interactions removals" {
		t.Errorf("the pictures are %s", got)
	}
	if bytes.Contains(r.HTML, []byte(hostile)) || bytes.Contains(r.HTML, []byte("<script")) {
		t.Error("the page has a script")
	}
}

// The page says how many fields are of use and what each pair does, with intervals where they are known, and has no
// section without facts.
func TestFieldValues(t *testing.T) {
	page := func(f *Facts) string {
		t.Helper()
		r, err := Write(f)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.HTML)
	}
	expect := func(text string, has bool, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if strings.Contains(text, part) != has {
				t.Errorf("the page has %q: %v, expected %v", part, !has, has)
			}
		}
	}
	whole := page(fieldFacts())
	expect(whole, true, "All fields lower the loss", "<strong>&#43;0.060000</strong>", "60.0%", "Worth more together: hour and idle, by &#43;0.0", "Without 1 of 4 fields the loss rises by at most &#43;0.000",
		"without idle", "4 fields, without column 1", "3 fields, without column 0", `<a href="#removals">Path</a>`, "the value of an absent field")
	expect(whole, false, "ranked by", "sparsity")

	f := fieldFacts()
	f.Path, f.Scores.Spec.Loss = nil, loss.Squared
	f.Scores.PopulationSE[15] = .1
	text := page(f)
	expect(text, true, "3 of 4 fields are certain to lower the loss", "squared units of the label")
	expect(text, false, `id="removals"`)

	f = fieldFacts()
	f.Path.Model = "ef"
	if err := f.Check(); !fault.IsInput(err) || !strings.Contains(err.Error(), "the path is of the model with digest ef, the scores are for the model with digest abab") {
		t.Error(err)
	}
	f = fieldFacts()
	f.Sweep = swept("another")
	if _, err := Write(f); !fault.IsInput(err) {
		t.Error(err)
	}

	// Few rows have no intervals.
	f = fieldFacts()
	f.Scores.Count = []int64{1, 1, 1, 1}
	expect(page(f), true, "<td class=\"change\">&#43;0.060000</td>")
}

// A path is also part of the page about the scores of entries.
func TestRemovals(t *testing.T) {
	f := facts()
	f.Path = removals()
	f.Path.Fields = nil
	f.Path.Columns = f.Path.Columns[:1]
	if err := f.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := Write(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Removing fields and columns", "4 fields, without column 1", "Rise of the loss against the multiplications of a row"} {
		if !bytes.Contains(r.HTML, []byte(want)) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if last := r.Pictures[len(r.Pictures)-1]; last.Name != "removals" {
		t.Errorf("the last picture is %s", last.Name)
	}
}

// Pages about games with different baselines, whose values of a field differ, label them differently. Each label
// has the baseline.
func TestValuesNameTheirGame(t *testing.T) {
	for _, of := range []func() *Facts{facts, fieldFacts} {
		for _, name := range []string{"marginal", "codebook"} {
			f := of()
			f.Scores.Spec.Baseline = name
			r, err := Write(f)
			if err != nil {
				t.Fatal(err)
			}
			if text := string(r.HTML); !strings.Contains(text, "nat, baseline "+name+"</th>") {
				t.Errorf("a page with the baseline %s lacks it in the label of its values", name)
			}
		}
	}
}
