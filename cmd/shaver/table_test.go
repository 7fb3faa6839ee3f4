package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/training"
	"shaver/internal/app/training/trainingtest"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/composed"
	"shaver/internal/num/layout"
)

// A training with a composed table writes the small form, which reads as an ordinary model. A training
// that is killed, also in the first training of CERP, and started again writes the same bytes on
// another number of cores.
func TestComposedTablesResume(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 8000)
	for name, c := range map[string]struct {
		args  []string
		shape composed.Shape
	}{
		"qr":       {[]string{"--table", "qr", "--sparsity", "0.8"}, composed.ForDivider(120, 4, 5)},
		"qr-7":     {[]string{"--table", "qr:7", "--patience", "0"}, composed.ForDivider(120, 4, 7)},
		"tt":       {[]string{"--table", "tt", "--sparsity", "0.5"}, composed.ForRanks(120, 4, []int{4, 4}, 0)},
		"tt-cache": {[]string{"--table", "tt:3,2:10", "--patience", "0"}, composed.ForRanks(120, 4, []int{3, 2}, 10)},
		"cerp":     {[]string{"--table", "cerp", "--sparsity", "0.7", "--warm-up", "2"}, composed.ForBuckets(120, 4, 22)},
		"cerp-30":  {[]string{"--table", "cerp:30", "--sparsity", "0.7", "--warm-up", "1"}, composed.ForBuckets(120, 4, 30)},
	} {
		args := func(out string) []string {
			return append(append([]string{"train", "--dataset", data, "--epochs", "12", "--out", filepath.Join(dir, out)}, tinyTraining...), c.args...)
		}
		var whole, continued training.Result
		shaver(t, &whole, args("whole-"+name)...)
		killOften(t, filepath.Join(dir, "killed-"+name), args("killed-"+name))
		shaver(t, &continued, args("killed-"+name)...)
		a, errA := os.ReadFile(filepath.Join(dir, "whole-"+name))
		b, errB := os.ReadFile(filepath.Join(dir, "killed-"+name))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the killed training wrote other bytes (%v, %v)", name, errA, errB)
		}
		if x, y := mustJSON(t, whole.Find), mustJSON(t, continued.Find); x != y {
			t.Errorf("%s: the killed training has the epochs %s, expected %s", name, y, x)
		}
		ck, err := checkpoint.Read(filepath.Join(dir, "whole-"+name))
		if err != nil || ck.Composed == nil {
			t.Fatalf("%s: %v, expected a composed table", name, err)
		}
		if x, y := mustJSON(t, ck.Composed.Shape), mustJSON(t, c.shape); x != y {
			t.Errorf("%s: the table has the shape %s, expected %s", name, x, y)
		}
		want := c.shape.Entries()
		if c.shape.Scheme == composed.CERP {
			drop, err := layout.Dropped(480, .7)
			if err != nil {
				t.Fatal(err)
			}
			if want = 480 - drop; whole.Kept != want {
				t.Errorf("%s: the training reports %d entries, expected %d", name, whole.Kept, want)
			}
		}
		if got := ck.Composed.Parameters(); got != want {
			t.Errorf("%s: the table has %d parameters, expected %d", name, got, want)
		}
		if auc := whole.History[whole.Best-whole.History[0].Number].Validation.AUC; auc == nil || *auc < .6 {
			t.Errorf("%s: the validation AUC is %v, expected at least .6", name, auc)
		}
	}
}

// A search finds and trains in each trial. It continues after a kill, and its file is that of a
// training with the settings of its best trial. A trial that cannot reach the sparsity says why, and
// the search goes on.
func TestSearchOfTables(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 4000)
	for table, more := range map[string][]string{
		"qr": {"--sparsity", "0.5"}, "pep": {"--sparsity", "0.5", "--warm-up", "1"}, "cerp": {"--sparsity", "0.6", "--warm-up", "1"}, "optembed": {"--sparsity", "0.5"},
	} {
		args := func(out string, rest ...string) []string {
			all := []string{"train", "--dataset", data, "--epochs", "6", "--hidden", "16,8", "--dim", "4", "--batch", "256", "--table", table, "--out", filepath.Join(dir, out)}
			return append(append(all, more...), rest...)
		}
		if table == "optembed" {
			args = func(out string, rest ...string) []string {
				return append([]string{"train", "--dataset", data, "--epochs", "1", "--hidden", "16,8", "--dim", "4", "--batch", "256", "--table", table, "--sparsity", "0.5", "--out", filepath.Join(dir, out)}, rest...)
			}
		}
		var whole, continued, alone training.Result
		shaver(t, &whole, args("whole-"+table, "--search", "3")...)
		if len(whole.Trials) != 3 || whole.Best < 1 {
			t.Fatalf("%s: %d trials, of which %d is the best", table, len(whole.Trials), whole.Best)
		}
		killOften(t, filepath.Join(dir, "killed-"+table), args("killed-"+table, "--search", "3"))
		shaver(t, &continued, args("killed-"+table, "--search", "3")...)
		if x, y := mustJSON(t, timeless(whole.Trials)), mustJSON(t, timeless(continued.Trials)); x != y {
			t.Errorf("%s: the killed search has the trials %s, expected %s", table, y, x)
		}
		best := whole.Trials[whole.Best-1]
		shaver(t, &alone, args("alone-"+table, "--learning-rate", mustJSON(t, best.LearningRate), "--weight-decay", mustJSON(t, best.WeightDecay), "--dropout", mustJSON(t, best.Dropout))...)
		want, err := checkpoint.Read(filepath.Join(dir, "whole-"+table))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"killed-", "alone-"} {
			got, err := checkpoint.Read(filepath.Join(dir, name+table))
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest() != want.Digest() {
				t.Errorf("%s: %s has another model than the search that was not killed", table, name)
			}
		}
	}
	// OptEmbed keeps at least one column of each feature, so no trial reaches a sparsity of .8.
	out, err := exec.Command("shaver", "train", "--dataset", data, "--epochs", "1", "--dim", "4", "--hidden", "4", "--batch", "256", "--table", "optembed", "--sparsity", "0.8", "--search", "2", "--out", filepath.Join(dir, "none")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "all 2 trials failed: nothing was written; the thresholds keep") {
		t.Errorf("a search whose trials all fail: %v, %s", err, out)
	}
}
