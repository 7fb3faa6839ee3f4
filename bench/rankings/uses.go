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

// use is one way to use the fresh rows: to choose what is dropped, to train, or both. The order is that of the path.
type use struct {
	name                  string
	before, choose, after bool // they train the whole model with the train rows, are scored, and train what is kept
}

// uses has the reference of the tables of rankings first.
var uses = []use{
	{name: "choose", choose: true},
	{name: "are not used"},
	{name: "train, and the train rows choose", before: true},
	{name: "train, and choose", before: true, choose: true},
	{name: "train what the train rows chose", after: true},
	{name: "choose, then train", choose: true, after: true},
}

// retrained is the key of the unpruned models that the fresh rows have trained.
const retrained = "unpruned, trained with them"

// measureUses measures the uses of the fresh rows with a model that shaver train trains with a weight decay, as the cells of a result.
func (t *tool) measureUses(s *set) *result {
	r := &result{Title: s.title, Real: true, Cells: map[string][][]paired.Cell{}}
	check(t.work.Measure(s.name+"-uses.json", r, func() error {
		r.Cells[retrained] = make([][]paired.Cell, len(sparsities))
		for _, u := range uses {
			r.Cells[u.name] = make([][]paired.Cell, len(sparsities))
		}
		fresh, all := t.withTrain(s, "fresh"), t.withTrain(s, "train", "fresh")
		for seed := 1; seed <= seeds; seed++ {
			number := strconv.Itoa(seed)
			more := s.name + "-more-" + number + ".safetensors"
			check(t.work.Train(more, append(training(s.kind, s.decay), "--dataset", all, "--seed", number)...))
			whole := t.predicted(s, more)
			for i, at := range sparsities {
				var reference *paired.Predicted
				for _, u := range uses {
					p := t.used(s, &u, fresh, all, seed, at)
					if reference == nil {
						reference = p
					}
					r.Cells[u.name][i] = append(r.Cells[u.name][i], p.Minus(reference))
				}
				r.Cells[retrained][i] = append(r.Cells[retrained][i], whole.Minus(reference))
			}
		}
		return nil
	}))
	return r
}

// withTrain returns a dataset with the ids of that of s, whose train rows are those of the given splits.
func (t *tool) withTrain(s *set, splits ...string) string {
	name, rows := filepath.Base(s.dataset)+"-of-"+strings.Join(splits, "-"), s.dataset+"-flat-rows"
	in := func(split string) string { return filepath.Join(rows, split+".csv") }
	args := []string{"dataset", "import", "csv", "--val", in("val"), "--test", in("test"), "--vocabulary", s.dataset, "--out", t.work.Path(name)}
	for _, split := range splits {
		args = append(args, "--raw", in(split))
	}
	check(t.work.Make(name, args...))
	return t.work.Path(name)
}

// used returns what the model of a seed predicts after a use at a sparsity. Tuning takes one epoch of the fresh rows, and keeps the
// model that it began with if its AUC on the val rows is higher.
func (t *tool) used(s *set, u *use, fresh, all string, seed int, at float64) *paired.Predicted {
	number, model, of := strconv.Itoa(seed), s.model(seed), *s
	job, flags := "path", byPath
	if !u.choose {
		job, flags = "path-train", slices.Concat(byPath, trained)
	}
	if u.before {
		of.name += "-more"
		model = t.work.Path(of.name + "-" + number + ".safetensors")
		if !u.choose {
			of.dataset = all
		}
	}
	from := t.score(&of, model, job, seed, flags)
	sparsity := strconv.FormatFloat(at, 'g', -1, 64)
	pruned := strings.TrimSuffix(filepath.Base(from), ".arrow") + "-" + sparsity + ".safetensors"
	check(t.work.Make(pruned, "prune", "--model", model, "--scores", from, "--sparsity", sparsity, "--out", t.work.Path(pruned)))
	if u.after {
		tuned := "tuned-" + pruned
		check(t.work.Train(tuned, "tune", "--model", t.work.Path(pruned), "--dataset", fresh, "--epochs", "1", "--learning-rate", "1e-3", "--weight-decay", s.decay, "--seed", number))
		pruned = tuned
	}
	return t.predicted(s, pruned)
}

// predicted returns what a file of the folder predicts.
func (t *tool) predicted(s *set, file string) *paired.Predicted {
	m := must(must(checkpoint.Read(t.work.Path(file))).Model())
	return s.predictor(m, must(dataset.Open(s.dataset)))(m)
}
