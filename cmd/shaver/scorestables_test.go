package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/model/modeltest"
	"shaver/internal/jobs/job"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// tablesFile returns scores of a model with look-ups.
func tablesFile() *scores.File {
	a := modeltest.LookUps()
	f := &scores.File{
		Fields: []string{"x", "y", "z"}, Layout: a, Baseline: make([]float32, a.Players()), DatasetRows: 8,
		Spec:   job.Spec{Version: job.SpecVersion, Splits: []string{"train"}, Sample: 1, Baseline: "zero", Options: estimator.Options{Estimator: estimator.Permutation, Passes: 1}},
		Result: tally.Result{Rows: 8, Scores: tally.Scores{Shape: a.Shape(), Count: make([]int64, 12), Values: tally.NewValues(a.Parameters())}},
	}
	for i := range f.Phi {
		f.Phi[i], f.RMS[i] = float64(i), float32(i)
	}
	f.Count = a.RowCounts([]int64{7, 8, 0, 1, 2, 3, 4, 5, 6})
	return f
}

// The CSV of a model with look-ups has a line for each row of its tables. Columns that a
// table lacks are empty, and the last column names the table.
func TestExportOfTables(t *testing.T) {
	var out bytes.Buffer
	if err := writeCSV(&out, tablesFile()); err != nil {
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

// Inspect lists the tables, and compare refuses scores of other tables.
func TestInspectAndCompareTables(t *testing.T) {
	f := tablesFile()
	facts, err := inspectScores(f)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	facts.table(&out)
	if text := out.String(); !strings.Contains(text, "table joint\t6 x 2\n") || strings.Contains(text, "x 0") || !strings.Contains(text, "y\t3\t2\t") {
		t.Errorf("inspect prints\n%s", text)
	}
	dir := t.TempDir()
	one, same, other := filepath.Join(dir, "one"), filepath.Join(dir, "same"), filepath.Join(dir, "other")
	changed := tablesFile()
	changed.Layout.Tables[0].Name = "changed"
	for path, f := range map[string]*scores.File{one: f, same: f, other: changed} {
		if err := scores.Write(path, f); err != nil {
			t.Fatal(err)
		}
	}
	// Feature 0 of y does not occur; it has 1 + 4 entries.
	o := compareOptions{aggregate: scores.Sum, sparsities: []float64{.5}}
	c, err := o.compare(one, same)
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
	if _, err := o.compare(one, other); err == nil || !strings.Contains(err.Error(), "expected the same tables") {
		t.Errorf("error for other tables: %v", err)
	}
}

// The report and the frequencies of a model with two tables for each field, from an export,
// count a feature once, and the job ends by a rule that compares two halves.
func TestTablesEndToEnd(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	export := filepath.Join("..", "..", "testdata", "onnx", "ncf.dynamo.onnx") // 7 and 11 ids; 8 and 4 columns for each
	encodedRows(t, path("rows.csv"), 400, 7, 11)
	command(t, "shaver", "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", export, "--out", path("data"))
	command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", "permutation", "--passes", "4", "--baseline", "codebook",
		"--until", "overlap", "--bound", "0.01", "--out", path("s.arrow"))
	var frequency frequencyView
	shaver(t, &frequency, "scores", "frequency", path("s.arrow"), "--model", export, "--dataset", path("data"), "--top", "20")
	all := 0
	for _, b := range frequency.All {
		all += b.Features
	}
	if all != 18 || frequency.Dim != 12 || len(frequency.Fields) != 2 || len(frequency.Fields[0].Top) != 7 || len(frequency.Fields[1].Top) != 11 {
		t.Errorf("frequencies %+v", frequency)
	}
	var sweep struct {
		Features, Entries int
		Points            []struct {
			EmptyFeatures int  `json:"empty_features"`
			Bytes         *int `json:"bytes"`
		}
	}
	command(t, "shaver", "sweep", "--model", export, "--scores", path("s.arrow"), "--dataset", path("data"), "--sparsities", "0.5,1", "--methods", "magnitude", "--out", path("sweep.json"))
	readJSON(t, path("sweep.json"), &sweep)
	if sweep.Features != 18 || sweep.Entries != 216 || len(sweep.Points) != 4 {
		t.Errorf("sweep %+v", sweep)
	}
	for i, p := range sweep.Points {
		if p.Bytes == nil || *p.Bytes < 1 || i >= 2 && p.EmptyFeatures != 18 || p.EmptyFeatures > 18 {
			t.Errorf("point %d of the sweep: %+v", i, p)
		}
	}
	command(t, "shaver", "report", "--model", export, "--scores", path("s.arrow"), "--dataset", path("data"), "--sweep", path("sweep.json"), "--out", path("report.html"))
}
