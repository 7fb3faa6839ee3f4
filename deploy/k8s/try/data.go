//go:build linux

package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"shaver/deploy/internal/trial"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
)

// rows is the number of rows of the dataset.
const rows = 6000

// data are the files of the jobs and the results of a local run.
type data struct {
	dir    string
	digest map[string]string // SHA-256 of the scores of a local run, by the name of the run
}

func (d *data) file(name string) string { return filepath.Join(d.dir, name) }

// A reference is a job that also runs on this machine, in one process.
type reference struct {
	model, dataset string
	args           []string
}

var references = map[string]reference{
	"base":  {"model.safetensors", "dataset", []string{"--baseline=codebook"}},
	"long":  {"model.safetensors", "dataset", []string{"--baseline=codebook", "--passes=" + passes}},
	"large": {"large.safetensors", "large", []string{"--baseline=codebook"}},
	"path":  {"model.safetensors", "dataset", append([]string{"--baseline=codebook"}, rounds...)},
}

// rounds are the flags of a path of 21 rounds.
var rounds = []string{"--estimator=path", "--sparsity=0.99", "--parts=4"}

// passes makes a job of about 20 seconds on two cores of 2026, in which something can happen.
const passes = "480"

// prepare generates a model, rows and a dataset, and scores them on this machine.
func (s *suite) prepare(t *trial.Step) {
	s.data = &data{dir: filepath.Join(s.work, "data"), digest: map[string]string{}}
	t.Check(os.MkdirAll(s.data.dir, 0o755))
	truth, err := planted.New(planted.Default)
	t.Check(err)
	t.Check(writeRows(s.data.file("rows.csv"), truth, rows))
	_, err = checkpoint.WriteDense(s.data.file("model.safetensors"), truth.Checkpoint)
	t.Check(err)
	t.Check(overflowing(s.data.file("overflow.safetensors"), truth))
	t.Check(os.WriteFile(s.data.file("garbage.safetensors"), []byte("garbage"), 0o644))
	for day := 1; day <= 3; day++ { // the nights' days: what users click drifts, and the model follows
		drifted, err := truth.Drifted(0.1, uint64(day))
		t.Check(err)
		t.Check(writeRows(s.data.file(fmt.Sprintf("day-%d.csv", day)), drifted, rows/3))
		trained, err := truth.Retrained(drifted, 0.3, 0.01, uint64(day))
		t.Check(err)
		_, err = checkpoint.WriteDense(s.data.file(fmt.Sprintf("model-%d.safetensors", day)), trained.Checkpoint)
		t.Check(err)
	}
	t.Do(s.local("dataset", "import", "csv", "--train", "rows.csv", "--split", "8:1:1", "--model", "model.safetensors", "--out", "dataset"))
	large := planted.Default // a model of 19 MB
	large.FieldDims = append([]int{400_000, 200_000}, large.FieldDims[2:]...)
	truth, err = planted.New(large)
	t.Check(err)
	t.Check(writeRows(s.data.file("large.csv"), truth, 500))
	_, err = checkpoint.WriteDense(s.data.file("large.safetensors"), truth.Checkpoint)
	t.Check(err)
	t.Do(s.local("dataset", "import", "csv", "--train", "large.csv", "--split", "8:1:1", "--model", "large.safetensors", "--out", "large"))
	for name, r := range references {
		out := name + ".arrow"
		// The coordinator has these defaults.
		c := s.local(append([]string{"score", "--model", r.model, "--dataset", r.dataset, "--out", out, "--estimator=permutation", "--splits=train,val"}, r.args...)...)
		c.Lines, c.Limit = 3, 10*time.Minute // on a busy machine
		t.Do(c)
		text, err := os.ReadFile(s.data.file(out))
		t.Check(err)
		s.data.digest[name] = fmt.Sprintf("%x", sha256.Sum256(text))
		t.Say("The local run %s gives scores with sha256 `%s`.", name, s.data.digest[name])
	}
}

// local returns a command of shaver on this machine, in the folder of the data.
func (s *suite) local(args ...string) trial.Command {
	return trial.Command{Args: append([]string{"shaver"}, args...), Path: filepath.Join(s.bin, "shaver"), Dir: s.data.dir}
}

// writeRows writes n rows that the model generates, as CSV with local ids.
func writeRows(file string, p *planted.Planted, n int) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "label,%s\n", strings.Join(p.Fields, ","))
	offsets := model.Offsets(p.FieldDims)
	var rows model.Rows
	p.Rows(&rows, 0, n)
	for i := range rows.Len() {
		line := strconv.AppendUint(nil, uint64(rows.Label[i]), 10)
		for j, id := range rows.Row(i) {
			line = strconv.AppendInt(append(line, ','), int64(id-offsets[j]), 10)
		}
		w.Write(append(line, '\n')) // Flush returns its error
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// overflowing writes a copy of the model with one very large entry. The losses of the row
// that has this entry are not numbers, so its shard cannot be computed.
func overflowing(file string, p *planted.Planted) error {
	var rows model.Rows
	p.Rows(&rows, 0, 100)
	last := rows.Row(99)[0] // a user of a row, probably of this row only
	ck := *p.Checkpoint
	table, dim := ck.Tensors[ck.EmbeddingKey], ck.Architecture.Dim
	table.Data = slices.Clone(table.Data)
	for k := range dim {
		binary.LittleEndian.PutUint32(table.Data[4*(int(last)*dim+k):], math.Float32bits(3e38))
	}
	tensors := map[string]checkpoint.Tensor{}
	for key, tensor := range ck.Tensors {
		tensors[key] = tensor
	}
	tensors[ck.EmbeddingKey] = table
	ck.Tensors = tensors
	_, err := checkpoint.WriteDense(file, &ck)
	return err
}
