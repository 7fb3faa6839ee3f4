package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shaver/bench/paired"
	"shaver/internal/click/checkpoint"
	"shaver/internal/data/dataset"
)

// use is what the fresh rows are used for: to choose what is dropped, to train, or both. The order is that of the path.
type use struct {
	name                  string
	before, choose, after bool // they train the whole model, are scored, and train what is kept
}

// uses has the reference of the tables of rankings first.
var uses = []use{
	{name: "choose", choose: true},
	{name: "are not used"},
	{name: "train, then the train rows choose", before: true},
	{name: "train, then choose", before: true, choose: true},
	{name: "train what the train rows chose", after: true},
	{name: "choose, then train", choose: true, after: true},
}

// measureUses measures the uses of the fresh rows with a model that shaver train trains, as the cells of a result.
func (t *tool) measureUses(s *set) *result {
	r := &result{Title: s.title, Real: true, Cells: map[string][][]paired.Cell{}}
	check(t.work.Measure(s.name+"-uses.json", r, func() error {
		for _, u := range uses {
			r.Cells[u.name] = make([][]paired.Cell, len(sparsities))
		}
		fresh := t.freshRows(s)
		for seed := 1; seed <= seeds; seed++ {
			for i, at := range sparsities {
				var reference *paired.Predicted
				for _, u := range uses {
					p := t.used(s, &u, fresh, seed, at)
					if reference == nil {
						reference = p
					}
					r.Cells[u.name][i] = append(r.Cells[u.name][i], p.Minus(reference))
				}
			}
		}
		return nil
	}))
	return r
}

// freshRows returns a dataset whose train rows are the fresh rows of that of s.
func (t *tool) freshRows(s *set) string {
	name, rows := filepath.Base(s.dataset)+"-fresh", s.dataset+"-flat-rows"
	in := func(split string) string { return filepath.Join(rows, split+".csv") }
	check(t.work.Make(name, "dataset", "import", "csv", "--raw", in("fresh"), "--val", in("val"), "--test", in("test"), "--vocabulary", s.dataset, "--out", t.work.Path(name)))
	return t.work.Path(name)
}

// used returns what the model of a seed predicts after a use at a sparsity. Training takes one epoch of the fresh rows, and keeps the
// model that it began with if its AUC on the val rows is higher.
func (t *tool) used(s *set, u *use, fresh string, seed int, at float64) *paired.Predicted {
	number, model, suffix := strconv.Itoa(seed), s.model(seed), ""
	once := []string{"--dataset", fresh, "--epochs", "1", "--learning-rate", "1e-3", "--seed", number}
	if u.before {
		suffix = "-trained"
		name := s.name + suffix + "-" + number + ".safetensors"
		check(t.work.Train(name, append([]string{"train", "--model", model}, once...)...))
		model = t.work.Path(name)
	}
	job, flags := "path", byPath
	if !u.choose {
		job, flags = "path-train", slices.Concat(byPath, trained)
	}
	from := t.score(s, model, strings.TrimPrefix(suffix+"-"+job, "-"), seed, flags)
	pruned := strings.TrimSuffix(filepath.Base(from), ".arrow") + "-" + strconv.FormatFloat(at, 'g', -1, 64) + ".safetensors"
	check(t.work.Make(pruned, "prune", "--model", model, "--scores", from, "--sparsity", strconv.FormatFloat(at, 'g', -1, 64), "--out", t.work.Path(pruned)))
	if u.after {
		tuned := "tuned-" + pruned
		check(t.work.Train(tuned, append([]string{"tune", "--model", t.work.Path(pruned)}, once...)...))
		pruned = tuned
	}
	return predict(must(must(checkpoint.Read(t.work.Path(pruned))).Model()), must(dataset.Open(s.dataset)))
}
