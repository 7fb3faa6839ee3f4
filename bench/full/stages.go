//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"shaver/internal/data/dataset"
)

// stage is a step of a run. Its programs run in the folder of the run.
type stage struct {
	name     string
	rows     func(dir string) (int64, error) // see record.Rows
	programs []program                       // one, or the coordinator and the workers of a job
	job      bool
	resumes  bool     // an interrupted try is continued; otherwise its outputs are removed
	outputs  []string // files and folders
	spent    []string // files of earlier stages that no later one reads
	plan     string   // file with the forecast of a job
}

// program is a process of a stage.
type program struct {
	name   string // a file in bin
	args   []string
	stdout string // file for its output; "" = the log of the stage
}

// stages returns the stages of a run, in order.
func stages(o options) []stage {
	shaver := func(args ...string) []program { return []program{{name: "shaver", args: args}} }
	count := func(n int64) func(string) (int64, error) {
		return func(string) (int64, error) { return n, nil }
	}
	splits := func(folder string, names ...string) func(string) (int64, error) {
		return func(dir string) (rows int64, err error) {
			d, err := dataset.Open(filepath.Join(dir, folder))
			if err != nil {
				return 0, err
			}
			for _, name := range names {
				rows += d.Rows(name)
			}
			return rows, nil
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	// The first rows of a log do not depend on how many follow.
	few := min(o.TrainRows, o.Rows)
	all := []stage{
		{name: "synth", rows: count(o.Rows), programs: shaver("dataset", "synth", "--force", "--shape", o.Shape, "--rows", number(o.Rows), "--out", "log.tsv"), outputs: []string{"log.tsv"}},
		{name: "import", rows: count(o.Rows), programs: shaver("dataset", "import", o.Shape, "log.tsv", "--out", "data"), outputs: []string{"data"}, spent: []string{"log.tsv"}},
		{name: "synth part", rows: count(few), programs: shaver("dataset", "synth", "--force", "--shape", o.Shape, "--rows", number(few), "--out", "part.tsv"), outputs: []string{"part.tsv"}},
		{name: "import part", rows: count(few), programs: shaver("dataset", "import", o.Shape, "part.tsv", "--vocabulary", "data", "--out", "part"), outputs: []string{"part"}, spent: []string{"part.tsv"}},
		{name: "train", rows: splits("part", dataset.Train), programs: shaver("train", "--dataset", "part", "--epochs", "1", "--optimizer", "sparse-adam", "--out", "model.safetensors"),
			outputs: []string{"model.safetensors"}, resumes: true},
	}
	for _, job := range []struct {
		name string
		args []string
	}{
		{"path", []string{"--estimator", "path", "--parts", "16", "--sparsity", fmt.Sprint(o.Sparsity)}},
		{"multilinear", []string{"--estimator", "multilinear"}},
	} {
		args := append([]string{"--model", "model.safetensors", "--dataset", "data", "--baseline", "codebook", "--splits", dataset.Train}, job.args...)
		if o.ScoreRows > 0 {
			args = append(args, "--max-rows", number(o.ScoreRows))
		}
		plan, scores, pruned := "plan-"+job.name+".json", job.name+".arrow", job.name+".safetensors"
		planned := shaver(append([]string{"plan", "--cores", "2", "--threads", "1", "-o", "json"}, args...)...)
		planned[0].stdout = plan
		programs := []program{{name: "coordinator", args: append(args, "--out", scores)}}
		for _, name := range []string{"worker-1", "worker-2"} {
			programs = append(programs, program{name: "worker", args: []string{"--threads", "1", "--name", name}})
		}
		all = append(all,
			stage{name: "plan " + job.name, rows: splits("data", dataset.Train), programs: planned, outputs: []string{plan}},
			stage{name: "score " + job.name, rows: count(0), programs: programs, job: true, resumes: true, outputs: []string{scores}, plan: plan},
			stage{name: "prune " + job.name, rows: count(0), programs: shaver("prune", "--model", "model.safetensors", "--scores", scores, "--sparsity", fmt.Sprint(o.Sparsity), "--out", pruned), outputs: []string{pruned}},
			stage{name: "evaluate " + job.name, rows: splits("data", dataset.Test), programs: shaver("evaluate", "--model", pruned, "--against", "model.safetensors", "--dataset", "data")},
		)
	}
	return all
}
