package main

import (
	"strings"
	"testing"

	"shaver/internal/data/dataset"
	"shaver/internal/data/dense"
	"shaver/internal/data/ingest"
)

// A column of another day without a rule has the rule and the statistics of the earlier dataset, whatever the new name of
// its input. A rule that is written must be the same.
func TestDenseRuleOfEarlierDataset(t *testing.T) {
	mean, deviation := 36.5, 11.25
	d := &dataset.Dataset{}
	d.Dense = []dense.Input{{Name: "x[0]", Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}}
	for text, refusal := range map[string]string{
		"age=x[0]":                   "",
		"age=x[0]:zscore":            "",
		"age=x[0]:zscore=36.5/11.25": "",
		"age=x[0]:zscore=36/11.25":   `"x[0]" has the rule zscore=36/11.25, but "x[0]" in the dataset of --vocabulary has zscore=36.5/11.25: leave the numbers out`,
		"age=x[0]:none":              `"x[0]" has the rule none, but "x[0]" in the dataset of --vocabulary has zscore: give that rule, or leave the rule out`,
		// An input has another name than that of the column's input in the dataset.
		"x[0]=dense":        "",
		"x[0]=dense:zscore": "",
		"x[0]=dense:log1p":  `"dense" has the rule log1p, but "x[0]" in the dataset of --vocabulary has zscore`,
		// The dataset has neither name.
		"age=dense":  `--dense age=dense: the dataset of --vocabulary has no dense input of these names, but ["x[0]"]: if the column is "x[0]", write age=dense:zscore=36.5/11.25; if it is new, give its rule, as in age=dense:none`,
		"age:zscore": "--dense age: the dataset of --vocabulary has no dense input of these names",
	} {
		o := denseOptions{columns: []string{text}}
		got, err := o.set()
		if err != nil {
			t.Fatal(err)
		}
		err = inputsOf(d).adopt(&got, true)
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
	// A rule that is whole needs no dense input of the dataset, nor does a column if others are all of these.
	for text, want := range map[string]string{"age=dense:zscore=1/2": dense.ZScore, "age:log1p": dense.Log1p, "dwell,age=x[0]": ""} {
		o := denseOptions{columns: strings.Split(text, ",")}
		got, err := o.set()
		if err == nil {
			err = inputsOf(d).adopt(&got, true)
		}
		if err != nil || got.Columns[0].Input.Rule != want || want == dense.ZScore && *got.Columns[0].Input.Mean != 1 {
			t.Errorf("--dense %s: %+v, %v", text, got, err)
		}
	}
	// A column may have a number of its own for missing ones, which is not that of the dataset.
	one := 1.
	d.Dense[0].Missing = &one
	for text, want := range map[string]float64{"": 1, "age=-3,other=0": -3} {
		o := denseOptions{columns: []string{"age=x[0]", "other"}, missing: text}
		got, err := o.set()
		if err == nil {
			err = inputsOf(d).adopt(&got, true)
		}
		if err != nil || got.Missing != "" || *got.Columns[0].Input.Missing != want || text != "" && *got.Columns[1].Input.Missing != 0 {
			t.Errorf("--dense-missing %q: %+v, %v, expected %v for age", text, got, err, want)
		}
	}
	// The mean is that of the dataset.
	seven := 7.
	for _, c := range []struct {
		earlier dense.Input
		want    float64
		refusal string
	}{
		{dense.Input{Rule: dense.ZScore, Mean: &mean, Deviation: &deviation}, mean, ""},
		{dense.Input{Rule: dense.ZScore, Mean: &mean, Deviation: &deviation, Missing: &seven}, 7, ""},
		{dense.Input{Rule: dense.None, Missing: &seven}, 7, ""},
		{dense.Input{Rule: dense.None}, 0, `--dense-missing mean: the dataset of --vocabulary does not record the mean of "age": leave --dense-missing out if no number is missing, or give a number`},
	} {
		c.earlier.Name = "age"
		got := ingest.Dense{Missing: ingest.MissingMean}
		err := inputsOf(&dataset.Dataset{Manifest: dataset.Manifest{Dense: []dense.Input{c.earlier}}}).adopt(&got, true)
		switch {
		case c.refusal != "":
			if err == nil || err.Error() != c.refusal {
				t.Errorf("%+v: %v, expected %s", c.earlier, err, c.refusal)
			}
		case err != nil || *got.Columns[0].Input.Missing != c.want:
			t.Errorf("%+v: %+v, %v, expected %v", c.earlier, got, err, c.want)
		}
	}
	if _, err := (&denseOptions{columns: []string{"age:"}}).set(); err == nil {
		t.Error("--dense age: with an empty rule is accepted")
	}
}
