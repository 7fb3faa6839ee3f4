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
	"syscall"

	"shaver/bench/flights"
	"shaver/internal/click/model"
	"shaver/internal/click/planted"
	"shaver/internal/num/kernel"
	"shaver/internal/value/baseline"
	"shaver/internal/value/shapley"
)

func main() {
	folder := flag.String("flights", "", "folder of the flights data and checkpoints (required)")
	seconds := flag.Float64("seconds", 15, "approximate processor time of each reference, which determines the number of rows")
	biasRows := flag.Int("bias-rows", 50_000, "greatest number of rows of a set on which the bias is measured; 0 measures neither bias nor intervals")
	only := flag.String("only", "", "measure only this set, such as \"DeepFM, codebook\"")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if *folder == "" {
		fmt.Fprintln(os.Stderr, "estimators: expected -flights FOLDER, the folder of the flights data and checkpoints")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *folder, options{*seconds, *biasRows, *only, *picture})
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "estimators:", err)
		os.Exit(1)
	}
}

type options struct {
	seconds  float64
	biasRows int
	only     string
	picture  string
}

func run(ctx context.Context, folder string, o options) error {
	sets, err := flights.Read(ctx, folder)
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
			entries, _, err := baseline.Of(kind, &s.Model.Architecture, s.Model.Weights.Embedding, s.Counts)
			if err != nil {
				return err
			}
			name := s.Name + ", " + kind
			if o.only != "" && o.only != name {
				continue
			}
			fmt.Fprintln(os.Stderr, name)
			game := shapley.Game{Model: s.Model, Baseline: entries}
			if o.seconds > 0 {
				r, err := measure(ctx, name, game, s.Rows, o.seconds)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				results = append(results, r)
			}
			if o.biasRows > 0 && kind == baseline.Codebook {
				rows := s.Rows.Slice(0, min(o.biasRows, s.Rows.Len()))
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

func plantedSet() (flights.Set, error) {
	p, err := planted.New(planted.Default)
	if err != nil {
		return flights.Set{}, err
	}
	s := flights.Set{Name: "planted", Model: p.Model, Rows: &model.Rows{}, Counts: make([]int64, p.Model.Features())}
	p.Rows(s.Rows, 0, 20_000)
	for _, feature := range s.Rows.Features {
		s.Counts[feature]++
	}
	return s, nil
}
