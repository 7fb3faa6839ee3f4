// Command rankings measures how well each ranking prunes. For each model, baseline and seed it
// runs shaver score on the train split, cuts the table at several sparsities, and measures the
// pruned models on the test split. It prints tables in Markdown and draws a picture.
//
// The models are the checkpoints in the folders of -flights and -hflights, and the model of shaver
// quickstart. The folder of -work has the program shaver. It keeps datasets, scores and
// measurements, so that an interrupted run continues. To measure again, delete its .json files.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"shaver/bench/stage"
	"shaver/internal/jobs/scores"
	"shaver/internal/value/baseline"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("rankings: ")
	var t tool
	flag.StringVar((*string)(&t.work), "work", "", "folder with the program shaver, for datasets, scores and measurements (required)")
	flag.StringVar(&t.flights, "flights", "", "folder of the New York flights and checkpoints (required)")
	flag.StringVar(&t.hflights, "hflights", "", "folder of the Houston flights and checkpoints (required)")
	flag.StringVar(&t.only, "only", "", "measure only this model and baseline, such as hflights-deepfm-zero")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if t.work == "" || t.flights == "" || t.hflights == "" {
		log.Fatal("expected -work, -flights and -hflights")
	}
	all := t.run()
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
	work                    stage.Folder
	flights, hflights, only string
}

// set is a model with a dataset.
type set struct {
	name           string // begins the names of its files
	title          string
	model, dataset string
	real           bool // the rows are real data
}

// ranking is a way to order entries.
type ranking struct {
	name      string
	job       string   // kind of job whose scores it needs, or "" for a ranking without scores
	flags     []string // of the job
	aggregate string
	seeds     int // number of seeds of the job; 1 if it draws nothing at random
}

var rankings = []ranking{
	{"path", "path", []string{"--estimator", "path"}, scores.ByPath, 3},
	{"path, 16 parts", "path-16", []string{"--estimator", "path", "--parts", "16"}, scores.ByPath, 3},
	{reference, "multilinear", []string{"--estimator", "multilinear"}, scores.RMS, 3},
	{"shapley", "multilinear", []string{"--estimator", "multilinear"}, scores.Sum, 3},
	{"taylor-rms", "taylor", []string{"--estimator", "taylor"}, scores.RMS, 1},
	{"frequency", "", nil, "", 1},
	{"magnitude", "", nil, "", 1},
}

// reference is the ranking with which the others are compared.
const reference = "shapley-rms"

func (t *tool) run() (all []*result) {
	for _, s := range t.sets() {
		for _, base := range []string{baseline.Codebook, baseline.Zero} {
			if t.only != "" && t.only != s.name+"-"+base {
				continue
			}
			log.Print(s.name, "-", base)
			for _, r := range rankings {
				for seed := range r.seeds {
					if out := t.file(&s, base, &r, seed); r.job != "" {
						check(t.work.Make(filepath.Base(out), append([]string{"score", "--model", s.model, "--dataset", s.dataset, "--splits", "train", "--baseline", base, "--seed", strconv.Itoa(seed + 1), "--rows-per-shard", "16384", "--out", out}, r.flags...)...))
					}
				}
			}
			all = append(all, t.result(&s, base))
		}
	}
	return all
}

// sets imports the rows and makes the model of the quickstart, unless that is done.
func (t *tool) sets() (all []set) {
	for _, from := range []struct{ name, title, folder string }{{"flights", "New York", t.flights}, {"hflights", "Houston", t.hflights}} {
		data, in := t.work.Path(from.name), func(name string) string { return filepath.Join(from.folder, name) }
		check(t.work.Import(from.name, from.folder))
		all = append(all, set{from.name + "-deepfm", from.title + ", DeepFM", in("deepfm.pth"), data, true}, set{from.name + "-dcn-mix", from.title + ", DCN-Mix", in("dcn-mix.pth"), data, true})
	}
	planted := t.work.Path("planted")
	check(t.work.Make("planted", "quickstart", "--rows", "200000", "--out", planted))
	return append(all, set{"planted", "planted", filepath.Join(planted, "model.safetensors"), filepath.Join(planted, "dataset"), false})
}

// file returns the scores file of a job.
func (t *tool) file(s *set, base string, r *ranking, seed int) string {
	return t.work.Path(fmt.Sprintf("%s-%s-%s-%d.arrow", s.name, base, r.job, seed+1))
}
