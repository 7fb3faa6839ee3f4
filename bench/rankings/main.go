// Command rankings measures how well each ranking prunes. For each model, baseline and seed it
// runs shaver score on the train split, cuts the table at several sparsities, and measures the
// pruned models on the test split. It prints tables in Markdown and draws a picture.
//
// The models are the checkpoints in the folders of -flights and -hflights, and the model of shaver
// quickstart. The folder of -work keeps datasets, scores and measurements, so that an interrupted
// run continues. To measure again, delete the .json files of the measurements in it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"shaver/internal/baseline"
	"shaver/internal/scores"
)

func main() {
	var t tool
	flag.StringVar(&t.shaver, "shaver", "", "the program shaver (required)")
	flag.StringVar(&t.work, "work", "", "folder for datasets, scores and measurements (required)")
	flag.StringVar(&t.flights, "flights", "", "folder of the New York flights and checkpoints (required)")
	flag.StringVar(&t.hflights, "hflights", "", "folder of the Houston flights and checkpoints (required)")
	flag.StringVar(&t.kernel, "kernel", "auto", "kernel of new jobs")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if t.shaver == "" || t.work == "" || t.flights == "" || t.hflights == "" {
		fmt.Fprintln(os.Stderr, "rankings: expected -shaver, -work, -flights and -hflights")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := t.run(ctx, *picture)
	stop()
	switch {
	case errors.Is(err, context.Canceled) || ctx.Err() != nil:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "rankings:", err)
		os.Exit(1)
	}
}

type tool struct{ shaver, work, flights, hflights, kernel string }

// set is a model with a dataset.
type set struct {
	name    string // begins the names of its files
	title   string
	model   string
	dataset string
	real    bool // the rows are real data
}

// seeds is the number of jobs with each estimator that draws at random.
const seeds = 3

// ranking is a way to order entries.
type ranking struct {
	name      string
	job       string   // kind of job whose scores it needs, or "" for a ranking without scores
	flags     []string // of the job
	aggregate string
	seeded    bool // the scores depend on the seed
}

var rankings = []ranking{
	{"path", "path", []string{"--estimator", "path"}, scores.ByPath, true},
	{"path, 16 parts", "path-16", []string{"--estimator", "path", "--parts", "16"}, scores.ByPath, true},
	{reference, "multilinear", []string{"--estimator", "multilinear"}, scores.RMS, true},
	{"shapley", "multilinear", []string{"--estimator", "multilinear"}, scores.Sum, true},
	{"taylor-rms", "taylor", []string{"--estimator", "taylor"}, scores.RMS, false},
	{"frequency", "", nil, "", false},
	{"magnitude", "", nil, "", false},
}

// reference is the ranking with which the others are compared.
const reference = "shapley-rms"

// repeats returns the number of seeds that give different orders.
func (r *ranking) repeats() int {
	if r.seeded {
		return seeds
	}
	return 1
}

func (t *tool) run(ctx context.Context, picture string) error {
	sets, err := t.sets(ctx)
	if err != nil {
		return err
	}
	var all []*result
	for _, s := range sets {
		for _, base := range []string{baseline.Codebook, baseline.Zero} {
			fmt.Fprintln(os.Stderr, s.name, base)
			for seed := range seeds {
				for i := range rankings {
					if r := &rankings[i]; r.job != "" && seed < r.repeats() {
						if err := t.score(ctx, &s, base, r, seed); err != nil {
							return err
						}
					}
				}
			}
			r, err := t.result(ctx, &s, base)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, base, err)
			}
			all = append(all, r)
		}
	}
	report(os.Stdout, all)
	if picture != "" {
		return draw(all).Write(picture)
	}
	return nil
}

// sets imports the rows and makes the model of the quickstart, unless that is done.
func (t *tool) sets(ctx context.Context) ([]set, error) {
	if err := os.MkdirAll(t.work, 0o755); err != nil {
		return nil, err
	}
	var all []set
	for _, from := range []struct{ name, title, folder string }{{"flights", "New York", t.flights}, {"hflights", "Houston", t.hflights}} {
		data, in := filepath.Join(t.work, from.name), func(name string) string { return filepath.Join(from.folder, name) }
		if err := t.unless(ctx, data, "dataset", "import", "csv", "--ids", "local", "--train", in("train.csv.gz"), "--val", in("val.csv.gz"), "--test", in("test.csv.gz"), "--model", in("deepfm.pth"), "--out", data); err != nil {
			return nil, err
		}
		for _, kind := range []struct{ file, title string }{{"deepfm", "DeepFM"}, {"dcn-mix", "DCN-Mix"}} {
			all = append(all, set{from.name + "-" + kind.file, from.title + ", " + kind.title, in(kind.file + ".pth"), data, true})
		}
	}
	planted := filepath.Join(t.work, "planted")
	if err := t.unless(ctx, planted, "quickstart", "--rows", "200000", "--out", planted); err != nil {
		return nil, err
	}
	return append(all, set{"planted", "planted", filepath.Join(planted, "model.safetensors"), filepath.Join(planted, "dataset"), false}), nil
}

// file returns the scores file of a job.
func (t *tool) file(s *set, base string, r *ranking, seed int) string {
	return filepath.Join(t.work, fmt.Sprintf("%s-%s-%s-%d.arrow", s.name, base, r.job, seed+1))
}

func (t *tool) score(ctx context.Context, s *set, base string, r *ranking, seed int) error {
	out := t.file(s, base, r, seed)
	return t.unless(ctx, out, append([]string{"score", "--model", s.model, "--dataset", s.dataset, "--splits", "train", "--baseline", base, "--seed", strconv.Itoa(seed + 1), "--kernel", t.kernel, "--out", out}, r.flags...)...)
}

// unless runs shaver, which makes the given file or folder as its last step, unless that exists.
func (t *tool) unless(ctx context.Context, made string, args ...string) error {
	if _, err := os.Stat(made); err == nil {
		return nil
	}
	command := exec.CommandContext(ctx, t.shaver, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) } // a job keeps its progress
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("shaver %s: %w\n%s", args[0], err, output)
	}
	return nil
}
