package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"shaver/internal/app/cli"
	"shaver/internal/base/atomicfile"
	"shaver/internal/click/checkpoint"
	"shaver/internal/click/planted"
	"shaver/internal/data/ingest"
	"shaver/internal/prune/nightly"
)

// The simulated nights.
const (
	nightsWindow   = 5    // number of days that are scored
	leastNightRows = 500  // rows of a day
	nightDrift     = .05  // portion by which what users click turns each day
	nightRate      = .5   // portion of the way to the truth that a training goes
	nightNoise     = .005 // noise of a training, relative to each parameter
)

// nightsConfig is the configuration of the simulated nights.
const nightsConfig = `# The configuration of the nights that "shaver quickstart --nights" simulated.
# "shaver nightly --config nightly.yaml" continues them.

model: model.safetensors
days: days
window: 5
out: nightly
keep: 7

score:
  estimator: permutation
  passes: 4
  baseline: codebook
  splits: [train]
  sample: 0.05
  full-every: 7
  seed: %d

prune:
  sparsity: 0.6
  hysteresis: 1

calibrate: true

check:
  max-auc-drop: 0.01
  max-logloss-rise: 0.01
`

// simulatedNights is what "quickstart --nights" prints.
type simulatedNights struct {
	Nights []nightly.Line `json:"nights"`
}

// simulate runs nights on a planted model that drifts. file returns the path of a file in
// the folder of the quickstart.
func (o *quickstartOptions) simulate(c *cobra.Command, file func(string) string) error {
	say := func(format string, args ...any) { fmt.Fprintf(c.ErrOrStderr(), format+"\n", args...) }
	start := time.Now()
	config := planted.Default
	config.Seed = o.seed
	truth, err := planted.New(config)
	if err != nil {
		return err
	}
	if err := os.Mkdir(file("days"), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Write(file("nightly.yaml"), func(w io.Writer) error { _, err := fmt.Fprintf(w, nightsConfig, o.seed); return err }); err != nil {
		return err
	}
	days := o.nights + nightsWindow - 1
	rows := o.rows / days
	say("%d nights, each on a window of %d days of %d rows", o.nights, nightsWindow, rows)
	trained := truth
	var all simulatedNights
	for day := 1; day <= days; day++ {
		if truth, err = truth.Drifted(nightDrift, uint64(day)); err != nil {
			return err
		}
		if err := o.day(c, truth, day, rows, file); err != nil {
			return err
		}
		if trained, err = trained.Retrained(truth, nightRate, nightNoise, uint64(day)); err != nil {
			return err
		}
		if day < nightsWindow {
			continue // the first night has a whole window
		}
		if _, err := checkpoint.WriteDense(file("model.safetensors"), trained.Checkpoint); err != nil {
			return err
		}
		result, err := runNight(c, file("nightly.yaml"), nightly.Options{}, "text", true)
		if err != nil {
			return err
		}
		l := result.Latest
		all.Nights = append(all.Nights, *l)
		say("night %d of %d: %s, %.0f%% of the evaluations of a full job", len(all.Nights), o.nights, l.Outcome, 100**portionOf(l.Evaluations, l.FullEvaluations))
	}
	if err := o.output.Print(c.OutOrStdout(), all, all.table); err != nil {
		return err
	}
	say("done in %.0f s\n", time.Since(start).Seconds())
	if o.out == "" {
		say("The files were temporary. With --out DIR they stay, with a page about the nights.")
		return nil
	}
	say("Look at the nights, or run one more, which has nothing to do:\n  %s\n  shaver nightly --config %s", file("nightly/history.html"), file("nightly.yaml"))
	return nil
}

// day imports a day of rows that the truth generates.
func (o *quickstartOptions) day(c *cobra.Command, truth *planted.Planted, day, rows int, file func(string) string) error {
	text := file(fmt.Sprintf(".day-%02d.csv", day))
	if err := atomicfile.Write(text, func(w io.Writer) error { return writeRows(w, truth, rows) }); err != nil {
		return err
	}
	defer os.Remove(text)
	_, err := ingest.ImportEncoded(c.Context(), ingest.EncodedConfig{
		Train: []string{text}, Split: "8:1:1", Seed: o.seed, Sizes: truth.FieldDims, Out: filepath.Join(file("days"), fmt.Sprintf("day-%02d", day)),
	})
	return err
}

// table lists what each night did and what it cost.
func (s *simulatedNights) table(w io.Writer) {
	percent := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f%%", 100**v)
	}
	fmt.Fprintf(w, "NIGHT\tOUTCOME\tGENERATION\tEVALUATIONS\tOF A FULL JOB\tCORE SECONDS\tERROR\tAUC\tPRUNED\tCHURN\tWITHOUT HYSTERESIS\n")
	var evaluations, full int64
	for _, l := range s.Nights {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\n", l.Night, l.Outcome, l.Generation, l.Evaluations, percent(portionOf(l.Evaluations, l.FullEvaluations)), l.ScoreCoreSeconds,
			percent(l.RelativeError), cli.Metric(l.AUC), cli.Metric(l.PrunedAUC), percent(l.Churn), percent(l.PlainChurn))
		evaluations += l.Evaluations
		full += l.FullEvaluations
	}
	fmt.Fprintf(w, "all\t\t\t%d\t%s\n", evaluations, percent(portionOf(evaluations, full)))
}
