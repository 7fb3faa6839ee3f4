//go:build unix

// Command estimators compares the estimators at equal error. For some rows of a model it
// first computes a nearly exact reference, the mean over very many walks. Then it runs
// each estimator with increasing effort, and records the error of its values and its
// processor time. From these it estimates the time in which each estimator is as accurate
// as one walk and as four walks per row. It prints tables in Markdown and draws a
// picture.
//
// The models are the flights checkpoints in the folder of -flights, and the model of
// shaver quickstart, each with both baselines.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"shaver/internal/click/checkpoint"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/data/dataset"
	"shaver/internal/data/ingest"
	"shaver/internal/num/kernel"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
)

func main() {
	flights := flag.String("flights", "", "folder of the flights data and checkpoints (required)")
	seconds := flag.Float64("seconds", 15, "approximate processor time of each reference, which determines the number of rows")
	biasRows := flag.Int("bias-rows", 50_000, "greatest number of rows of a set on which the bias is measured; 0 measures neither bias nor intervals")
	only := flag.String("only", "", "measure only this set, such as \"DeepFM, codebook\"")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if *flights == "" {
		fmt.Fprintln(os.Stderr, "estimators: expected -flights FOLDER, the folder of the flights data and checkpoints")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *flights, options{*seconds, *biasRows, *only, *picture})
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "estimators:", err)
		os.Exit(1)
	}
}

// set is a model with rows for it.
type set struct {
	name   string
	model  *model.Model
	rows   *model.Rows
	counts []int64 // counts of the features, for the codebook
}

type options struct {
	seconds  float64
	biasRows int
	only     string
	picture  string
}

func run(ctx context.Context, flights string, o options) error {
	sets, err := flightsSets(ctx, flights)
	if err != nil {
		return err
	}
	planted, err := plantedSet()
	if err != nil {
		return err
	}
	var results []*result
	var biases []*unbiased
	for _, s := range append(sets, planted) {
		for _, kind := range baseline.Names() {
			entries, _, err := baseline.Of(kind, &s.model.Architecture, s.model.Weights.Embedding, s.counts)
			if err != nil {
				return err
			}
			name := s.name + ", " + kind
			if o.only != "" && o.only != name {
				continue
			}
			fmt.Fprintln(os.Stderr, name)
			game := shapley.Game{Model: s.model, Baseline: entries}
			if o.seconds > 0 {
				r, err := measure(ctx, name, game, s.rows, o.seconds)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				results = append(results, r)
			}
			if o.biasRows > 0 && kind == baseline.Codebook {
				rows := s.rows.Slice(0, min(o.biasRows, s.rows.Len()))
				u, err := measureBias(ctx, name, game, &rows)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				biases = append(biases, u)
			}
		}
	}
	fmt.Printf("Kernel %s.\n", kernel.Name())
	if len(results) > 0 {
		report(results)
	}
	if len(biases) > 0 {
		reportBias(biases)
	}
	if o.picture != "" {
		return draw(results, o.picture)
	}
	return nil
}

// flightsSets returns the flights checkpoints with rows from train.
func flightsSets(ctx context.Context, dir string) ([]set, error) {
	temporary, err := os.MkdirTemp("", "shaver-estimators-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	file := func(name string) string { return filepath.Join(dir, name) }
	var sets []set
	for _, name := range []string{"deepfm", "dcn-mix"} {
		ck, err := checkpoint.Read(file(name + ".pth"))
		if err != nil {
			return nil, err
		}
		m, err := ck.Model()
		if err != nil {
			return nil, err
		}
		sets = append(sets, set{name: map[string]string{"deepfm": "DeepFM", "dcn-mix": "DCN-Mix"}[name], model: m})
	}
	config := ingest.EncodedConfig{Train: []string{file("train.csv.gz")}, Val: []string{file("val.csv.gz")}, Sizes: sets[0].model.FieldDims, Out: filepath.Join(temporary, "rows")}
	if _, err := ingest.ImportEncoded(ctx, config); err != nil {
		return nil, err
	}
	d, err := dataset.Open(config.Out)
	if err != nil {
		return nil, err
	}
	rows, err := every(ctx, d, 5)
	if err != nil {
		return nil, err
	}
	counts, err := d.Frequencies(dataset.Train, dataset.Val)
	for i := range sets {
		sets[i].rows, sets[i].counts = rows, counts
	}
	return sets, err
}

// every returns every n-th row of train.
func every(ctx context.Context, d *dataset.Dataset, n int64) (*model.Rows, error) {
	all := &model.Rows{Width: len(d.Fields())}
	err := d.Scan(ctx, []string{dataset.Train}, 4096, func(rows *model.Rows) error {
		for i := range rows.Len() {
			if rows.Number[i]%n == 0 {
				all.Number, all.Label, all.Features = append(all.Number, rows.Number[i]), append(all.Label, rows.Label[i]), append(all.Features, rows.Row(i)...)
			}
		}
		return nil
	})
	return all, err
}

func plantedSet() (set, error) {
	p, err := planted.New(planted.Default)
	if err != nil {
		return set{}, err
	}
	s := set{name: "planted", model: p.Model, rows: &model.Rows{}, counts: make([]int64, p.Model.Features())}
	p.Rows(s.rows, 0, 20_000)
	for _, feature := range s.rows.Features {
		s.counts[feature]++
	}
	return s, nil
}
