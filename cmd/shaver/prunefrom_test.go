package main

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/prune/sweep"
)

// selected scores the training rows of a planted model and returns the flags that name
// the model, the scores and the dataset. A path has a space, which a shell would split.
func selected(t *testing.T) (model, scores, rows string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "3000", "--out", q)
	model, scores, rows = filepath.Join(q, "model.safetensors"), filepath.Join(dir, "train.arrow"), filepath.Join(q, "dataset")
	shaver(t, nil, "score", "--model", model, "--dataset", rows, "--splits", "train", "--baseline", "codebook", "--out", scores)
	return model, scores, rows
}

// The commands that sweep --select prints make the models that it chose.
func TestSweepPrintsCommands(t *testing.T) {
	model, scores, rows := selected(t)
	for name, c := range map[string]struct {
		flags    []string
		commands int
	}{
		"sparsities": {[]string{"--sparsities", "0.5,0.9,0.95"}, 3},
		"settings":   {[]string{"--sparsities", "0.9", "--protect", "hour", "--field-minimum", "0.01", "--values", "int8", "--calibrate"}, 1},
		"signed":     {[]string{"--sparsities", "0.9", "--aggregate", "signed", "--methods="}, 1},
		"bytes":      {[]string{"--bytes", "60000,70000"}, 2},
		"a rival":    {[]string{"--sparsities", "0.8", "--aggregate=", "--methods", "frequency"}, 1},
		"random":     {[]string{"--sparsities", "0.8", "--aggregate=", "--methods", "random"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "sweep.json")
			args := append([]string{"sweep", "--model", model, "--scores", scores, "--dataset", rows, "--select"}, c.flags...)
			for _, from := range []bool{true, false} {
				all := args
				if from {
					all = append(args, "--out", out)
				}
				text := string(command(t, "shaver", all...))
				var d sweep.Document
				readJSON(t, out, &d)
				chosen := d.Chosen()
				_, commands, _ := strings.Cut(text, "\nTo prune:\n")
				lines := strings.Split(strings.TrimSpace(commands), "\n")
				if len(lines) != c.commands || len(chosen) != c.commands {
					t.Fatalf("%d commands for %d points, expected %d:\n%s", len(lines), len(chosen), c.commands, text)
				}
				for i, line := range lines {
					if chosen[i].Source == nil && !from {
						if !strings.Contains(line, "# "+chosen[i].Method+" at ") || !strings.Contains(line, "--out sweep.json") {
							t.Errorf("without --out, %s has the line %q", chosen[i].Method, line)
						}
						continue
					}
					measureCommand(t, dir, line, rows, chosen[i])
				}
			}
		})
	}
}

// measureCommand runs a line of a shell that prunes, and compares the model with the point
// of a sweep.
func measureCommand(t *testing.T, dir, line, rows string, want *sweep.Point) {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip(err)
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", line+" -o json")
	c.Dir = dir
	text, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var cut pruning
	if err := json.Unmarshal(text, &cut); err != nil {
		t.Fatal(err)
	}
	if cut.Method != want.Method || cut.Parameters != want.Parameters || cut.EmptyFeatures != want.EmptyFeatures || cut.Baseline != want.Baseline {
		t.Errorf("%s: %+v, expected the point %+v", line, cut, want)
	}
	var measured evaluation
	shaver(t, &measured, "evaluate", "--model", filepath.Join(dir, cut.Out), "--dataset", rows)
	auc, loss, tolerance := *want.AUC, *want.LogLoss, 0.0
	if want.CalibratedLogLoss != nil { // the calibrated weights are rounded
		loss, tolerance = *want.CalibratedLogLoss, 1e-5
	}
	if math.Abs(*measured.AUC-auc) > tolerance || math.Abs(*measured.LogLoss-loss) > tolerance {
		t.Errorf("%s: AUC %v and LogLoss %v, the sweep measured %v and %v", line, *measured.AUC, *measured.LogLoss, auc, loss)
	}
}
