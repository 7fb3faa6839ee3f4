// Command claims repeats the research questions of the paper (RQ1 to RQ5) on data that anybody can
// have: synthetic logs of the shape of Criteo, Avazu and KDD Cup 2012, with a portion of their rows,
// and the flights from New York and Houston. It adds a path, fewer bits and fewer fields, and repeats
// the toy check. It prints tables in Markdown.
//
// Seed s makes the log, its split, the training and the jobs of repeat s. A checkpoint in the folders
// of -flights and -hflights has only its jobs repeated. The folder of -work has the program shaver.
// Each stage leaves its result there, so an interrupted run continues, and with -report the program
// only prints the tables of what is finished.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"shaver/bench/stage"
)

func main() {
	log.SetFlags(log.Ltime)
	log.SetPrefix("claims: ")
	var t tool
	var o options
	var kinds string
	flag.StringVar((*string)(&t.work), "work", "", "folder with the program shaver, for data, models, scores and measurements (required)")
	flag.StringVar(&t.flights, "flights", "", "folder of the New York flights and checkpoints (default none)")
	flag.StringVar(&t.hflights, "hflights", "", "folder of the Houston flights and checkpoints (default none)")
	flag.Float64Var(&t.settings.Portion, "portion", .01, "portion of the rows of the real logs that a synthetic log has")
	flag.StringVar(&t.settings.Training, "training", "--epochs 5 --patience 1", "flags of shaver train")
	flag.StringVar(&t.settings.Cross, "cross", "", "further flags of shaver train for a dcn-mix")
	flag.StringVar(&kinds, "kinds", "dcn-mix,deepfm", "kinds of models, separated by commas")
	flag.StringVar(&o.only, "only", "", "names of models to measure, such as kdd-dcn-mix, separated by commas (default all)")
	flag.StringVar(&o.phases, "phases", "pruned,stored,tuned", "what to measure, separated by commas: pruned models, those stored in fewer bits or with fewer fields, or tuned ones")
	flag.IntVar(&t.seeds, "seeds", 3, "number of seeds")
	flag.BoolVar(&o.report, "report", false, "run nothing, and print the tables of what is finished")
	flag.Parse()
	if t.work == "" {
		log.Fatal("expected -work")
	}
	o.kinds = strings.Split(kinds, ",")
	if err := t.run(os.Stdout, &o); err != nil {
		log.Fatal(err)
	}
}

// settings decide what the results in a folder are.
type settings struct {
	Portion         float64
	Training, Cross string
}

type tool struct {
	work              stage.Folder
	flights, hflights string
	settings          settings
	seeds             int
}

// subject is a model with its data. Its repeats differ in their seed.
type subject struct {
	name, title string
	kind        string
	shape       string // of the synthetic log, or ""
	rows        int64  // of the real log of that shape
	folder      string // of the real data, or ""
	checkpoint  string // model file, or "" for one that is trained here
}

// repeat is a subject with a seed.
type repeat struct {
	*subject
	seed           int
	name           string // begins the names of its results
	data           string // name of the dataset
	dataset, model string // paths
}

// options say what to measure in a run.
type options struct {
	kinds  []string // of models
	only   string   // names of models, or "" for all
	phases string
	report bool // run nothing
}

// has reports whether a list, separated by commas, has a name.
func has(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// run measures the models and prints the tables.
func (t *tool) run(w io.Writer, o *options) error {
	subjects := t.subjects(o.kinds)
	if o.only != "" {
		subjects = slices.DeleteFunc(subjects, func(s subject) bool { return !has(o.only, s.name) })
	}
	var kept settings
	if err := t.work.Measure("settings.json", &kept, func() error { kept = t.settings; return nil }); err != nil {
		return err
	}
	if kept != t.settings {
		return fmt.Errorf("%s has results with the settings %+v; expected another -work for %+v", t.work, kept, t.settings)
	}
	if !o.report || t.work.Has("toy.json") {
		checked, err := t.check()
		if err != nil {
			return err
		}
		checked.print(w)
	}
	outcomes := make([]outcome, len(subjects))
	for _, phase := range phases {
		for seed := 1; seed <= t.seeds; seed++ {
			for i := range subjects {
				r := t.repeat(&subjects[i], seed)
				outcomes[i].subject = &subjects[i]
				name := r.name + "-" + phase.name + ".json"
				if !t.work.Has(name) {
					if o.report || !has(o.phases, phase.name) {
						continue
					}
					log.Print(name)
				}
				if err := phase.add(&outcomes[i], t, r, name); err != nil {
					return err
				}
			}
		}
	}
	report(w, slices.DeleteFunc(outcomes, func(o outcome) bool { return len(o.pruned) == 0 }))
	return nil
}

// phases are what is measured of each repeat, in this order.
var phases = []struct {
	name string
	add  func(*outcome, *tool, *repeat, string) error
}{
	{"pruned", func(o *outcome, t *tool, r *repeat, name string) error {
		return measured(&o.pruned, t, name, r, t.prune)
	}},
	{"stored", func(o *outcome, t *tool, r *repeat, name string) error {
		return measured(&o.stored, t, name, r, t.store)
	}},
	{"tuned", func(o *outcome, t *tool, r *repeat, name string) error { return measured(&o.tuned, t, name, r, t.tune) }},
}

// measured appends the result of a phase, which it reads or measures.
func measured[T any](to *[]T, t *tool, name string, r *repeat, measure func(*repeat, *T) error) error {
	var v T
	err := t.work.Measure(name, &v, func() error {
		if err := t.prepare(r); err != nil {
			return err
		}
		return measure(r, &v)
	})
	*to = append(*to, v)
	return err
}

// subjects returns the models of the given kinds.
func (t *tool) subjects(kinds []string) (all []subject) {
	label := map[string]string{"dcn-mix": "DCN-Mix", "deepfm": "DeepFM"}
	real := []struct{ name, title, folder string }{{"flights", "New York", t.flights}, {"hflights", "Houston", t.hflights}}
	for _, kind := range kinds {
		title := label[kind]
		if title == "" {
			title = kind
		}
		for _, log := range []struct {
			shape, title string
			rows         int64
		}{{"criteo", "Criteo's shape", 45840617}, {"avazu", "Avazu's shape", 40428967}, {"kdd", "KDD's shape", 149639105}} {
			all = append(all, subject{name: log.shape + "-" + kind, title: log.title + ", " + title, kind: kind, shape: log.shape, rows: log.rows})
		}
		for _, from := range real {
			if from.folder == "" {
				continue
			}
			s := subject{name: from.name + "-" + kind, title: from.title + ", " + title, kind: kind, folder: from.folder, checkpoint: filepath.Join(from.folder, kind+".pth")}
			if label[kind] != "" {
				all = append(all, s)
			}
			s.name, s.title, s.checkpoint = s.name+"-trained", s.title+", trained here", ""
			all = append(all, s)
		}
	}
	return all
}

func (t *tool) repeat(s *subject, seed int) *repeat {
	r := &repeat{subject: s, seed: seed, name: fmt.Sprintf("%s-%d", s.name, seed), model: s.checkpoint}
	r.data = fmt.Sprintf("%s-%d", s.shape, seed)
	if s.shape == "" {
		r.data = strings.TrimSuffix(strings.TrimSuffix(s.name, "-trained"), "-"+s.kind)
	}
	r.dataset = t.work.Path(r.data)
	if r.model == "" {
		r.model = t.work.Path(r.name + ".safetensors")
	}
	return r
}

// prepare imports the rows and trains the model, unless that is done.
func (t *tool) prepare(r *repeat) error {
	if err := t.rows(r); err != nil || r.checkpoint != "" {
		return err
	}
	args := append([]string{"train", "--dataset", r.dataset, "--kind", r.kind, "--seed", strconv.Itoa(r.seed)}, strings.Fields(t.settings.Training)...)
	if r.kind == "dcn-mix" {
		args = append(args, strings.Fields(t.settings.Cross)...)
	}
	return t.work.Train(r.name+".safetensors", args...)
}

// rows imports the rows. It deletes a synthetic log after that.
func (t *tool) rows(r *repeat) error {
	if r.shape == "" {
		return t.work.Import(r.data, r.folder)
	}
	if t.work.Has(r.data) {
		return nil
	}
	name, seed := r.data+".log", strconv.Itoa(r.seed)
	rows := strconv.FormatInt(int64(float64(r.rows)*t.settings.Portion), 10)
	if err := t.work.Make(name, "dataset", "synth", "--shape", r.shape, "--rows", rows, "--seed", seed, "--out", t.work.Path(name)); err != nil {
		return err
	}
	if err := t.work.Make(r.data, "dataset", "import", r.shape, t.work.Path(name), "--seed", seed, "--out", r.dataset); err != nil {
		return err
	}
	return os.Remove(t.work.Path(name))
}
