package main

import (
	"strings"
	"testing"

	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
)

// A column of another day without a rule has the rule of the earlier dataset. A rule
// that is written must be the same.
func TestDenseRuleOfEarlierDataset(t *testing.T) {
	mean, deviation := 36.5, 11.25
	d := &dataset.Dataset{}
	d.Dense = []dense.Input{{Name: "x[0]", Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}}
	for text, refusal := range map[string]string{
		"age=x[0]":        "",
		"age=x[0]:zscore": "",
		"age=x[0]:none":   `"x[0]" has the rule none, but zscore`,
	} {
		o := denseOptions{columns: []string{text}}
		got, err := o.set()
		if err != nil {
			t.Fatal(err)
		}
		err = adopt(&got, d, true)
		if refusal != "" {
			if err == nil || !strings.Contains(err.Error(), refusal) {
				t.Errorf("--dense %s: %v, expected %s", text, err, refusal)
			}
			continue
		}
		if err != nil {
			t.Errorf("--dense %s: %v", text, err)
			continue
		}
		if in := got.Columns[0].Input; in.Rule != dense.ZScore || in.Mean == nil || *in.Mean != mean || *in.Deviation != deviation {
			t.Errorf("--dense %s: the input is %+v, expected the rule and statistics of the dataset", text, in)
		}
	}
	// A column may have a number of its own for missing ones, which is not that of the dataset.
	one := 1.
	d.Dense[0].Missing = &one
	for text, want := range map[string]float64{"": 1, "age=-3,other=0": -3} {
		o := denseOptions{columns: []string{"age=x[0]", "other"}, missing: text}
		got, err := o.set()
		if err == nil {
			err = adopt(&got, d, true)
		}
		if err != nil || got.Missing != "" || *got.Columns[0].Input.Missing != want || text != "" && *got.Columns[1].Input.Missing != 0 {
			t.Errorf("--dense-missing %q: %+v, %v, expected %v for age", text, got, err, want)
		}
	}
	if _, err := (&denseOptions{columns: []string{"age:"}}).set(); err == nil {
		t.Error("--dense age: with an empty rule is accepted")
	}
}
