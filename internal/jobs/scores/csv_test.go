package scores_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/jobs/scores"
	"shaver/internal/jobs/scores/scorestest"
)

// The CSV of a model with look-ups has a line for each row of its tables. Columns that a
// table lacks are empty, and the last column names the table.
func TestExportOfTables(t *testing.T) {
	var out bytes.Buffer
	if err := scores.WriteCSV(&out, scorestest.Tables()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 13 {
		t.Fatalf("%d lines, expected 13", len(lines))
	}
	for line, want := range map[int]string{
		0:  "field,id,count,t,t_population,phi_0,phi_1,phi_2,phi_3,abs_0,abs_1,abs_2,abs_3,rms_0,rms_1,rms_2,rms_3,se_0,se_1,se_2,se_3,se_population_0,se_population_1,se_population_2,se_population_3,table",
		3:  "y,2,2,,,2,,,,0,,,,2,,,,0,,,,0,,,,narrow",
		5:  "z,1,4,,,5,6,,,0,0,,,5,6,,,0,0,,,0,0,,,joint",
		8:  "x,0,7,2.44691,2.44691,11,12,,,0,0,,,11,12,,,0,0,,,0,0,,,joint",
		12: "y,2,2,,,23,24,25,26,0,0,0,0,23,24,25,26,0,0,0,0,0,0,0,0,wide",
	} {
		if lines[line] != want {
			t.Errorf("line %d is\n%s, expected\n%s", line, lines[line], want)
		}
	}
}

// The CSV of a paired job has three more columns for each column of the table. The second
// feature is in 4 of the sampled rows, so it has no interval.
func TestExportPaired(t *testing.T) {
	var out bytes.Buffer
	f := scorestest.Paired()
	copy(f.RMS, []float32{4, 5, 6, 7})
	if err := scores.WriteCSV(&out, f); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for line, want := range []string{
		"field,id,count,t,t_population,phi_0,phi_1,abs_0,abs_1,rms_0,rms_1,se_0,se_1,se_population_0,se_population_1,se_paired_0,se_paired_1,abs_se_paired_0,abs_se_paired_1,rms_se_paired_0,rms_se_paired_1",
		"x,0,80,1.99045,1.99045,0,1,0,0,4,5,0,0,0,0,0.125,1.125,0.25,1.25,0.5,1.5",
		"y,0,16,,,2,3,0,0,6,7,0,0,0,0,2.125,3.125,2.25,3.25,2.5,3.5",
	} {
		if lines[line] != want {
			t.Errorf("line %d is\n%s, expected\n%s", line, lines[line], want)
		}
	}
}

// Compare compares the entries of features that occur in both files, and refuses scores of other
// tables.
func TestCompareTables(t *testing.T) {
	f := scorestest.Tables()
	dir := t.TempDir()
	one, same, other := filepath.Join(dir, "one"), filepath.Join(dir, "same"), filepath.Join(dir, "other")
	changed := scorestest.Tables()
	changed.Layout.Tables[0].Name = "changed"
	for path, f := range map[string]*scores.File{one: f, same: f, other: changed} {
		if err := scores.Write(path, f); err != nil {
			t.Fatal(err)
		}
	}
	// Feature 0 of y does not occur; it has 1 + 4 entries.
	o := scores.CompareOptions{Aggregate: scores.Sum, Sparsities: []float64{.5}}
	c, err := scores.Compare(one, same, o)
	if err != nil || c.Entries != 22 || *c.RelativeRMS != 0 || c.Overlap[0].Portion != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	fields := 0
	for _, part := range c.Fields {
		fields += part.Entries
	}
	if fields != 22 {
		t.Errorf("%d entries in all fields, expected 22", fields)
	}
	if _, err := scores.Compare(one, other, o); err == nil || !strings.Contains(err.Error(), "expected the same tables") {
		t.Errorf("error for other tables: %v", err)
	}
}
