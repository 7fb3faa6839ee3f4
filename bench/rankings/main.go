// Command rankings measures how well each ranking prunes. For each model and seed it runs shaver
// score, cuts the table at several sparsities, and measures the pruned models on the test split. It
// prints tables in Markdown and draws a picture.
//
// With -real the models are trained on the logs in this folder, which have real users and items. With
// -flights and -hflights they are the checkpoints in these folders, and the model of shaver quickstart.
// The folder of -work has the program shaver. It keeps rows, datasets, models, scores and
// measurements, so that an interrupted run continues. To measure again, delete its .json files.
package main

import (
	"flag"
	"log"
	"os"
	"strconv"
	"strings"

	"shaver/bench/stage"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
	"shaver/internal/value/estimator"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("rankings: ")
	var t tool
	flag.StringVar((*string)(&t.work), "work", "", "folder with the program shaver, for everything that is made (required)")
	flag.StringVar(&t.real, "real", "", "folder of the logs with real users and items, and of clicks.py and din.py")
	flag.StringVar(&t.python, "python", "python3", "Python with torch, polars, scikit-learn and onnx, for -real")
	flag.StringVar(&t.flights, "flights", "", "folder of the New York flights and checkpoints")
	flag.StringVar(&t.hflights, "hflights", "", "folder of the Houston flights and checkpoints")
	flag.StringVar(&t.only, "only", "", "measure only models whose names begin like this, such as sports-din")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if t.work == "" || t.real == "" && (t.flights == "" || t.hflights == "") {
		log.Fatal("expected -work, and -real or both of -flights and -hflights")
	}
	var all []*result
	if t.real != "" {
		sets := t.realSets()
		all = append(all, t.measureAll(sets)...)
		t.reportUses(os.Stdout, sets)
	}
	if t.flights != "" {
		all = append(all, t.measureAll(t.flightSets())...)
	}
	report(os.Stdout, all)
	if *picture != "" {
		check(draw(all).Write(*picture))
	}
}

// check ends the program if there is an error.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// must returns v. It ends the program if there is an error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

type tool struct {
	work                                  stage.Folder
	real, python, flights, hflights, only string
}

// seeds is the number of trainings of a model, and of seeds of its jobs.
const seeds = 3

// set is a model with a dataset.
type set struct {
	name    string // begins the names of its files
	title   string
	model   func(seed int) string // file of the model that is trained with a seed, from 1
	dataset string
	real    bool   // real users and items
	kind    string // of the training, and its weight decay, if real is set
	decay   string
}

// ranking is a way to order entries.
type ranking struct {
	name      string
	job       string   // kind of job whose scores it needs, or "" for a ranking without scores
	flags     []string // of the job
	aggregate string
}

// reference is the default of shaver score, with which the others are compared.
const reference = "path"

// The rankings that are no job of shaver and no rival of its sweeps.
const (
	gated    = "ShuffleGate"
	nothing  = "nothing kept"
	unpruned = "unpruned" // the whole model, which has a row of the tables and is no ranking
)

var (
	trained     = []string{"--splits", "train"}
	byPath      = []string{"--estimator", estimator.Path}
	multilinear = []string{"--estimator", estimator.Multilinear}
)

// rankings are those of the tables. Without "train rows" a job scores the train and the fresh rows.
var rankings = []ranking{
	{reference, "path", byPath, scores.ByPath},
	{"path, train rows", "path-train", append(byPath, trained...), scores.ByPath},
	{"shapley-rms", "multilinear", multilinear, scores.RMS},
	{"shapley-rms, train rows", "multilinear-train", append(multilinear, trained...), scores.RMS},
	{"shapley", "multilinear", multilinear, scores.Sum},
	{"shapley, train rows", "multilinear-train", append(multilinear, trained...), scores.Sum},
	{"taylor-rms", "taylor", []string{"--estimator", estimator.Taylor}, scores.RMS},
	{gated, "", nil, ""},
	{"frequency", "", nil, ""},
	{"magnitude", "", nil, ""},
	{nothing, "", nil, ""},
}

// measureAll runs the jobs of the sets and measures their rankings.
func (t *tool) measureAll(all []set) (results []*result) {
	for i := range all {
		s := &all[i]
		if !strings.HasPrefix(s.name, t.only) {
			continue
		}
		log.Print(s.name)
		for _, r := range rankings {
			for seed := 1; seed <= seeds && r.job != ""; seed++ {
				t.score(s, s.model(seed), r.job, seed, r.flags)
			}
		}
		results = append(results, t.result(s))
	}
	return results
}

// score runs a job unless its scores exist, and returns their file.
func (t *tool) score(s *set, model, job string, seed int, flags []string) string {
	name := s.name + "-" + job + "-" + strconv.Itoa(seed) + ".arrow"
	out := t.work.Path(name)
	check(t.work.Make(name, append([]string{"score", "--model", model, "--dataset", s.dataset, "--baseline", baseline.Codebook, "--seed", strconv.Itoa(seed), "--out", out}, flags...)...))
	return out
}
