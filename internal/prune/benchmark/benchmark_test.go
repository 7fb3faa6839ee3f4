package benchmark

import (
	"bytes"
	"math"
	"strings"
	"testing"
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

// A mean has the repeats with a model, the largest deviation from it, and the time of the
// scoring that a repeat needs. Put replaces a result with the same line and seed.
func TestMeanOf(t *testing.T) {
	d := sample()
	if len(d.Results) != 14 {
		t.Fatalf("%d results, expected 14", len(d.Results))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	for _, c := range []struct {
		line            Line
		models          int
		auc, off, spent float64
	}{
		{Line{Method: Full}, 2, .7215, .0005, 8},
		{Line{Method: CERP, Sparsity: .5}, 1, .601, 0, 9},
		{Line{Method: SNIP, Sparsity: .5}, 2, .6515, .0005, 49},
		{Line{Method: Shapley, Baseline: "zero", Sparsity: .5}, 2, .6915, .0005, 11},
		{Line{Method: Shapley, Baseline: "codebook", Tuned: true, Sparsity: .5}, 2, .7515, .0005, 23},
	} {
		c.line.Kind = "fm"
		m := d.MeanOf(c.line)
		if m.Models != c.models || !near(m.AUC.Mean, c.auc) || !near(m.AUC.Off, c.off) || !near(m.Seconds, c.spent) || m.Parameters != 100 {
			t.Errorf("%s: %+v, expected %d models, AUC %v±%v and %v s", &c.line, m, c.models, c.auc, c.off, c.spent)
		}
	}
}

// The table lists single-shot methods, then tuned ones, then all others, whatever the order of
// the results, and the summary has the best of each group.
func TestWriteTable(t *testing.T) {
	var text bytes.Buffer
	sample().WriteTable(&text)
	want := strings.ReplaceAll(`SPARSITY|METHOD (fm)|AUC|LOGLOSS|PARAMETERS|FILE|SEEDS|TIME|SEARCH
0|full|0.7215±0.0005|0.4000|100|2.00 MB|2|8.0 s|-
0.5|shapley, zero|0.6915±0.0005|0.4000|100|2.00 MB|2|11 s|-
0.5|shapley, codebook|0.6815±0.0005|0.4000|100|2.00 MB|2|21 s|-
0.5|shapley, codebook, tuned|0.7515±0.0005|0.4000|100|2.00 MB|2|23 s|-
0.5|snip|0.6515±0.0005|0.4000|100|2.00 MB|2|49 s|-
0.5|qr|0.7015±0.0005|0.4000|100|2.00 MB|2|9.0 s|12 min for 4 trials
0.5|cerp|0.6010|0.4000|100|2.00 MB|1|9.0 s|-
no cerp at 0.5 with seed 2: it diverged

SPARSITY|BEST SINGLE-SHOT|BEST TUNED|BEST OF SNIP AND SSEDS|BEST TRAINED TABLE
0.5|0.6915±0.0005 shapley, zero|0.7515±0.0005 shapley, codebook|0.6515±0.0005 snip|0.7015±0.0005 qr
`, "|", "\t")
	if text.String() != want {
		t.Errorf("got\n%s\nexpected\n%s", &text, want)
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
