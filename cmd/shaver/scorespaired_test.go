package main

import (
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/scores/scorestest"
)

// Inspect prints the lineage of a paired job, as text and as JSON.
func TestInspectPaired(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.arrow")
	if err := scores.Write(path, scorestest.Paired()); err != nil {
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
