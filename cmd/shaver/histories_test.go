package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"shaver/infer"
	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
	"shaver/internal/jobs/scores"
	"shaver/internal/prune/explain"
)

// DIN and a model of two towers go through import, scores, sweep, prune, evaluation, delta
// and serving. Their tables are shared between an item and a history, whose pads nothing
// changes. The unpruned models have the logits of onnxruntime.
func TestHistories(t *testing.T) {
	long.Test(t)
	histories := filepath.Join("..", "..", "testdata", "histories")
	text, err := os.ReadFile(filepath.Join(histories, "log.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		columns []int    // of log.csv
		pads    []string // tables of which row 0 is a pad
		pools   string   // estimator that needs no walks; "" = the model divides by the length of a row of the table
	}{
		"din":        {[]int{0, 1, 2, 3, 4, 5}, []string{"item", "category"}, "multilinear"},
		"two-towers": {[]int{0, 1, 2, 4}, []string{"item"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			path := func(name string) string { return filepath.Join(folder, name) }
			var log strings.Builder
			for line := range strings.Lines(string(text)) {
				cells := strings.Split(strings.TrimSpace(line), ",")
				for i, at := range c.columns {
					if i > 0 {
						log.WriteByte(',')
					}
					log.WriteString(cells[at])
				}
				log.WriteByte('\n')
			}
			if err := os.WriteFile(path("log.csv"), []byte(log.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			var want struct {
				AUC     float64
				LogLoss float64
				Logits  []float64
			}
			facts, err := os.ReadFile(filepath.Join(histories, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(facts, &want); err != nil {
				t.Fatal(err)
			}
			export := filepath.Join(histories, name+".onnx")
			command(t, "shaver", "dataset", "import", "csv", "--train", path("log.csv"), "--model", export, "--out", path("data"))
			sameFromRaw(t, path, export)
			measure := func(model string) (auc, logLoss float64) {
				var got struct {
					AUC     float64 `json:"auc"`
					LogLoss float64 `json:"log_loss"`
				}
				shaver(t, &got, "evaluate", "--model", model, "--dataset", path("data"), "--split", "train")
				return got.AUC, got.LogLoss
			}
			if auc, logLoss := measure(export); math.Abs(auc-want.AUC) > 1e-6 || math.Abs(logLoss-want.LogLoss) > 1e-6 {
				t.Errorf("AUC %v and LogLoss %v, onnxruntime gives %v and %v", auc, logLoss, want.AUC, want.LogLoss)
			}

			// An explanation ends at the logit of onnxruntime. The lists of row 5 have 2 values and pads.
			var found explain.Document
			shaver(t, &found, "explain", "--model", export, "--dataset", path("data"), "--split", "train", "--rows", "0,5", "--background", "8")
			for _, r := range found.Rows {
				sum := r.Base
				for _, e := range r.Effects {
					sum += e.Effect
					if list := e.Field == "items" || e.Field == "categories"; r.Row == 5 && len(e.Values) != map[bool]int{true: 2, false: 1}[list] {
						t.Errorf("row 5: %s has the values %q", e.Field, e.Values)
					}
				}
				if logit := want.Logits[r.Row]; math.Abs(r.Logit-logit) > 1e-5 || math.Abs(sum-r.Logit) > 1e-9 {
					t.Errorf("row %d: the base and the effects sum to %v, and the logit is %v, expected %v", r.Row, sum, r.Logit, logit)
				}
			}

			command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", "antithetic", "--baseline", "codebook", "--out", path("scores.arrow"))
			file, err := scores.Read(path("scores.arrow"))
			if err != nil {
				t.Fatal(err)
			}
			if e := file.Result.EfficiencyError; e != 0 {
				t.Errorf("efficiency error %v", e)
			}
			if c.pools == "" {
				sameByWalks(t, export, path)
			}
			if c.pools != "" {
				command(t, "shaver", "score", "--model", export, "--dataset", path("data"), "--estimator", c.pools, "--baseline", "codebook", "--out", path("fast.arrow"))
				var agreement struct {
					Spearman float64 `json:"spearman"`
				}
				shaver(t, &agreement, "scores", "compare", path("scores.arrow"), path("fast.arrow"))
				if agreement.Spearman < .95 {
					t.Errorf("Spearman %v between walks and %s", agreement.Spearman, c.pools)
				}
			}
			command(t, "shaver", "dataset", "import", "csv", "--train", path("log.csv"), "--test", path("log.csv"), "--model", export, "--out", path("judged"))
			command(t, "shaver", "sweep", "--model", export, "--scores", path("scores.arrow"), "--dataset", path("judged"), "--sparsities", "0.5,0.9")

			for _, out := range []string{"pruned.onnx", "pruned.safetensors", "dense.safetensors"} {
				args := []string{"prune", "--model", export, "--scores", path("scores.arrow"), "--sparsity", "0.6", "--out", path(out)}
				if out == "dense.safetensors" {
					args = append(args, "--dense")
				}
				command(t, "shaver", args...)
			}
			auc, logLoss := measure(path("pruned.onnx"))
			for _, out := range []string{"pruned.safetensors", "dense.safetensors"} {
				if a, l := measure(path(out)); a != auc || l != logLoss {
					t.Errorf("%s has AUC %v and LogLoss %v, the .onnx file %v and %v", out, a, l, auc, logLoss)
				}
			}
			if logLoss == want.LogLoss || math.Abs(logLoss-want.LogLoss) > .1 {
				t.Errorf("the pruned model has the LogLoss %v, the model %v", logLoss, want.LogLoss)
			}
			before, after := tablesIn(t, export), tablesIn(t, path("dense.safetensors"))
			for _, pad := range c.pads {
				if b, a := before[pad][:4], after[pad][:4]; b[0] != a[0] || b[1] != a[1] || b[2] != a[2] || b[3] != a[3] {
					t.Errorf("the pad row of %s was %v and is %v", pad, b, a)
				}
			}
			command(t, "shaver", "model", "delta", path("pruned.safetensors"), "--out", path("delta"))

			logits := serve(t, path("pruned.safetensors"), log.String(), len(want.Logits))
			for i, dense := range serve(t, path("dense.safetensors"), log.String(), len(want.Logits)) {
				if logits[i] != dense {
					t.Fatalf("row %d has the logit %v from the compact file and %v from the dense one", i, logits[i], dense)
				}
			}
			command(t, "shaver", "model", "convert", export, path("whole.safetensors"))
			for i, got := range serve(t, path("whole.safetensors"), log.String(), len(want.Logits)) {
				if math.Abs(got-want.Logits[i]) > 2e-6*max(1, math.Abs(got)) {
					t.Errorf("row %d has the logit %v, onnxruntime gives %v", i, got, want.Logits[i])
				}
			}
		})
	}
}

// tables returns the values of each table of a model, by the part of its name that names the
// feature.
func tablesIn(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	ck, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ck.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float32{}
	for _, table := range ck.Architecture.Tables {
		parts := strings.Split(table.Name, ".")
		values[parts[len(parts)-2]], all = all[:table.Rows*table.Dim], all[table.Rows*table.Dim:]
	}
	return values
}

// serve returns the logits of the first n rows of a log, in which lists have 6 positions and
// the pad id 0.
func serve(t *testing.T, path, log string, n int) []float64 {
	t.Helper()
	m, err := infer.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	lengths := m.Lengths()
	var ids []int32
	for _, line := range strings.Split(log, "\n")[1 : 1+n] {
		for j, cell := range strings.Split(line, ",")[1:] {
			var list []int32
			for _, text := range strings.FieldsFunc(cell, func(r rune) bool { return r == '|' }) {
				id, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, int32(id))
			}
			for len(list) < lengths[j] {
				list = append(list, 0)
			}
			ids = append(ids, list...)
		}
	}
	logits := make([]float64, n)
	if err := m.Logits(logits, ids, nil); err != nil {
		t.Fatal(err)
	}
	return logits
}

// sameFromRaw imports the ids of log.csv as raw values, with a vocabulary in which each value is
// its own id. The lists, their pads and the shared tables are those of the model. The rows must be
// those of the dataset in the folder data.
func sameFromRaw(t *testing.T, path func(name string) string, model string) {
	t.Helper()
	d, err := dataset.Open(path("data"))
	if err != nil {
		t.Fatal(err)
	}
	var mapper strings.Builder
	mapper.WriteString("field,value,id\n")
	for _, f := range d.Manifest.Fields {
		for id := range f.Size {
			fmt.Fprintf(&mapper, "%s,%d,%[2]d\n", f.Name, id)
		}
	}
	if err := os.WriteFile(path("mapper.csv"), []byte(mapper.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "shaver", "dataset", "import", "csv", "--raw", path("log.csv"), "--vocabulary", path("mapper.csv"), "--oov", "none", "--split", "1:0:0", "--model", model, "--out", path("raw"))
	for _, name := range []string{"train.arrow", "frequencies.arrow"} {
		want, err := os.ReadFile(path(filepath.Join("data", name)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path(filepath.Join("raw", name))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s of raw values differs from that of ids, %v", name, err)
		}
	}
}

// sameByWalks scores a model whose derivatives are too large in some rows, with two sizes of shards. The
// files have the same bytes, count the rows that have the values of walks, and warn that
// the efficiency error exceeds the value.
func sameByWalks(t *testing.T, export string, path func(string) string) {
	t.Helper()
	for _, name := range []string{"multilinear", "debiased"} {
		var files [2][]byte
		for i, shard := range []string{"1500", "70"} {
			out := path(name + shard + ".arrow")
			var report struct {
				Walked  int64  `json:"walked_rows"`
				Warning string `json:"warning"`
			}
			shaver(t, &report, "score", "--model", export, "--dataset", path("data"), "--estimator", name, "--baseline", "zero", "--rows-per-shard", shard, "--out", out)
			if report.Walked == 0 || !strings.Contains(report.Warning, "score with --estimator antithetic") {
				t.Errorf("%s: %+v", name, report)
			}
			facts := report
			shaver(t, &facts, "scores", "inspect", out)
			if facts != report {
				t.Errorf("%s: inspect has %+v, score %+v", name, facts, report)
			}
			var err error
			if files[i], err = os.ReadFile(out); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(files[0], files[1]) {
			t.Errorf("%s: the size of the shards changes the scores", name)
		}
	}
}
