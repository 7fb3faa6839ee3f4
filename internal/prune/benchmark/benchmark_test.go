package benchmark

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/prune/picture"
)

// sample returns a document of one kind with two seeds. CERP fails with seed 2.
func sample() *Document {
	d := &Document{Version: Version, Searches: []Search{{Kind: "fm", Method: QR, Sparsity: .5, Trials: 4, Seconds: 700}}}
	for seed := uint64(1); seed <= 2; seed++ {
		off := float64(seed) / 1000
		put := func(l Line, auc, seconds float64) {
			l.Kind = "fm"
			auc += off
			d.Put(Result{Line: l, Seed: seed, Parameters: 100, Bytes: 2e6, AUC: &auc, LogLoss: .4, Seconds: seconds})
		}
		put(Line{Method: CERP, Sparsity: .5}, .6, 9)
		put(Line{Method: QR, Sparsity: .5}, .7, 9)
		put(Line{Method: SNIP, Sparsity: .5}, .65, 9)
		put(Line{Method: Shapley, Baseline: "codebook", Tuned: true, Sparsity: .5}, .75, 3)
		put(Line{Method: Shapley, Baseline: "codebook", Sparsity: .5}, .68, 1)
		put(Line{Method: Shapley, Baseline: "zero", Sparsity: .5}, .69, 1)
		put(Line{Method: Full}, .72, 8)
		d.Scorings = append(d.Scorings,
			Scoring{Kind: "fm", Seed: seed, Estimator: "multilinear", Baseline: "zero", Seconds: 10},
			Scoring{Kind: "fm", Seed: seed, Estimator: "multilinear", Baseline: "codebook", Seconds: 20},
			Scoring{Kind: "fm", Seed: seed, Estimator: "taylor", Baseline: "zero", Seconds: 30},
			Scoring{Kind: "fm", Seed: seed, Initial: true, Estimator: "taylor", Baseline: "zero", Seconds: 40})
	}
	d.Put(Result{Line: Line{Kind: "fm", Method: CERP, Sparsity: .5}, Seed: 2, Failed: "it diverged", Seconds: 7})
	return d
}

// The table lists single-shot methods, then tuned ones, then all others, whatever the order of the results. Seeds are repeats.
// Put replaces a result with the same line and seed.
func TestWriteTable(t *testing.T) {
	d := sample()
	if len(d.Results) != 14 {
		t.Fatalf("%d results, expected 14", len(d.Results))
	}
	var text bytes.Buffer
	d.WriteTable(&text)
	want := strings.ReplaceAll(`fm
SPARSITY|PARAMS|METHOD|AUC|LOGLOSS
0|100|unpruned|0.7215|0.4000
0.5|100|shapley, zero|0.6915±0.0005|0.4000
0.5|100|shapley, codebook|0.6815±0.0005|0.4000
0.5|100|shapley, codebook, tuned|0.7515±0.0005|0.4000
0.5|100|snip|0.6515±0.0005|0.4000
0.5|100|qr|0.7015±0.0005|0.4000
0.5|100|cerp|0.6010|0.4000
no cerp at 0.5 with seed 2: it diverged
`, "|", "\t")
	if text.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", &text, want)
	}
}

// Results without a full table have a table and a picture, too.
func TestNoFull(t *testing.T) {
	d := sample()
	d.Results = slices.DeleteFunc(d.Results, func(r Result) bool { return r.Method == Full })
	var text bytes.Buffer
	d.WriteTable(&text)
	if !strings.Contains(text.String(), "0\t0\tunpruned\t-\t-\n") {
		t.Error(&text)
	}
	if err := picture.Sweep(d.Sweep("fm")).Write(filepath.Join(t.TempDir(), "fm.svg")); err != nil {
		t.Error(err)
	}
}

// Check refuses documents of other versions and results that no method gives.
func TestCheck(t *testing.T) {
	if err := sample().Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Document){
		"version":    func(d *Document) { d.Version = "shaver.benchmark/0" },
		"kind":       func(d *Document) { d.Results[3].Kind = "../x" },
		"method":     func(d *Document) { d.Results[3].Method = "magic" },
		"sparsity":   func(d *Document) { d.Results[3].Sparsity = 1 },
		"parameters": func(d *Document) { d.Results[3].Parameters = -1 },
	} {
		d := sample()
		change(d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected an error about the %s", err, want)
		}
	}
}
