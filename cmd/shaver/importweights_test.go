package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/data/dataset"
)

// Imports of CSV and Parquet take several labels and weights, and say what they have found.
func TestImportWeights(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte("click,buy,w,a\n1,1,1,0\n0,,0.25,1\n1,0,0.5,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"raw": {"--raw", file, "--split", "1:0:0"}, "train": {"--train", file}} {
		out := filepath.Join(dir, name)
		var facts dataset.Inspection
		shaver(t, &facts, append([]string{"dataset", "import", "csv", "--label", "click,buy", "--weight", "w", "--out", out}, args...)...)
		if want := (dataset.TaskFacts{Label: "buy", Missing: 1, Positives: 1}); facts.Weight != 1.75 || len(facts.Tasks) != 1 || facts.Tasks[0] != want || len(facts.Fields) != 1 {
			t.Errorf("%s: %+v", name, facts)
		}
		code, stdout, stderr := run(t, "shaver", "dataset", "inspect", out)
		if code != 0 || !strings.Contains(stdout, "; buy: 1 of 2; weight 1.750") {
			t.Errorf("%s: code %d, %s %s", name, code, stdout, stderr)
		}
	}
	for want, args := range map[string][]string{
		"no column \"x\" for the weight: the columns are [\"click\" \"buy\" \"w\" \"a\"] (--weight)": {"--raw", file, "--label", "click", "--weight", "x"},
		"no column \"x\" for a label: the columns are [\"click\" \"buy\" \"w\" \"a\"] (--label)":     {"--raw", file, "--label", "click,x"},
		"--label does not go with --train: the label of encoded rows is the first column":            {"--train", file, "--label", "click"},
		"labels are numbers, but of several labels each must be 0 or 1 (--label, --labels numbers)":  {"--raw", file, "--label", "click,buy", "--labels", "numbers"},
	} {
		if code, _, stderr := run(t, "shaver", append([]string{"dataset", "import", "csv", "--out", filepath.Join(dir, "new")}, args...)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("code %d, %s, expected %s", code, stderr, want)
		}
	}
}
