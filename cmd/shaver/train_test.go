package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"shaver/internal/app/training"
	"shaver/internal/app/training/trainingtest"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
)

// tinyTraining holds the flags of a training that takes little time.
var tinyTraining = []string{"--hidden", "16,8", "--dim", "4", "--batch", "256", "--dropout", "0.2", "--learning-rate", "0.005"}

// timeless returns trials without their times, in which two runs differ.
func timeless(trials []training.Trial) []training.Trial {
	all := slices.Clone(trials)
	for i := range all {
		all[i].Seconds = 0
	}
	return all
}

// A training that is killed and started again writes the bytes of one that is not, and so does
// one on another number of cores. It leaves no state.
func TestTrainResumes(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 20000)
	args := func(out string) []string {
		return append([]string{"train", "--dataset", data, "--epochs", "12", "--patience", "0", "--out", filepath.Join(dir, out)}, tinyTraining...)
	}
	var whole training.Result
	shaver(t, &whole, args("whole")...)
	if len(whole.History) != 12 || whole.Rows < 15000 {
		t.Fatalf("%d epochs on %d rows", len(whole.History), whole.Rows)
	}
	if auc := whole.History[whole.Best-1].Validation.AUC; auc == nil || *auc < .7 {
		t.Errorf("the validation AUC is %v, expected at least .7", auc)
	}
	state := filepath.Join(dir, ".killed.training")
	killTraining(t, state, args("killed"))
	var s training.State
	if err := checkpoint.ReadVectors(state, func(text string) ([]checkpoint.Vector, error) {
		return nil, json.Unmarshal([]byte(text), &s)
	}); err != nil || len(s.History) == 0 || len(s.History) == 12 {
		t.Fatalf("the state has %d epochs (%v)", len(s.History), err)
	}
	if out, err := exec.Command("shaver", append(args("killed"), "--seed", "2")...).CombinedOutput(); err == nil || !bytes.Contains(out, []byte("other settings")) {
		t.Errorf("a training with another seed continues: %s", out)
	}
	var continued training.Result
	shaver(t, &continued, args("killed")...)
	a, errA := os.ReadFile(filepath.Join(dir, "whole"))
	b, errB := os.ReadFile(filepath.Join(dir, "killed"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the killed training wrote other bytes (%v, %v)", errA, errB)
	}
	if len(continued.History) != 12 || continued.Best != whole.Best {
		t.Errorf("the killed training has %d epochs and the best %d, expected 12 and %d", len(continued.History), continued.Best, whole.Best)
	}
	wantFiles(t, dir, "data", "killed", "rows.csv", "whole")
}

// killTraining runs shaver on one core, and kills it as soon as it has written its state.
func killTraining(t *testing.T, state string, args []string) {
	t.Helper()
	p := exec.Command("shaver", args...)
	p.Env = append(os.Environ(), "GOMAXPROCS=1")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		if _, err := os.Stat(state); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	_ = p.Process.Kill()
	if p.Wait() == nil {
		t.Fatal("the training ended before it was killed")
	}
}

// A tuning that is killed and started again writes the bytes of one that is not.
func TestTuneResumes(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 20000)
	file := func(name string) string { return filepath.Join(dir, name) }
	shaver(t, nil, append([]string{"train", "--dataset", data, "--epochs", "0", "--out", file("m.safetensors")}, tinyTraining...)...)
	shaver(t, nil, "score", "--model", file("m.safetensors"), "--dataset", data, "--splits", "train", "--max-rows", "2000", "--estimator", "taylor", "--out", file("s.arrow"))
	shaver(t, nil, "prune", "--model", file("m.safetensors"), "--scores", file("s.arrow"), "--sparsity", "0.5", "--out", file("p.safetensors"))
	args := func(out string) []string {
		return []string{"tune", "--model", file("p.safetensors"), "--dataset", data, "--batch", "128", "--epochs", "12", "--patience", "0", "--out", file(out)}
	}
	shaver(t, nil, args("whole")...)
	killTraining(t, file(".killed.training"), args("killed"))
	shaver(t, nil, args("killed")...)
	a, errA := os.ReadFile(file("whole"))
	b, errB := os.ReadFile(file("killed"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the killed tuning wrote other bytes (%v, %v)", errA, errB)
	}
}

// A search that is killed has the trials and the bytes of one that is not. Its file is that of
// a training with the settings of its best trial.
func TestSearchResumes(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 8000)
	args := func(out string, more ...string) []string {
		return append([]string{"train", "--dataset", data, "--epochs", "4", "--hidden", "16,8", "--dim", "4", "--batch", "256", "--out", filepath.Join(dir, out)}, more...)
	}
	var whole, continued, alone training.Result
	shaver(t, &whole, args("whole", "--search", "4")...)
	if len(whole.Trials) != 4 || whole.Best < 1 {
		t.Fatalf("a search has %d trials, of which %d is the best", len(whole.Trials), whole.Best)
	}
	p := exec.Command("shaver", args("killed", "--search", "4")...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, ".killed.training")
	for range 2000 {
		var s training.State
		if err := checkpoint.ReadVectors(state, func(text string) ([]checkpoint.Vector, error) {
			return nil, json.Unmarshal([]byte(text), &s)
		}); err == nil && len(s.Trials) > 0 && len(s.History) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	_ = p.Process.Kill()
	if p.Wait() == nil {
		t.Fatal("the search ended before it was killed")
	}
	shaver(t, &continued, args("killed", "--search", "4")...)
	if x, y := mustJSON(t, timeless(whole.Trials)), mustJSON(t, timeless(continued.Trials)); x != y {
		t.Errorf("the killed search has the trials %s, expected %s", y, x)
	}
	best := whole.Trials[whole.Best-1]
	shaver(t, &alone, args("alone", "--learning-rate", fmt.Sprint(best.LearningRate), "--weight-decay", fmt.Sprint(best.WeightDecay), "--dropout", fmt.Sprint(best.Dropout))...)
	want, err := checkpoint.Read(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", "alone"} {
		got, err := checkpoint.Read(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest() != want.Digest() {
			t.Errorf("%s has another model than the search that was not killed", name)
		}
	}
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every kind can be trained, scored, pruned and tuned. A tuned model has the mask and the
// baseline of the pruned one, and its validation AUC is not lower.
func TestTrainPruneTune(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 4000)
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, kind := range [][]string{{"fm"}, {"deepfm"}, {"widedeep"}, {"dcn-mix", "--experts", "2", "--rank", "3"}, {"dcnv2"}, {"dcnv2", "--structure", "parallel"}} {
		args := append([]string{"train", "--dataset", data, "--epochs", "2", "--force", "--out", file("m.safetensors"), "--kind"}, kind...)
		if kind[0] == "fm" {
			args = append(args, "--dim", "4", "--batch", "256")
		} else {
			args = append(args, tinyTraining...)
		}
		shaver(t, nil, args...)
		shaver(t, nil, "score", "--model", file("m.safetensors"), "--dataset", data, "--splits", "train", "--baseline", "codebook", "--estimator", "multilinear", "--force", "--out", file("s.arrow"))
		shaver(t, nil, "prune", "--model", file("m.safetensors"), "--scores", file("s.arrow"), "--sparsity", "0.5", "--force", "--out", file("p.safetensors"))
		var tuned training.Result
		shaver(t, &tuned, "tune", "--model", file("p.safetensors"), "--dataset", data, "--batch", "128", "--epochs", "4", "--patience", "0", "--learning-rate", "0.003", "--force", "--out", file("t.safetensors"))
		if len(tuned.History) != 5 || *tuned.History[tuned.Best].Validation.AUC < *tuned.History[0].Validation.AUC || tuned.Best == 0 {
			t.Errorf("%v: epoch %d of %+v is the best", kind, tuned.Best, tuned.History)
		}
		before, err := checkpoint.Read(file("p.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		after, err := checkpoint.Read(file("t.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		mask, baseline, err := before.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		mask2, baseline2, err := after.Pruned()
		if err != nil {
			t.Fatal(err)
		}
		x, errX := before.Embedding()
		y, errY := after.Embedding()
		if errX != nil || errY != nil || fmt.Sprint(mask, baseline) != fmt.Sprint(mask2, baseline2) {
			t.Fatalf("%v: the tuned model has another mask or baseline (%v, %v)", kind, errX, errY)
		}
		moved := 0
		for i := range x {
			if x[i] != y[i] {
				moved++
				if mask[i] {
					t.Fatalf("%v: the dropped entry %d moved", kind, i)
				}
			}
		}
		if moved == 0 {
			t.Errorf("%v: no entry moved", kind)
		}
	}
}

// PyTorch's models load a trained file with strict=True and compute the same logits.
func testTrainedLoadsStrictly(t *testing.T, python string) {
	dir := t.TempDir()
	trainingtest.Clicks(t, dir, 500)
	file := func(name string) string { return filepath.Join(dir, name) }
	text, err := os.ReadFile(file("rows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var pairs strings.Builder // the first two fields
	for line := range strings.Lines(string(text)) {
		pairs.WriteString(strings.Join(strings.Split(line, ",")[:3], ",") + "\n")
	}
	if err := os.WriteFile(file("pairs.csv"), []byte(pairs.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rows := range []string{"rows.csv", "pairs.csv"} {
		shaver(t, nil, "dataset", "import", "csv", "--ids", "local", "--train", file(rows), "--out", file("data of "+rows))
	}
	for _, kind := range []string{"fm", "deepfm", "dcn-mix", "dcnv2", "neumf"} {
		rows := "rows.csv"
		if kind == "neumf" {
			rows = "pairs.csv"
		}
		args := []string{"train", "--dataset", file("data of " + rows), "--epochs", "1", "--force", "--out", file("m.safetensors"), "--kind", kind, "--dim", "4"}
		if kind != "fm" {
			args = append(args, "--hidden", "16,8")
		}
		shaver(t, nil, args...)
		shaver(t, nil, "evaluate", "--model", file("m.safetensors"), "--dataset", file("data of "+rows), "--split", "train", "--force", "--predictions", file("p.csv"))
		out, err := exec.Command(python, filepath.Join("testdata", "python", "strict.py"), filepath.Join(goldenDir, "make.py"), kind, file("m.safetensors"), file(rows)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", kind, err, out)
		}
		text, err := os.ReadFile(file("p.csv"))
		if err != nil {
			t.Fatal(err)
		}
		got, want := strings.Split(strings.TrimSpace(string(text)), "\n")[1:], strings.Fields(string(out))
		if len(got) != 500 || len(want) != 500 {
			t.Fatalf("%s: %d predictions and %d logits of PyTorch", kind, len(got), len(want))
		}
		for i := range got {
			x, errX := strconv.ParseFloat(strings.Split(got[i], ",")[2], 64)
			y, errY := strconv.ParseFloat(want[i], 64)
			if errX != nil || errY != nil || math.Abs(x-y) > 1e-5 {
				t.Fatalf("%s: row %d is %q, PyTorch has %v (%v, %v)", kind, i, got[i], y, errX, errY)
			}
		}
	}
}
