package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
)

// A dataset with weights has the scores of the dataset in which each row is repeated as often as it counts, if the estimator draws nothing. Its
// scores are the same bytes for any number of workers and any size of shards, and say what rows weigh.
func TestScoresOfWeightedRows(t *testing.T) {
	long.Test(t)
	golden, folder := filepath.Join("..", "..", "testdata", "golden"), t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	text, err := os.ReadFile(filepath.Join(golden, "deepfm.rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var weighted, repeated bytes.Buffer
	fmt.Fprintln(&weighted, lines[0]+",counts")
	fmt.Fprintln(&repeated, lines[0])
	total := 0
	for i, line := range slices.Repeat(lines[1:], 3) {
		halves := []int{1, 2, 5, 20, 1, 200}[i%6]
		fmt.Fprintf(&weighted, "%s,%v\n", line, float64(halves)/2)
		repeated.WriteString(strings.Repeat(line+"\n", halves))
		total += halves
	}
	model := filepath.Join(golden, "deepfm.pth")
	for name, rows := range map[string][]byte{"weighted": weighted.Bytes(), "repeated": repeated.Bytes()} {
		if err := os.WriteFile(path(name+".csv"), rows, 0o666); err != nil {
			t.Fatal(err)
		}
		args := []string{"dataset", "import", "csv", "--ids", "global", "--train", path(name + ".csv"), "--model", model, "--out", path(name)}
		if name == "weighted" {
			args = append(args, "--weight", "counts")
		}
		command(t, "shaver", args...)
	}
	score := func(out, dataset string, args ...string) []byte {
		t.Helper()
		command(t, "shaver", append([]string{"score", "--model", model, "--dataset", path(dataset), "--splits", "train", "--baseline", "codebook", "--seed", "3", "--out", path(out)}, args...)...)
		data, err := os.ReadFile(path(out))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, estimator := range []string{"taylor", "exact"} {
		score(estimator+".arrow", "weighted", "--estimator", estimator, "--baseline", "zero") // the codebook counts rows
		score(estimator+"-repeated.arrow", "repeated", "--estimator", estimator, "--baseline", "zero")
		got, want := readScores(t, path(estimator+".arrow")), readScores(t, path(estimator+"-repeated.arrow"))
		if !slices.Equal(got.Phi, want.Phi) || !slices.Equal(got.Abs, want.Abs) || got.LossFull != want.LossFull || got.LossEmpty != want.LossEmpty {
			t.Errorf("%s: the scores differ from those of repeated rows", estimator)
		}
		if got.Weight != int64(total) || got.Rows != int64(3*(len(lines)-1)) || got.Spec.LargestWeight != 200 || want.Spec.LargestWeight != 0 {
			t.Errorf("%s: %d rows of weight %d, at most %d, expected the weight %d", estimator, got.Rows, got.Weight, got.Spec.LargestWeight, total)
		}
	}
	for name, args := range map[string][]string{
		"path": {"--estimator", "path", "--sparsity", ".9", "--parts", "4"}, "multilinear": {"--estimator", "multilinear", "--audit", "1"},
		"debiased": {"--estimator", "debiased"}, "permutation": {"--estimator", "permutation", "--passes", "3"}, "fields": {"--players", "fields"},
		"until": {"--estimator", "permutation", "--passes", "4", "--until", "error", "--bound", ".3"},
	} {
		one := score(name+"1.arrow", "weighted", args...)
		if five := score(name+"5.arrow", "weighted", append(args, "--workers", "5", "--rows-per-shard", "7")...); !bytes.Equal(one, five) {
			t.Errorf("%s: five workers with shards of 7 rows give other bytes", name)
		}
		if f := readScores(t, path(name+"1.arrow")); f.Weight != int64(total) && name != "until" {
			t.Errorf("%s: the rows have the weight %d, expected %d", name, f.Weight, total)
		}
	}
	for name, args := range map[string][]string{
		"previous": {"--previous", path("debiased1.arrow"), "--previous-model", model, "--out", path("next.arrow")},
		"state":    {"--state", path("state"), "--out", path("next.arrow")},
	} {
		code, _, log := run(t, "shaver", append([]string{"nightly", "score", "--model", model, "--dataset", path("weighted"), "--splits", "train", "--estimator", "debiased", "--baseline", "codebook"}, args...)...)
		if code == 0 || !strings.Contains(log, "the rows of the dataset have weights") {
			t.Errorf("%s: exit code %d, expected that weights are refused\n%s", name, code, log)
		}
	}
}
