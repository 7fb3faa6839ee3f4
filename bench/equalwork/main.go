//go:build unix

// Command equalwork compares shaver's estimators with those of shapiq, captum and sage-importance
// at equal work: on the same rows, at equal numbers of evaluations and at equal processor time. It
// computes nearly exact values of some rows, lets each method play their games with increasing
// effort, and measures the errors. It prints tables in Markdown and draws a picture.
//
// The models are the flights checkpoints in the folder of -flights, and a small one of
// testdata/golden. The other packages run in the Python of -python, as a process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"shaver/internal/num/kernel"
)

// options are the flags.
type options struct {
	flights, golden string // folders
	work            string // folder of what the programs exchange
	python, script  string
	only            string
	all             bool
	rows, seeds     int
	truth           int // number of passes of debiased per row in the truth of a game that is too large for exact
}

func main() {
	var o options
	flag.StringVar(&o.flights, "flights", "", "folder of the flights data and checkpoints (required)")
	flag.StringVar(&o.golden, "golden", "testdata/golden", "folder of the golden checkpoints")
	flag.StringVar(&o.work, "work", "", "folder for what the programs exchange and for what was measured, which an interrupted run continues (required)")
	flag.StringVar(&o.python, "python", "python3", "Python with shapiq, xgboost, captum, torch and sage-importance")
	flag.StringVar(&o.script, "script", "bench/equalwork/peers.py", "path of the program of the other packages")
	flag.StringVar(&o.only, "only", "", "measure only this game, such as \"DeepFM, 11 fields\"")
	flag.BoolVar(&o.all, "all", false, "measure also DCN-Mix, which takes three times as long as DeepFM")
	flag.IntVar(&o.rows, "rows", 50, "number of rows of each game of entries")
	flag.IntVar(&o.seeds, "seeds", 5, "number of runs of each method")
	flag.IntVar(&o.truth, "truth", 1<<14, "number of passes of debiased in the values that errors refer to, where there are too many players for exact")
	picture := flag.String("picture", "", "SVG file to draw")
	flag.Parse()
	if o.flights == "" || o.work == "" {
		fmt.Fprintln(os.Stderr, "equalwork: expected -flights FOLDER, the folder of the flights data and checkpoints, and -work FOLDER")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, *picture)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "equalwork:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, picture string) error {
	games, err := newGames(ctx, &o)
	if err != nil {
		return err
	}
	var results []*result
	for _, g := range games {
		if o.only != "" && o.only != g.name {
			continue
		}
		fmt.Fprintln(os.Stderr, g.name)
		r, err := measure(ctx, g, &o)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		results = append(results, r)
	}
	fmt.Printf("Kernel %s.\n", kernel.Name())
	for _, r := range results {
		report(os.Stdout, r)
	}
	if picture != "" {
		return draw(results, picture)
	}
	return nil
}
