package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shaver/internal/app/launch"
	"shaver/internal/base/files"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/sweep"
	"shaver/internal/value/estimator"
	"shaver/internal/value/tally"
)

// asPath writes the order in which the scores in a file drop entries as the scores of a path.
func asPath(t *testing.T, from, to string) *scores.File {
	t.Helper()
	f, err := scores.Read(from)
	if err != nil {
		t.Fatal(err)
	}
	order, err := sweep.Order(f, scores.RMS, "abs", make([]float32, len(f.Phi)))
	if err != nil {
		t.Fatal(err)
	}
	n := int64(len(order))
	f.Spec.Options = estimator.Options{Estimator: estimator.Path, Passes: 1}
	f.Spec.SetDefaults()
	f.Values = tally.NewRanks(len(order))
	for rank, i := range order {
		f.Rank[i] = int32(rank)
	}
	f.LossEmpty, f.EfficiencyError, f.EfficiencySE = 0, 0, 0
	f.Path = &scores.Path{Reach: .9, Rounds: []scores.Round{{Rows: f.Rows, Kept: n, Loss: .5, Scale: 1}, {Rows: f.Rows / 6, Kept: n / 8, Loss: .55, Scale: 1.25, Offset: -.1}}}
	if err := scores.Write(to, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// The commands take the order of a path like any ranking. What needs values refuses it in one
// line that names the file.
func TestPathScores(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "2000", "--out", q)
	file := func(name string) string { return filepath.Join(dir, name) }
	model, rows, values, path := filepath.Join(q, "model.safetensors"), filepath.Join(q, "dataset"), filepath.Join(q, "scores.arrow"), file("path.arrow")
	f := asPath(t, values, path)
	run := func(args ...string) (stdout, stderr string, code int) {
		c := exec.CommandContext(t.Context(), "shaver", args...)
		var out, log bytes.Buffer
		c.Stdout, c.Stderr = &out, &log
		code, err := exitCode(c.Run())
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), log.String(), code
	}
	const deep = "path.arrow: beyond sparsity 0.9 the order of the path is that of the last round that dropped"

	t.Run("prune", func(t *testing.T) {
		var by, like pruning
		shaver(t, &by, "prune", "--model", model, "--scores", path, "--sparsity", "0.8", "--out", file("a.safetensors"))
		shaver(t, &like, "prune", "--model", model, "--scores", values, "--sparsity", "0.8", "--out", file("b.safetensors"))
		if by.Method != "path" || by.Aggregate != scores.ByPath || by.Dropped != like.Dropped || !bytes.Equal(readFile(t, file("a.safetensors")), readFile(t, file("b.safetensors"))) {
			t.Errorf("pruned by the path %+v, by its values %+v", by, like)
		}
		var again pruning
		shaver(t, &again, "prune", "--model", model, "--scores", path, "--sparsity", "0.85", "--previous", file("a.safetensors"), "--hysteresis", "0", "--out", file("c.safetensors"))
		if again.Previous == nil || again.Previous.Churn.Added != 0 || again.Previous.Churn.Removed == 0 {
			t.Errorf("with a previous mask of the same order: %+v", again.Previous)
		}
		shaver(t, &again, "prune", "--model", model, "--scores", path, "--sparsity", "0.8", "--previous", file("a.safetensors"), "--out", file("g.safetensors"))
		if again.Previous == nil || again.Previous.Hysteresis != 1 || again.Previous.Churn.Portion != 0 {
			t.Errorf("with hysteresis and a previous mask of the same order: %+v", again.Previous)
		}
		if text, _, _ := run("prune", "--model", model, "--scores", path, "--sparsity", "0.8", "--previous", file("a.safetensors"), "--out", file("h.safetensors")); !strings.Contains(text, "hysteresis of 1 rounds of a path") {
			t.Error(text)
		}
		_, log, code := run("prune", "--model", model, "--scores", path, "--sparsity", "0.95", "--out", file("d.safetensors"))
		if code != 0 || strings.Count(log, deep) != 1 {
			t.Errorf("exit code %d, %s", code, log)
		}
		if _, log, _ = run("prune", "--model", model, "--scores", path, "--sparsity", "0.9", "--out", file("e.safetensors")); strings.Contains(log, "beyond") {
			t.Error(log)
		}
	})

	t.Run("refusals", func(t *testing.T) {
		none := path + " has the order of a path and no values: "
		for _, c := range []struct {
			want string
			code int
			args []string
		}{
			{`aggregate "rms": the scores have the order of a path and no values; it needs scores of an estimator of values, such as debiased`, 2, []string{"prune", "--model", model, "--scores", path, "--sparsity", "0.8", "--aggregate", "rms", "--out", file("f.safetensors")}},
			{"sum", 2, []string{"prune", "--model", model, "--scores", path, "--sparsity", "0.8", "--aggregate", "signed", "--out", file("f.safetensors")}},
			{`--aggregate: aggregate "sum": the scores have the order of a path and no values`, 2, []string{"sweep", "--model", model, "--scores", path, "--dataset", rows, "--aggregate", "sum"}},
			{`aggregate "rms": the scores have the order`, 2, []string{"report", "--model", model, "--scores", path, "--aggregate", "rms", "--out", file("f.html")}},
			{`aggregate "abs": the scores have the order`, 2, []string{"scores", "compare", path, path, "--aggregate", "abs"}},
			{none + "--picture needs", 42, []string{"scores", "compare", values, path, "--picture", file("f.svg")}},
			{none + "shaver scores frequency needs", 42, []string{"scores", "frequency", path, "--model", model}},
			{none + "--previous needs", 42, []string{"nightly", "score", "--model", model, "--dataset", rows, "--previous", path, "--previous-model", model, "--out", file("f.arrow")}},
			{"--state needs an estimator of values, such as debiased, not path", 2, []string{"nightly", "score", "--model", model, "--dataset", rows, "--estimator", "path", "--state", file("state"), "--out", file("f.arrow")}},
			{"--sparsity needs --until overlap or --estimator path", 2, []string{"plan", "--model", model, "--dataset", rows, "--sparsity", "0.5"}},
			{"sseds", 42, []string{"sweep", "--model", model, "--scores", path, "--dataset", rows, "--sparsities", "0.5", "--methods", "sseds"}},
		} {
			_, log, code := run(c.args...)
			if lines := strings.Count(strings.TrimSpace(log), "\n"); code != c.code || !strings.Contains(log, c.want) || code == 42 && lines > 0 {
				t.Errorf("%v: exit code %d, %s", c.args, code, log)
			}
		}
	})

	t.Run("sweep", func(t *testing.T) {
		out := file("sweep.json")
		stdout, log, code := run("sweep", "--model", model, "--scores", values+","+path, "--dataset", rows, "--sparsities", "0.8,0.95", "--aggregate", "rms,sum", "--out", out, "-o", "json")
		if code != 0 || strings.Count(log, deep) != 1 {
			t.Fatalf("exit code %d, %s", code, log)
		}
		var d sweep.Document
		if err := json.Unmarshal([]byte(stdout), &d); err != nil {
			t.Fatal(err)
		}
		auc := map[string]float64{}
		for _, p := range d.Points {
			if p.Sparsity == .8 {
				auc[p.Method] = *p.AUC
			}
		}
		if len(auc) != 4 || auc["path"] != auc["shapley-rms"] {
			t.Errorf("AUC at sparsity 0.8 %v", auc)
		}
		for i := range d.Points {
			if p := &d.Points[i]; p.Method == "path" {
				if aggregate, err := d.AggregateOf(p); err != nil || aggregate != scores.ByPath || slices.Contains(d.Flags(p, aggregate), "--aggregate") {
					t.Errorf("point %+v: %s, %v", p, aggregate, err)
				}
			}
		}
		for _, text := range []string{"report --model " + model + " --scores " + path + " --sweep " + out + " --out " + file("swept.html"), "report --model " + model + " --scores " + path + " --dataset " + rows + " --out " + file("plain.html")} {
			shaver(t, nil, strings.Fields(text)...)
		}
		page := string(readFile(t, file("swept.html"))) + string(readFile(t, file("plain.html")))
		for _, want := range []string{"not a Shapley value", `<section id="rounds">`, "2 rounds dropped the entries", "stay longest", "keep an entry"} {
			if !strings.Contains(page, want) {
				t.Errorf("the reports lack %q", want)
			}
		}
		for _, no := range []string{`<section id="certainty">`, "efficiency error", "largest standard error", "sum of phi", "share of<br>the value"} {
			if strings.Contains(page, no) {
				t.Errorf("the reports have %q", no)
			}
		}
	})

	t.Run("inspect", func(t *testing.T) {
		var facts map[string]any
		shaver(t, &facts, "scores", "inspect", path)
		for _, no := range []string{"loss_empty", "efficiency_error", "standard_error", "max_se", "convergence", "no_interval"} {
			if _, ok := facts[no]; ok {
				t.Errorf("the facts have %s", no)
			}
		}
		if field := facts["fields"].([]any)[0].(map[string]any); field["sum"] != nil || field["features"] == nil {
			t.Errorf("field %v", field)
		}
		if rounds := facts["path"].(map[string]any)["rounds"].([]any); len(rounds) != 2 || facts["aggregate"] != "path" {
			t.Errorf("facts %v", facts)
		}
		text, _, _ := run("scores", "inspect", path)
		for _, want := range []string{"2 rounds", "not Shapley values", "ROUND  SPARSITY  KEPT", "0.8750", "1.2500"} {
			if !strings.Contains(text, want) {
				t.Errorf("the table lacks %q:\n%s", want, text)
			}
		}
		text, _, _ = run("scores", "inspect", values)
		if !strings.Contains(text, "efficiency error") || strings.Contains(text, "ROUND") {
			t.Errorf("the table of values:\n%s", text)
		}
	})

	t.Run("compare", func(t *testing.T) {
		// Half of the values are 0. These ties explain that the correlation is sqrt(7/8).
		for other, least := range map[string]float64{values: .93, path: 1} {
			var c scores.Comparison
			shaver(t, &c, "scores", "compare", path, other)
			if c.Spearman == nil || *c.Spearman < least || c.RelativeRMS != nil || c.Shift != nil || c.Beyond != nil || c.Overlap[0].Portion < .999 {
				t.Errorf("compared with %s: %+v, Spearman %v", other, c.Overlap, *c.Spearman)
			}
			if want := map[string]string{values: "rms", path: "path"}[other]; c.Aggregate != want {
				t.Errorf("the aggregate is %s, expected %s", c.Aggregate, want)
			}
		}
	})

	t.Run("export", func(t *testing.T) {
		text, _, _ := run("scores", "export", path)
		lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || lines[0][3] != "rank_0" || len(lines[0]) != 3+f.Layout.Dim {
			t.Fatalf("header %v, %v", lines[0], err)
		}
		if lines[2][3] != strconv.Itoa(int(f.Rank[f.Layout.Dim])) {
			t.Errorf("line %v", lines[2])
		}
		for _, format := range []string{"csv", "parquet"} { // which the second run may replace
			for range 2 {
				shaver(t, nil, "scores", "export", path, "--out", file("out."+format))
			}
		}
	})

	t.Run("job report", func(t *testing.T) {
		digest, err := files.Digest(path)
		if err != nil {
			t.Fatal(err)
		}
		r := launch.JobReport{Job: f.Spec.ID(), Path: f.Path, Digests: launch.Digests{Scores: digest}, Shards: 1, Seconds: 3}
		text, err := json.Marshal(r)
		if err != nil || bytes.Contains(text, []byte("loss_empty")) || bytes.Contains(text, []byte("efficiency")) {
			t.Errorf("%s, %v", text, err)
		}
		if err := os.WriteFile(launch.ReportPath(path), text, 0o600); err != nil {
			t.Fatal(err)
		}
		shaver(t, nil, "report", "--model", model, "--scores", path, "--out", file("timed.html"))
	})
}

// If a calibration lowers the loss of a model, score and prune say so, unless the pruned model is calibrated. The size of the logits does
// not change the order of a path.
func TestUncalibratedPath(t *testing.T) {
	long.Test(t)
	dir := t.TempDir()
	q := filepath.Join(dir, "q")
	shaver(t, nil, "quickstart", "--rows", "9000", "--out", q)
	rows, whole := filepath.Join(q, "dataset"), filepath.Join(q, "model.safetensors")
	ck, err := checkpoint.Read(whole)
	if err != nil {
		t.Fatal(err)
	}
	scaled := func(name string, scale, offset float64) string {
		changed, _, err := ck.Calibrated(scale, offset)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if _, err := checkpoint.WriteDense(path, changed); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flat := scaled("flat.safetensors", .5, .5)
	log := func(args ...string) string {
		t.Helper()
		text, err := exec.CommandContext(t.Context(), "shaver", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return string(text)
	}
	const note = "the path orders entries by the loss after a calibration, which for the whole model is logit * "
	for model, want := range map[string]int{whole: 0, flat: 1} {
		scores, out := model+".arrow", model+".pruned"
		if text := log("score", "--model", model, "--dataset", rows, "--splits", "train", "--estimator", "path", "--baseline", "codebook", "--out", scores); strings.Count(text, note) != want {
			t.Errorf("score of %s: %s", model, text)
		}
		if text := log("prune", "--model", model, "--scores", scores, "--sparsity", "0.5", "--out", out); strings.Count(text, note) != want {
			t.Errorf("prune of %s: %s", model, text)
		}
		if text := log("prune", "--model", model, "--scores", scores, "--sparsity", "0.5", "--calibrate", "--dataset", rows, "--out", out); strings.Contains(text, note) {
			t.Errorf("prune --calibrate of %s: %s", model, text)
		}
	}
	// The logits of a table that says little may be far too small without much loss. score says so if prune does.
	weak := filepath.Join(dir, "weak.safetensors")
	log("prune", "--model", whole, "--scores", whole+".arrow", "--sparsity", "0.995", "--dense", "--out", weak)
	pruned, err := checkpoint.Read(weak)
	if err != nil {
		t.Fatal(err)
	}
	if pruned, _, err = pruned.Calibrated(.42, .01); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.WriteDense(weak, pruned); err != nil {
		t.Fatal(err)
	}
	text := log("score", "--model", weak, "--dataset", rows, "--splits", "train", "--estimator", "path", "--baseline", "codebook", "--out", weak+".arrow")
	if advice := log("prune", "--model", weak, "--scores", weak+".arrow", "--sparsity", "0.996", "--out", weak+".pruned"); strings.Count(text, note) != 1 || strings.Count(advice, note) != 1 {
		t.Errorf("score and prune of a weak table: %s%s", text, advice)
	}
	for name, scale := range map[string]float64{"small.safetensors": 1. / 64, "large.safetensors": 64} {
		model := scaled(name, scale, 0)
		log("score", "--model", model, "--dataset", rows, "--splits", "train", "--estimator", "path", "--baseline", "codebook", "--out", model+".arrow")
		want, err := scores.Read(whole + ".arrow")
		if err != nil {
			t.Fatal(err)
		}
		found, err := scores.Read(model + ".arrow")
		if err != nil {
			t.Fatal(err)
		}
		last, both := len(want.Rank)-len(want.Rank)/20, 0 // the ranks of the 5% that are dropped last
		for i, rank := range want.Rank {
			if int(rank) >= last && int(found.Rank[i]) >= last {
				both++
			}
		}
		if kept := len(want.Rank) - last; both < kept*99/100 {
			t.Errorf("%s: both orders keep %d of %d entries", name, both, kept)
		}
	}
}
