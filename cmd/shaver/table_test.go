package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/composed"
	"shaver/internal/click/model"
	"shaver/internal/click/train"
	"shaver/internal/sparsity"
)

// A training with a composed table writes the small form, which reads as an ordinary model. A training
// that is killed, also in the first training of CERP, and started again writes the same bytes on
// another number of cores.
func TestComposedTablesResume(t *testing.T) {
	dir := t.TempDir()
	data := clicks(t, dir, 8000)
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
		var whole, continued trainingResult
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
			drop, err := sparsity.Dropped(480, .7)
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
	dir := t.TempDir()
	data := clicks(t, dir, 4000)
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
		var whole, continued, alone trainingResult
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
	result := trainingResult{Out: "m", Trials: []trial{{Failed: "too many entries"}, {Best: &train.Epoch{Number: 1, Validation: &train.Metrics{}}}}, Best: 2}
	var text bytes.Buffer
	if result.table(&text); !strings.Contains(text.String(), "too many entries") {
		t.Errorf("the table of trials lacks a reason: %s", &text)
	}
}

// A table's text says what it is, and its settings are checked without a command.
func TestTableIsParsed(t *testing.T) {
	for text, want := range map[string]string{
		"": "0", "full": "0", "pep": "0.5", "optembed": "0.5", "cerp": "0.5", "cerp:9": "0.5", "qr": "0.5", "qr:3": "0", "tt": "0.5", "tt:3,2": "0", "tt:3,2,4:100": "0",
	} {
		s := training{Table: text, Epochs: 5, WarmUp: 3, Optimizer: train.Adam}
		if err := json.Unmarshal([]byte(want), &s.Sparsity); err != nil {
			t.Fatal(err)
		}
		if err := s.checkTable(); err != nil {
			t.Errorf("--table %q with --sparsity %s: %v", text, want, err)
		}
		if warm := text == "pep" || strings.HasPrefix(text, "cerp"); warm != (s.WarmUp == 3) {
			t.Errorf("--table %q has a warm-up of %d epochs", text, s.WarmUp)
		}
		s.Sparsity = .5 - s.Sparsity
		if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "--sparsity") {
			t.Errorf("--table %q with --sparsity %v: %v", text, s.Sparsity, err)
		}
	}
	for _, text := range []string{"qr:", "qr:0", "qr:1,2", "qr:2:3", "tt:", "tt:3:", "tt:3,:4", "tt:3:0", "tt:1,1,1,1,1,1,1,1", "cerp:x", "cerp:-1", "pep:3", "full:3", "optembed:", "QR", "tt:3,2:4:5"} {
		s := training{Table: text, Epochs: 5, Sparsity: .5, Optimizer: train.Adam}
		if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "expected full, pep") {
			t.Errorf("--table %q: %v", text, err)
		}
	}
	s := training{Table: "qr:3", Optimizer: train.SparseAdam}
	if err := s.checkTable(); err == nil || !strings.Contains(err.Error(), "--optimizer adam") {
		t.Errorf("SparseAdam: %v", err)
	}
}

// The number of entries of a candidate of OptEmbed is the number of entries in its mask.
func TestWidthMask(t *testing.T) {
	a := &model.Architecture{FieldDims: []int{3, 1, 4}, Dim: 5}
	kept := []bool{true, false, true, false, true, true, true, false} // by feature
	e := &train.Evolution{Dim: 5, Alive: []int{2, 0, 3}}
	for _, columns := range [][]int{{1, 1, 1}, {5, 5, 5}, {2, 3, 4}, {4, 1, 2}} {
		n, next := 0, 0
		widthMask(a, columns, func(entry int, in bool) {
			if entry != next {
				t.Fatalf("entry %d follows %d", entry, next-1)
			}
			next++
			if in && kept[entry/5] {
				n++
			}
		})
		if next != 40 || n != e.Entries(columns) {
			t.Errorf("columns %v keep %d of %d entries, expected %d of 40", columns, n, next, e.Entries(columns))
		}
	}
}

// A training recognizes the file of the epoch that follows its state, and no other file.
func TestFileAhead(t *testing.T) {
	a := model.Architecture{Kind: model.FM, FieldDims: []int{3, 2}, Dim: 2}
	from := checkpoint.New(a, train.Initial(&a, false, 1))
	o := &course{from: from, trainingOptions: &trainingOptions{
		training: training{Epochs: 5, LearningRate: 1e-3, Batch: 2, Optimizer: train.Adam}, out: filepath.Join(t.TempDir(), "m.safetensors"),
	}}
	p, err := from.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for _, search := range []int{0, 3} {
		o.Search = search
		settings := o.settings(nil)
		if search > 0 {
			settings.Trial(1)
		}
		trainer, err := train.New(a, p, settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.write(trainer, train.Epoch{Number: 2, Validation: &train.Metrics{LogLoss: 1. / 3}}, &settings); err != nil {
			t.Fatal(err)
		}
		state := func(epochs, trials int) *standing {
			s := &standing{Trials: make([]trial, trials)}
			for i := range epochs {
				s.History = append(s.History, train.Epoch{Number: i + 1})
			}
			return s
		}
		now := min(search, 1) // finished trials
		for epochs, want := range []bool{false, true, false, false} {
			if got := o.ahead(state(epochs, now)); got != want {
				t.Errorf("after %d epochs the file of epoch 2 is recognized: %v", epochs, got)
			}
		}
		if search > 0 && o.ahead(state(1, 2)) {
			t.Error("the file of another trial is recognized")
		}
		o.Seed++
		if o.ahead(state(1, now)) {
			t.Error("the file of a training with another seed is recognized")
		}
	}
	if err := os.Remove(o.out); err != nil || o.ahead(&standing{}) {
		t.Errorf("a missing file is recognized (%v)", err)
	}
}
