package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/jobs/scores/scorestest"
)

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
	if sweep.Features != 18 || sweep.Entries != 216 || len(sweep.Points) != 5 { // with that of nothing kept
		t.Errorf("sweep %+v", sweep)
	}
	for i, p := range sweep.Points {
		if p.Bytes == nil || *p.Bytes < 1 || i >= 2 && p.EmptyFeatures != 18 || p.EmptyFeatures > 18 {
			t.Errorf("point %d of the sweep: %+v", i, p)
		}
	}
	command(t, "shaver", "report", "--model", export, "--scores", path("s.arrow"), "--dataset", path("data"), "--sweep", path("sweep.json"), "--out", path("report.html"))
}

// Inspect lists the tables.
func TestInspectTables(t *testing.T) {
	facts, err := scorestest.Tables().Facts()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	scoresTable(&out, facts)
	if text := out.String(); !strings.Contains(text, "table joint\t6 x 2\n") || strings.Contains(text, "x 0") || !strings.Contains(text, "y\t3\t2\t") {
		t.Errorf("inspect prints\n%s", text)
	}
}
