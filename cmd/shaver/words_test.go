package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shaver/internal/base/long"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
	"shaver/internal/prune/cut"
	"shaver/internal/prune/sweep"
)

// clustered returns a planted model in whose tables the rows are near one of four.
func clustered(t *testing.T) *planted.Planted {
	t.Helper()
	p, err := planted.New(planted.Default)
	if err != nil {
		t.Fatal(err)
	}
	table, err := p.Checkpoint.Embedding()
	if err != nil {
		t.Fatal(err)
	}
	centres := slices.Clone(table[:4*p.Model.Dim])
	for i := range table {
		table[i] = centres[i%len(centres)] + table[i]/16
	}
	p.Checkpoint = p.Checkpoint.WithEmbedding(table)
	if p.Model, err = p.Checkpoint.Model(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Scores with several words lead to compact, dense and rounded files. All that store values exactly have the same metrics, which a
// sweep states too, with the size of the file. The commands and the page say how many words there are.
func TestWords(t *testing.T) {
	long.Test(t)
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	p := clustered(t)
	model, data, words := path("model.safetensors"), path("data"), path("words.arrow")
	_, err := checkpoint.WriteDense(model, p.Checkpoint)
	rows, errRows := os.Create(path("rows.csv"))
	if err := errors.Join(err, errRows); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.WriteCSV(rows, 4000), rows.Close()); err != nil {
		t.Fatal(err)
	}
	shaver(t, nil, "dataset", "import", "csv", "--train", path("rows.csv"), "--split", "8:1:1", "--model", model, "--out", data)
	shaver(t, nil, "score", "--model", model, "--dataset", data, "--splits", "train", "--estimator", "path", "--sparsity", "0.9", "--baseline", "words", "--out", words)
	var facts struct{ Words string }
	shaver(t, &facts, "scores", "inspect", words)
	if facts.Words == "" || !strings.Contains(string(command(t, "shaver", "scores", "inspect", words)), facts.Words) {
		t.Errorf("the scores have %q", facts.Words)
	}
	shaver(t, nil, "report", "--model", model, "--scores", words, "--out", path("page.html"))
	if page, err := os.ReadFile(path("page.html")); err != nil || !bytes.Contains(page, []byte("the value of a dropped entry, one of several: "+facts.Words)) {
		t.Errorf("the page does not say %q: %v", facts.Words, err)
	}
	var document sweep.Document
	shaver(t, &document, "sweep", "--model", model, "--scores", words, "--dataset", data, "--sparsities", "0.8", "--methods", "magnitude", "--values", "float32,auto")
	measured := map[string]float64{}
	for name, flags := range map[string][]string{
		"compact": nil, "dense": {"--dense"}, "auto": {"--values", "auto", "--dataset", data}, "bytes": {"--bytes", "64000"},
	} {
		out := path(name + ".safetensors")
		if name != "bytes" {
			flags = append(flags, "--sparsity", "0.8")
		}
		var c struct {
			cut.Choice
			cut.Sizes
		}
		shaver(t, &c, append([]string{"prune", "--model", model, "--scores", words, "--out", out}, flags...)...)
		info, err := os.Stat(out)
		if err != nil || name == "bytes" && info.Size() > 64000 || info.Size() != c.Bytes {
			t.Errorf("%s: a file of %d bytes, expected %d: %v", name, info.Size(), c.Bytes, err)
		}
		if shown := string(command(t, "shaver", "model", "inspect", out)); c.Words == "" || strings.Contains(shown, " words") != (name != "dense") {
			t.Errorf("%s: words %q, shown in %s", name, c.Words, shown)
		}
		var found struct {
			LogLoss float64 `json:"log_loss"`
		}
		shaver(t, &found, "evaluate", "--model", out, "--dataset", data)
		measured[name] = found.LogLoss
		for i := range document.Points {
			p := &document.Points[i]
			if p.Method != "path" || (p.Values == "mixed") != (name == "auto") || name == "bytes" {
				continue
			}
			if name == "compact" && (*p.Bytes != c.Bytes || p.LogLoss == nil || *p.LogLoss != found.LogLoss) || p.Parameters != c.Parameters && name != "auto" {
				t.Errorf("%s: a sweep has %+v, expected %d bytes and the LogLoss %v", name, p, c.Bytes, found.LogLoss)
			}
		}
	}
	if measured["compact"] != measured["dense"] || math.Abs(measured["auto"]-measured["dense"]) > .01 {
		t.Errorf("compact, auto and dense have the LogLoss %v, %v and %v", measured["compact"], measured["auto"], measured["dense"])
	}
}
