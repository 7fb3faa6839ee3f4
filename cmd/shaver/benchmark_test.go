package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shaver/internal/app/training/trainingtest"
	"shaver/internal/base/long"
	"shaver/internal/prune/benchmark"
)

// tinyBenchmark returns the flags of a benchmark that takes little time.
func tinyBenchmark(data, out string, more ...string) []string {
	return append([]string{"benchmark", "--dataset", data, "--hidden", "16,8", "--dim", "4", "--batch", "256", "--epochs", "4", "--warm-up", "1",
		"--search", "2", "--sparsities", "0.5,0.95", "--out", out}, more...)
}

// untimed removes the times of a document, in which two runs differ.
func untimed(d *benchmark.Document) *benchmark.Document {
	for i := range d.Searches {
		d.Searches[i].Seconds, d.Searches[i].Resumed = 0, false
	}
	for i := range d.Scorings {
		d.Scorings[i].Seconds, d.Scorings[i].Resumed = 0, false
	}
	for i := range d.Results {
		d.Results[i].Seconds, d.Results[i].Resumed = 0, false
	}
	return d
}

// A benchmark that is killed again and again gives the models and the results of one that is not.
// More seeds add results and leave the others as they are.
func TestBenchmark(t *testing.T) {
	long.Test(t)
	t.Parallel()
	dir := t.TempDir()
	data, out := trainingtest.Clicks(t, dir, 4000), filepath.Join(dir, "whole")
	var whole, killed, more benchmark.Document
	shaver(t, &whole, tinyBenchmark(data, out, "--seeds", "1")...)
	lines := whole.Lines("deepfm")
	methods := map[string]bool{}
	for _, l := range lines {
		methods[l.Method] = true
		r := whole.Find(l, 1)
		switch {
		case r.Failed != "" && l.Sparsity < .9:
			t.Errorf("%s failed: %s", &l, r.Failed)
		case r.Failed == "" && (r.AUC == nil || *r.AUC < .6 && l.Baseline != ""):
			t.Errorf("%s has the AUC %v", &l, r.AUC)
		case r.Failed == "" && l.Method != benchmark.QR && r.Parameters > 480-int(l.Sparsity*480)+16: // with a codebook of 16 values
			t.Errorf("%s at %v has %d of 480 parameters", &l, l.Sparsity, r.Parameters)
		}
	}
	if len(methods) != len(benchmark.Methods())+1 {
		t.Errorf("results of %v, expected all methods", methods)
	}
	for _, method := range []string{benchmark.OptEmbed, benchmark.TT} { // whose smallest tables are larger
		if r := whole.Find(benchmark.Line{Kind: "deepfm", Method: method, Sparsity: .95}, 1); r == nil || r.Failed == "" {
			t.Errorf("%s at .95: %+v, expected a failure", method, r)
		}
	}

	again := filepath.Join(dir, "killed")
	for kills := 1; kills <= 6; kills++ {
		p := exec.Command("shaver", tinyBenchmark(data, again, "--seeds", "1")...)
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(kills) * 200 * time.Millisecond)
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	shaver(t, &killed, tinyBenchmark(data, again, "--seeds", "1")...)
	if a, b := mustJSON(t, untimed(&whole)), mustJSON(t, untimed(&killed)); a != b {
		t.Errorf("the killed benchmark has\n%s\nexpected\n%s", b, a)
	}
	files, err := filepath.Glob(filepath.Join(out, "deepfm", "*"))
	if err != nil || len(files) < len(lines) {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".json" { // the report of a job has times
			continue
		}
		a, errA := os.ReadFile(file)
		b, errB := os.ReadFile(filepath.Join(again, "deepfm", filepath.Base(file)))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes after kills (%v, %v)", filepath.Base(file), errA, errB)
		}
	}

	alone := filepath.Join(dir, "alone") // SSEDS begins with the trained model, also next to SNIP
	shaver(t, nil, tinyBenchmark(data, alone, "--seeds", "1", "--methods", "sseds")...)
	name := filepath.Join("deepfm", "sseds-0.5-seed1.safetensors")
	if a, b := readFile(t, filepath.Join(out, name)), readFile(t, filepath.Join(alone, name)); !bytes.Equal(a, b) {
		t.Error("SSEDS depends on the other methods")
	}

	shaver(t, &more, tinyBenchmark(data, out, "--seeds", "2", "--methods", "shapley,qr")...)
	if n := len(whole.Results); len(more.Results) != n+11 || mustJSON(t, untimed(&more).Results[:n]) != mustJSON(t, whole.Results) {
		t.Errorf("a second seed of three methods made %d results of %d, expected 11 more and no others changed", len(more.Results), n)
	}
	text, err := exec.Command("shaver", tinyBenchmark(data, out, "--patience", "1")...).CombinedOutput()
	if err == nil || !strings.Contains(string(text), "other settings") {
		t.Errorf("other settings: %v, %s", err, text)
	}
	if _, err := os.Stat(filepath.Join(out, "deepfm.svg")); err != nil {
		t.Error(err)
	}
}

// Wrong flags of a benchmark are named before anything is computed.
func TestBenchmarkFlags(t *testing.T) {
	dir := t.TempDir()
	data := trainingtest.Clicks(t, dir, 400)
	for want, flags := range map[string][]string{
		"expected all, or some of": {"--methods", "magic"},
		"is outside (0, 1)":        {"--sparsities", "0.5,1"},
		"graph":                    {"--kinds", "graph"},
		"--seeds 0":                {"--seeds", "0"},
		"--budget has no effect":   {"--search", "0", "--budget", "1m"},
		"--warm-up 9":              {"--warm-up", "9"},
	} {
		out := filepath.Join(dir, "out")
		text, err := exec.Command("shaver", slices.Concat(tinyBenchmark(data, out), flags)...).CombinedOutput()
		if err == nil || !strings.Contains(string(text), want) {
			t.Errorf("%v: %v, %s, expected %q", flags, err, text, want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v made the folder --out", flags)
		}
	}
}
