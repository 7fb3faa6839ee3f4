package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/num/layout"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// pairedFile returns the scores of a paired job.
func pairedFile() *scores.File {
	f := &scores.File{
		Fields: []string{"x", "y"}, Layout: model.Architecture{FieldDims: []int{1, 1}, Dim: 2}, Baseline: make([]float32, 4), DatasetRows: 80,
		Spec: job.Spec{Version: job.SpecVersion, Model: "new", Splits: []string{"train"}, Sample: .25, Baseline: "zero",
			Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}, Previous: &job.Previous{Model: "old", Generation: 1}},
		Result: tally.Result{Rows: 80, Scores: tally.Scores{Shape: layout.Of(2, 2), Count: []int64{80, 16}, Values: tally.NewPairedValues(4)}},
		Lineage: &scores.Lineage{Generation: 1, Models: []string{"old", "new"}, Rows: 20, Error: .01, Plain: .04, Reduction: 30, RMSReduction: 20,
			Fields: []scores.PairedField{{Field: "x", Reduction: scores.MaxReduction, Sum: 1, Abs: 1, RMS: 1}, {Field: "y", Reduction: 1, Sum: 0, Abs: .5, RMS: .25}}},
	}
	for i := range f.Phi {
		f.Phi[i] = float64(i)
		f.PairedSE[i], f.AbsPairedSE[i], f.RMSPairedSE[i] = float32(i)+.125, float32(i)+.25, float32(i)+.5
	}
	return f
}

// Inspect prints the lineage of a paired job, as text and as JSON.
func TestInspectPaired(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := scores.Write(path, pairedFile()); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(command(t, "shaver", "scores", "inspect", path))), " ")
	for _, want := range []string{
		"lineage generation 1 1 paired job since the last full one",
		"models old, new",
		"both models 20 rows 25% of the dataset",
		"error 0.01 relative to a full job; a plain sample of the same cost: 0.04",
		"reduction 30 times of the variance; for rms: 20 times",
		`note the previous values of field "y" are of no use to this model, so its values come from the sample alone`,
		"FIELD REDUCTION B OF SUM B OF ABS B OF RMS x all 1.000 1.000 1.000 y 1 times 0.000 0.500 0.250",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("inspect prints\n%s\nexpected %q", text, want)
		}
	}
	var facts struct {
		Lineage *scores.Lineage `json:"lineage"`
	}
	shaver(t, &facts, "scores", "inspect", path)
	if facts.Lineage == nil || facts.Lineage.Plain != .04 || len(facts.Lineage.Fields) != 2 {
		t.Errorf("the JSON has the lineage %+v", facts.Lineage)
	}
}

// The CSV of a paired job has three more columns for each column of the table. The second
// feature is in 4 of the sampled rows, so it has no interval.
func TestExportPaired(t *testing.T) {
	var out bytes.Buffer
	if err := writeCSV(&out, pairedFile()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for line, want := range []string{
		"field,id,count,t,t_population,phi_0,phi_1,abs_0,abs_1,rms_0,rms_1,se_0,se_1,se_population_0,se_population_1,se_paired_0,se_paired_1,abs_se_paired_0,abs_se_paired_1,rms_se_paired_0,rms_se_paired_1",
		"x,0,80,1.99045,1.99045,0,1,0,0,0,0,0,0,0,0,0.125,1.125,0.25,1.25,0.5,1.5",
		"y,0,16,,,2,3,0,0,0,0,0,0,0,0,2.125,3.125,2.25,3.25,2.5,3.5",
	} {
		if lines[line] != want {
			t.Errorf("line %d is\n%s, expected\n%s", line, lines[line], want)
		}
	}
}
