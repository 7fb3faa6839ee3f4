package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/app/compress"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/prune/gate"
	"shaver/internal/prune/nightly"
	"shaver/internal/prune/sweep"
)

// compressible returns a planted model and rows of it.
func compressible(t *testing.T) (model, rows string) {
	t.Helper()
	q := filepath.Join(t.TempDir(), "q")
	shaver(t, nil, "quickstart", "--rows", "6000", "--out", q)
	return filepath.Join(q, "model.safetensors"), filepath.Join(q, "dataset")
}

// certain returns the table that is certain to be within a bound, or nil.
func certain(t *testing.T, a *sweep.Answer, within float64) *sweep.Table {
	t.Helper()
	at := slices.IndexFunc(a.Rungs, func(r sweep.Rung) bool { return r.Within == within })
	if at < 0 {
		t.Fatalf("no rung of %g: %+v", within, a)
	}
	return a.Rungs[at].Certain
}

// compress writes a file that is certain to be within the bound, and a page. The file has the recipe, by which the same bytes are made
// again. Without a file within the bound there is a page only.
func TestCompress(t *testing.T) {
	long.Test(t)
	model, rows := compressible(t)
	dir := t.TempDir()
	small := filepath.Join(dir, "small.safetensors")
	var r compress.Result
	shaver(t, &r, "compress", "--model", model, "--dataset", rows, "--within", "0.02", "--out", small)
	table, file := certain(t, r.Answer, .02), certain(t, r.Check.Answer, .02)
	if table == nil || file == nil || r.Out != small || r.Pruned.Kept != file.Parameters-(r.Pruned.Parameters-r.Pruned.Kept) || r.Pruned.Bytes > r.Pruned.DenseBytes/3 || file.Sparsity > table.Sparsity {
		t.Errorf("%+v: table %+v, file %+v", r, table, file)
	}
	page, err := os.ReadFile(filepath.Join(dir, "small.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(r.Answer.Text, "<h2>Ship small.safetensors: ", "is certain to be within 0.02 AUC") {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks %q", line)
		}
	}
	ck, err := checkpoint.Read(small)
	if err != nil || ck.Recipe != `{"within":0.02}` {
		t.Errorf("recipe %q, %v", ck.Recipe, err)
	}
	again := filepath.Join(dir, "again.safetensors")
	shaver(t, nil, "compress", "--model", model, "--dataset", rows, "--recipe", small, "--out", again)
	wantSameFile(t, again, small)
	wantFiles(t, filepath.Join(dir, "small.compress"), "check.json", "scores.arrow", "scores.job.json", "sweep.json")

	scores := filepath.Join(dir, "small.compress", "scores.arrow")
	budget := filepath.Join(dir, "budget.safetensors")
	shaver(t, &r, "compress", "--model", model, "--dataset", rows, "--scores", scores, "--bytes", "30000", "--out", budget)
	if info, err := os.Stat(budget); err != nil || info.Size() > 30000 || info.Size() < 25000 {
		t.Errorf("%v, %v: expected at most 30000 bytes", info, err)
	}
	shaver(t, &r, "compress", "--model", model, "--dataset", rows, "--scores", scores, "--sparsity", "0.75", "--out", budget)
	if r.Pruned.Sparsity != .75 || r.Out == "" {
		t.Errorf("%+v", r.Pruned)
	}

	// A model of some fields of the dataset, and a dataset without rows that calibrate.
	part, short := filepath.Join(dir, "part.safetensors"), filepath.Join(dir, "short")
	shaver(t, nil, "prune", "--model", model, "--drop-fields", "hour", "--dataset", rows, "--out", part)
	shaver(t, nil, "plan", "--model", part, "--dataset", rows, "--estimator", "taylor")
	shaver(t, &r, "compress", "--model", part, "--dataset", rows, "--sparsity", "0.5", "--out", budget)
	if r.Pruned.Sparsity != .5 {
		t.Errorf("%+v", r.Pruned)
	}
	csv := filepath.Join(filepath.Dir(rows), "rows.csv")
	shaver(t, nil, "dataset", "import", "csv", "--ids", "local", "--train", csv, "--test", csv, "--model", model, "--out", short)
	var plain compress.Result
	shaver(t, &plain, "compress", "--model", model, "--dataset", short, "--sparsity", "0.5", "--out", filepath.Join(dir, "uncalibrated.safetensors"))
	if plain.Pruned.Calibration != nil || !strings.Contains(plain.Answer.Text[0], "AUC and LogLoss are") {
		t.Errorf("%+v, %q", plain.Pruned, plain.Answer.Text)
	}

	none := filepath.Join(dir, "none.safetensors")
	code, _, log := run(t, "shaver", "compress", "--model", model, "--dataset", rows, "--scores", scores, "--within", "1e-9", "--out", none)
	if code != 7 || !strings.Contains(log, "no file is certain to be within 1e-09 on these ") {
		t.Errorf("exit code %d: %s", code, log)
	}
	if _, err := os.Stat(filepath.Join(dir, "none.html")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a file beyond the bound was written")
	}
	for _, c := range [][]string{
		{"--within", "0", "--within 0: expected numbers above 0, at most 1"}, {"--sparsity", "0", "--sparsity 0: expected a number above 0, at most 1"},
		{"--bytes", "-1", "--bytes -1: expected a whole number, at least 1"}, {"--recipe", model, "has no recipe: expected a file that shaver compress wrote"},
	} {
		if code, _, log := run(t, "shaver", "compress", "--model", model, "--dataset", rows, c[0], c[1], "--out", none); code != 2 && code != 42 || !strings.Contains(log, c[2]) {
			t.Errorf("%v: exit code %d: %s", c, code, log)
		}
	}
}

// compress, killed in any stage, continues and ends with the same bytes.
func TestCompressKilled(t *testing.T) {
	long.Test(t)
	model, rows := compressible(t)
	args := func(out string) []string {
		return []string{"compress", "--model", model, "--dataset", rows, "--within", "0.02", "--out", out}
	}
	want := filepath.Join(t.TempDir(), "small.safetensors")
	shaver(t, nil, args(want)...)
	shaver(t, nil, append(args(want), "--within", "0.01")...) // another bound leaves nothing behind
	shaver(t, nil, args(want)...)
	out := filepath.Join(t.TempDir(), "small.safetensors")
	shaver(t, nil, args(out)...)
	wantSameFile(t, want, out)
	if err := errors.Join(os.RemoveAll(filepath.Join(filepath.Dir(out), "small.compress")), os.Remove(out)); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []string{"1. ", "scoring", "2. ", "3. ", "4. "} {
		c := exec.CommandContext(t.Context(), "shaver", args(out)...)
		log, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		seen := false
		for lines := bufio.NewScanner(log); !seen && lines.Scan(); {
			seen = strings.Contains(lines.Text(), stage)
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		if !seen {
			t.Errorf("there was no stage %q", stage)
		}
	}
	shaver(t, nil, args(out)...)
	wantSameFile(t, out, want)
	for _, name := range []string{"sweep.json", "scores.arrow"} {
		wantSameFile(t, filepath.Join(filepath.Dir(out), "small.compress", name), filepath.Join(filepath.Dir(want), "small.compress", name))
	}
	entries, err := filepath.Glob(filepath.Join(filepath.Dir(out), "*", ".*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("%v stay, %v", entries, err)
	}
}

// Sweeps, checks, pages and nights give the same answer about the same tables, in the same words: about one table, and if a night fails
// about all tables of its scores. A night that finds its budget takes the table of the answer.
func TestOneAnswer(t *testing.T) {
	long.Test(t)
	f := newNightsSource(t, 1).folder("  sample: 0.2\n", "  estimator: path\n  parts: 4\n")
	f.bring(0)
	f.must()
	file := func(night, name string) string { return f.path("out", "nights", night, name) }
	answer := func(night string) []string {
		var r nightly.Record
		readJSON(t, file(night, nightly.RecordFile), &r)
		return r.Checked.Answer
	}
	sweepArgs := []string{"sweep", "--model", f.path("model.safetensors"), "--scores", file("day-0.1", nightly.ScoresFile), "--dataset", f.path("days", "day-0"), "--methods="}
	said := func(args ...string) ([]string, *sweep.Document) {
		out := filepath.Join(t.TempDir(), "sweep.json")
		text := string(command(t, "shaver", append(append(sweepArgs, "--out", out), args...)...))
		var d sweep.Document
		readJSON(t, out, &d)
		if !strings.Contains(text, strings.Join(d.Answer.Text, "\n")) {
			t.Errorf("the table says\n%s\nand the document %q", text, d.Answer.Text)
		}
		page := filepath.Join(t.TempDir(), "page.html")
		command(t, "shaver", "report", "--model", f.path("model.safetensors"), "--scores", file("day-0.1", nightly.ScoresFile), "--sweep", out, "--out", page)
		html, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(html), "<ul class=\"ladder note\"><li>"+strings.Join(d.Answer.Text, "</li><li>")+"</li></ul>") {
			t.Errorf("the page does not say %q", d.Answer.Text)
		}
		return d.Answer.Text, &d
	}
	want, _ := said("--sparsities", "0.5")
	without := func(text []string, bound string) []string { // that only the check has
		return slices.DeleteFunc(text, func(line string) bool { return strings.HasPrefix(line, "certain within "+bound+": ") })
	}
	if text := without(answer("day-0.1"), "0.5"); len(want) < 4 || !slices.Equal(text, want) {
		t.Errorf("the night says %q, the sweep %q", text, want)
	}
	var checked gate.Document
	shaver(t, &checked, "check", "--model", file("day-0.1", nightly.PrunedFile), "--against", f.path("model.safetensors"), "--dataset", f.path("days", "day-0"), "--max-auc-drop", "1", "--max-logloss-rise", "1")
	if text := without(checked.Answer.Text, "1"); !slices.Equal(text, want) {
		t.Errorf("the check says %q, the sweep %q", text, want)
	}

	want, _ = said()
	f.write("nightly.yaml", strings.NewReplacer("sparsity: 0.5", "sparsity: 0.99", "max-auc-drop: 0.5", "max-auc-drop: 0", "  sample: 0.2\n", "  estimator: path\n  parts: 4\n").Replace(smallNights))
	if code, log := f.run("--again"); code != 7 {
		t.Fatalf("exit code %d: %s", code, log)
	}
	if !slices.Equal(answer("day-0.2"), want) {
		t.Errorf("the night that failed says %q, the sweep %q", answer("day-0.2"), want)
	}
	page, err := os.ReadFile(file("day-0.2", nightly.ReportFile))
	if err != nil || !strings.Contains(string(page), "<li>"+want[1]+"</li>") {
		t.Errorf("the page of the night does not say %q (%v)", want[1], err)
	}

	_, all := said("--within", "0.001,0.002,0.005,0.05")
	f.write("nightly.yaml", strings.NewReplacer("sparsity: 0.5", "within: 0.05", "check:\n  max-auc-drop: 0.5\n  max-logloss-rise: 0.5\n", "", "  sample: 0.2\n", "  estimator: path\n  parts: 4\n").Replace(smallNights))
	f.must("--again")
	var r nightly.Record
	readJSON(t, file("day-0.3", nightly.RecordFile), &r)
	if p := all.Decide(.05); p == nil || r.Pruned.Sparsity > p.Sparsity || r.Pruned.Sparsity < p.Sparsity-.01 {
		t.Errorf("the night drops %v, the sweep %+v", r.Pruned.Sparsity, p)
	}
	if text, err := json.Marshal(r.Checked.Answer); err != nil || !strings.Contains(string(text), "certain within 0.05: ") {
		t.Errorf("%s, %v", text, err)
	}
}
