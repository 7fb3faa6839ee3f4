package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/app/cli"
	"shaver/internal/app/launch"
	"shaver/internal/base/long"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
)

// Quickstart finds the useless half of the columns, which only the loss can reveal.
func TestQuickstart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "q")
	var found sweep.Document
	shaver(t, &found, "quickstart", "--rows", "8000", "--out", out)
	points := found.Points
	if err := beats(points, 0.03); err != nil {
		t.Error(err)
	}
	for _, p := range points {
		t.Logf("sparsity %g, %s: AUC %.4f, LogLoss %.4f", p.Sparsity, p.Method, *p.AUC, *p.LogLoss)
	}
	// Half of the table is useless, so dropping it costs almost nothing. A path is noisy with so few rows.
	for i, most := range []float64{.02, .005} {
		if full, half := *found.Unpruned.AUC, *points[i].AUC; points[i].Sparsity != 0.5 || half < full-most {
			t.Errorf("%s: AUC %.4f at sparsity %g, %.4f unpruned: expected a loss below %g", points[i].Method, half, points[i].Sparsity, full, most)
		}
	}
	wantFiles(t, out, "dataset", "model.safetensors", "order.arrow", "order.job.json", "rows.csv", "scores.arrow", "scores.job.json", "small.compress", "small.html", "small.safetensors")

	// The other commands read the files and compute the same scores.
	var report launch.JobReport
	readJSON(t, filepath.Join(out, "scores.job.json"), &report)
	var facts scores.Facts
	shaver(t, &facts, "scores", "inspect", filepath.Join(out, "scores.arrow"))
	if facts.Job != report.Job || facts.Rows != report.Rows || facts.Rows < 6000 {
		t.Errorf("the scores are of job %s and %d rows, its report says %s and %d", facts.Job, facts.Rows, report.Job, report.Rows)
	}
	for name, estimator := range map[string]string{"order": "path", "scores": "debiased"} {
		again := filepath.Join(out, "again-"+name+".arrow")
		shaver(t, nil, "score", "--model", filepath.Join(out, "model.safetensors"), "--dataset", filepath.Join(out, "dataset"), "--baseline", "codebook", "--splits", "train", "--estimator", estimator, "--out", again)
		wantSameFile(t, again, filepath.Join(out, name+".arrow"))
	}
}

// Without --out no files stay, and stdout has only the table.
func TestQuickstartTemporary(t *testing.T) {
	long.Test(t)
	temporary := t.TempDir()
	c := exec.CommandContext(t.Context(), "shaver", "quickstart", "--rows", "500")
	c.Env = append(os.Environ(), "TMPDIR="+temporary)
	var stderr strings.Builder
	c.Stderr = &stderr
	stdout, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"With --out DIR they stay.", "Magnitude loses here by construction", "Now do this with your model and rows:\n  shaver dataset import"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr does not say %q:\n%s", want, &stderr)
		}
	}
	if lines := strings.Split(strings.TrimSpace(string(stdout)), "\n"); len(lines) < 25 || !strings.HasPrefix(lines[0], "SPARSITY") || !strings.HasPrefix(lines[15], "* differs") || !strings.HasPrefix(lines[17], "certain within 0.001: ") {
		t.Errorf("stdout is %q, expected a header, a table of 14 lines, a note and a ladder", lines)
	}
	wantFiles(t, temporary)
}

func wantSameFile(t *testing.T, found, want string) {
	t.Helper()
	a, err := os.ReadFile(found)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("%s (%d bytes) differs from %s (%d bytes)", found, len(a), want, len(b))
	}
}

// Ctrl-C leaves no folder, so that the same command can run again.
func TestQuickstartCancelled(t *testing.T) {
	long.Test(t)
	out := filepath.Join(t.TempDir(), "q")
	c := exec.CommandContext(t.Context(), "shaver", "quickstart", "--rows", "200000", "--out", out)
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "scoring") {
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if strings.Contains(lines.Text(), "the state of the job is kept") {
			t.Errorf("the log says that the job continues, but its folder is deleted: %s", lines.Text())
		}
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("ended with %v", err)
	}
	wantFiles(t, filepath.Dir(out))
}
